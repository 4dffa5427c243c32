//! Upgraded connections pass through; only those that the engine accepts.

use std::net::TcpStream;
use std::time::Duration;

use warmpath_tests::{
    Client, Closed, Gate, Random, Router, RouterOptions, Upstream, Wire, for_each_datapath,
};

const UPGRADE: &[u8] =
    b"GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[test]
fn a_websocket_passes_bytes_both_ways_until_either_end_closes() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            let request = conn.expect_request()?;
            assert!(request.head.connection_has("upgrade"));
            assert_eq!(request.head.one("upgrade"), Some("websocket"));
            assert_eq!(
                request.head.one("sec-websocket-key"),
                Some("dGhlIHNhbXBsZSBub25jZQ==")
            );
            // The first frame in the same segment as the head.
            conn.send(&[SWITCHING, b"first"].concat())?;
            let up = conn.exact(100_000)?;
            assert!(up == Random::new(1).bytes(100_000), "other bytes went up");
            conn.send(&Random::new(2).bytes(100_000))?;
            conn.closed()?;
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(UPGRADE);
        let head = client.head();
        assert_eq!(head.status(), 101);
        assert!(head.connection_has("upgrade"));
        assert_eq!(
            head.one("sec-websocket-accept"),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        assert_eq!(client.exact(5), b"first");
        client.send(&Random::new(1).bytes(100_000));
        assert!(
            client.exact(100_000) == Random::new(2).bytes(100_000),
            "other bytes came down"
        );
        drop(client);
        drop(upstream);
        router.assert_idle();
    });
}

#[test]
fn a_tunnel_that_the_engine_closes_is_closed_for_the_client() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(SWITCHING)?;
            conn.exact(3)?;
            conn.send(b"bye")
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(UPGRADE);
        assert_eq!(client.head().status(), 101);
        client.send(b"end");
        assert_eq!(client.exact(3), b"bye");
        client.expect_close();
        // A FIN alone may be half of a tunnel's end: the other half is the client's.
        drop(client);
        router.assert_idle();
    });
}

#[test]
fn bytes_sent_before_the_101_wait_for_it() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = Upstream::start({
            let gate = gate.clone();
            move |conn| {
                conn.expect_request()?;
                gate.pass()?;
                conn.send(SWITCHING)?;
                assert_eq!(conn.exact(5)?, b"early");
                conn.send(b"ok")?;
                conn.closed()?;
                Ok(())
            }
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(&[UPGRADE, b"early"].concat());
        gate.open();
        assert_eq!(client.head().status(), 101);
        assert_eq!(client.exact(2), b"ok");
    });
}

#[test]
fn a_refused_upgrade_is_an_ordinary_answer_on_a_kept_connection() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(UPGRADE);
        assert_eq!(client.response("GET").body, b"ok");
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response("GET").body, b"ok");
    });
}

#[test]
fn an_h2c_upgrade_is_never_offered_to_an_engine() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(
            b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
              HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        );
        assert_eq!(client.response("GET").body, b"ok");
        let head = &upstream.heads()[0];
        assert!(head.all("upgrade").is_empty() && head.all("http2-settings").is_empty());
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response("GET").body, b"ok");
    });
}

#[test]
fn a_101_that_nobody_asked_for_is_a_502() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(SWITCHING)?;
            conn.closed()?;
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.response("GET").status(), 502);
        router.assert_idle();
    });
}

#[test]
fn a_tunnel_that_the_engine_resets_is_reset_for_the_client_at_once() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(SWITCHING)?;
            conn.exact(3)?;
            conn.reset_at_end()
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(UPGRADE);
        assert_eq!(client.head().status(), 101);
        client.send(b"bye");
        assert_eq!(client.drain_to_close(), Closed::Reset);
        router.assert_idle();
    });
}

#[test]
fn a_tunnel_loses_nothing_that_was_sent_after_the_engine_had_ended_its_side() {
    const UP: usize = 16 << 20;
    for_each_datapath(|datapath| {
        let full = Gate::new();
        let upstream = Upstream::start({
            let full = full.clone();
            move |conn| {
                conn.expect_request()?;
                conn.send(SWITCHING)?;
                conn.finish_sending()?;
                full.pass()?;
                assert!(conn.exact(UP)? == Random::new(3).bytes(UP), "other bytes went up");
                conn.closed()?;
                Ok(())
            }
        });
        let router = Router::start(datapath, &[&upstream]);
        let stream = TcpStream::connect(router.address()).expect("connects");
        let mut client = Wire::new(stream).expect("takes its options");
        client.send(UPGRADE).expect("takes a request");
        let head = client.head().expect("answers").expect("a head");
        assert_eq!(head.status(), 101);
        // All buffers are full, so that the router holds a part when the client ends its side.
        let up = Random::new(3).bytes(UP);
        let sent = client.send_until_blocked(&up, Duration::from_millis(300));
        full.open();
        let rest = &up[sent.expect("takes a part")..];
        client.send(rest).expect("takes the rest");
        client.finish_sending().expect("still connected");
        assert_eq!(client.closed().expect("closes"), Closed::Fin);
        router.assert_idle();
    });
}

#[test]
fn tunnels_wait_for_a_place_in_a_full_relay_queue() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            conn.expect_request()?;
            conn.send(SWITCHING)?;
            let bytes = conn.exact(3)?;
            conn.send(&bytes)?;
            conn.closed()?;
            Ok(())
        });
        let router = RouterOptions::new(datapath, &[&upstream])
            .arguments(&["--workers", "1"])
            .config("[limits]\nrelay_queue_max = 1\n")
            .start();
        let mut clients: Vec<Client> = (0..64).map(|_| Client::connect(router.address())).collect();
        for client in &mut clients {
            client.send(UPGRADE);
        }
        for client in &mut clients {
            assert_eq!(client.head().status(), 101);
            client.send(b"abc");
            assert_eq!(client.exact(3), b"abc");
        }
        drop(clients);
        router.assert_idle();
    });
}
