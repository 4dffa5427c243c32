//! Clients that leave: their upstream is closed, so that the engine stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use warmpath_tests::{Client, Datapath, Framing, Gate, Router, Upstream, for_each_datapath, wait_until};

const POST: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Close,
    Reset,
    /// A FIN after the request counts as leaving by default.
    HalfClose,
}

/// Runs a test with every way to leave over both datapaths.
fn for_each_leave(test: impl Fn(Datapath, Leave)) {
    for_each_datapath(|datapath| {
        for leave in [Leave::Close, Leave::Reset, Leave::HalfClose] {
            println!("leave: {leave:?}");
            test(datapath, leave);
        }
    });
}

/// Leaves; a client that only half-closed is given back, since it would still read.
fn leave(mut client: Client, how: Leave) -> Option<Client> {
    match how {
        Leave::Close => None,
        Leave::Reset => {
            client.reset();
            None
        }
        Leave::HalfClose => {
            client.finish_sending();
            Some(client)
        }
    }
}

/// An engine that counts the connections closed on it while it generates.
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
fn a_client_that_leaves_before_the_first_byte_closes_its_upstream() {
    for_each_leave(|datapath, how| {
        let (asked, stopped) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let upstream = generating(b"", &asked, &stopped);
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(POST);
        asked.pass().expect("the engine is asked");
        let _still_reading = leave(client, how);
        wait_until("the upstream is closed", || stopped.load(Ordering::Acquire) == 1);
        router.assert_idle();
        assert_eq!(router.metric("warmpath_clients_left_total"), 1.0);
        assert_eq!(upstream.connections(), 1, "the request was sent again");
    });
}

#[test]
fn a_client_that_leaves_in_mid_stream_closes_its_upstream() {
    for_each_leave(|datapath, how| {
        let (asked, stopped) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let upstream = generating(first, &asked, &stopped);
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(POST);
        client.head();
        assert_eq!(client.chunks(5), b"hello");
        let _still_reading = leave(client, how);
        wait_until("the upstream is closed", || stopped.load(Ordering::Acquire) == 1);
        router.assert_idle();
    });
}

#[test]
fn a_client_that_leaves_a_busy_stream_closes_its_upstream() {
    for_each_leave(|datapath, how| {
        let stopped = Arc::new(AtomicUsize::new(0));
        let upstream = Upstream::start({
            let stopped = Arc::clone(&stopped);
            move |conn| {
                conn.expect_request()?;
                conn.send(CHUNKED)?;
                // Sends until it is refused, as an engine that generates without end.
                while conn.send_chunk(&[b't'; 200]).is_ok() {
                    std::thread::yield_now();
                }
                stopped.fetch_add(1, Ordering::AcqRel);
                Ok(())
            }
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(POST);
        client.head();
        client.chunks(20_000);
        let mut still_reading = leave(client, how);
        if let Some(client) = &mut still_reading {
            client.drain_to_close();
        }
        wait_until("the upstream is closed", || stopped.load(Ordering::Acquire) == 1);
        router.assert_idle();
    });
}

#[test]
fn a_client_that_leaves_with_a_pipelined_request_waiting_closes_its_upstream() {
    for_each_datapath(|datapath| {
        let (asked, stopped) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let upstream = generating(b"", &asked, &stopped);
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(&[POST, POST].concat());
        asked.pass().expect("the engine is asked");
        drop(client);
        wait_until("the upstream is closed", || stopped.load(Ordering::Acquire) == 1);
        router.assert_idle();
        assert_eq!(
            upstream.connections(),
            1,
            "the second request was sent for a client that left"
        );
    });
}

#[test]
fn an_upstream_cut_in_mid_stream_is_no_clean_end_for_the_client() {
    for_each_datapath(|datapath| {
        for reset in [false, true] {
            let received = Gate::new();
            let upstream = Upstream::start({
                let received = received.clone();
                move |conn| {
                    conn.expect_request()?;
                    conn.send(CHUNKED)?;
                    conn.send_chunk(b"hello")?;
                    received.pass()?;
                    if reset {
                        conn.reset_at_end()?;
                    }
                    Ok(())
                }
            });
            let router = Router::start(datapath, &[&upstream]);
            let mut client = Client::connect(router.address());
            client.send(POST);
            client.head();
            assert_eq!(client.chunks(5), b"hello");
            received.open();
            client.expect_close();
            router.assert_idle();
            assert_eq!(
                upstream.connections(),
                1,
                "a request was repeated after its first response byte"
            );
        }
    });
}

#[test]
fn an_upstream_cut_inside_a_body_with_a_length_is_no_clean_end_for_the_client() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(POST);
        let response = client.response_or_cut("POST");
        assert!(
            response.status() == 502 || response.cut.is_some(),
            "a short body looks whole"
        );
        if response.status() == 200 {
            assert_eq!(response.framing, Framing::Length(100));
        }
        router.assert_idle();
    });
}
