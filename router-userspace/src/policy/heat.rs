//! How often each prefix is asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::Micros;

/// Prefixes that are counted at a time; one that falls on another's place takes it over.
const PLACES: usize = 8192;
/// The count falls to 1/e in this time.
const FADE_S: f64 = 2.0;
/// Time stamps count these.
const TICK_US: u64 = 1 << 14;
const TICK_BITS: u32 = 24;
const COUNT_BITS: u32 = 20;
/// Counts are stored in this part of one.
const COUNT_UNIT: f64 = 1.0 / 64.0;

/// A decayed count for each of the prefixes asked for of late, shared by all workers.
///
/// A place is one word: 20 bits of the hash, 20 of the count, 24 of the time. Two hashes with one tag share a
/// count, which makes a prefix look hotter than it is; one in a million.
#[derive(Debug)]
pub(super) struct Heat {
    places: Box<[AtomicU64]>,
}

impl Default for Heat {
    fn default() -> Heat {
        Heat {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Heat {
    /// Counts one request for `prefix` and says how many a second there were of late.
    pub(super) fn count(&self, prefix: u64, now: Micros) -> f64 {
        let mixed = prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &self.places[(mixed >> 40) as usize % PLACES];
        let tag = mixed & !(u64::MAX >> COUNT_BITS);
        let tick = (now.0 / TICK_US) & ((1 << TICK_BITS) - 1);
        let word = place.load(Ordering::Relaxed);
        let known = word & !(u64::MAX >> COUNT_BITS) == tag;
        let before = if known { decayed(word, tick) } else { 0.0 };
        let count = before + 1.0;
        let stored = ((count / COUNT_UNIT) as u64).min((1 << COUNT_BITS) - 1);
        // A count lost to another worker's is no harm.
        place.store(tag | stored << TICK_BITS | tick, Ordering::Relaxed);
        before / FADE_S
    }
}

fn decayed(word: u64, tick: u64) -> f64 {
    let count = ((word >> TICK_BITS) & ((1 << COUNT_BITS) - 1)) as f64 * COUNT_UNIT;
    let passed = tick.wrapping_sub(word) & ((1 << TICK_BITS) - 1);
    count * (-((passed * TICK_US) as f64 / 1e6) / FADE_S).exp()
}

#[cfg(test)]
mod tests {
    use super::Heat;
    use crate::types::Micros;

    #[test]
    fn a_steady_rate_is_found_and_fades_when_it_ends() {
        let heat = Heat::default();
        let mut rate = 0.0;
        for step in 0..600 {
            rate = heat.count(77, Micros(step * 50_000));
        }
        assert!((rate - 20.0).abs() < 1.0, "{rate}");
        assert!(heat.count(77, Micros(600 * 50_000 + 30_000_000)) < 0.1);
    }

    #[test]
    fn prefixes_are_counted_apart() {
        let heat = Heat::default();
        for step in 0..100 {
            heat.count(1, Micros(step * 1000));
        }
        assert_eq!(heat.count(2, Micros(100_000)), 0.0);
    }
}
