//! Writing a header.

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

use super::{Addresses, V2_COMMAND_PROXY, V2_START, V2_TCP4, V2_TCP6, V2_VERSION};

/// Both addresses in one family: IPv4 where both are, IPv4 as it stands in IPv6 else.
enum Pair {
    V4([u8; 4], [u8; 4]),
    V6(Ipv6Addr, Ipv6Addr),
}

fn pair(addresses: &Addresses) -> Pair {
    let canonical = |ip: IpAddr| ip.to_canonical();
    let wide = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    match (
        canonical(addresses.source.ip()),
        canonical(addresses.destination.ip()),
    ) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Pair::V4(source.octets(), destination.octets()),
        (source, destination) => Pair::V6(wide(source), wide(destination)),
    }
}

/// Appends a version 1 header to `out`.
pub fn write_v1(addresses: &Addresses, out: &mut Vec<u8>) {
    let (source_port, destination_port) = (addresses.source.port(), addresses.destination.port());
    let (family, source, destination): (_, IpAddr, IpAddr) = match pair(addresses) {
        Pair::V4(source, destination) => ("TCP4", source.into(), destination.into()),
        Pair::V6(source, destination) => ("TCP6", source.into(), destination.into()),
    };
    // Writing into a Vec can't fail.
    let _ = write!(
        out,
        "PROXY {family} {source} {destination} {source_port} {destination_port}\r\n"
    );
}

/// Appends a version 2 header, without TLVs, to `out`.
pub fn write_v2(addresses: &Addresses, out: &mut Vec<u8>) {
    out.extend_from_slice(V2_START);
    out.push(V2_VERSION | V2_COMMAND_PROXY);
    match pair(addresses) {
        Pair::V4(source, destination) => {
            out.extend_from_slice(&[V2_TCP4, 0, 12]);
            out.extend_from_slice(&source);
            out.extend_from_slice(&destination);
        }
        Pair::V6(source, destination) => {
            out.extend_from_slice(&[V2_TCP6, 0, 36]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
    }
    out.extend_from_slice(&addresses.source.port().to_be_bytes());
    out.extend_from_slice(&addresses.destination.port().to_be_bytes());
}
