//! The PROXY protocol, out to backends and in from trusted peers.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use warmpath_tests::{Closed, Datapath, TcpBackend, TcpRouter, Wire, accept_any, connect_from};

use crate::section;

const TRUST: &str = "trusted_proxies = [\"127.0.0.1\"]";

/// A version 2 header for TCP over IPv4.
fn v2(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Vec<u8> {
    [
        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..],
        &source.0.octets(),
        &destination.0.octets(),
        &source.1.to_be_bytes(),
        &destination.1.to_be_bytes(),
    ]
    .concat()
}

fn four(address: SocketAddr) -> (Ipv4Addr, u16) {
    match address {
        SocketAddr::V4(address) => (*address.ip(), address.port()),
        SocketAddr::V6(address) => panic!("{address} is IPv6"),
    }
}

fn expect(engine: &mut Wire, bytes: &[u8]) {
    let got = engine.exact(bytes.len()).expect("comes");
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(bytes));
}

#[test]
fn backends_get_the_clients_address_in_front_of_its_bytes() {
    let backend = TcpBackend::start();
    let text = section("v1", "proxy_protocol = \"v1\"", &[&backend])
        + &section("v2", "proxy_protocol = \"v2\"", &[&backend])
        + &section("six", "proxy_protocol = \"v1\"", &[&backend]).replace("127.0.0.1:0", "[::1]:0");
    let router = TcpRouter::start(Datapath::Copy, &text);
    for name in ["v1", "v2", "six"] {
        let mut client = router.connect(name);
        let own = client.stream().local_addr().expect("an address");
        let at = router.listener(name);
        let header = match name {
            "v2" => v2(four(own), four(at)),
            _ => {
                let family = if own.is_ipv4() { "TCP4" } else { "TCP6" };
                let (source, destination) = (own.ip(), at.ip());
                format!(
                    "PROXY {family} {source} {destination} {} {}\r\n",
                    own.port(),
                    at.port()
                )
                .into_bytes()
            }
        };
        let mut engine = backend.accept();
        // It comes by itself, before the client has said anything.
        expect(&mut engine, &header);
        client.send(b"after").expect("is taken");
        expect(&mut engine, b"after");
        engine.send(b"answer").expect("is taken");
        assert_eq!(client.exact(6).expect("comes"), b"answer");
    }
    // Without its client's bytes a header is none of them.
    assert_eq!(router.metric("warmpath_tcp_sent_bytes_total"), 15.0);
}

#[test]
fn an_ipv4_client_of_an_ipv6_listener_is_told_as_ipv4() {
    let backend = TcpBackend::start();
    let text = section("x", "proxy_protocol = \"v1\"", &[&backend]).replace("127.0.0.1:0", "[::]:0");
    let router = TcpRouter::start(Datapath::Copy, &text);
    let at = SocketAddr::from(([127, 0, 0, 1], router.listener("x").port()));
    let client = connect_from(Ipv4Addr::LOCALHOST.into(), at);
    let own = client.stream().local_addr().expect("an address");
    let header = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", own.port(), at.port());
    expect(&mut backend.accept(), header.as_bytes());
}

#[test]
fn a_trusted_proxys_header_is_taken_off_at_every_split_and_its_source_passed_on() {
    let backend = TcpBackend::start();
    let keys = format!("{TRUST}\nproxy_protocol = \"v2\"");
    let router = TcpRouter::start(Datapath::Copy, &section("x", &keys, &[&backend]));
    let source = (Ipv4Addr::new(192, 0, 2, 7), 4711);
    let destination = (Ipv4Addr::new(198, 51, 100, 9), 443);
    let line = b"PROXY TCP4 192.0.2.7 198.51.100.9 4711 443\r\n".to_vec();
    let binary = v2(source, destination);
    for header in [line, binary] {
        for at in 0..=header.len() {
            let mut client = router.connect("x");
            let bytes = [&header[..], b"own bytes"].concat();
            client.send(&bytes[..at]).expect("is taken");
            client.send(&bytes[at..]).expect("is taken");
            let mut engine = backend.accept();
            expect(&mut engine, &v2(source, destination));
            expect(&mut engine, b"own bytes");
            client.finish_sending().expect("still connected");
            assert_eq!(engine.closed().expect("ends"), Closed::Fin);
        }
    }
    router.assert_no_connections();
}

#[test]
fn the_source_in_a_trusted_header_decides_on_the_backend() {
    let backends = [TcpBackend::start(), TcpBackend::start(), TcpBackend::start()];
    let all: Vec<&TcpBackend> = backends.iter().collect();
    let router = TcpRouter::start(Datapath::Copy, &section("x", TRUST, &all));
    let mut seen = BTreeSet::new();
    for host in 0..30u8 {
        let mut places = BTreeSet::new();
        for port in [1000, 2000] {
            let mut client = router.connect("x");
            let source = (Ipv4Addr::new(192, 0, 2, host), port);
            client.send(&v2(source, source)).expect("is taken");
            places.insert(accept_any(&all).0);
        }
        assert_eq!(places.len(), 1, "192.0.2.{host} went to {places:?}");
        seen.extend(places);
    }
    assert_eq!(seen.len(), backends.len(), "all backends have clients");
}

#[test]
fn a_header_without_addresses_stands_for_the_proxy_itself() {
    let backend = TcpBackend::start();
    let keys = format!("{TRUST}\nproxy_protocol = \"v2\"");
    let router = TcpRouter::start(Datapath::Copy, &section("x", &keys, &[&backend]));
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let mut client = router.connect("x");
        client.send(header).expect("is taken");
        let own = client.stream().local_addr().expect("an address");
        expect(&mut backend.accept(), &v2(four(own), four(router.listener("x"))));
    }
}

#[test]
fn a_trusted_peer_without_a_good_header_is_reset_and_never_reaches_a_backend() {
    let backend = TcpBackend::start();
    let keys = format!("{TRUST}\nhello_timeout = \"200ms\"");
    let router = TcpRouter::start(Datapath::Copy, &section("x", &keys, &[&backend]));
    let cases: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.9 4711\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        // Late.
        b"PROXY TCP4 192.0.2.7",
        b"",
    ];
    for bytes in cases {
        let mut client = router.connect("x");
        client.send(bytes).expect("is taken");
        assert_eq!(client.closed().expect("ends"), Closed::Reset, "{bytes:?}");
    }
    router.await_metric(
        "warmpath_tcp_ends_total",
        "reason=\"proxy_header\"",
        cases.len() as f64,
    );
    assert!(backend.try_accept().is_none());
    // Whoever only looks whether the port is open has done nothing wrong.
    drop(router.connect("x"));
    router.await_metric("warmpath_tcp_ends_total", "reason=\"client\"", 1.0);
}

#[test]
fn an_untrusted_peers_header_is_payload_and_changes_nothing() {
    let backend = TcpBackend::start();
    let keys = format!("{TRUST}\nproxy_protocol = \"v1\"");
    let text = section("x", &keys, &[&backend]);
    let router = TcpRouter::start(Datapath::Copy, &text);
    let mut client = connect_from(Ipv4Addr::new(127, 0, 0, 2).into(), router.listener("x"));
    let forged = b"PROXY TCP4 192.0.2.7 198.51.100.9 4711 443\r\n";
    client.send(forged).expect("is taken");
    let own = client.stream().local_addr().expect("an address");
    let mut engine = backend.accept();
    let port = router.listener("x").port();
    expect(
        &mut engine,
        format!("PROXY TCP4 127.0.0.2 127.0.0.1 {} {port}\r\n", own.port()).as_bytes(),
    );
    expect(&mut engine, forged);
}

#[test]
fn an_ipv6_proxy_is_trusted_by_its_range() {
    let backend = TcpBackend::start();
    let keys = "trusted_proxies = [\"::/64\"]\nproxy_protocol = \"v1\"";
    let text = section("x", keys, &[&backend]).replace("127.0.0.1:0", "[::1]:0");
    let router = TcpRouter::start(Datapath::Copy, &text);
    let mut client = connect_from(Ipv6Addr::LOCALHOST.into(), router.listener("x"));
    let header = b"PROXY TCP6 2001:db8::7 2001:db8::9 4711 443\r\n";
    client.send(header).expect("is taken");
    expect(&mut backend.accept(), header);
}
