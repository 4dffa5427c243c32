//! Reading a header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{
    Addresses, Header, V1_BYTES_MAX, V1_START, V2_BYTES_MAX, V2_COMMAND_LOCAL, V2_COMMAND_PROXY,
    V2_FIXED_BYTES, V2_START, V2_TCP4, V2_TCP6, V2_VERSION,
};

/// Why there is no header to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes begin otherwise.
    #[error("no PROXY header")]
    Missing,
    /// It breaks the grammar.
    #[error("malformed PROXY header: {0}")]
    Malformed(&'static str),
    /// It is longer than what is accepted.
    #[error("PROXY header too long")]
    TooLong,
}

/// Reads the header at the begin of `bytes`: what it says and its length; `None` = more bytes are needed.
///
/// Cost: at most [`V1_BYTES_MAX`] bytes are looked at for version 1, the fixed part and the addresses for version 2.
///
/// # Errors
/// [`HeaderError`] as soon as the bytes can't become one.
pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    if begins(bytes, V2_START) {
        version_2(bytes)
    } else if begins(bytes, V1_START) {
        version_1(bytes)
    } else {
        Err(HeaderError::Missing)
    }
}

/// Whether `bytes` begin with `start`, as far as there are any.
fn begins(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(have, wanted)| have == wanted)
}

fn version_1(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    let searched = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = searched.windows(2).position(|pair| pair == b"\r\n") else {
        return if searched.len() == V1_BYTES_MAX {
            Err(HeaderError::TooLong)
        } else {
            Ok(None)
        };
    };
    let line = std::str::from_utf8(&bytes[V1_START.len().min(end)..end])
        .map_err(|_| HeaderError::Malformed("not ASCII"))?;
    line_1(line).map(|header| Some((header, end + 2)))
}

/// The line behind `PROXY `.
fn line_1(line: &str) -> Result<Header, HeaderError> {
    let mut words = line.split(' ');
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        // Whatever follows is to be ignored.
        return Ok(None);
    }
    let words: Vec<&str> = words.take(5).collect();
    let &[source, destination, source_port, destination_port] = &words[..] else {
        return Err(HeaderError::Malformed("not four words behind the family"));
    };
    let ip = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => None,
    };
    let end = |ip_text: &str, port_text: &str| {
        let ip = ip(ip_text).ok_or(HeaderError::Malformed("an address that isn't of the family"))?;
        let port = port(port_text).ok_or(HeaderError::Malformed("a port that is none"))?;
        Ok(SocketAddr::new(ip, port))
    };
    Ok(Some(Addresses {
        source: end(source, source_port)?,
        destination: end(destination, destination_port)?,
    }))
}

/// Decimal digits without a leading zero, as the format wants it.
fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn version_2(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    let Some((fixed, rest)) = bytes.split_at_checked(V2_FIXED_BYTES) else {
        return Ok(None);
    };
    let (command, family) = (fixed[12], fixed[13]);
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if command & 0xf0 != V2_VERSION {
        return Err(HeaderError::Malformed("not version 2"));
    }
    if V2_FIXED_BYTES + length > V2_BYTES_MAX {
        return Err(HeaderError::TooLong);
    }
    let needed = match (command & 0x0f, family) {
        (V2_COMMAND_PROXY, V2_TCP4) => 12,
        (V2_COMMAND_PROXY, V2_TCP6) => 36,
        // A proxy speaking for itself, datagrams, unix sockets: valid, and no address that would mean something here.
        (V2_COMMAND_LOCAL, _) | (V2_COMMAND_PROXY, 0x00 | 0x12 | 0x22 | 0x31 | 0x32) => 0,
        (V2_COMMAND_PROXY, _) => return Err(HeaderError::Malformed("unknown family")),
        _ => return Err(HeaderError::Malformed("unknown command")),
    };
    if length < needed {
        return Err(HeaderError::Malformed("too short for its addresses"));
    }
    // What follows the addresses (TLVs) is passed over.
    let Some(payload) = rest.get(..length) else {
        return Ok(None);
    };
    Ok(Some((addresses_2(&payload[..needed]), V2_FIXED_BYTES + length)))
}

fn addresses_2(payload: &[u8]) -> Header {
    let port = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    let ip4 = |at: usize| <[u8; 4]>::try_from(&payload[at..at + 4]).ok().map(IpAddr::from);
    let ip6 = |at: usize| <[u8; 16]>::try_from(&payload[at..at + 16]).ok().map(IpAddr::from);
    let (source, destination, ports) = match payload.len() {
        12 => (ip4(0)?, ip4(4)?, 8),
        36 => (ip6(0)?, ip6(16)?, 32),
        _ => return None,
    };
    Some(Addresses {
        source: SocketAddr::new(source, port(ports)),
        destination: SocketAddr::new(destination, port(ports + 2)),
    })
}
