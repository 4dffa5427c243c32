//! Types and pure functions shared by the BPF programs and userspace.
//!
//! `no_std` without `alloc`, no I/O, no kernel types: everything here runs and is tested on the host.
//!
//! - [`framing`]: where an HTTP/1.1 message body ends, byte by byte.
//! - [`map`]: the layout of the BPF maps.
#![no_std]

pub mod framing;
pub mod map;
