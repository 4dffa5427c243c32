//! The list of backends and each one's live counts.
//!
//! Workers write the counts as they serve; the control thread reads them and writes the state. Every field has
//! one meaning and is an atomic, so that a decision reads them without a lock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::load::EngineLoad;
use crate::policy::Member;
use crate::types::{BackendId, BackendSnapshot, BackendState, Micros, Progress, now};

/// What the operator said of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// How it is called in logs, metrics and `/backends`: `host:port` where no name is given. Printable ASCII
    /// without quotes and backslashes.
    pub name: String,
    /// Where it listens.
    pub addr: SocketAddr,
    /// Its share relative to the others, at least 1.
    pub weight: u32,
    /// The in-flight count from which it is saturated; `None` = decided from its own reports, 256 without.
    pub max_in_flight: Option<u32>,
    /// The engine's own queue length from which it is saturated.
    pub max_waiting: u32,
}

/// `max_in_flight` of a backend that reports nothing.
pub const MAX_IN_FLIGHT_UNKNOWN: u32 = 256;
/// `max_waiting` where the operator gives none.
pub const MAX_WAITING_DEFAULT: u32 = 16;

/// The live counts of one backend.
#[derive(Debug, Default)]
pub struct BackendStats {
    in_flight: AtomicU32,
    /// Of these, upgraded connections: they may be silent for as long as they like.
    upgraded: AtomicU32,
    state: AtomicU8,
    /// What health thinks of it, before it is decided whether health is heeded.
    verdict: AtomicU8,
    draining: AtomicBool,
    /// Response bytes received from it, heads included, and when the last came.
    pub progress: Arc<Progress>,
    /// Requests sent to it, retries included.
    pub requests_total: AtomicU64,
    /// What each way has carried of its answers, by [`CarriedBy`].
    pub carried: [Carried; 3],
    /// Final responses whose head arrived, by class: index 0 = 2xx and 3xx, 1 = 4xx, 2 = 5xx.
    pub answers_total: [AtomicU64; 3],
    /// Connections that could not be opened.
    pub connect_failures_total: AtomicU64,
    /// Requests that failed after they were sent and before or inside their response.
    pub broken_total: AtomicU64,
    /// Probes that ended, by [`crate::backend::ProbeOutcome`].
    pub probes_total: [AtomicU64; 4],
    /// When the last of them ended, µs of [`crate::types::now`]; 0 = never.
    pub last_probe_us: AtomicU64,
    /// How busy it is by its own word.
    pub load: EngineLoad,
}

/// A way from an engine's connection to a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedBy {
    /// The worker that sent the request.
    Worker,
    /// A relay's copy loop.
    Copy,
    /// The kernel.
    Kernel,
}

/// What one way has carried.
#[derive(Debug, Default)]
pub struct Carried {
    /// Answers that ended on it; on the kernel's where it carried any of their bytes.
    pub requests_total: AtomicU64,
    /// Bytes of their bodies.
    pub bytes_total: AtomicU64,
}

/// One engine replica.
#[derive(Debug)]
pub struct Backend {
    /// Its index in the set.
    pub id: BackendId,
    /// What the operator said of it.
    pub config: BackendConfig,
    /// Its live counts.
    pub stats: BackendStats,
}

impl Backend {
    /// Counts one request in flight until the returned guard is dropped.
    #[must_use]
    pub fn charge(self: &Arc<Self>) -> Charge {
        self.stats.in_flight.fetch_add(1, Ordering::Relaxed);
        self.stats.requests_total.fetch_add(1, Ordering::Relaxed);
        Charge {
            backend: Arc::clone(self),
            upgraded: false,
        }
    }

    /// Requests in flight that have to produce bytes: all but upgraded connections.
    #[must_use]
    pub fn producing(&self) -> u32 {
        self.in_flight()
            .saturating_sub(self.stats.upgraded.load(Ordering::Relaxed))
    }

    /// Requests in flight now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.stats.in_flight.load(Ordering::Relaxed)
    }

    /// Whether it may get new requests.
    #[must_use]
    pub fn state(&self) -> BackendState {
        BackendState::from_u8(self.stats.state.load(Ordering::Relaxed))
    }

    /// Sets whether it may get new requests. While health is watched, [`Backend::set_health`] does that.
    pub fn set_state(&self, state: BackendState) {
        self.stats.state.store(state as u8, Ordering::Relaxed);
    }

    /// What health thinks of it, whether it is heeded or not.
    #[must_use]
    pub fn verdict(&self) -> BackendState {
        BackendState::from_u8(self.stats.verdict.load(Ordering::Relaxed))
    }

    /// Takes the verdict of health. Draining outranks it; where health is `ignored` the backend counts as healthy.
    pub fn set_health(&self, verdict: BackendState, ignored: bool) {
        self.stats.verdict.store(verdict as u8, Ordering::Relaxed);
        self.set_state(match verdict {
            _ if self.draining() => BackendState::Draining,
            _ if ignored => BackendState::Healthy,
            verdict => verdict,
        });
    }

    /// When its last probe ended; `None` = never.
    #[must_use]
    pub fn last_probe(&self) -> Option<Micros> {
        match self.stats.last_probe_us.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Micros(micros)),
        }
    }

    /// Whether an operator is emptying it.
    #[must_use]
    pub fn draining(&self) -> bool {
        self.stats.draining.load(Ordering::Relaxed)
    }

    /// Begins or ends emptying it.
    pub fn set_draining(&self, draining: bool) {
        self.stats.draining.store(draining, Ordering::Relaxed);
        self.set_state(if draining {
            BackendState::Draining
        } else {
            self.verdict()
        });
    }

    /// Notes that response bytes came from it.
    pub fn note_bytes(&self, bytes: u64, now: Micros) {
        self.stats.progress.note(bytes, now);
    }

    /// Notes what a way has carried of an answer.
    pub fn count_carried(&self, by: CarriedBy, requests: u64, bytes: u64) {
        let carried = &self.stats.carried[by as usize];
        carried.requests_total.fetch_add(requests, Ordering::Relaxed);
        carried.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes a final response's head.
    pub fn count_answer(&self, status: u16) {
        let class = match status {
            400..=499 => 1,
            500..=999 => 2,
            _ => 0,
        };
        self.stats.answers_total[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Where relays note its bytes.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.stats.progress)
    }

    /// The in-flight count from which it is saturated: the operator's, else what its reports tell.
    #[must_use]
    pub fn max_in_flight(&self) -> u32 {
        let configured = self.config.max_in_flight;
        let limit = configured.or_else(|| self.stats.load.max_in_flight());
        limit.unwrap_or(MAX_IN_FLIGHT_UNKNOWN)
    }

    /// What a policy sees of it now.
    #[must_use]
    pub fn snapshot(&self) -> BackendSnapshot {
        self.snapshot_at(now())
    }

    /// What a policy sees of it at `now`, so that one look at the clock serves a whole decision.
    #[must_use]
    pub fn snapshot_at(&self, now: Micros) -> BackendSnapshot {
        BackendSnapshot {
            id: self.id,
            weight: self.config.weight,
            state: self.state(),
            in_flight: self.in_flight(),
            max_in_flight: self.max_in_flight(),
            waiting: self.stats.load.snapshot(now).and_then(|load| load.waiting),
            max_waiting: self.config.max_waiting,
        }
    }
}

/// One request's place in a backend's in-flight count; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    backend: Arc<Backend>,
    upgraded: bool,
}

impl Charge {
    /// The request has become an upgraded connection.
    pub fn upgrade(&mut self) {
        if !std::mem::replace(&mut self.upgraded, true) {
            self.backend.stats.upgraded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The backend that carries the request.
    #[must_use]
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.upgraded {
            self.backend.stats.upgraded.fetch_sub(1, Ordering::Relaxed);
        }
        self.backend.stats.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All backends, in the order of the config.
#[derive(Debug, Default)]
pub struct BackendSet {
    /// Index = [`BackendId`].
    pub backends: Vec<Arc<Backend>>,
    /// Whether so many are unfit that health is ignored; the health driver's to set.
    pub health_ignored: AtomicBool,
}

impl BackendSet {
    /// A set in the order of `configs`, all healthy until the first probes say otherwise.
    #[must_use]
    pub fn new(configs: Vec<BackendConfig>) -> BackendSet {
        let backends = configs
            .into_iter()
            .enumerate()
            .map(|(index, config)| {
                let id = BackendId(u32::try_from(index).unwrap_or(u32::MAX));
                Arc::new(Backend {
                    id,
                    config,
                    stats: BackendStats::default(),
                })
            })
            .collect();
        BackendSet {
            backends,
            health_ignored: AtomicBool::new(false),
        }
    }

    /// Each backend's name and weight, in order: what rings are built of.
    pub fn members(&self) -> impl Iterator<Item = Member<'_>> {
        self.backends.iter().map(|backend| Member {
            name: &backend.config.name,
            weight: backend.config.weight,
        })
    }

    /// The backend with this id.
    #[must_use]
    pub fn get(&self, id: BackendId) -> Option<&Arc<Backend>> {
        self.backends.get(id.0 as usize)
    }
}
