//! Bodies of requests, upwards.

use warmpath_tests::{
    Client, Framing, Gate, Random, Router, Upstream, chunked, for_each_datapath, wait_until,
};

/// Answers with the request's body.
fn echoing() -> Upstream {
    Upstream::start(|conn| {
        while let Some(request) = conn.request()? {
            conn.answer("200 OK", "", &request.body)?;
        }
        Ok(())
    })
}

fn post(fields: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("POST /v1/echo HTTP/1.1\r\nHost: x\r\n{fields}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn random_bodies_of_both_framings_arrive_byte_for_byte() {
    for_each_datapath(|datapath| {
        let upstream = echoing();
        let router = Router::start(datapath, &[&upstream]);
        for seed in 0..30 {
            let mut random = Random::new(seed);
            let len = random.up_to(if seed % 5 == 0 { 3 << 20 } else { 20_000 });
            let body = random.bytes(len);
            let raw = if seed % 2 == 0 {
                post(&format!("Content-Length: {len}\r\n"), &body)
            } else {
                let part_max = 1 + random.up_to(70_000);
                let parts = random.split(&body, part_max);
                post("Transfer-Encoding: chunked\r\n", &chunked(&parts))
            };
            let mut client = Client::connect(router.address());
            for part in random.split(&raw, 100_000) {
                client.send(part);
            }
            assert!(
                client.response("POST").body == body,
                "seed {seed}: another body came back"
            );
        }
        router.assert_idle();
    });
}

#[test]
fn chunk_extensions_and_trailers_of_a_request_are_valid_and_the_trailers_arrive() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(request) = conn.request()? {
                assert_eq!(request.body, b"hello world");
                assert_eq!(request.framing, Framing::Chunked);
                assert_eq!(request.trailers, [("X-Sum".to_owned(), "1".to_owned())]);
                conn.answer("200 OK", "", b"ok")?;
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        let raw = post(
            "Transfer-Encoding: chunked\r\n",
            b"6;a=1;b=\"x;y\"\r\nhello \r\n00005\r\nworld\r\n0;last\r\nX-Sum: 1\r\n\r\n",
        );
        for at in 1..raw.len() {
            client.send(&raw[..at]);
            client.send(&raw[at..]);
            assert_eq!(client.response("POST").body, b"ok", "split at {at}");
        }
    });
}

#[test]
fn a_client_that_expects_100_gets_exactly_one() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(head) = conn.head()? {
                // An engine that sends its own 100 too.
                if head.one("expect").is_some() {
                    conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                }
                assert_eq!(conn.exact(5)?, b"hello");
                conn.answer("200 OK", "", b"ok")?;
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for _ in 0..2 {
            client.send(&post("Content-Length: 5\r\nExpect: 100-continue\r\n", b""));
            assert_eq!(client.head().status(), 100);
            client.send(b"hello");
            let response = client.response("POST");
            assert_eq!(response.body, b"ok");
            assert!(response.interim.is_empty(), "a second interim answer");
        }
        router.assert_idle();
    });
}

#[test]
fn a_body_that_follows_at_once_needs_no_100() {
    for_each_datapath(|datapath| {
        let upstream = echoing();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(&post("Content-Length: 5\r\nExpect: 100-continue\r\n", b"hello"));
        let response = client.response("POST");
        assert_eq!(response.body, b"hello");
        assert!(response.interim.len() <= 1);
    });
}

#[test]
fn the_body_of_a_get_isnt_the_next_request() {
    for_each_datapath(|datapath| {
        let upstream = echoing();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(b"GET /v1/a HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nGET /smug H");
        client.send(b"GET /v1/b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response("GET").body, b"GET /smug H");
        assert_eq!(client.response("GET").body, b"");
        assert_eq!(upstream.targets(), ["/v1/a", "/v1/b"]);
    });
}

#[test]
fn a_body_longer_than_what_is_held_streams_up_while_the_client_still_sends() {
    const HELD_AND_BUFFERED: usize = 24 << 20;
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = Upstream::start({
            let gate = gate.clone();
            move |conn| {
                while let Some(head) = conn.head()? {
                    conn.exact(1)?;
                    gate.open();
                    let framing_len: usize = head.one("content-length").unwrap_or("0").parse()?;
                    conn.exact(framing_len - 1)?;
                    conn.answer("200 OK", "", b"ok")?;
                }
                Ok(())
            }
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(&post(
            &format!("Content-Length: {}\r\n", HELD_AND_BUFFERED + 1),
            b"",
        ));
        client.send(&vec![b'x'; HELD_AND_BUFFERED]);
        gate.pass().expect("the engine sees the body before its end");
        client.send(b"x");
        assert_eq!(client.response("POST").body, b"ok");
        router.assert_idle();
    });
}

#[test]
fn an_answer_before_the_end_of_the_upload_reaches_the_client() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.head()?;
            conn.answer("413 Content Too Large", "Connection: close\r\n", b"too large")?;
            // Reads on, as RFC 9112 9.6 asks of a server that closes early.
            conn.closed()?;
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(&post("Content-Length: 8000000\r\n", b""));
        client.send_if_open(&vec![b'x'; 2 << 20]);
        let response = client.response("POST");
        assert_eq!(
            (response.status(), response.body.as_slice()),
            (413, b"too large".as_slice())
        );
        drop(client);
        router.assert_idle();
    });
}

#[test]
fn a_body_over_the_limit_is_a_413_and_a_close() {
    for_each_datapath(|datapath| {
        let upstream = echoing();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(&post("Content-Length: 67108865\r\n", b"x"));
        assert_eq!(client.response("POST").status(), 413);
        client.drain_to_close();
        assert!(upstream.heads().is_empty(), "it was forwarded");
        router.assert_idle();
    });
}

#[test]
fn a_client_that_leaves_inside_its_body_leaves_no_request_behind() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(head) = conn.head()? {
                let body = conn.body_as_far_as_it_comes(&head)?;
                assert!(body.cut.is_some(), "a cut request looks complete");
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        for framing in ["Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"] {
            let mut client = Client::connect(router.address());
            client.send(&post(framing, b"5\r\nhello\r\n"));
            drop(client);
        }
        wait_until("both clients are gone", || {
            router.metric("warmpath_connections") == 0.0
        });
        router.assert_idle();
    });
}
