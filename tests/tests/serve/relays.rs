//! Relays: what they may take of their cores, and what the pages say of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use warmpath_tests::{Client, Router, RouterOptions, Upstream, for_each_datapath, wait_until};

const STREAM: &[u8] = b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n";
const SHORT: &[u8] = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
/// Streams as fast as they go: more than there are relays on a small host.
const STREAMS: usize = 4;
/// Requests that must get their answers meanwhile.
const REQUESTS: usize = 20;

/// An engine whose stream never pauses, and which answers other requests at once.
fn engine() -> Upstream {
    Upstream::start(|conn| {
        while let Some(request) = conn.request()? {
            if request.head.target() != "/v1/stream" {
                conn.answer("200 OK", "", b"ok")?;
                continue;
            }
            conn.send(CHUNKED)?;
            let chunks = format!("c8\r\n{}\r\n", "t".repeat(200)).repeat(256);
            // Until the client has left, which breaks the connection.
            while conn.send(chunks.as_bytes()).is_ok() {}
            return Ok(());
        }
        Ok(())
    })
}

#[test]
fn streams_at_full_speed_leave_room_for_accepts_requests_and_the_health_page() {
    for_each_datapath(|datapath| {
        let upstream = engine();
        let router = Router::start(datapath, &[&upstream]);
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..STREAMS)
            .map(|_| {
                let (stop, address) = (Arc::clone(&stop), router.address());
                thread::spawn(move || {
                    let mut client = Client::connect(address);
                    client.send(STREAM);
                    client.head();
                    while !stop.load(Ordering::Relaxed) {
                        client.chunk();
                    }
                })
            })
            .collect();
        wait_until("the streams run", || {
            // Not there before the first one.
            router.metrics().sum("warmpath_flows", "").unwrap_or(0.0) >= STREAMS as f64
        });
        for _ in 0..REQUESTS {
            let mut client = Client::connect(router.address());
            client.send(SHORT);
            assert_eq!(client.response("GET").body, b"ok");
            assert_eq!(router.admin_get("/healthz").trim(), "ok");
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("the stream never broke");
        }
        router.assert_idle();
    });
}

#[test]
fn the_metrics_say_how_every_relay_is_scheduled() {
    for_each_datapath(|datapath| {
        let upstream = engine();
        let router = RouterOptions::new(datapath, &[&upstream])
            .arguments(&["--workers", "2"])
            .start();
        assert_eq!(router.metric("warmpath_relay_scheduling"), 2.0);
        assert!(router.log().contains("relays run "));
    });
}
