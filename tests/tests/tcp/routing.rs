//! Which backend a connection goes to.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use warmpath_tests::{Closed, Datapath, TcpBackend, TcpRouter, Wire, accept_any, connect_from, wait_until};

use crate::section;

/// A TLS ClientHello that asks for `name`, as TLS 1.3 clients build it.
fn hello(name: Option<&str>) -> Vec<u8> {
    let vector =
        |width: usize, bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[4 - width..], bytes].concat();
    let versions = [&[0, 43][..], &vector(2, &vector(1, &[3, 4]))].concat();
    let sni = name.map_or(Vec::new(), |name| {
        let entry = [&[0][..], &vector(2, name.as_bytes())].concat();
        [&[0, 0][..], &vector(2, &vector(2, &entry))].concat()
    });
    let body = [
        &[3, 3][..],
        &[0x5a; 32],
        &vector(1, &[0xa5; 32]),
        &vector(2, &[0x13, 1, 0x13, 2]),
        &vector(1, &[0]),
        &vector(2, &[versions, sni].concat()),
    ]
    .concat();
    let message = [&[1][..], &vector(3, &body)].concat();
    [&[22, 3, 1][..], &vector(2, &message)].concat()
}

/// A port at which nothing listens.
fn dead_address() -> SocketAddr {
    TcpBackend::start().address()
}

fn loopback(host: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, host).into()
}

#[test]
fn connections_of_one_address_go_to_one_backend_and_addresses_spread() {
    let backends = [TcpBackend::start(), TcpBackend::start(), TcpBackend::start()];
    let all: Vec<&TcpBackend> = backends.iter().collect();
    let router = TcpRouter::start(Datapath::Copy, &section("x", "", &all));
    let mut seen = BTreeSet::new();
    for host in 1..40 {
        let mut places = BTreeSet::new();
        for _ in 0..3 {
            let client = connect_from(loopback(host), router.listener("x"));
            let (place, engine) = accept_any(&all);
            places.insert(place);
            drop((client, engine));
        }
        assert_eq!(places.len(), 1, "127.0.0.{host} went to {places:?}");
        seen.extend(places);
    }
    assert_eq!(seen.len(), backends.len(), "all backends have clients");
    router.await_metric("warmpath_tcp_routes_total", "by=\"source\"", 117.0);
    router.assert_no_connections();
}

#[test]
fn a_name_in_a_hello_decides_whoever_sends_it_and_however_it_is_cut() {
    let backends = [TcpBackend::start(), TcpBackend::start(), TcpBackend::start()];
    let all: Vec<&TcpBackend> = backends.iter().collect();
    let router = TcpRouter::start(Datapath::Copy, &section("x", "hash = \"sni\"", &all));
    let mut seen = BTreeSet::new();
    for number in 0..24 {
        let mut places = BTreeSet::new();
        for host in 1..4 {
            let written = format!("Engine-{number}.example.internal");
            let written = if host == 2 {
                written.to_uppercase()
            } else {
                written
            };
            let bytes = [hello(Some(&written)), b"behind it".to_vec()].concat();
            let mut client = connect_from(loopback(host), router.listener("x"));
            if host == 3 {
                for byte in &bytes {
                    client.send(std::slice::from_ref(byte)).expect("is taken");
                }
            } else {
                client.send(&bytes).expect("is taken");
            }
            let (place, mut engine) = accept_any(&all);
            assert!(
                engine.exact(bytes.len()).expect("comes") == bytes,
                "other bytes went"
            );
            places.insert(place);
        }
        assert_eq!(places.len(), 1, "name {number} went to {places:?}");
        seen.extend(places);
    }
    assert_eq!(seen.len(), backends.len(), "all backends have names");
    router.await_metric("warmpath_tcp_routes_total", "by=\"sni\"", 72.0);
}

#[test]
fn what_has_no_name_goes_by_its_address_and_is_counted() {
    let backends = [TcpBackend::start(), TcpBackend::start()];
    let all: Vec<&TcpBackend> = backends.iter().collect();
    let text = section("x", "hash = \"sni\"\nhello_timeout = \"200ms\"", &all) + &section("plain", "", &all);
    let router = TcpRouter::start(Datapath::Copy, &text);
    let place = |name: &str, bytes: &[u8], finish: bool| {
        let mut client = router.connect(name);
        client.send(bytes).expect("is taken");
        if finish {
            client.finish_sending().expect("still connected");
        }
        let (place, mut engine) = accept_any(&all);
        assert!(
            engine.exact(bytes.len()).expect("comes") == bytes,
            "other bytes went"
        );
        engine.send(b"first").expect("is taken");
        assert_eq!(client.exact(5).expect("comes"), b"first");
        place
    };
    let own = place("plain", b"", false);
    let whole = hello(Some("a.example"));
    let huge = [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 100]].concat();
    for (bytes, finish, reason, count) in [
        (&b"SSH-2.0-x\r\n"[..], false, "not_tls", 1.0),
        (&hello(None), false, "no_name", 1.0),
        (&huge, false, "hello_too_long", 1.0),
        (&whole[..20], false, "hello_late", 1.0),
        (b"", false, "hello_late", 2.0),
        (&whole[..20], true, "hello_late", 3.0),
    ] {
        assert_eq!(place("x", bytes, finish), own, "{reason}");
        router.await_metric("warmpath_tcp_routes_total", &format!("by=\"{reason}\""), count);
    }
    router.assert_no_connections();
}

#[test]
fn a_backend_that_is_down_is_passed_over_and_counted() {
    let (one, other) = (TcpBackend::start(), TcpBackend::start());
    let dead = dead_address();
    let text =
        section("x", "", &[&one, &other]) + &format!("[[tcp.backend]]\naddr = \"{dead}\"\nname = \"dead\"\n");
    let router = TcpRouter::start(Datapath::Copy, &text);
    for host in 1..40 {
        let mut client = connect_from(loopback(host), router.listener("x"));
        let (_, mut engine) = accept_any(&[&one, &other]);
        client.send(&[host]).expect("is taken");
        assert_eq!(engine.exact(1).expect("comes"), [host]);
    }
    assert!(router.metric_with("warmpath_tcp_connect_failures_total", "backend=\"dead\"") > 0.0);
    router.assert_no_connections();
}

#[test]
fn a_client_whose_backends_are_all_down_is_reset() {
    let text = format!(
        "[[tcp]]\nlisten = \"127.0.0.1:0\"\nname = \"x\"\n[[tcp.backend]]\naddr = \"{}\"\n[[tcp.backend]]\naddr = \"{}\"\n",
        dead_address(),
        dead_address()
    );
    let router = TcpRouter::start(Datapath::Copy, &text);
    assert_eq!(router.connect("x").closed().expect("ends"), Closed::Reset);
    router.await_metric("warmpath_tcp_ends_total", "reason=\"unreachable\"", 1.0);
    assert!(router.metric("warmpath_tcp_connect_failures_total") >= 2.0);
    router.assert_no_connections();
}

#[test]
fn a_router_without_engines_opens_its_l4_listeners_alone_and_tells_of_them() {
    let backend = TcpBackend::start();
    let text = section("x", "hash = \"sni\"", &[&backend]) + "[health]\ninterval = \"50ms\"\n";
    let router = TcpRouter::start_alone(&text);
    assert!(
        !router.log().contains("http://127.0.0.1:8080"),
        "{}",
        router.log()
    );
    router.await_metric("warmpath_tcp_connections", "", 0.0);
    let mut client = router.connect("x");
    client.send(b"not TLS").expect("is taken");
    router.await_metric("warmpath_tcp_sent_bytes_total", "", 7.0);
    let page: serde_json::Value = serde_json::from_str(&router.admin_get("/backends")).expect("JSON");
    let tcp = &page["tcp"][0];
    assert_eq!((&tcp["name"], &tcp["hash"]), (&"x".into(), &"sni".into()));
    let told = &tcp["backends"][0];
    assert_eq!(told["addr"], backend.address().to_string());
    assert_eq!(
        (&told["connections"], &told["sent_bytes_total"]),
        (&1.into(), &7.into())
    );
    assert_eq!((&told["state"], &told["weight"]), (&"healthy".into(), &1.into()));
    assert_eq!(router.admin_get("/readyz"), "ready\n");
}

#[test]
fn probes_take_a_dead_backend_out_and_silence_takes_none_out() {
    let (one, other) = (TcpBackend::start(), TcpBackend::start());
    let dead = dead_address();
    let text = section("x", "", &[&one, &other])
        + &format!("[[tcp.backend]]\naddr = \"{dead}\"\nname = \"dead\"\n")
        + "[health]\ninterval = \"50ms\"\nstall_silence_min = \"100ms\"\nstall_metrics = false\n";
    let router = TcpRouter::start(Datapath::Copy, &text);
    router.await_metric(
        "warmpath_tcp_backend_state",
        "backend=\"dead\",state=\"unhealthy\"",
        1.0,
    );
    let failures = router.metric_with("warmpath_tcp_connect_failures_total", "");
    let mut clients: Vec<Wire> = Vec::new();
    for host in 1..40 {
        let mut client = connect_from(loopback(host), router.listener("x"));
        client.send(&[host]).expect("is taken");
        clients.push(client);
    }
    router.await_metric("warmpath_tcp_connections", "", 39.0);
    assert_eq!(
        router.metric("warmpath_tcp_connect_failures_total"),
        failures,
        "nobody tries the dead one"
    );
    // Many probes later the silent connections are still no fault of their backends.
    let probes = || router.metric_with("warmpath_tcp_probes_total", "outcome=\"passed\"");
    let before = probes();
    wait_until("ten more probes have passed", || probes() >= before + 10.0);
    for backend in ["b0", "b1"] {
        let label = format!("backend=\"{backend}\",state=\"healthy\"");
        assert_eq!(router.metric_with("warmpath_tcp_backend_state", &label), 1.0);
    }
}
