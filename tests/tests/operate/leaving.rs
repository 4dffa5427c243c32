//! Clients that leave in the middle of other things than a stream, and clients that only finish sending.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use warmpath_tests::{
    Client, Framing, Gate, Router, RouterOptions, Upstream, for_each_datapath_at_once, wait_within,
};

use crate::requests::{CHUNKED, POST, unused_address};

/// Generous, since machines are noisy: a router that only notices by a timeout takes longer.
const PROMPTLY: Duration = Duration::from_secs(2);

/// An engine that reads a request, sends `first`, and counts the connections that are closed on it.
fn generating(first: &'static [u8], asked: &Gate, stopped: &Arc<AtomicUsize>) -> Upstream {
    let (asked, stopped) = (asked.clone(), Arc::clone(stopped));
    Upstream::start(move |conn| {
        conn.expect_request()?;
        conn.send(first)?;
        asked.open();
        conn.closed()?;
        stopped.fetch_add(1, Ordering::AcqRel);
        Ok(())
    })
}

#[test]
fn a_client_that_leaves_stops_its_engine_promptly_wherever_the_call_stands() {
    let stands: [(&str, &[u8]); 5] = [
        ("before the first byte", b""),
        ("inside the head", b"HTTP/1.1 200 OK\r\nContent-"),
        (
            "inside a stream",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ),
        (
            "inside a short answer",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
        ),
        (
            "inside a long answer",
            b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\nhello",
        ),
    ];
    for_each_datapath_at_once(|datapath| {
        for (stand, first) in stands {
            let (asked, stopped) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
            let upstream = generating(first, &asked, &stopped);
            let router = Router::start(datapath, &[&upstream]);
            let mut client = Client::connect(router.address());
            client.send(POST);
            asked.pass().expect("the engine is asked");
            if first.ends_with(b"hello\r\n") || first.ends_with(b"hello") {
                client.head();
            }
            drop(client);
            wait_within(PROMPTLY, stand, || stopped.load(Ordering::Acquire) == 1);
            wait_within(PROMPTLY, "nothing is in flight", || {
                router.metric("warmpath_backend_in_flight") == 0.0
            });
            assert_eq!(router.metric("warmpath_clients_left_total"), 1.0, "{stand}");
            router.assert_idle();
        }
    });
}

#[test]
fn a_client_that_leaves_in_its_body_stops_the_engine_that_has_its_beginning() {
    for_each_datapath_at_once(|datapath| {
        let cut = Arc::new(AtomicUsize::new(0));
        let begun = Gate::new();
        let upstream = Upstream::start({
            let (cut, begun) = (Arc::clone(&cut), begun.clone());
            move |conn| {
                let head = conn.head()?.expect("a request");
                begun.open();
                assert!(conn.body_as_far_as_it_comes(&head)?.cut.is_some(), "a whole body");
                cut.fetch_add(1, Ordering::AcqRel);
                Ok(())
            }
        });
        let router = RouterOptions::new(datapath, &[&upstream])
            .config("[limits]\nbody_buffer_bytes = 4096")
            .start();
        let mut client = Client::connect(router.address());
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
        client.send(&[b' '; 10_000]);
        begun.pass().expect("the engine is asked");
        drop(client);
        wait_within(PROMPTLY, "the engine's request is cut", || {
            cut.load(Ordering::Acquire) == 1
        });
        router.assert_idle();
        assert_eq!(router.metric("warmpath_clients_left_total"), 1.0);
    });
}

#[test]
fn a_client_that_leaves_while_its_body_is_held_asks_no_engine() {
    for_each_datapath_at_once(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(&POST[..POST.len() - 1]);
        wait_within(PROMPTLY, "the body is held", || {
            router.metric("warmpath_body_buffer_bytes") > 0.0
        });
        drop(client);
        router.assert_idle();
        wait_within(PROMPTLY, "the departure is counted", || {
            router.metric("warmpath_clients_left_total") == 1.0
        });
        assert_eq!(upstream.connections(), 0);
    });
}

#[test]
fn by_half_close_serve_a_client_that_finished_sending_gets_its_answer() {
    for_each_datapath_at_once(|datapath| {
        let sent = Gate::new();
        let upstream = Upstream::start({
            let sent = sent.clone();
            move |conn| {
                while let Some(request) = conn.request()? {
                    sent.pass()?;
                    if request.head.target() == "/v1/stream" {
                        conn.send(CHUNKED)?;
                        conn.send_chunk(b"one")?;
                        sent.pass()?;
                        conn.send_chunk(b"two")?;
                        conn.send(b"0\r\n\r\n")?;
                    } else {
                        conn.answer("200 OK", "", b"whole")?;
                    }
                }
                Ok(())
            }
        });
        let router = RouterOptions::new(datapath, &[&upstream])
            .config("half_close = \"serve\"")
            .start();
        let mut client = Client::connect(router.address());
        client.send(POST);
        client.finish_sending();
        sent.open();
        assert_eq!(client.response("POST").body, b"whole");
        client.expect_close();
        let mut client = Client::connect(router.address());
        client.send(b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n");
        client.finish_sending();
        sent.open();
        assert_eq!(client.head().response_framing("GET").unwrap(), Framing::Chunked);
        assert_eq!(client.chunks(3), b"one");
        sent.open();
        assert_eq!(client.body(Framing::Chunked), b"two");
        client.expect_close();
        router.assert_idle();
        assert_eq!(router.metric("warmpath_clients_left_total"), 0.0);
    });
}

#[test]
fn by_half_close_serve_a_request_is_tried_again_for_a_client_that_finished_sending() {
    for_each_datapath_at_once(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
        let router = RouterOptions::new(datapath, &[])
            .backend(unused_address())
            .backend(upstream.address())
            .config("half_close = \"serve\"\n[health]\nenabled = false")
            .arguments(&["--policy", "round_robin", "--workers", "1"])
            .start();
        for _ in 0..4 {
            let mut client = Client::connect(router.address());
            client.send(POST);
            client.finish_sending();
            assert_eq!(client.response("POST").body, b"good");
            client.expect_close();
        }
        assert!(router.metric("warmpath_retries_total") >= 2.0);
        router.assert_idle();
    });
}
