//! How connections end: a FIN is a FIN, everything else a reset.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use warmpath_tests::{Closed, Datapath, Random, TcpBackend, TcpRouter, Wire, wait_until};

use crate::section;

fn pair(router: &TcpRouter, backend: &TcpBackend) -> (Wire, Wire) {
    let (mut client, mut engine) = (router.connect("x"), backend.accept());
    client.send(b"hello").expect("is taken");
    assert_eq!(engine.exact(5).expect("comes"), b"hello");
    (client, engine)
}

fn ended(router: &TcpRouter, reason: &str) {
    router.await_metric("warmpath_tcp_ends_total", &format!("reason=\"{reason}\""), 1.0);
    router.assert_no_connections();
}

#[test]
fn a_backend_that_dies_in_mid_stream_is_a_reset_for_its_client() {
    let backend = TcpBackend::start();
    let router = TcpRouter::start(Datapath::Copy, &section("x", "", &[&backend]));
    let (mut client, mut engine) = pair(&router, &backend);
    engine.send(b"part").expect("is taken");
    assert_eq!(client.exact(4).expect("comes"), b"part");
    engine.reset().expect("takes its options");
    assert_eq!(client.closed().expect("ends"), Closed::Reset);
    ended(&router, "backend");
}

#[test]
fn a_client_that_resets_is_a_reset_for_its_backend() {
    let backend = TcpBackend::start();
    let router = TcpRouter::start(Datapath::Copy, &section("x", "", &[&backend]));
    let (client, mut engine) = pair(&router, &backend);
    client.reset().expect("takes its options");
    assert_eq!(engine.closed().expect("ends"), Closed::Reset);
    ended(&router, "client");
}

#[test]
fn an_answer_that_came_before_its_backend_refused_the_rest_is_passed_on() {
    let backend = TcpBackend::start();
    let router = TcpRouter::start(Datapath::Copy, &section("x", "", &[&backend]));
    let (mut client, mut engine) = pair(&router, &backend);
    engine.send(b"no more").expect("is taken");
    // Closed with bytes unread, which is a reset behind the answer.
    client.send(b"more").expect("is taken");
    wait_until("the backend has bytes that it won't read", || {
        engine.stream().peek(&mut [0; 4]).expect("still connected") == 4
    });
    drop(engine);
    assert_eq!(client.exact(7).expect("comes"), b"no more");
    client.closed().expect("ends");
    router.assert_no_connections();
}

#[test]
fn an_idle_connection_is_reset_on_both_sides() {
    let backend = TcpBackend::start();
    let keys = "idle_timeout = \"300ms\"";
    let router = TcpRouter::start(Datapath::Copy, &section("x", keys, &[&backend]));
    let (mut client, mut engine) = pair(&router, &backend);
    assert_eq!(client.closed().expect("ends"), Closed::Reset);
    assert_eq!(engine.closed().expect("ends"), Closed::Reset);
    ended(&router, "idle");
    // A side that reads nothing is as idle as one that sends nothing.
    let (mut client, engine) = (router.connect("x"), backend.accept());
    let bytes = vec![0; 64 << 20];
    assert!(
        client.send(&bytes).is_err(),
        "the connection goes on without a reader"
    );
    drop(engine);
}

fn signal(router: &TcpRouter) {
    let status = Command::new("kill")
        .args(["-TERM", &router.pid().to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success());
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

#[test]
fn a_stop_lets_open_connections_end_and_takes_no_new_ones() {
    let backend = TcpBackend::start();
    let router = TcpRouter::start(Datapath::Copy, &section("x", "", &[&backend]));
    let address = router.listener("x");
    let (mut client, mut engine) = pair(&router, &backend);
    signal(&router);
    wait_until("the listener is closed", || !listens(address));
    client.send(b"still").expect("is taken");
    assert_eq!(engine.exact(5).expect("comes"), b"still");
    client.finish_sending().expect("still connected");
    assert_eq!(engine.closed().expect("ends"), Closed::Fin);
    engine.send(b"bye").expect("is taken");
    drop(engine);
    assert_eq!(client.exact(3).expect("comes"), b"bye");
    assert_eq!(client.closed().expect("ends"), Closed::Fin);
    // What was asked while it still listened may wait there for an answer.
    drop(backend);
    wait_until("the router has ended", || !listens(router.admin()));
}

#[test]
fn the_drain_time_and_a_second_signal_reset_what_is_still_open() {
    for (second, drain) in [(true, "5m"), (false, "200ms")] {
        let backend = TcpBackend::start();
        let text = section("x", "", &[&backend]) + &format!("[timeouts]\ndrain = \"{drain}\"\n");
        let router = TcpRouter::start(Datapath::Copy, &text);
        let (mut client, mut engine) = pair(&router, &backend);
        signal(&router);
        if second {
            wait_until("the first is heeded", || router.log().contains("stopping"));
            signal(&router);
        }
        assert_eq!(client.closed().expect("ends"), Closed::Reset);
        assert_eq!(engine.closed().expect("ends"), Closed::Reset);
        wait_until("the router has ended", || !listens(router.admin()));
    }
}

#[test]
fn connections_over_the_cap_are_reset_and_a_place_is_free_again_when_one_ends() {
    let backend = TcpBackend::start();
    let text = section("x", "", &[&backend]) + "[limits]\nconnections_max = 2\n";
    let router = TcpRouter::start(Datapath::Copy, &text);
    let (first, second) = (pair(&router, &backend), pair(&router, &backend));
    assert_eq!(router.connect("x").closed().expect("ends"), Closed::Reset);
    router.await_metric("warmpath_connections_refused_total", "", 1.0);
    assert!(backend.try_accept().is_none());
    drop(first);
    router.await_metric("warmpath_connections", "", 1.0);
    drop((pair(&router, &backend), second));
    router.assert_no_connections();
}

/// Does up to a few things to a connection, whether they succeed or not, and leaves it in some way.
fn act(mut wire: Wire, random: &mut Random) {
    for _ in 0..random.up_to(4) {
        let len = random.up_to(300_000);
        // Each may fail, since the other side leaves whenever it likes.
        let _ = match random.up_to(3) {
            0 => wire.send(&random.bytes(len)),
            1 => wire.exact(1 + random.up_to(2000)).map(drop),
            2 => wire.finish_sending(),
            _ => Ok(()),
        };
    }
    let _ = match random.up_to(2) {
        0 => wire.reset(),
        1 => wire.closed().map(drop),
        _ => Ok(()),
    };
}

fn open_files(router: &TcpRouter) -> usize {
    let folder = format!("/proc/{}/fd", router.pid());
    std::fs::read_dir(folder).expect("the router runs").count()
}

#[test]
fn connections_left_at_any_moment_by_either_side_leave_nothing_behind() {
    const CLIENTS: u64 = 8;
    const ROUNDS: u64 = 30;
    let backends = [TcpBackend::start(), TcpBackend::start()];
    let dead = TcpBackend::start().address();
    let keys = "hash = \"sni\"\nhello_timeout = \"50ms\"\nidle_timeout = \"300ms\"\nproxy_protocol = \"v2\"";
    let text = section("x", keys, &[&backends[0], &backends[1]])
        + &format!("[[tcp.backend]]\naddr = \"{dead}\"\nname = \"dead\"\n");
    let router = TcpRouter::start(Datapath::Copy, &text);
    // Whatever is opened at first use is open then.
    act(router.connect("x"), &mut Random::new(99));
    router.assert_no_connections();
    let files = open_files(&router);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                let router = &router;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..ROUNDS {
                        act(router.connect("x"), &mut random);
                    }
                })
            })
            .collect();
        for (seed, backend) in backends.iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let mut random = Random::new(1000 + seed as u64);
                while !done.load(Ordering::Acquire) {
                    match backend.try_accept() {
                        Some(wire) => {
                            let mut random = Random::new(random.next_u64());
                            scope.spawn(move || act(wire, &mut random));
                        }
                        None => thread::yield_now(),
                    }
                }
            });
        }
        for client in clients {
            client.join().expect("no client fails");
        }
        done.store(true, Ordering::Release);
    });
    drop(backends);
    router.assert_no_connections();
    wait_until("the router has as few files open as before", || {
        open_files(&router) <= files
    });
    let ends = router.metric("warmpath_tcp_ends_total");
    assert_eq!(
        ends,
        (CLIENTS * ROUNDS + 1) as f64,
        "each connection has ended once"
    );
}
