//! What the reports of one engine add up to, and when to ask for the next: pure, the time passed in.

use std::time::Duration;

use crate::proto::engine_metrics::EngineReport;
use crate::types::{Micros, Rng};

/// The least in-flight limit that is derived from reports.
pub const MAX_IN_FLIGHT_LEARNED_MIN: u32 = 64;
/// An engine that has no such page, or isn't there, is asked up to this many times less often.
const BACKOFF_MAX: u32 = 16;

/// The reader's memory of one engine.
#[derive(Debug)]
pub struct LoadLearner {
    interval: Duration,
    rng: Rng,
    due: Micros,
    /// Readings in a row that found no load to be had.
    misses: u32,
    /// The last counters, by whose fall a restart shows.
    counters: [Option<u64>; 3],
    /// The highest running count seen with nothing waiting.
    busiest: u32,
    /// Whether the last report told both counts, so that there is something to learn from.
    tells_both: bool,
}

impl LoadLearner {
    /// Knows nothing yet; the first reading is due within one `interval` of `now`, at a moment that `seed` decides,
    /// so that engines aren't asked all at once.
    #[must_use]
    pub fn new(interval: Duration, seed: u64, now: Micros) -> LoadLearner {
        let mut rng = Rng::new(seed);
        let due = now + interval.mul_f64(rng.unit());
        LoadLearner {
            interval,
            rng,
            due,
            misses: 0,
            counters: [None; 3],
            busiest: 0,
            tells_both: false,
        }
    }

    /// When to read next.
    #[must_use]
    pub fn due(&self) -> Micros {
        self.due
    }

    /// A reading begins; the next is due one jittered interval later.
    pub fn begin(&mut self, now: Micros) {
        let factor = 1 << self.misses.min(BACKOFF_MAX.ilog2());
        let jitter = 0.9 + 0.2 * self.rng.unit();
        self.due = now + (self.interval * factor).mul_f64(jitter);
    }

    /// Takes a report; returns whether the engine was restarted since the last.
    pub fn reported(&mut self, report: &EngineReport) -> bool {
        self.misses = if report.has_load() {
            0
        } else {
            self.misses.saturating_add(1)
        };
        let counters = [
            report.prompt_tokens_total,
            report.generation_tokens_total,
            report.prefix_queries_total,
        ];
        let fell = |(before, after): (&Option<u64>, &Option<u64>)| matches!((before, after), (Some(before), Some(after)) if after < before);
        let restarted = self.counters.iter().zip(&counters).any(fell);
        if restarted {
            self.forget();
        }
        for (kept, told) in self.counters.iter_mut().zip(counters) {
            *kept = told.or(*kept);
        }
        self.tells_both = report.running.is_some() && report.waiting.is_some();
        if let (Some(running), Some(0)) = (report.running, report.waiting) {
            self.busiest = self.busiest.max(running);
        }
        restarted
    }

    /// There is no such page, by the engine's own word.
    pub fn absent(&mut self) {
        self.reported(&EngineReport::default());
    }

    /// Nobody listens at its address: whatever comes back there is another process.
    pub fn gone(&mut self) {
        self.misses = self.misses.saturating_add(1);
        self.forget();
    }

    fn forget(&mut self) {
        (self.counters, self.busiest) = ([None; 3], 0);
    }

    /// The in-flight count from which it is saturated: what it was seen to run with nothing waiting, and a quarter
    /// more; `None` while its reports don't tell.
    #[must_use]
    pub fn max_in_flight(&self) -> Option<u32> {
        let quarter_more = self.busiest.saturating_add(self.busiest.div_ceil(4));
        self.tells_both
            .then(|| quarter_more.max(MAX_IN_FLIGHT_LEARNED_MIN))
    }
}
