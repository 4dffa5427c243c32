//! A connection as a value that can move between threads.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use bytes::BytesMut;

/// A TCP connection: its descriptor, and the bytes that were read from it beyond what has been consumed.
///
/// Whoever holds the value may use the connection; no operation is pending on it when it moves.
#[derive(Debug)]
pub struct Conn {
    fd: OwnedFd,
    /// Bytes read and not consumed yet, in order.
    pub read_ahead: BytesMut,
    /// Bytes read from the socket in its life, read-ahead included.
    pub bytes_read: u64,
}

impl Conn {
    /// A connection from which nothing has been read yet.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Conn {
        Conn {
            fd,
            read_ahead: BytesMut::new(),
            bytes_read: 0,
        }
    }

    /// The descriptor's number, for system calls.
    #[must_use]
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
