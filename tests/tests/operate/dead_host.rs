//! A host that dies without a word: its link goes down, and no RST ever comes.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use warmpath_tests::{
    Client, Datapath, FAR, Framing, Gate, Router, RouterOptions, TwoHosts, Upstream,
    for_each_datapath_at_once, skip, wait_until,
};

use crate::requests::{CHUNKED, get};

/// Requests at a dead host fail within 20 s; the rest is for a noisy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const WAIT: &[u8] = b"POST /v1/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
const STREAM: &[u8] = b"POST /v1/stream HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";

/// Answers a GET; begins a stream and goes on when it's let; leaves `/v1/wait` without an answer if it
/// is the `far` one.
fn engine(ip: IpAddr, far: bool, gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start_on(ip, move |conn| {
        while let Some(request) = conn.request()? {
            match request.head.target() {
                "/v1/stream" => {
                    conn.send(CHUNKED)?;
                    conn.send_chunk(b"one")?;
                }
                "/v1/wait" if far => {}
                _ => {
                    conn.answer("200 OK", "", b"ok")?;
                    continue;
                }
            }
            if far {
                // The end of the world never gets here; a late one is nobody's business.
                let _ = conn.closed();
                return Ok(());
            }
            for _ in 0..2 {
                gate.pass()?;
                conn.send_chunk(b"two")?;
            }
            conn.send(b"0\r\n\r\n")?;
        }
        Ok(())
    })
}

/// Sends `request` by new connections until `wanted` has got it; what went elsewhere is given too.
fn send_to(router: &Router, request: &[u8], wanted: &Upstream, other: &Upstream) -> (Client, Option<Client>) {
    let mut elsewhere = None;
    loop {
        let (before, others) = (wanted.heads().len(), other.heads().len());
        let mut client = Client::connect(router.address());
        client.send(request);
        wait_until("an engine is asked", || {
            wanted.heads().len() > before || other.heads().len() > others
        });
        if wanted.heads().len() > before {
            return (client, elsewhere);
        }
        elsewhere = Some(client);
    }
}

fn dies(datapath: Datapath, hosts: &TwoHosts) {
    let gate = Gate::new();
    let far = hosts.far.run(|| engine(FAR, true, &gate));
    hosts.near.run(|| {
        let near = engine(Ipv4Addr::LOCALHOST.into(), false, &gate);
        let router = RouterOptions::new(datapath, &[&far, &near])
            .arguments(&["--policy", "round_robin", "--workers", "1"])
            .start();
        let (mut waiting, _) = send_to(&router, WAIT, &far, &near);
        let (mut streaming, near_one) = send_to(&router, STREAM, &far, &near);
        let mut unaffected = near_one.unwrap_or_else(|| send_to(&router, STREAM, &near, &far).0);
        for client in [&mut streaming, &mut unaffected] {
            client.head();
            assert_eq!(client.chunks(3), b"one");
        }
        hosts.cut();
        gate.open();
        assert_eq!(unaffected.chunks(3), b"two");
        for client in [&mut waiting, &mut streaming] {
            client.set_deadline(PATIENCE);
        }
        let failing = thread::spawn(move || {
            let body = streaming.rest_of_cut_body(Framing::Chunked);
            assert!(body.cut.is_some(), "a clean end: {body:?}");
            let cut = body.cut.unwrap_or_default();
            assert!(
                !cut.contains("unavailable"),
                "the stream wasn't cut in time: {cut}"
            );
            waiting.head().status()
        });
        // New requests meanwhile: none is lost, whether health has noticed yet or not.
        while !failing.is_finished() {
            assert_eq!(get(&router).body, b"ok");
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(failing.join().expect("both fail in time"), 502);
        gate.open();
        assert_eq!(unaffected.body(Framing::Chunked), b"two");
        wait_until("the dead one is ejected", || {
            router.json("/backends")["backends"][0]["state"] == "unhealthy"
        });
        router.assert_idle();
    });
}

#[test]
fn requests_at_a_host_that_died_fail_in_time_and_others_never_notice() {
    for_each_datapath_at_once(|datapath| match TwoHosts::new() {
        Ok(hosts) => dies(datapath, &hosts),
        Err(why) => skip(&format!("no network namespaces: {why:#}")),
    });
}
