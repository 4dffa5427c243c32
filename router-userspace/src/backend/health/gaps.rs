//! How long the silences of a backend are while it works: a small decaying histogram.

use std::time::Duration;

use crate::types::Micros;

/// Buckets: bucket `i` holds gaps below `2^i` × 250 ms; the last one everything longer (about 2.3 h).
const BUCKETS: usize = 16;
/// The upper edge of the first bucket; stamps are sampled about this often, so shorter gaps can't be told apart.
const FIRST_EDGE: Duration = Duration::from_millis(250);
/// Counts are halved this often, so that what a backend did an hour ago weighs little.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// Gaps below which there is no estimate yet.
const COUNT_MIN: f64 = 20.0;

/// The estimate of one backend.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    counts: [f64; BUCKETS],
    decayed_at: Option<Micros>,
}

impl Gaps {
    /// Adds one gap that ended at `now`.
    pub(super) fn add(&mut self, gap: Duration, now: Micros) {
        let decayed_at = *self.decayed_at.get_or_insert(now);
        let age = now.since(decayed_at);
        // Halving by steps keeps the arithmetic exact and a run reproducible.
        if age >= HALF_LIFE {
            let halvings = age.as_secs() / HALF_LIFE.as_secs();
            let factor = 0.5f64.powi(i32::try_from(halvings.min(64)).unwrap_or(64));
            self.counts.iter_mut().for_each(|count| *count *= factor);
            self.decayed_at = Some(now);
        }
        let bucket = (0..BUCKETS - 1)
            .find(|bucket| gap < edge(*bucket))
            .unwrap_or(BUCKETS - 1);
        self.counts[bucket] += 1.0;
    }

    /// The upper edge of the bucket with the p99 gap; `None` while too few gaps were seen.
    pub(super) fn p99(&self) -> Option<Duration> {
        let total: f64 = self.counts.iter().sum();
        if total < COUNT_MIN {
            return None;
        }
        let mut below = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= total * 0.99 {
                return Some(edge(bucket));
            }
        }
        Some(edge(BUCKETS - 1))
    }
}

fn edge(bucket: usize) -> Duration {
    FIRST_EDGE * (1 << bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_the_edge_above_the_99th_of_a_hundred_gaps() {
        let mut gaps = Gaps::default();
        let now = Micros(1);
        (0..98).for_each(|_| gaps.add(Duration::from_millis(30), now));
        assert_eq!(gaps.p99(), Some(Duration::from_millis(250)));
        (0..2).for_each(|_| gaps.add(Duration::from_secs(20), now));
        assert_eq!(gaps.p99(), Some(Duration::from_secs(32)));
    }

    #[test]
    fn too_few_gaps_give_no_estimate_and_old_ones_fade() {
        let mut gaps = Gaps::default();
        (0..19).for_each(|_| gaps.add(Duration::from_secs(60), Micros(0)));
        assert_eq!(gaps.p99(), None);
        gaps.add(Duration::from_secs(60), Micros(0));
        assert_eq!(gaps.p99(), Some(Duration::from_secs(64)));
        let later = Micros(0) + HALF_LIFE * 10;
        (0..100).for_each(|_| gaps.add(Duration::ZERO, later));
        assert_eq!(gaps.p99(), Some(Duration::from_millis(250)));
    }
}
