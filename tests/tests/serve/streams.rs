//! Streams: flushed chunk by chunk, held back by a slow reader, carried by the kernel where asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use warmpath_tests::{Client, Framing, Gate, Random, Router, RouterOptions, Upstream, for_each_datapath};

const GET: &[u8] = b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n";
const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Streams `count` chunks, each only when the client has the one before.
fn gated(count: usize, gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |conn| {
        while conn.request()?.is_some() {
            conn.send(CHUNKED)?;
            for i in 0..count {
                conn.send_chunk(event(i).as_bytes())?;
                gate.pass()?;
            }
            conn.send(b"0\r\n\r\n")?;
        }
        Ok(())
    })
}

fn event(i: usize) -> String {
    format!("data: {{\"token\":{i},\"text\":\"{}\"}}\n\n", "é".repeat(i % 7))
}

/// A connection rests for a moment before it is lent again, so that a client which is faster meets a few of them.
const KEPT_MAX: usize = 10;

#[test]
fn each_chunk_reaches_the_client_before_the_next_one_is_made() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = gated(50, &gate);
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for _ in 0..2 {
            client.send(GET);
            assert_eq!(client.head().response_framing("GET").unwrap(), Framing::Chunked);
            for i in 0..50 {
                let event = event(i);
                assert_eq!(client.chunks(event.len()), event.as_bytes());
                gate.open();
            }
            assert_eq!(client.body(Framing::Chunked), b"");
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
fn the_head_of_a_stream_comes_before_its_first_token() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = Upstream::start({
            let gate = gate.clone();
            move |conn| {
                while conn.request()?.is_some() {
                    conn.send(CHUNKED)?;
                    gate.pass()?;
                    conn.send_chunk(b"late")?;
                    conn.send(b"0\r\n\r\n")?;
                }
                Ok(())
            }
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(GET);
        assert_eq!(client.head().status(), 200);
        gate.open();
        assert_eq!(client.body(Framing::Chunked), b"late");
    });
}

#[test]
fn the_kernel_carries_a_long_stream_when_it_is_asked_to() {
    for_each_datapath(|datapath| {
        let gate = Gate::new();
        let upstream = gated(1000, &gate);
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(GET);
        client.head();
        for i in 0..1000 {
            let event = event(i);
            assert_eq!(client.chunks(event.len()), event.as_bytes());
            gate.open();
        }
        assert_eq!(client.body(Framing::Chunked), b"");
        router.assert_idle();
        router.assert_carried(0.95);
    });
}

#[test]
fn chunks_cut_anywhere_in_any_number_of_segments_give_the_same_bytes() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(request) = conn.request()? {
                let seed: u64 = request.head.target().trim_start_matches("/v1/").parse()?;
                let mut random = Random::new(seed);
                let mut raw = CHUNKED.to_vec();
                for part in parts_of(&mut random) {
                    raw.extend_from_slice(
                        format!("{:x}{}\r\n", part.len(), extension(&mut random)).as_bytes(),
                    );
                    raw.extend_from_slice(&part);
                    raw.extend_from_slice(b"\r\n");
                }
                raw.extend_from_slice(b"0\r\n\r\n");
                let part_max = 1 + random.up_to(40);
                for part in random.split(&raw, part_max) {
                    conn.send(part)?;
                }
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        for seed in 0..100 {
            client.send(format!("GET /v1/{seed} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            let body = client.response("GET").body;
            assert!(
                body == parts_of(&mut Random::new(seed)).concat(),
                "seed {seed}: another body"
            );
        }
        router.assert_idle();
    });
}

fn parts_of(random: &mut Random) -> Vec<Vec<u8>> {
    let count = 1 + random.up_to(30);
    (0..count)
        .map(|_| {
            let len = 1 + random.up_to(300);
            random.bytes(len)
        })
        .collect()
}

fn extension(random: &mut Random) -> &'static str {
    ["", "", "", ";a", ";a=b", ";q=\"\\\"x;\""][random.up_to(5)]
}

#[test]
fn a_hundred_streams_at_once_each_get_their_own_bytes() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(request) = conn.request()? {
                let word = request.head.target().to_owned();
                conn.send(CHUNKED)?;
                for i in 0..50 {
                    conn.send_chunk(format!("{word}#{i}\n").as_bytes())?;
                }
                conn.send(b"0\r\n\r\n")?;
            }
            Ok(())
        });
        let router = Router::start(datapath, &[&upstream]);
        let clients: Vec<_> = (0..100)
            .map(|n| {
                let address = router.address();
                std::thread::spawn(move || {
                    let mut client = Client::connect(address);
                    for round in 0..3 {
                        let target = format!("/v1/{n}/{round}");
                        client.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
                        let want: String = (0..50).map(|i| format!("{target}#{i}\n")).collect();
                        assert_eq!(String::from_utf8_lossy(&client.response("GET").body), want);
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("its own bytes");
        }
        router.assert_idle();
    });
}

/// `len` bytes in which no two windows are equal: 8-byte counters.
fn numbered(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for counter in 0..len as u64 / 8 {
        bytes.extend_from_slice(&counter.to_le_bytes());
    }
    bytes
}

#[test]
fn a_client_that_doesnt_read_stops_its_upstream_and_loses_nothing() {
    const BODY: usize = 40 << 20;
    const TAKEN_MAX: usize = 24 << 20;
    for_each_datapath(|datapath| {
        let (blocked, taken) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let upstream = Upstream::start({
            let (blocked, taken) = (blocked.clone(), Arc::clone(&taken));
            move |conn| {
                while conn.request()?.is_some() {
                    let body = numbered(BODY);
                    let raw = [
                        CHUNKED,
                        format!("{BODY:x}\r\n").as_bytes(),
                        &body,
                        b"\r\n0\r\n\r\n",
                    ]
                    .concat();
                    let sent = conn.send_until_blocked(&raw, Duration::from_secs(1))?;
                    taken.store(sent, Ordering::Release);
                    blocked.open();
                    conn.send(&raw[sent..])?;
                }
                Ok(())
            }
        });
        let router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect_with_receive_buffer(router.address(), 256 << 10);
        client.send(GET);
        blocked.pass().expect("the upstream is stopped");
        let taken = taken.load(Ordering::Acquire);
        assert!(
            taken < TAKEN_MAX,
            "{taken} bytes were taken for a client that reads nothing"
        );
        assert!(client.response("GET").body == numbered(BODY), "another body");
        router.assert_idle();
    });
}

#[test]
fn bodies_of_all_kinds_take_turns_on_one_connection() {
    for_each_datapath(|datapath| {
        let upstream = Upstream::start(|conn| {
            while let Some(request) = conn.request()? {
                match request.head.target() {
                    "/v1/json" => conn.answer("200 OK", "", b"{}")?,
                    "/v1/blob" => conn.answer("200 OK", "", &[b'b'; 300_000])?,
                    _ => {
                        conn.send(CHUNKED)?;
                        for i in 0..20 {
                            conn.send_chunk(event(i).as_bytes())?;
                        }
                        conn.send(b"0\r\n\r\n")?;
                    }
                }
            }
            Ok(())
        });
        let router = RouterOptions::new(datapath, &[&upstream])
            .arguments(&["--workers", "1"])
            .start();
        let mut client = Client::connect(router.address());
        let stream: String = (0..20).map(event).collect();
        for _ in 0..5 {
            for (target, body) in [
                ("/v1/json", b"{}".to_vec()),
                ("/v1/stream", stream.clone().into_bytes()),
                ("/v1/blob", vec![b'b'; 300_000]),
            ] {
                client.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
                assert!(client.response("GET").body == body, "{target}: another body");
            }
        }
        assert!(
            upstream.connections() <= KEPT_MAX,
            "{} connections",
            upstream.connections()
        );
        router.assert_idle();
    });
}
