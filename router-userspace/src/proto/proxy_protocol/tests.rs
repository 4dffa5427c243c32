//! Headers by hand, round trips, and every split.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::*;

fn addresses(source: &str, destination: &str) -> Addresses {
    Addresses {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
    }
}

/// A version 2 header with this command, family and payload.
fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[command, family], &length, payload].concat()
}

/// Checks that every prefix asks for more and that bytes behind the header change nothing.
fn check_splits(header: &[u8], expected: Header) {
    for at in 0..header.len() {
        assert_eq!(parse(&header[..at]), Ok(None), "{at} bytes of {header:?}");
    }
    assert_eq!(parse(header), Ok(Some((expected, header.len()))));
    let longer = [header, b"\r\nPROXY "].concat();
    assert_eq!(parse(&longer), Ok(Some((expected, header.len()))));
}

#[test]
fn version_1_is_read_at_every_split() {
    let cases: [(&[u8], Header); 5] = [
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            Some(addresses("192.0.2.1:56324", "198.51.100.2:443")),
        ),
        (
            b"PROXY TCP6 2001:db8::1 ::1 65535 0\r\n",
            Some(addresses("[2001:db8::1]:65535", "[::1]:0")),
        ),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
        (
            b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe 65535 65535\r\n",
            Some(addresses(
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe]:65535",
            )),
        ),
    ];
    for (header, expected) in cases {
        check_splits(header, expected);
    }
}

#[test]
fn version_2_is_read_at_every_split() {
    let four = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 4, 1, 0xbb];
    let expected = Some(addresses("192.0.2.1:56324", "198.51.100.2:443"));
    check_splits(&v2(0x21, 0x11, &four), expected);
    // A TLV behind the addresses.
    check_splits(&v2(0x21, 0x11, &[&four[..], &[4, 0, 2, 0, 0]].concat()), expected);
    let mut six = [0u8; 36];
    (six[0], six[1], six[15], six[31], six[33], six[35]) = (0x20, 1, 1, 2, 80, 81);
    check_splits(&v2(0x21, 0x21, &six), Some(addresses("[2001::1]:80", "[::2]:81")));
    // A health check of the proxy itself, with and without what is to be passed over.
    check_splits(&v2(0x20, 0, &[]), None);
    check_splits(&v2(0x20, 0x11, &four), None);
    check_splits(&v2(0x21, 0, &[1, 2, 3]), None);
    check_splits(&v2(0x21, 0x31, &[0; 216]), None);
}

#[test]
fn what_breaks_the_grammar_is_refused() {
    let cases: &[(&[u8], HeaderError)] = &[
        (b"GET / HTTP/1.1\r\n", HeaderError::Missing),
        (b"PROXX", HeaderError::Missing),
        (b"\r\n\r\n\0\r\nQUIX", HeaderError::Missing),
        (b"\x16\x03\x01", HeaderError::Missing),
    ];
    for (bytes, expected) in cases {
        assert_eq!(parse(bytes), Err(*expected), "{bytes:?}");
    }
    for line in [
        "TCP4 192.0.2.1 198.51.100.2 56324",
        "TCP4 192.0.2.1 198.51.100.2 56324 443 1",
        "TCP4  192.0.2.1 198.51.100.2 56324 443",
        "TCP4 192.0.2.1 198.51.100.2 56324 65536",
        "TCP4 192.0.2.1 198.51.100.2 056324 443",
        "TCP4 192.0.2.1 198.51.100.2 +1 443",
        "TCP4 192.0.2.01 198.51.100.2 1 443",
        "TCP4 ::1 ::1 1 443",
        "TCP6 192.0.2.1 198.51.100.2 1 443",
        "UDP4 192.0.2.1 198.51.100.2 1 443",
        "tcp4 192.0.2.1 198.51.100.2 1 443",
        "",
    ] {
        let header = format!("PROXY {line}\r\n");
        assert!(
            matches!(parse(header.as_bytes()), Err(HeaderError::Malformed(_))),
            "{line}"
        );
    }
    for (header, what) in [
        (v2(0x11, 0x11, &[0; 12]), "version"),
        (v2(0x22, 0x11, &[0; 12]), "command"),
        (v2(0x21, 0x11, &[0; 11]), "too short for IPv4"),
        (v2(0x21, 0x21, &[0; 35]), "too short for IPv6"),
        (v2(0x21, 0x41, &[0; 36]), "family"),
        (v2(0x21, 0x13, &[0; 36]), "protocol"),
    ] {
        assert!(matches!(parse(&header), Err(HeaderError::Malformed(_))), "{what}");
    }
}

#[test]
fn both_bounds_hold() {
    let endless = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 200]].concat();
    assert_eq!(parse(&endless[..V1_BYTES_MAX - 1]), Ok(None));
    assert_eq!(parse(&endless[..V1_BYTES_MAX]), Err(HeaderError::TooLong));
    let full = v2(0x20, 0, &vec![0; V2_BYTES_MAX - V2_FIXED_BYTES]);
    assert_eq!(parse(&full), Ok(Some((None, V2_BYTES_MAX))));
    let over = v2(0x20, 0, &vec![0; V2_BYTES_MAX - V2_FIXED_BYTES + 1]);
    assert_eq!(parse(&over[..V2_FIXED_BYTES]), Err(HeaderError::TooLong));
}

fn socket() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
        any::<[u8; 16]>().prop_map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
        any::<[u8; 4]>().prop_map(|octets| IpAddr::V6(Ipv4Addr::from(octets).to_ipv6_mapped())),
    ];
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(source in socket(), destination in socket(), behind in any::<[u8; 3]>()) {
        let written = Addresses { source, destination };
        for write in [write_v1, write_v2] {
            let mut header = Vec::new();
            write(&written, &mut header);
            let length = header.len();
            for at in 0..length {
                prop_assert_eq!(parse(&header[..at]), Ok(None));
            }
            header.extend_from_slice(&behind);
            let (read, consumed) = parse(&header).expect("good").expect("whole");
            let read = read.expect("addresses");
            prop_assert_eq!(consumed, length);
            prop_assert_eq!(canonical(read.source), canonical(source));
            prop_assert_eq!(canonical(read.destination), canonical(destination));
            prop_assert_eq!(read.source.is_ipv4(), read.destination.is_ipv4());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_more_bytes_never_revoke_an_answer(
        start in prop_oneof![Just(&b""[..]), Just(&b"PROXY "[..]), Just(&b"PROXY TCP4 "[..]), Just(&V2_START[..])],
        rest in proptest::collection::vec(any::<u8>(), 0..150),
    ) {
        let bytes = [start, &rest].concat();
        let mut known = Ok(None);
        for at in 0..=bytes.len() {
            let now = parse(&bytes[..at]);
            if known != Ok(None) {
                prop_assert_eq!(now, known);
            }
            known = now;
        }
    }
}
