//! Each timeout, made short.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use warmpath_tests::{
    Client, Datapath, Framing, Gate, Router, RouterOptions, Upstream, for_each_datapath_at_once, wait_until,
};

use crate::requests::{CHUNKED, GET, POST, assert_own_error};

fn good() -> Upstream {
    Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
}

fn router(datapath: Datapath, upstreams: &[&Upstream], timeouts: &str) -> Router {
    RouterOptions::new(datapath, upstreams)
        .config(&format!("[timeouts]\n{timeouts}"))
        .arguments(&["--workers", "1"])
        .start()
}

/// An engine that reads a request, sends `first` and then nothing; counts the connections closed on it.
fn silent(first: &'static [u8], stopped: &Arc<AtomicUsize>) -> Upstream {
    let stopped = Arc::clone(stopped);
    Upstream::start(move |conn| {
        conn.expect_request()?;
        conn.send(first)?;
        conn.closed()?;
        stopped.fetch_add(1, Ordering::AcqRel);
        Ok(())
    })
}

#[test]
fn a_head_that_doesnt_end_is_a_408() {
    for_each_datapath_at_once(|datapath| {
        let upstream = good();
        let router = router(datapath, &[&upstream], "head = \"200ms\"");
        let mut client = Client::connect(router.address());
        // An earlier request doesn't change it.
        client.send(GET);
        assert_eq!(client.response("GET").body, b"good");
        client.send(b"GET /v1/models HTTP/1.1\r\nHost");
        let response = client.response("GET");
        assert_own_error(&response, 408, "timeouts.head");
        assert!(response.head.connection_has("close"));
        client.expect_close();
        router.assert_idle();
    });
}

#[test]
fn a_head_that_trickles_in_is_a_408_too() {
    for_each_datapath_at_once(|datapath| {
        let upstream = good();
        let router = router(datapath, &[&upstream], "head = \"200ms\"");
        let mut client = Client::connect(router.address());
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n");
        let trickling = Arc::new(AtomicUsize::new(0));
        let mut answer = None;
        wait_until("the head is given up", || {
            client.send_if_open(b"X-A: b\r\n");
            trickling.fetch_add(1, Ordering::Relaxed);
            if router.count("warmpath_own_errors_total", "request_timeout") > 0.0 {
                answer = Some(client.head().status());
            }
            answer.is_some()
        });
        assert_eq!(answer, Some(408));
        router.assert_idle();
    });
}

#[test]
fn a_body_that_stops_is_a_408_and_reaches_no_engine() {
    for_each_datapath_at_once(|datapath| {
        let upstream = good();
        let router = router(datapath, &[&upstream], "body_idle = \"200ms\"");
        let mut client = Client::connect(router.address());
        client.send(&POST[..POST.len() - 1]);
        let response = client.response("POST");
        assert_own_error(&response, 408, "timeouts.body_idle");
        client.expect_close();
        assert_eq!(upstream.connections(), 0);
        router.assert_idle();
    });
}

#[test]
fn a_body_that_stops_in_its_streamed_part_is_a_408_and_its_upstream_is_closed() {
    for_each_datapath_at_once(|datapath| {
        let upstream = Upstream::start(|conn| {
            let head = conn.head()?.expect("a request");
            let body = conn.body_as_far_as_it_comes(&head)?;
            assert!(body.cut.is_some(), "a whole body");
            Ok(())
        });
        let router = RouterOptions::new(datapath, &[&upstream])
            .config("[timeouts]\nbody_idle = \"300ms\"\n[limits]\nbody_buffer_bytes = 4096")
            .start();
        let mut client = Client::connect(router.address());
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
        client.send(&[b' '; 10_000]);
        assert_own_error(&client.response("POST"), 408, "timeouts.body_idle");
        wait_until("the upstream is closed", || upstream.running_scripts() == 0);
        assert_eq!(upstream.connections(), 1);
        router.assert_idle();
    });
}

#[test]
fn an_idle_client_connection_is_closed_without_a_word() {
    for_each_datapath_at_once(|datapath| {
        let upstream = good();
        let router = router(datapath, &[&upstream], "keep_alive = \"200ms\"");
        let mut fresh = Client::connect(router.address());
        let mut used = Client::connect(router.address());
        used.send(GET);
        assert_eq!(used.response("GET").body, b"good");
        fresh.expect_close();
        used.expect_close();
        wait_until("both seats are free", || {
            router.metric("warmpath_connections") == 0.0
        });
        assert_eq!(router.count("warmpath_own_errors_total", ""), 0.0);
    });
}

#[test]
fn an_engine_that_doesnt_begin_its_answer_is_a_504_and_is_closed() {
    for_each_datapath_at_once(|datapath| {
        let stopped = Arc::new(AtomicUsize::new(0));
        let upstream = silent(b"", &stopped);
        let router = router(datapath, &[&upstream], "first_byte = \"300ms\"");
        let mut client = Client::connect(router.address());
        client.send(POST);
        assert_own_error(&client.response("POST"), 504, "timeouts.first_byte");
        wait_until("the upstream is closed", || stopped.load(Ordering::Acquire) == 1);
        assert_eq!(upstream.connections(), 1, "a request was sent again");
        router.assert_idle();
    });
}

#[test]
fn a_stream_that_falls_silent_is_cut_and_never_ends_cleanly() {
    let endings: [(&[u8], Framing); 3] = [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            Framing::Chunked,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\nhello",
            Framing::Length(500_000),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
            Framing::Length(500),
        ),
    ];
    for_each_datapath_at_once(|datapath| {
        for (first, framing) in endings {
            let stopped = Arc::new(AtomicUsize::new(0));
            let upstream = silent(first, &stopped);
            let router = router(datapath, &[&upstream], "stream_idle = \"300ms\"");
            let mut client = Client::connect(router.address());
            client.send(POST);
            assert_eq!(client.head().response_framing("POST").unwrap(), framing);
            let body = client.rest_of_cut_body(framing);
            assert!(body.cut.is_some(), "a clean end: {body:?}");
            wait_until("the upstream is closed", || stopped.load(Ordering::Acquire) == 1);
            router.assert_idle();
            assert_eq!(router.metric("warmpath_responses_cut_total"), 1.0);
        }
    });
}

#[test]
fn a_silent_stream_that_ends_by_close_is_cut_by_a_reset() {
    for_each_datapath_at_once(|datapath| {
        let stopped = Arc::new(AtomicUsize::new(0));
        let upstream = silent(b"HTTP/1.1 200 OK\r\n\r\nhello", &stopped);
        let router = router(datapath, &[&upstream], "stream_idle = \"300ms\"");
        let mut client = Client::connect(router.address());
        client.send(POST);
        client.head();
        assert_eq!(client.exact(5), b"hello");
        assert_eq!(client.drain_to_close(), warmpath_tests::Closed::Reset);
        router.assert_idle();
    });
}

#[test]
fn a_stream_slower_than_no_timeout_isnt_cut() {
    for_each_datapath_at_once(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(CHUNKED)?;
            for _ in 0..5 {
                conn.send_chunk(b"x")?;
                // The engine's own pace, well below the timeout and longer than it in all.
                std::thread::sleep(Duration::from_millis(250));
            }
            conn.send(b"0\r\n\r\n")
        });
        let router = router(datapath, &[&upstream], "stream_idle = \"1s\"");
        let mut client = Client::connect(router.address());
        client.send(POST);
        assert_eq!(client.response("POST").body, b"xxxxx");
        router.assert_idle();
    });
}

#[test]
fn a_client_that_takes_nothing_is_dropped_and_its_upstream_closed() {
    for_each_datapath_at_once(|datapath| {
        for (chunked, gate) in [(true, Gate::new()), (false, Gate::new())] {
            let stopped = Arc::new(AtomicUsize::new(0));
            let upstream = Upstream::start({
                let (stopped, gate) = (Arc::clone(&stopped), gate.clone());
                move |conn| {
                    conn.expect_request()?;
                    let big = vec![b'x'; 1 << 20];
                    if chunked {
                        conn.send(CHUNKED)?;
                    } else {
                        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")?;
                    }
                    gate.open();
                    // More than all buffers hold, until it is refused.
                    while if chunked {
                        conn.send_chunk(&big).is_ok()
                    } else {
                        conn.send(&big).is_ok()
                    } {}
                    stopped.fetch_add(1, Ordering::AcqRel);
                    Ok(())
                }
            });
            let router = router(datapath, &[&upstream], "client_write = \"500ms\"");
            let client = Client::connect_with_receive_buffer(router.address(), 64 << 10);
            let mut client = client;
            client.send(POST);
            gate.pass().expect("the engine answers");
            wait_until("the upstream is closed", || stopped.load(Ordering::Acquire) == 1);
            router.assert_idle();
            let framing = client.head().response_framing("POST").unwrap();
            assert!(client.rest_of_cut_body(framing).cut.is_some(), "a clean end");
        }
    });
}

#[test]
fn a_client_that_reads_slowly_but_goes_on_reading_is_never_dropped() {
    /// More than the sockets hold: for most of the time the router has bytes that the client's doesn't take.
    const LENGTH: usize = 8 << 20;
    /// What the client reads at once.
    const BITE: usize = 64 << 10;
    for_each_datapath_at_once(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes())?;
            conn.send(&vec![b's'; LENGTH])
        });
        let router = router(datapath, &[&upstream], "client_write = \"1500ms\"");
        let mut client = Client::connect_with_receive_buffer(router.address(), 32 << 10);
        client.send(GET);
        client.head();
        for _ in 0..LENGTH / BITE {
            // The client's own pace: all of it takes several times client_write.
            std::thread::sleep(Duration::from_millis(40));
            assert!(client.exact(BITE).iter().all(|byte| *byte == b's'));
        }
        router.assert_idle();
        assert_eq!(router.metric("warmpath_clients_left_total"), 0.0);
    });
}

#[test]
fn an_engine_that_takes_nothing_of_a_request_is_a_502() {
    for_each_datapath_at_once(|datapath| {
        let gate = Gate::new();
        let upstream = Upstream::start({
            let gate = gate.clone();
            move |conn| {
                conn.head()?;
                gate.pass()
            }
        });
        let router = router(datapath, &[&upstream], "upstream_write = \"300ms\"");
        let mut client = Client::connect(router.address());
        let length = 60 << 20;
        client.send(
            format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
                .as_bytes(),
        );
        client.send_if_open(&vec![b' '; length]);
        assert_own_error(&client.response("POST"), 502, "upstream_write");
        gate.open();
        router.assert_idle();
    });
}

#[test]
fn an_idle_upstream_connection_is_closed_and_a_new_one_is_made() {
    for_each_datapath_at_once(|datapath| {
        let upstream = good();
        let router = router(datapath, &[&upstream], "upstream_idle = \"200ms\"");
        let mut client = Client::connect(router.address());
        for round in 1..=2 {
            client.send(GET);
            assert_eq!(client.response("GET").body, b"good");
            assert_eq!(upstream.connections(), round);
            wait_until("the upstream connection is closed", || {
                upstream.running_scripts() == 0
            });
        }
    });
}

#[test]
fn an_engine_that_takes_no_connection_is_a_502_that_names_the_timeout() {
    for_each_datapath_at_once(|datapath| {
        let full = FullBacklog::new();
        let router = RouterOptions::new(datapath, &[])
            .backend(full.address)
            .config("[timeouts]\nconnect = \"300ms\"\n[health]\nenabled = false")
            .start();
        let mut client = Client::connect(router.address());
        client.send(POST);
        assert_own_error(&client.response("POST"), 502, "timeouts.connect");
        router.assert_idle();
    });
}

/// A listener whose backlog is full: the kernel drops further connections' SYNs.
struct FullBacklog {
    address: std::net::SocketAddr,
    _listener: socket2::Socket,
    _waiting: Vec<socket2::Socket>,
}

impl FullBacklog {
    fn new() -> FullBacklog {
        let socket =
            || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        let listener = socket();
        let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
        listener.bind(&any.into()).expect("a port");
        listener.listen(0).expect("listens");
        let address = listener
            .local_addr()
            .expect("an address")
            .as_socket()
            .expect("IP");
        let mut waiting = Vec::new();
        loop {
            let client = socket();
            if client
                .connect_timeout(&address.into(), Duration::from_millis(200))
                .is_err()
            {
                break;
            }
            waiting.push(client);
            assert!(waiting.len() < 64, "a backlog without end");
        }
        FullBacklog {
            address,
            _listener: listener,
            _waiting: waiting,
        }
    }
}
