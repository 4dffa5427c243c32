//! What is known of an engine's load, for readers on other threads: atomics, written by the control thread alone.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::outcome::ScrapeOutcome;
use crate::proto::engine_metrics::EngineReport;
use crate::types::{LoadSnapshot, Micros};

/// The age from which a report says nothing any more.
pub const REPORT_AGE_MAX: Duration = Duration::from_secs(1);

/// Stands for `None`; a count this high isn't told apart from it.
const UNKNOWN_U32: u32 = u32::MAX;
const UNKNOWN_U64: u64 = u64::MAX;

/// The last report of one engine.
///
/// Fields are read one by one: two of them may be from different reports, which no reader minds.
#[derive(Debug)]
pub struct EngineLoad {
    running: AtomicU32,
    waiting: AtomicU32,
    waiting_uncached_tokens: AtomicU64,
    /// Bits of an `f64`; NaN = unknown.
    kv_usage_ratio: AtomicU64,
    block_tokens: AtomicU32,
    capacity_tokens: AtomicU64,
    prefix_queries_total: AtomicU64,
    prefix_hits_total: AtomicU64,
    max_in_flight: AtomicU32,
    /// µs of [`crate::types::now`]; 0 = never.
    reported_us: AtomicU64,
    /// Readings that ended, by [`ScrapeOutcome`].
    pub scrapes_total: [AtomicU64; 4],
    /// Restarts that showed in its counters.
    pub restarts_total: AtomicU64,
}

impl Default for EngineLoad {
    fn default() -> EngineLoad {
        EngineLoad {
            running: AtomicU32::new(UNKNOWN_U32),
            waiting: AtomicU32::new(UNKNOWN_U32),
            waiting_uncached_tokens: AtomicU64::new(UNKNOWN_U64),
            kv_usage_ratio: AtomicU64::new(f64::NAN.to_bits()),
            block_tokens: AtomicU32::new(UNKNOWN_U32),
            capacity_tokens: AtomicU64::new(UNKNOWN_U64),
            prefix_queries_total: AtomicU64::new(UNKNOWN_U64),
            prefix_hits_total: AtomicU64::new(UNKNOWN_U64),
            max_in_flight: AtomicU32::new(UNKNOWN_U32),
            reported_us: AtomicU64::new(0),
            scrapes_total: Default::default(),
            restarts_total: AtomicU64::new(0),
        }
    }
}

impl EngineLoad {
    /// Publishes a report that came at `now`. One that tells no load leaves the last one to grow old.
    pub fn publish(&self, report: &EngineReport, now: Micros) {
        let small = |place: &AtomicU32, value: Option<u32>| {
            place.store(value.unwrap_or(UNKNOWN_U32), Ordering::Relaxed);
        };
        let large = |place: &AtomicU64, value: Option<u64>| {
            place.store(value.unwrap_or(UNKNOWN_U64), Ordering::Relaxed);
        };
        small(&self.block_tokens, report.block_tokens);
        large(&self.capacity_tokens, report.capacity_tokens);
        large(&self.prefix_queries_total, report.prefix_queries_total);
        large(&self.prefix_hits_total, report.prefix_hits_total);
        if !report.has_load() {
            return;
        }
        small(&self.running, report.running);
        small(&self.waiting, report.waiting);
        large(&self.waiting_uncached_tokens, report.waiting_uncached_tokens);
        let usage = report.kv_usage_ratio.unwrap_or(f64::NAN);
        self.kv_usage_ratio.store(usage.to_bits(), Ordering::Relaxed);
        // Released behind the counts: whoever sees this time sees counts at least as new.
        self.reported_us.store(now.0.max(1), Ordering::Release);
    }

    /// Publishes the in-flight limit that follows from all reports; `None` = they don't tell.
    pub fn set_max_in_flight(&self, limit: Option<u32>) {
        self.max_in_flight
            .store(limit.unwrap_or(UNKNOWN_U32), Ordering::Relaxed);
    }

    /// How long ago the last report with a load came; `None` = none has.
    #[must_use]
    pub fn age(&self, now: Micros) -> Option<Duration> {
        match self.reported_us.load(Ordering::Acquire) {
            0 => None,
            at => Some(now.since(Micros(at))),
        }
    }

    /// Its load; `None` where no report is young enough.
    #[must_use]
    pub fn snapshot(&self, now: Micros) -> Option<LoadSnapshot> {
        let age = self.age(now).filter(|age| *age <= REPORT_AGE_MAX)?;
        let usage = f64::from_bits(self.kv_usage_ratio.load(Ordering::Relaxed));
        Some(LoadSnapshot {
            running: known_u32(&self.running),
            waiting: known_u32(&self.waiting),
            waiting_uncached_tokens: known_u64(&self.waiting_uncached_tokens),
            kv_usage_ratio: (!usage.is_nan()).then_some(usage),
            age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
        })
    }

    /// The in-flight count from which it is saturated, by its reports.
    #[must_use]
    pub fn max_in_flight(&self) -> Option<u32> {
        known_u32(&self.max_in_flight)
    }

    /// Tokens in a block of its KV memory, by its last page however old.
    #[must_use]
    pub fn block_tokens(&self) -> Option<u32> {
        known_u32(&self.block_tokens)
    }

    /// Tokens that its KV memory holds, by its last page however old.
    #[must_use]
    pub fn capacity_tokens(&self) -> Option<u64> {
        known_u64(&self.capacity_tokens)
    }

    /// Prompt tokens looked up in its prefix cache and found there, by its own counters.
    #[must_use]
    pub fn prefix_totals(&self) -> Option<(u64, u64)> {
        known_u64(&self.prefix_queries_total).zip(known_u64(&self.prefix_hits_total))
    }

    pub(super) fn count(&self, outcome: ScrapeOutcome) {
        self.scrapes_total[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

fn known_u32(place: &AtomicU32) -> Option<u32> {
    let value = place.load(Ordering::Relaxed);
    (value != UNKNOWN_U32).then_some(value)
}

fn known_u64(place: &AtomicU64) -> Option<u64> {
    let value = place.load(Ordering::Relaxed);
    (value != UNKNOWN_U64).then_some(value)
}
