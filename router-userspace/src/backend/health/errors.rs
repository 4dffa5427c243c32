//! Ejection by the rate of 5xx, compared with the rest of the pool. A client's 4xx never counts.

use std::collections::VecDeque;

use super::HealthConfig;
use super::ejection::Ejection;
use crate::types::Micros;

/// Points kept of the window; more would only be finer.
const POINTS_MAX: u32 = 64;

/// Answers counted so far, or within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// All of them, cut and unanswered requests included.
    pub(super) all: u64,
    /// 5xx, and requests that the engine broke off.
    pub(super) errors: u64,
}

impl Answers {
    fn since(self, before: Answers) -> Answers {
        Answers {
            all: self.all.saturating_sub(before.all),
            errors: self.errors.saturating_sub(before.errors),
        }
    }
}

/// The window of one backend.
#[derive(Debug)]
pub(super) struct Errors {
    points: VecDeque<(Micros, Answers)>,
    latest: Answers,
    ejection: Ejection,
}

impl Errors {
    pub(super) fn new(config: &HealthConfig) -> Errors {
        Errors {
            points: VecDeque::new(),
            latest: Answers::default(),
            ejection: Ejection::new(config),
        }
    }

    /// Whether it may get requests.
    pub(super) fn admits(&self) -> bool {
        self.ejection.admits()
    }

    /// It came back from the dead.
    pub(super) fn forget(&mut self, config: &HealthConfig) {
        self.points.clear();
        self.ejection.clear(config);
    }

    /// Takes its totals; returns its answers within the window.
    pub(super) fn observe(
        &mut self,
        now: Micros,
        totals: Answers,
        requests: u64,
        config: &HealthConfig,
    ) -> Answers {
        let fresh = totals.since(self.latest);
        let before = std::mem::replace(&mut self.latest, totals);
        if self.ejection.is_trial() {
            if fresh.errors > 0 {
                self.ejection.eject(now, config);
            } else if fresh.all > 0 {
                self.ejection.clear(config);
            }
        }
        self.ejection.tick(now, requests, true);
        let step = config.error_window / POINTS_MAX;
        if self.points.back().is_none_or(|(at, _)| now.since(*at) >= step) {
            self.points.push_back((now, before));
        }
        while self.points.len() > 1 && now.since(self.points[0].0) > config.error_window {
            self.points.pop_front();
        }
        self.window()
    }

    fn window(&self) -> Answers {
        self.points
            .front()
            .map(|(_, oldest)| self.latest.since(*oldest))
            .unwrap_or_default()
    }

    /// Ejects it where its window is bad by itself and by comparison with `others`.
    pub(super) fn judge(&mut self, now: Micros, others: Answers, config: &HealthConfig) {
        let own = self.window();
        if !self.ejection.is_in() || own.errors < u64::from(config.error_count_min) {
            return;
        }
        let share = own.errors * 100 > own.all * u64::from(config.error_share_percent);
        // own.errors / own.all > factor × others.errors / others.all, without division; no others = no errors there.
        let factor = u128::from(config.error_pool_factor);
        let worse = u128::from(own.errors) * u128::from(others.all.max(1))
            > factor * u128::from(others.errors) * u128::from(own.all);
        if share && worse {
            self.ejection.eject(now, config);
            self.points.clear();
        }
    }
}
