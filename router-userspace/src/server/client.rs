//! The client's side of a connection on its worker.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::time::Instant;

use crate::datapath::kernel::ClientSlot;
use crate::net::{self, Conn, Departure, Idle, IoFailure, RingStream};

/// Time for which a connection that closes early still takes what the client is sending, so that its last
/// answer isn't lost to a reset (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(2);
/// How often it is looked whether a client has taken everything.
const TAKEN_POLL: Duration = Duration::from_millis(5);
/// Bytes that are taken and dropped in that time.
const LINGER_BYTES_MAX: u64 = 64 << 20;
/// Bytes read at once while lingering.
const LINGER_READ_BYTES: usize = 64 << 10;

/// What a worker needs to speak to a client, besides the connection itself.
#[derive(Debug)]
pub(super) struct Link {
    // Before `ring`: the watch ends before the descriptor that it watches closes.
    pub(super) departure: Departure,
    pub(super) ring: RingStream,
    pub(super) peer: SocketAddr,
    pub(super) write_timeout: Duration,
}

/// A client being served by this worker.
#[derive(Debug)]
pub(super) struct Client {
    /// Its place in the kernel's maps, from its first stream on; before `conn`, since what is closed must be out of
    /// them.
    pub(super) slot: Option<ClientSlot>,
    pub(super) conn: Conn,
    pub(super) link: Link,
}

impl Client {
    pub(super) fn new(fd: OwnedFd, peer: SocketAddr, write_timeout: Duration) -> io::Result<Client> {
        let conn = Conn::new(fd);
        let ring = RingStream::new(&conn)?;
        let departure = Departure::watch(ring.as_fd())?;
        Ok(Client {
            slot: None,
            conn,
            link: Link {
                departure,
                ring,
                peer,
                write_timeout,
            },
        })
    }

    /// Closes so that the answer already written still arrives.
    pub(super) async fn close_gently(self) {
        if self.conn.read_ahead.is_empty() && net::peek_idle(&self.conn) == Idle::Quiet {
            return;
        }
        self.linger().await;
    }

    /// Finishes sending, then takes and drops what the client still sends, for a bounded time.
    pub(super) async fn linger(mut self) {
        net::shutdown(&self.conn, Shutdown::Write);
        let deadline = Instant::now() + LINGER;
        let mut dropped = 0;
        while dropped < LINGER_BYTES_MAX {
            self.conn.read_ahead.clear();
            match self
                .link
                .ring
                .read(&mut self.conn, LINGER_READ_BYTES, Some(deadline))
                .await
            {
                Ok(0) | Err(_) => return,
                Ok(count) => dropped += count as u64,
            }
        }
    }

    /// Closes with a reset once the client's side has taken what was sent, for which it gets a bounded time: a
    /// reset drops what is still on its way.
    pub(super) async fn reset_when_taken(self) {
        net::reset_on_close(&self.conn);
        let deadline = Instant::now() + LINGER;
        while net::unacked_bytes(&self.conn).is_ok_and(|bytes| bytes > 0) && Instant::now() < deadline {
            tokio::time::sleep(TAKEN_POLL).await;
        }
    }

    /// Closes with a reset: the answer was cut and nothing else says so.
    pub(super) fn reset(self) {
        net::reset_on_close(&self.conn);
    }
}

impl Link {
    pub(super) async fn write(&self, bytes: Vec<u8>) -> Result<(), IoFailure> {
        self.ring.write_all(bytes, self.write_timeout).await
    }
}
