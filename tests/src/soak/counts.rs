//! The soak's figures.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A delay beyond this is counted as a stall.
pub(super) const STALL: Duration = Duration::from_millis(100);

/// A number that threads add to.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn one(&self) {
        self.add(1);
    }

    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Delays of bytes between a write at one end and their read at the other.
#[derive(Debug, Default)]
pub(super) struct Delays {
    seen: Count,
    stalls: Count,
    sum_us: Count,
    max_us: AtomicU64,
}

impl Delays {
    pub(super) fn note(&self, delay: Duration) {
        let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.seen.one();
        self.sum_us.add(us);
        self.max_us.fetch_max(us, Ordering::Relaxed);
        if delay > STALL {
            self.stalls.one();
        }
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} over {} ms, mean {} us, longest {} ms",
            self.stalls.get(),
            self.seen.get(),
            STALL.as_millis(),
            self.sum_us.get() / self.seen.get().max(1),
            self.max_us.load(Ordering::Relaxed) / 1000
        )
    }
}

/// What has happened so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: Count,
    pub(super) connections: Count,
    /// Answers of engines, byte for byte.
    pub(super) complete: Count,
    pub(super) body_bytes: Count,
    /// Answers cut by their engine, and seen as cut.
    pub(super) cut: Count,
    /// Refusals of engines that were passed on.
    pub(super) refusals: Count,
    /// Answers of the router's own after an engine's fault.
    pub(super) own: Count,
    /// The same without a fault that the case knows of: a kept connection that died under the request.
    pub(super) own_unexplained: Count,
    pub(super) left: Count,
    pub(super) tunnels: Count,
    pub(super) restarts: Count,
    pub(super) delays: Delays,
    /// The same without a router between: what this host does by itself.
    pub(super) direct: Delays,
    /// Those of calm phases.
    pub(super) calm_delays: Delays,
    pub(super) calm_request_delays: Delays,
    /// From a request without a body to its arrival at an engine.
    pub(super) request_delays: Delays,
    pub(super) direct_requests: Delays,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests on {} connections: {} whole ({} MB), {} cut, {} refused, {} answered by the router \
             (+ {} unexplained), {} clients left, {} tunnels, {} engine restarts",
            self.requests.get(),
            self.connections.get(),
            self.complete.get(),
            self.body_bytes.get() / 1_000_000,
            self.cut.get(),
            self.refusals.get(),
            self.own.get(),
            self.own_unexplained.get(),
            self.left.get(),
            self.tunnels.get(),
            self.restarts.get()
        )
    }
}

impl Counts {
    /// The delays, beside those of this host alone.
    pub(super) fn stalls(&self) -> String {
        format!(
            "answers: calm {}\n  in a rush {}\n  direct {}\nrequests: calm {}\n  in a rush {}\n  direct {}",
            self.calm_delays,
            self.delays,
            self.direct,
            self.calm_request_delays,
            self.request_delays,
            self.direct_requests
        )
    }
}
