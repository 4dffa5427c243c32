//! When a request is sent again, and when never.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use warmpath_tests::{Client, RouterOptions, Upstream, for_each_datapath, wait_until};

const GET: &[u8] = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
const POST: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";

/// An address on which nobody listens.
fn nobody() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

/// Reads a whole request with this method and closes without an answer; answers all others.
fn swallowing(method: &'static str) -> Upstream {
    Upstream::start(move |conn| {
        while let Some(request) = conn.request()? {
            if request.head.method() == method {
                return Ok(());
            }
            conn.answer("200 OK", "", b"ok")?;
        }
        Ok(())
    })
}

fn good() -> Upstream {
    Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
}

#[test]
fn a_refused_connection_is_tried_elsewhere_whatever_the_method() {
    for_each_datapath(|datapath| {
        let upstream = good();
        let router = RouterOptions::new(datapath, &[])
            .backend(nobody())
            .backend(upstream.address())
            .start();
        let mut client = Client::connect(router.address());
        for request in [GET, POST, GET, POST] {
            client.send(request);
            assert_eq!(client.response("POST").body, b"good");
        }
        router.assert_idle();
    });
}

#[test]
fn no_backend_that_can_be_reached_is_an_error_in_the_shape_of_the_api() {
    for_each_datapath(|datapath| {
        let router = RouterOptions::new(datapath, &[]).backend(nobody()).start();
        let mut client = Client::connect(router.address());
        client.send(POST);
        let response = client.response("POST");
        assert!(matches!(response.status(), 502 | 503), "{}", response.status());
        let error: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
        assert!(error["error"]["message"].is_string(), "{error}");
        assert_eq!(response.head.one("content-type"), Some("application/json"));
        router.assert_idle();
    });
}

#[test]
fn a_post_that_an_engine_read_is_never_sent_again() {
    for_each_datapath(|datapath| {
        for kept in [false, true] {
            let (first, second) = (swallowing("POST"), swallowing("POST"));
            let router = RouterOptions::new(datapath, &[&first, &second])
                .arguments(&["--workers", "1", "--policy", "round_robin"])
                .start();
            let mut client = Client::connect(router.address());
            let asked = |what: &str| {
                let heads = [first.heads(), second.heads()].concat();
                heads.iter().filter(|head| head.method() == what).count()
            };
            if kept {
                wait_until("a kept connection is lent", || {
                    for _ in 0..2 {
                        client.send(GET);
                        assert_eq!(client.response("GET").body, b"ok");
                    }
                    router.metric("warmpath_upstreams_reused_total") >= 2.0
                });
            }
            client.send(POST);
            assert_eq!(client.response("POST").status(), 502);
            assert_eq!(asked("POST"), 1, "kept: {kept}");
            router.assert_idle();
        }
    });
}

#[test]
fn a_get_that_an_engine_dropped_is_sent_to_another() {
    for_each_datapath(|datapath| {
        let (bad, upstream) = (swallowing("GET"), good());
        let router = RouterOptions::new(datapath, &[&bad, &upstream])
            .arguments(&["--policy", "round_robin"])
            .start();
        let mut client = Client::connect(router.address());
        for _ in 0..2 {
            client.send(GET);
            assert_eq!(client.response("GET").body, b"good");
        }
        assert!(bad.connections() >= 1, "the bad engine was never asked");
        assert!(router.metric("warmpath_retries_total") >= 1.0);
        router.assert_idle();
    });
}

#[test]
fn a_kept_connection_that_the_engine_closed_costs_no_request() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            // Promises to stay and leaves after one answer.
            conn.expect_request()?;
            conn.answer("200 OK", "", b"once")
        });
        let router = RouterOptions::new(datapath, &[&upstream])
            .arguments(&["--workers", "1"])
            .start();
        let mut client = Client::connect(router.address());
        for round in 0..20 {
            client.send(POST);
            let response = client.response("POST");
            assert_eq!(
                (response.status(), response.body.as_slice()),
                (200, b"once".as_slice())
            );
            assert_eq!(upstream.connections(), round + 1);
            // Without the race between the close and the next request, which no proxy can win always.
            wait_until("the engine has closed", || upstream.running_scripts() == 0);
        }
        router.assert_idle();
    });
}
