//! Bodies of responses, downwards.

use std::sync::atomic::{AtomicU64, Ordering};

use warmpath_tests::{
    Client, Closed, Framing, Gate, Random, Router, RouterOptions, Upstream, chunked, for_each_datapath,
};

const GET: &[u8] = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn random_bodies_of_every_framing_arrive_byte_for_byte() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(request) = conn.request()? {
                let seed: u64 = request.head.target().trim_start_matches("/v1/").parse()?;
                let mut random = Random::new(seed);
                let body = body_of(&mut random);
                let raw = match seed % 3 {
                    0 => [
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(),
                        &body,
                    ]
                    .concat(),
                    1 => {
                        let part_max = 1 + random.up_to(40_000);
                        let parts = random.split(&body, part_max);
                        [
                            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(),
                            &chunked(&parts),
                        ]
                        .concat()
                    }
                    _ => [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &body].concat(),
                };
                for part in random.split(&raw, 50_000) {
                    conn.send(part)?;
                }
                if seed % 3 == 2 {
                    return Ok(());
                }
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for seed in 0..60 {
            client.send(format!("GET /v1/{seed} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            let response = client.response("GET");
            assert!(
                response.body == body_of(&mut Random::new(seed)),
                "seed {seed}: another body"
            );
            // A close-delimited body may end the client's connection with it.
            if response.framing == Framing::Close || response.head.connection_has("close") {
                client = Client::connect(router.address());
            }
        }
        router.assert_idle();
    });
}

fn body_of(random: &mut Random) -> Vec<u8> {
    let max = [0, 1, 100, 5_000, 200_000, 2_000_000][random.up_to(5)];
    let len = random.up_to(max);
    random.bytes(len)
}

#[test]
fn chunk_extensions_and_trailers_of_a_response_are_valid_and_the_trailers_arrive() {
    for_each_datapath(|datapath| {
        const RAW: &[u8] = b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
            6;a=1;b=\"x;y\"\r\nhello \r\n00005\r\nworld\r\n000;last\r\nX-Sum: 1\r\nX-B: 2\r\n\r\n";
        let upstream = Upstream::start(|conn| {
            // Split at another byte each time.
            let at = AtomicU64::new(1);
            while conn.request()?.is_some() {
                let at = at.fetch_add(1, Ordering::Relaxed) as usize % RAW.len();
                conn.send(&RAW[..at])?;
                conn.send(&RAW[at..])?;
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for at in 1..RAW.len() {
            client.send(GET);
            let response = client.response("GET");
            assert_eq!(response.body, b"hello world", "split at {at}");
            let trailer = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            assert_eq!(
                response.trailers,
                [trailer("X-Sum", "1"), trailer("X-B", "2")],
                "split at {at}"
            );
        }
        router.assert_idle();
    });
}

#[test]
fn head_204_and_304_have_no_body_and_keep_the_connection() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(request) = conn.request()? {
                match (request.head.method(), request.head.target()) {
                    ("HEAD", "/v1/length") => {
                        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")?;
                    }
                    ("HEAD", _) => conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?,
                    (_, "/v1/204") => conn.send(b"HTTP/1.1 204 No Content\r\n\r\n")?,
                    (_, "/v1/304") => {
                        conn.send(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nETag: \"e\"\r\n\r\n")?;
                    }
                    _ => conn.answer("200 OK", "", b"whole")?,
                }
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for (method, target, status) in [
            ("HEAD", "/v1/length", 200),
            ("HEAD", "/v1/chunked", 200),
            ("GET", "/v1/204", 204),
            ("GET", "/v1/304", 304),
            ("POST", "/v1/204", 204),
        ] {
            client.send(
                format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").as_bytes(),
            );
            let response = client.response(method);
            assert_eq!(response.status(), status, "{method} {target}");
            if target == "/v1/length" {
                assert_eq!(response.head.one("content-length"), Some("5000"));
            }
            client.send(GET);
            assert_eq!(client.response("GET").body, b"whole", "after {method} {target}");
        }
        router.assert_idle();
    });
}

#[test]
fn interim_responses_come_before_the_final_one() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n\
              HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        );
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for _ in 0..3 {
            client.send(GET);
            let response = client.response("GET");
            assert_eq!(
                (response.status(), response.body.as_slice()),
                (200, b"ok".as_slice())
            );
            assert!(response.interim.iter().all(|head| head.status() == 103));
        }
        router.assert_idle();
    });
}

#[test]
fn an_http_1_0_client_gets_no_interim_response() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        );
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(b"GET /v1/models HTTP/1.0\r\n\r\n");
        let response = client.response("GET");
        assert!(response.interim.is_empty());
        assert_eq!(response.body, b"ok");
    });
}

#[test]
fn a_close_delimited_body_is_whole_and_its_end_is_certain() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(b"HTTP/1.1 200 OK\r\n\r\n")?;
            conn.send(&[b'x'; 100_000])
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(GET);
        let response = client.response("GET");
        assert_eq!(response.body.len(), 100_000);
        if response.framing == Framing::Close {
            client.expect_close();
        }
        router.assert_idle();
    });
}

#[test]
fn an_http_1_0_upstream_is_understood() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold")
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for _ in 0..2 {
            client.send(GET);
            let response = client.response("GET");
            assert_eq!(response.body, b"old");
            assert!(response.head.start.starts_with("HTTP/1.1 "));
        }
        assert_eq!(upstream.connections(), 2);
    });
}

#[test]
fn a_response_head_split_at_every_byte_is_the_same_head() {
    for_each_datapath(|datapath| {
        const RAW: &[u8] = b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nok";
        let upstream = Upstream::start(|conn| {
            let mut at = 0;
            while conn.request()?.is_some() {
                at = at % (RAW.len() - 1) + 1;
                conn.send(&RAW[..at])?;
                conn.send(&RAW[at..])?;
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for at in 1..RAW.len() {
            client.send(GET);
            let response = client.response("GET");
            assert_eq!(response.head.one("x-a"), Some("b"), "split at {at}");
            assert_eq!(response.body, b"ok", "split at {at}");
        }
    });
}

#[test]
fn a_body_ended_by_the_close_is_reset_for_a_client_that_took_nothing_for_too_long() {
    const BODY: usize = 64 << 20;
    for_each_datapath(|datapath| {
        // Carried by the relay, and by the worker where the request isn't read to its end.
        for request in [
            &b"GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
        ] {
            let refused = Gate::new();
            let upstream = Upstream::start({
                let refused = refused.clone();
                move |conn| {
                    conn.head()?;
                    conn.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
                    conn.send_if_open(&vec![b'x'; BODY]);
                    refused.open();
                    Ok(())
                }
            });
            let router = RouterOptions::new(datapath, &[&upstream])
                .config("[limits]\nbody_buffer_bytes = \"4KiB\"\n[timeouts]\nclient_write = \"500ms\"\n")
                .start();
            let mut client = Client::connect_with_receive_buffer(router.address(), 64 << 10);
            client.send(request);
            client.send(&[b'u'; 10_000][..if request.starts_with(b"POST") { 10_000 } else { 0 }]);
            refused.pass().expect("the engine is stopped");
            assert_eq!(client.drain_to_close(), Closed::Reset);
            router.assert_idle();
        }
    });
}
