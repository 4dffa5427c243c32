//! Connections to engines: kept ones first, else new ones.

use std::time::Duration;

use super::Timeouts;
use crate::backend::Backend;
use crate::net::{self, Conn, Idle, IoFailure, RingStream};
use crate::types::{BackendId, Micros};

/// A connection to an engine on this worker.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) conn: Conn,
    pub(super) ring: RingStream,
    /// Whether it has carried a request before.
    pub(super) reused: bool,
    /// `tcpi_bytes_acked` when it was taken for this request.
    acked_at_checkout: u64,
}

impl Upstream {
    /// Whether the engine's kernel has acknowledged nothing of this request, so that the engine can't have seen it.
    pub(super) fn untouched(&self) -> bool {
        net::acked_bytes(&self.conn).is_ok_and(|acked| acked == self.acked_at_checkout)
    }
}

#[derive(Debug)]
struct IdleUpstream {
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

    /// The youngest usable connection to this backend.
    pub(super) fn take(&mut self, backend: BackendId, now: Micros) -> Option<Upstream> {
        let idle = self.idle.get_mut(backend.0 as usize)?;
        while let Some(IdleUpstream { conn, ring, since }) = idle.pop() {
            if now.since(since) > self.idle_time || net::peek_idle(&conn) == Idle::Condemned {
                continue;
            }
            let acked_at_checkout = net::acked_bytes(&conn).unwrap_or(u64::MAX);
            return Some(Upstream {
                conn,
                ring,
                reused: true,
                acked_at_checkout,
            });
        }
        None
    }

    /// Keeps a connection on which nothing is owed, or drops it where enough are kept.
    pub(super) fn give_back(&mut self, backend: BackendId, conn: Conn, ring: RingStream, now: Micros) {
        let Some(idle) = self.idle.get_mut(backend.0 as usize) else {
            return;
        };
        if idle.len() < self.idle_max && conn.read_ahead.is_empty() {
            idle.push(IdleUpstream {
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

/// Opens a connection to `backend`.
pub(super) async fn open(backend: &Backend, timeouts: &Timeouts) -> Result<Upstream, IoFailure> {
    let conn = net::connect(backend.config.addr, timeouts.connect).await?;
    let ring = RingStream::new(&conn)?;
    let acked_at_checkout = net::acked_bytes(&conn).unwrap_or(u64::MAX);
    Ok(Upstream {
        conn,
        ring,
        reused: false,
        acked_at_checkout,
    })
}
