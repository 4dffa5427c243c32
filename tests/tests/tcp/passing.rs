//! Bytes pass as they are, in both directions, as fast as the slower side takes them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use warmpath_tests::{Closed, Datapath, Random, TcpBackend, TcpRouter, Wire, for_each_datapath};

use crate::section;

/// Connections at once.
const CONNECTIONS: u64 = 6;
/// Bytes each way at most.
const BYTES_MAX: usize = 2 << 20;
/// More than all buffers between two sockets hold.
const HUGE_MIB: usize = 64;
/// A sender that could send nothing for so long has met the other side's full buffers.
const BLOCKED: Duration = Duration::from_millis(300);

/// What a side sends, by its seed.
fn payload(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let len = random.up_to(BYTES_MAX);
    random.bytes(len)
}

/// Sends the payload of `seed` in random parts, then a FIN, while reading to the peer's FIN; gives what was read.
fn exchange(stream: &TcpStream, seed: u64) -> Vec<u8> {
    thread::scope(|scope| {
        scope.spawn(|| {
            let (bytes, mut writer) = (payload(seed), stream);
            for part in Random::new(!seed).split(&bytes, 100_000) {
                writer.write_all(part).expect("is taken");
            }
            writer.shutdown(Shutdown::Write).expect("still connected");
        });
        let (mut read, mut reader, mut random) = (Vec::new(), stream, Random::new(seed + 1));
        let mut buffer = vec![0; 200_000];
        loop {
            let room = 1 + random.up_to(buffer.len() - 1);
            let count = reader.read(&mut buffer[..room]).expect("comes");
            if count == 0 {
                return read;
            }
            read.extend_from_slice(&buffer[..count]);
        }
    })
}

#[test]
fn bytes_pass_both_ways_exactly_whatever_their_sizes() {
    for_each_datapath(|datapath| {
        let backend = TcpBackend::start();
        let router = TcpRouter::start(datapath, &section("x", "", &[&backend]));
        let mut total = [0, 0];
        thread::scope(|scope| {
            for seed in 0..CONNECTIONS {
                // One after the other, so that it is known whose is whose.
                let (client, engine) = (router.connect("x"), backend.accept());
                let (up, down) = (seed * 2 + 100, seed * 2 + 101);
                total[0] += payload(up).len();
                total[1] += payload(down).len();
                scope.spawn(move || {
                    assert!(
                        exchange(client.stream(), up) == payload(down),
                        "{seed}: other bytes came"
                    );
                });
                scope.spawn(move || {
                    assert!(
                        exchange(engine.stream(), down) == payload(up),
                        "{seed}: other bytes went"
                    );
                });
            }
        });
        router.await_metric(
            "warmpath_tcp_ends_total",
            "reason=\"complete\"",
            CONNECTIONS as f64,
        );
        router.await_metric("warmpath_tcp_sent_bytes_total", "listener=\"x\"", total[0] as f64);
        router.await_metric(
            "warmpath_tcp_received_bytes_total",
            "backend=\"b0\"",
            total[1] as f64,
        );
        if datapath == Datapath::Kernel {
            router.await_metric(
                "warmpath_copy_flows_total",
                "reason=\"tunnel\"",
                CONNECTIONS as f64,
            );
        }
        router.assert_no_connections();
    });
}

#[test]
fn a_client_that_has_finished_sending_still_gets_everything() {
    let backend = TcpBackend::start();
    let router = TcpRouter::start(Datapath::Copy, &section("x", "", &[&backend]));
    let (mut client, mut engine) = (router.connect("x"), backend.accept());
    client.send(b"question").expect("is taken");
    client.finish_sending().expect("still connected");
    assert_eq!(engine.exact(8).expect("comes"), b"question");
    assert_eq!(engine.closed().expect("ends"), Closed::Fin);
    let answer = Random::new(5).bytes(1 << 20);
    let sender = thread::spawn({
        let answer = answer.clone();
        move || {
            engine.send(&answer).expect("is taken");
            drop(engine);
        }
    });
    assert!(
        client.exact(1 << 20).expect("comes") == answer,
        "other bytes came"
    );
    assert_eq!(client.closed().expect("ends"), Closed::Fin);
    sender.join().expect("sent");
    router.assert_no_connections();
}

#[test]
fn a_backend_that_has_finished_sending_still_gets_what_a_client_sends_before_it_closes() {
    let backend = TcpBackend::at([127, 0, 0, 1].into(), Some(8 << 10));
    let router = TcpRouter::start(Datapath::Copy, &section("x", "", &[&backend]));
    let (mut client, mut engine) = (router.connect("x"), backend.accept());
    engine.send(b"greeting").expect("is taken");
    engine.finish_sending().expect("still connected");
    assert_eq!(client.exact(8).expect("comes"), b"greeting");
    assert_eq!(client.closed().expect("ends"), Closed::Fin);
    // More than the buffers on the way hold, so that the client is gone while its bytes still wait in the router.
    let bytes = Random::new(6).bytes(8 << 20);
    let sender = thread::spawn({
        let bytes = bytes.clone();
        move || {
            client.send(&bytes).expect("is taken");
            drop(client);
        }
    });
    let mut got = engine.exact(1).expect("comes");
    got.extend(engine.exact(bytes.len() - 1).expect("comes"));
    assert!(got == bytes, "other bytes went");
    assert_eq!(engine.closed().expect("ends"), Closed::Fin);
    sender.join().expect("sent");
    drop(engine);
    router.await_metric("warmpath_tcp_ends_total", "reason=\"complete\"", 1.0);
    router.assert_no_connections();
}

/// Checks that `fast` is held up by `slow`, which reads nothing, and that nothing is lost when it does at last.
fn check_back_pressure(fast: &mut Wire, slow: &mut Wire) {
    let bytes = Random::new(7).bytes(1 << 20).repeat(HUGE_MIB);
    let sent = fast.send_until_blocked(&bytes, BLOCKED).expect("still connected");
    assert!(
        sent < bytes.len(),
        "{sent} bytes were taken for a reader that takes none"
    );
    let got = slow.exact(sent).expect("comes");
    assert!(got == bytes[..sent], "other bytes came");
    fast.send(b"on").expect("is taken again");
    assert_eq!(slow.exact(2).expect("comes"), b"on");
}

#[test]
fn a_side_that_takes_nothing_holds_up_the_other_and_loses_nothing() {
    let backend = TcpBackend::start();
    let router = TcpRouter::start(Datapath::Copy, &section("x", "", &[&backend]));
    let (mut client, mut engine) = (router.connect("x"), backend.accept());
    check_back_pressure(&mut client, &mut engine);
    check_back_pressure(&mut engine, &mut client);
    // Both at once: neither direction waits for the other.
    let bytes = Random::new(8).bytes(1 << 20).repeat(HUGE_MIB);
    let up = client
        .send_until_blocked(&bytes, BLOCKED)
        .expect("still connected");
    let down = engine
        .send_until_blocked(&bytes, BLOCKED)
        .expect("still connected");
    assert!(
        client.exact(down).expect("comes") == bytes[..down],
        "other bytes came"
    );
    assert!(
        engine.exact(up).expect("comes") == bytes[..up],
        "other bytes went"
    );
    drop((client, engine));
    router.assert_no_connections();
}

#[test]
fn ipv6_listeners_and_backends_are_served() {
    let backend = TcpBackend::at(Ipv6Addr::LOCALHOST.into(), None);
    let text = section("six", "", &[&backend]).replace("127.0.0.1:0", "[::1]:0");
    let router = TcpRouter::start(Datapath::Copy, &text);
    let (mut client, mut engine) = (router.connect("six"), backend.accept());
    client.send(b"ping").expect("is taken");
    assert_eq!(engine.exact(4).expect("comes"), b"ping");
    engine.send(b"pong").expect("is taken");
    assert_eq!(client.exact(4).expect("comes"), b"pong");
}
