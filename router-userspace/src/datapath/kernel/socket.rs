//! What the kernel says of a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::net::unacked_bytes;

/// `struct tcp_info` up to and with `tcpi_bytes_acked` (include/uapi/linux/tcp.h).
const TCP_INFO_BYTES: usize = 128;
const BYTES_ACKED_AT: usize = 120;
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;
/// How often the two halves of a reading are tried to be had from one moment.
const READINGS_MAX: u32 = 8;

/// The send side of a TCP socket at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendSide {
    /// Bytes that the peer has acknowledged.
    pub(super) acked: u64,
    /// Bytes that were put into the socket: acknowledged, under way, or waiting for the peer's window.
    pub(super) queued: u64,
    /// Whether it is established.
    pub(super) established: bool,
    /// Whether the connection is gone: whatever waits will never leave.
    pub(super) closed: bool,
}

/// A socket's cookie: the number that the kernel gives it for its life.
pub(super) fn cookie(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Reads the send side. Two system calls, or more where the peer acknowledges between them.
pub(super) fn send_side(fd: BorrowedFd<'_>) -> io::Result<SendSide> {
    let mut before = info(fd)?;
    for _ in 0..READINGS_MAX {
        let waiting = unacked_bytes(&fd)?;
        let after = info(fd)?;
        if after == before {
            return Ok(SendSide {
                acked: after.1,
                queued: after.1 + waiting,
                established: after.0 == TCP_ESTABLISHED,
                closed: after.0 == TCP_CLOSE,
            });
        }
        before = after;
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Waits until no program run on this socket is under way: reading the info takes the socket's lock, which every
/// run holds.
pub(super) fn settle(fd: BorrowedFd<'_>) -> io::Result<()> {
    info(fd).map(|_| ())
}

/// State and acknowledged bytes.
fn info(fd: BorrowedFd<'_>) -> io::Result<(u8, u64)> {
    let mut bytes = [0u8; TCP_INFO_BYTES];
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    let mut acked = [0u8; 8];
    acked.copy_from_slice(&bytes[BYTES_ACKED_AT..BYTES_ACKED_AT + 8]);
    Ok((bytes[0], u64::from_ne_bytes(acked)))
}

/// Fills `value` with a socket option of exactly that many bytes or more.
fn option(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &mut [u8]) -> io::Result<()> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < value.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel's answer is too short",
        ));
    }
    Ok(())
}
