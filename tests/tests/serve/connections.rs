//! Kept connections, their end, and pipelining.

use warmpath_tests::{Client, Framing, Gate, Router, RouterOptions, Upstream, for_each_datapath, wait_until};

const GET: &[u8] = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";

/// Answers with its target, so that an answer shows whose it is.
fn reflecting() -> Upstream {
    Upstream::start(|conn| {
        while let Some(request) = conn.request()? {
            conn.answer("200 OK", "", request.head.target().as_bytes())?;
        }
        Ok(())
    })
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

/// A connection rests for a moment before it is lent again, so that a client which is faster meets a few of them.
const KEPT_MAX: usize = 10;

#[test]
fn one_client_connection_serves_many_requests_over_one_upstream_connection() {
    for_each_datapath(|datapath| {
        let upstream = reflecting();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for i in 0..20 {
            let target = format!("/v1/{i}");
            client.send(&get(&target));
            assert_eq!(client.response("GET").body, target.as_bytes());
        }
        assert!(
            upstream.connections() <= KEPT_MAX,
            "{} connections",
            upstream.connections()
        );
        router.assert_idle();
    });
}

#[test]
fn a_client_that_asks_for_close_gets_its_answer_and_a_close_and_the_upstream_connection_stays() {
    for_each_datapath(|datapath| {
        let upstream = reflecting();
        let router = RouterOptions::new(datapath, &[&upstream])
            .arguments(&["--workers", "1"])
            .start();
        for _ in 0..2 {
            let mut client = Client::connect(router.address());
            client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let response = client.response("GET");
            assert_eq!(response.body, b"/v1/models");
            assert!(response.head.connection_has("close"));
            client.expect_close();
        }
        assert!(
            upstream.connections() <= KEPT_MAX,
            "{} connections",
            upstream.connections()
        );
        assert!(upstream.heads().iter().all(|head| !head.connection_has("close")));
        router.assert_idle();
    });
}

#[test]
fn an_upstream_that_says_close_isnt_used_again_and_the_client_connection_stays() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.answer("200 OK", "Connection: close\r\n", b"bye")
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for _ in 0..3 {
            client.send(GET);
            let response = client.response("GET");
            assert_eq!(response.body, b"bye");
            assert!(!response.head.connection_has("close"));
        }
        assert_eq!(upstream.connections(), 3);
        router.assert_idle();
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    for_each_datapath(|datapath| {
        let upstream = reflecting();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        let targets: Vec<String> = (0..8).map(|i| format!("/v1/{i}")).collect();
        let burst: Vec<u8> = targets.iter().flat_map(|target| get(target)).collect();
        client.send(&burst);
        for target in &targets {
            assert_eq!(client.response("GET").body, target.as_bytes());
        }
        router.assert_idle();
    });
}

#[test]
fn a_request_pipelined_behind_a_stream_waits_for_its_end() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = Upstream::start({
            let gate = gate.clone();
            move |conn| {
                while let Some(request) = conn.request()? {
                    if request.head.target() != "/v1/stream" {
                        conn.answer("200 OK", "", b"after")?;
                        continue;
                    }
                    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                    for part in [b"one", b"two"] {
                        conn.send_chunk(part)?;
                        gate.pass()?;
                    }
                    conn.send(b"0\r\n\r\n")?;
                }
                Ok(())
            }
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        let mut burst = get("/v1/stream");
        burst.extend_from_slice(&get("/v1/after"));
        client.send(&burst);
        assert_eq!(client.head().response_framing("GET").unwrap(), Framing::Chunked);
        assert_eq!(client.chunks(3), b"one");
        gate.open();
        assert_eq!(client.chunks(3), b"two");
        gate.open();
        assert_eq!(client.body(Framing::Chunked), b"");
        assert_eq!(client.response("GET").body, b"after");
        router.assert_idle();
    });
}

#[test]
fn an_empty_line_before_a_request_is_passed_over() {
    for_each_datapath(|datapath| {
        let upstream = reflecting();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for _ in 0..2 {
            client.send(b"\r\n");
            client.send(GET);
            assert_eq!(client.response("GET").body, b"/v1/models");
        }
    });
}

#[test]
fn a_request_split_at_every_byte_is_the_same_request() {
    for_each_datapath(|datapath| {
        let upstream = reflecting();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for at in 1..GET.len() {
            client.send(&GET[..at]);
            client.send(&GET[at..]);
            assert_eq!(client.response("GET").body, b"/v1/models", "split at {at}");
        }
    });
}

#[test]
fn an_http_1_0_client_gets_no_chunks_and_a_close() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
        );
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(b"GET /v1/models HTTP/1.0\r\nHost: x\r\n\r\n");
        let response = client.response("GET");
        assert_ne!(response.framing, Framing::Chunked);
        assert_eq!(response.body, b"onetwo");
        client.expect_close();
        router.assert_idle();
    });
}

#[test]
fn an_http_1_0_client_without_host_is_served() {
    for_each_datapath(|datapath| {
        let upstream = reflecting();
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(b"GET /v1/models HTTP/1.0\r\n\r\n");
        assert_eq!(client.response("GET").body, b"/v1/models");
        client.expect_close();
        assert_eq!(upstream.heads()[0].all("host").len(), 1);
    });
}

#[test]
fn an_answer_that_is_cut_takes_none_of_the_whole_one_before_it_along() {
    const WHOLE: usize = 100_000;
    for_each_datapath(|datapath| {
        for cut in [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"[..],
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        ] {
            let upstream = Upstream::start(move |conn| {
                while let Some(request) = conn.request()? {
                    if request.head.target() == "/v1/whole" {
                        conn.answer("200 OK", "", &[b'w'; WHOLE])?;
                    } else {
                        conn.send(cut)?;
                        return conn.reset_at_end();
                    }
                }
                Ok(())
            });
            let router = Router::start(datapath, &[&upstream]);
            let mut client = Client::connect_with_receive_buffer(router.address(), 4 << 10);
            let last = [
                &b"POST /v1/unread HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n"[..],
                &[b'u'; 20_000],
            ];
            client.send(
                &[
                    &b"GET /v1/whole HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/cut HTTP/1.1\r\nHost: x\r\n\r\n"[..],
                    &last.concat(),
                ]
                .concat(),
            );
            wait_until("the second answer is cut", || {
                router.metric("warmpath_responses_cut_total") == 1.0
            });
            assert!(client.response("GET").body == [b'w'; WHOLE], "another body");
            assert!(
                client.response_or_cut("GET").cut.is_some(),
                "the cut answer looks whole"
            );
        }
    });
}
