//! How many requests may be sent again.

use std::sync::Mutex;
use std::time::Duration;

use super::RetryConfig;
use crate::types::{Micros, Rng};

/// The window over which the budget is counted.
const WINDOW_S: usize = 10;
/// The wait before the second try; doubled for each further one, plus or minus half of it at random.
const BACKOFF_FIRST: Duration = Duration::from_millis(10);

/// Counts requests and retries of the last 10 s, over all workers.
#[derive(Debug, Default)]
pub(super) struct RetryBudget {
    slots: Mutex<[Slot; WINDOW_S]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    second: u64,
    requests: u32,
    retries: u32,
}

impl RetryBudget {
    pub(super) fn note_request(&self, now: Micros) {
        self.with_slot(now, |slot, _| slot.requests += 1);
    }

    /// Takes one retry from the budget, if it has one.
    pub(super) fn take(&self, config: &RetryConfig, now: Micros) -> bool {
        self.with_slot(now, |slot, (requests, retries)| {
            let allowed = (u64::from(requests) * u64::from(config.budget_percent) / 100)
                .max(u64::from(config.budget_floor));
            let granted = u64::from(retries) < allowed;
            if granted {
                slot.retries += 1;
            }
            granted
        })
    }

    /// The lock covers a few additions, never I/O, so a worker waits for it less than for a cache miss or two.
    fn with_slot<T>(&self, now: Micros, act: impl FnOnce(&mut Slot, (u32, u32)) -> T) -> T {
        let second = now.0 / 1_000_000;
        let mut slots = self
            .slots
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let oldest = second.saturating_sub(WINDOW_S as u64 - 1);
        let sums = slots
            .iter()
            .filter(|slot| slot.second >= oldest)
            .fold((0u32, 0u32), |sum, slot| {
                (sum.0 + slot.requests, sum.1 + slot.retries)
            });
        let slot = &mut slots[(second % WINDOW_S as u64) as usize];
        if slot.second != second {
            *slot = Slot {
                second,
                ..Slot::default()
            };
        }
        act(slot, sums)
    }
}

/// The wait before try number `next_try` (2 = the first retry).
pub(super) fn backoff(next_try: u32, rng: &mut Rng) -> Duration {
    let base = BACKOFF_FIRST * (1 << next_try.saturating_sub(2).min(6));
    base.mul_f64(0.5 + rng.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Micros {
        Micros(second * 1_000_000)
    }

    #[test]
    fn a_tenth_of_the_requests_may_be_repeated() {
        let budget = RetryBudget::default();
        let config = RetryConfig::default();
        for _ in 0..1000 {
            budget.note_request(at(5));
        }
        let granted = (0..1000).filter(|_| budget.take(&config, at(6))).count();
        assert_eq!(granted, 100);
    }

    #[test]
    fn a_quiet_router_still_has_its_floor_and_old_seconds_are_forgotten() {
        let budget = RetryBudget::default();
        let config = RetryConfig::default();
        let granted = (0..100).filter(|_| budget.take(&config, at(1))).count();
        assert_eq!(granted as u32, config.budget_floor);
        assert!(!budget.take(&config, at(10)));
        assert!(budget.take(&config, at(11)));
    }

    #[test]
    fn backoff_grows_and_stays_bounded() {
        let mut rng = Rng::new(7);
        for next_try in 2..40 {
            let wait = backoff(next_try, &mut rng);
            assert!(
                wait >= Duration::from_millis(5) && wait <= Duration::from_millis(960),
                "{wait:?}"
            );
        }
    }
}
