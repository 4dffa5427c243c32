//! Signals: a drain, its bound, and a stop at once.

use std::io::ErrorKind;
use std::net::TcpStream;

use warmpath_tests::{
    Client, Framing, Gate, Router, RouterOptions, Upstream, for_each_datapath_at_once, wait_until,
};

use crate::requests::{GET, POST, gated};

/// A client in the middle of a stream.
fn streaming(router: &Router) -> Client {
    let mut client = Client::connect(router.address());
    client.send(POST);
    client.head();
    assert_eq!(client.chunks(3), b"one");
    client
}

/// A client with an idle kept connection.
fn idle(router: &Router) -> Client {
    let mut client = Client::connect(router.address());
    client.send(GET);
    assert_eq!(client.response("GET").body, b"ok");
    client
}

#[track_caller]
fn wait_until_refused(router: &Router) {
    wait_until("new connections are refused", || {
        match TcpStream::connect(router.address()) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::ConnectionRefused,
        }
    });
}

#[test]
fn sigterm_lets_a_stream_end_closes_idle_connections_and_refuses_new_ones() {
    for_each_datapath_at_once(|datapath| {
        let gate = Gate::new();
        let upstream = gated(&gate);
        let mut router = Router::start(datapath, &[&upstream]);
        let (mut stream, mut kept) = (streaming(&router), idle(&router));
        router.signal(libc::SIGTERM);
        kept.expect_close();
        wait_until_refused(&router);
        let mut admin = Client::connect(router.admin());
        admin.send(format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", router.admin()).as_bytes());
        assert_eq!(admin.response("GET").status(), 503);
        gate.open();
        assert_eq!(stream.body(Framing::Chunked), b"two");
        stream.expect_close();
        assert_eq!(router.wait_exit(), Some(0));
    });
}

#[test]
fn a_request_without_an_answer_yet_gets_it_after_sigterm() {
    for_each_datapath_at_once(|datapath| {
        let (asked, gate) = (Gate::new(), Gate::new());
        let upstream = Upstream::start({
            let (asked, gate) = (asked.clone(), gate.clone());
            move |conn| {
                while conn.request()?.is_some() {
                    asked.open();
                    gate.pass()?;
                    conn.answer("200 OK", "", b"late")?;
                }
                Ok(())
            }
        });
        let mut router = Router::start(datapath, &[&upstream]);
        let mut client = Client::connect(router.address());
        client.send(POST);
        asked.pass().expect("the engine is asked");
        router.signal(libc::SIGINT);
        wait_until_refused(&router);
        gate.open();
        assert_eq!(client.response("POST").body, b"late");
        client.expect_close();
        assert_eq!(router.wait_exit(), Some(0));
    });
}

#[test]
fn a_second_signal_cuts_what_is_left_at_once() {
    for_each_datapath_at_once(|datapath| {
        let gate = Gate::new();
        let upstream = gated(&gate);
        let mut router = Router::start(datapath, &[&upstream]);
        let (mut stream, mut kept) = (streaming(&router), idle(&router));
        router.signal(libc::SIGTERM);
        kept.expect_close();
        router.signal(libc::SIGTERM);
        let body = stream.rest_of_cut_body(Framing::Chunked);
        assert!(body.cut.is_some(), "a clean end: {body:?}");
        assert_eq!(router.wait_exit(), Some(0));
        gate.open();
    });
}

#[test]
fn what_doesnt_end_within_the_drain_time_is_cut_and_said() {
    for_each_datapath_at_once(|datapath| {
        let gate = Gate::new();
        let upstream = gated(&gate);
        let mut router = RouterOptions::new(datapath, &[&upstream])
            .config("[timeouts]\ndrain = \"300ms\"")
            .start();
        let mut stream = streaming(&router);
        router.signal(libc::SIGTERM);
        let body = stream.rest_of_cut_body(Framing::Chunked);
        assert!(body.cut.is_some(), "a clean end: {body:?}");
        assert_eq!(router.wait_exit(), Some(0));
        assert!(router.log().contains("timeouts.drain"), "{}", router.log());
        gate.open();
    });
}
