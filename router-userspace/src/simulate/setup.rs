//! What a run is about.

use std::time::Duration;

use super::Trace;

/// Requests a backend that a saturating load keeps under way.
pub(super) const SATURATING_OUTSTANDING: usize = 24;

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// At the trace's times.
    AsRecorded,
    /// At the trace's times, scaled to so many a second.
    Rate(f64),
    /// So many sessions a backend at a time, each in closed loop.
    Sessions(usize),
    /// [`SATURATING_OUTSTANDING`] a backend at a time, in the trace's order and without pauses.
    Saturate,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A backend takes `factor` times as long for everything, from a time on.
    Slow {
        /// Which.
        backend: usize,
        /// How much.
        factor: f64,
        /// From when.
        at: Duration,
    },
    /// A backend loses its cache and its requests; those without a first token are sent again.
    Restart {
        /// Which.
        backend: usize,
        /// When.
        at: Duration,
    },
    /// The router believes that caches are this much as large as they are.
    Capacity(f64),
    /// The router begins with speeds that are wrong by this factor, up and down by turns.
    Speed(f64),
    /// First tokens and ends reach the router this late.
    EventLag(Duration),
}

/// Engines, load, faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Engines, at least 1.
    pub backends: usize,
    /// Tokens of each one's cache.
    pub capacity_tokens: u64,
    /// Their speeds, repeated as needed; empty = all 1.
    pub speeds: Vec<f64>,
    /// How requests come.
    pub load: Load,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Tokens of context that double the cost of a prefilled token.
    pub attention_tokens: Option<u32>,
    /// Routers, each of which gets an equal part of the requests by lot.
    pub routers: usize,
    /// How late a router hears of what the others sent and of how it went; `None` = never.
    pub peer_lag: Option<Duration>,
    /// Requests in flight from which a backend is saturated for the router.
    pub max_in_flight: u32,
    /// All chance follows from it.
    pub seed: u64,
}

/// Why a setup makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// There has to be a backend and a router.
    #[error("at least one backend and one router")]
    Nobody,
    /// Sessions need a trace of sessions and the other way round.
    #[error("this trace has {0}")]
    Load(&'static str),
    /// A fault names a backend that isn't there.
    #[error("there's no backend {0}; they count from 0")]
    NoBackend(usize),
}

impl Setup {
    /// Equal backends, one router, nothing wrong.
    #[must_use]
    pub fn new(backends: usize, capacity_tokens: u64, load: Load) -> Setup {
        Setup {
            backends,
            capacity_tokens,
            speeds: Vec::new(),
            load,
            faults: Vec::new(),
            attention_tokens: None,
            routers: 1,
            peer_lag: None,
            max_in_flight: u32::MAX,
            seed: 1,
        }
    }

    /// Whether it can be run over `trace`.
    ///
    /// # Errors
    /// [`SetupError`] says why not.
    pub fn check(&self, trace: &Trace) -> Result<(), SetupError> {
        if self.backends == 0 || self.routers == 0 {
            return Err(SetupError::Nobody);
        }
        match (self.load, trace.sessions.is_empty()) {
            (Load::Sessions(_), true) => return Err(SetupError::Load("no sessions: give a rate")),
            (Load::Rate(_) | Load::AsRecorded, false) => {
                return Err(SetupError::Load("sessions: give sessions a backend"));
            }
            _ => {}
        }
        for fault in &self.faults {
            if let Fault::Slow { backend, .. } | Fault::Restart { backend, .. } = *fault
                && backend >= self.backends
            {
                return Err(SetupError::NoBackend(backend));
            }
        }
        Ok(())
    }

    /// A backend's speed.
    pub(super) fn speed(&self, backend: usize) -> f64 {
        match self.speeds.len() {
            0 => 1.0,
            count => self.speeds[backend % count],
        }
    }

    /// How much of a cache the router believes to be there.
    pub(super) fn capacity_believed(&self) -> u64 {
        let factor = self.faults.iter().find_map(|fault| match fault {
            Fault::Capacity(factor) => Some(*factor),
            _ => None,
        });
        (self.capacity_tokens as f64 * factor.unwrap_or(1.0)) as u64
    }

    /// How late the router hears of first tokens and ends.
    pub(super) fn event_lag(&self) -> Duration {
        let lag = self.faults.iter().find_map(|fault| match fault {
            Fault::EventLag(lag) => Some(*lag),
            _ => None,
        });
        lag.unwrap_or(Duration::ZERO)
    }
}
