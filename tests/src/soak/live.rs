//! What clients and engines of the soak know of each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counts::Counts;

/// Failures that are kept; one ends the soak, the others came with it.
const FAILURES_MAX: usize = 20;

/// A request that is under way.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Tries that have reached an engine.
    pub(super) tries: AtomicU32,
    /// An engine closed before it had sent a whole head.
    pub(super) died_early: AtomicBool,
    /// An engine closed inside the answer's body, or fell silent in it.
    pub(super) cut: AtomicBool,
    /// An engine could send no more: the router has closed.
    pub(super) refused: AtomicBool,
    /// When so many bytes of the body had been sent.
    sent: Mutex<Vec<(usize, Instant)>>,
    /// When the client had sent its whole request.
    asked: Mutex<Option<Instant>>,
}

impl Live {
    /// Notes that the body has been sent up to byte `count`.
    pub(super) fn note_sent(&self, count: usize) {
        lock(&self.sent).push((count, Instant::now()));
    }

    /// How long the first byte behind byte `count` has been under way.
    pub(super) fn under_way(&self, count: usize) -> Option<Duration> {
        let sent = lock(&self.sent);
        let index = sent.partition_point(|(sent, _)| *sent <= count);
        sent.get(index).map(|(_, at)| at.elapsed())
    }

    pub(super) fn note_asked(&self) {
        *lock(&self.asked) = Some(Instant::now());
    }

    /// How long the request has been under way.
    pub(super) fn asked(&self) -> Option<Duration> {
        lock(&self.asked).map(|at| at.elapsed())
    }
}

/// How clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Without a pause.
    Rush,
    /// With pauses, while what was begun before ends.
    Settle,
    /// With pauses.
    Calm,
}

/// What all threads of a soak share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) seed: u64,
    /// The longest that anything may stand still.
    pub(super) stall_max: Duration,
    pub(super) counts: Counts,
    next_id: AtomicU64,
    stop: AtomicBool,
    phase: AtomicU32,
    live: Mutex<HashMap<u64, Arc<Live>>>,
    failures: Mutex<Vec<String>>,
}

impl Shared {
    pub(super) fn new(seed: u64, stall_max: Duration) -> Shared {
        Shared {
            seed,
            stall_max,
            counts: Counts::default(),
            next_id: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            phase: AtomicU32::new(Phase::Rush as u32),
            live: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// The number of the next case.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::Relaxed);
    }

    pub(super) fn in_phase(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u32
    }

    /// A request begins.
    pub(super) fn begin(&self, id: u64) -> Arc<Live> {
        let live = Arc::<Live>::default();
        lock(&self.live).insert(id, Arc::clone(&live));
        live
    }

    pub(super) fn end(&self, id: u64) {
        lock(&self.live).remove(&id);
    }

    /// The request with this number; where its client is gone, one that nobody asks about.
    pub(super) fn live(&self, id: u64) -> Arc<Live> {
        lock(&self.live).get(&id).cloned().unwrap_or_default()
    }

    /// Notes what went wrong, and ends the soak.
    pub(super) fn fail(&self, what: String) {
        self.stop();
        let mut failures = lock(&self.failures);
        if failures.len() < FAILURES_MAX {
            eprintln!("soak: {what}");
            failures.push(what);
        }
    }

    pub(super) fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
