//! Connections to engines: kept ones first, else new ones.

use std::os::fd::AsFd;
use std::time::Duration;

use super::Timeouts;
use crate::backend::Backend;
use crate::datapath::kernel::{Kernel, UpstreamSlot};
use crate::net::{self, Conn, Idle, IoFailure, RingStream};
use crate::types::{BackendId, Micros};

/// Time that a connection rests before it is lent again: bytes that an engine sent behind the end of its response
/// arrive meanwhile and condemn it, instead of being taken for the answer to the next request.
const REST: Duration = Duration::from_millis(1);

/// A connection to an engine on this worker.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Its place in the kernel's maps; before `conn`, since what is closed must be out of them.
    pub(super) slot: Option<UpstreamSlot>,
    pub(super) conn: Conn,
    pub(super) ring: RingStream,
    /// Whether it has carried a request before.
    pub(super) reused: bool,
    /// `tcpi_bytes_acked` when it was taken for this request.
    pub(super) acked_at_checkout: u64,
}

impl Upstream {
    /// Makes a connection that is closed from here on one that an engine can't wait for: unread bytes in the kernel
    /// path's queues don't make the close a reset, as those in an ordinary socket do, and an engine that is blocked
    /// by a full window would learn of it only a minute later.
    fn lent(self) -> Upstream {
        if self.slot.is_some() {
            net::reset_on_close(&self.conn);
        }
        self
    }

    /// The answer is complete: a close that follows is an ordinary one.
    pub(super) fn settled(&self) {
        if self.slot.is_some() {
            net::fin_on_close(&self.conn);
        }
    }

    /// Whether the engine's kernel has acknowledged nothing of this request, so that the engine can't have seen it.
    pub(super) fn untouched(&self) -> bool {
        net::acked_bytes(&self.conn).is_ok_and(|acked| acked == self.acked_at_checkout)
    }
}

#[derive(Debug)]
struct IdleUpstream {
    slot: Option<UpstreamSlot>,
    conn: Conn,
    ring: RingStream,
    since: Micros,
}

/// The idle connections of one worker, by backend.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Vec<Vec<IdleUpstream>>,
    idle_max: usize,
    idle_time: Duration,
}

impl Pool {
    pub(super) fn new(backends: usize, idle_max: usize, idle_time: Duration) -> Pool {
        Pool {
            idle: (0..backends).map(|_| Vec::new()).collect(),
            idle_max,
            idle_time,
        }
    }

    /// A usable connection to this backend.
    pub(super) fn take(&mut self, backend: BackendId, now: Micros) -> Option<Upstream> {
        let idle = self.idle.get_mut(backend.0 as usize)?;
        // The youngest that has rested; they lie in the order in which they came.
        while let Some(place) = idle
            .iter()
            .rposition(|upstream| now.since(upstream.since) >= REST)
        {
            let IdleUpstream {
                slot,
                conn,
                ring,
                since,
            } = idle.remove(place);
            if now.since(since) > self.idle_time || net::peek_idle(&conn) == Idle::Condemned {
                continue;
            }
            let acked_at_checkout = net::acked_bytes(&conn).unwrap_or(u64::MAX);
            let upstream = Upstream {
                slot,
                conn,
                ring,
                reused: true,
                acked_at_checkout,
            };
            return Some(upstream.lent());
        }
        None
    }

    /// Keeps a connection on which nothing is owed, or drops it where enough are kept.
    pub(super) fn give_back(&mut self, backend: BackendId, upstream: Upstream, now: Micros) {
        let Some(idle) = self.idle.get_mut(backend.0 as usize) else {
            return;
        };
        let Upstream { slot, conn, ring, .. } = upstream;
        if idle.len() < self.idle_max && conn.read_ahead.is_empty() {
            idle.push(IdleUpstream {
                slot,
                conn,
                ring,
                since: now,
            });
        }
    }

    /// Closes what has been idle for too long.
    pub(super) fn expire(&mut self, now: Micros) {
        let idle_time = self.idle_time;
        for idle in &mut self.idle {
            idle.retain(|upstream| now.since(upstream.since) <= idle_time);
        }
    }
}

/// Opens a connection to `backend`, and puts it into the kernel's maps where there are any.
pub(super) async fn open(
    backend: &Backend,
    kernel: Option<&Kernel>,
    timeouts: &Timeouts,
) -> Result<Upstream, IoFailure> {
    let conn = net::connect(backend.config.addr, timeouts.connect).await?;
    let ring = RingStream::new(&conn)?;
    // Before the first request: what arrives earlier doesn't run the program. A refusal only means copying.
    let slot = kernel.and_then(|kernel| kernel.insert_upstream(conn.as_fd()).ok());
    let acked_at_checkout = net::acked_bytes(&conn).unwrap_or(u64::MAX);
    let upstream = Upstream {
        slot,
        conn,
        ring,
        reused: false,
        acked_at_checkout,
    };
    Ok(upstream.lent())
}
