//! The PROXY protocol, versions 1 and 2: the addresses of a connection, sent by a proxy in front of its bytes.
//!
//! # Source
//! HAProxy, doc/proxy-protocol.txt (revision 2.3).

mod read;
mod write;

use std::net::SocketAddr;

pub use read::{HeaderError, parse};
pub use write::{write_v1, write_v2};

/// Bytes of a version 1 header, its CRLF included.
pub const V1_BYTES_MAX: usize = 107;

/// Bytes of a version 2 header that are accepted. The format knows 64 KiB more; what senders add to the addresses
/// (TLVs) has some hundred bytes.
pub const V2_BYTES_MAX: usize = 4096;

const V1_START: &[u8] = b"PROXY ";
const V2_START: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_BYTES: usize = 16;
const V2_VERSION: u8 = 0x20;
const V2_COMMAND_LOCAL: u8 = 0;
const V2_COMMAND_PROXY: u8 = 1;
const V2_TCP4: u8 = 0x11;
const V2_TCP6: u8 = 0x21;

/// Both ends of the connection that the proxy accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// Where the client connected.
    pub destination: SocketAddr,
}

/// What a header says; `None` = nothing of the client (a proxy's own health check, or another family).
pub type Header = Option<Addresses>;

#[cfg(test)]
mod tests;
