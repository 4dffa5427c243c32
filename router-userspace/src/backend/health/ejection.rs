//! Out for a while, then one request as a trial; each failed trial doubles the while.

use std::time::Duration;

use super::HealthConfig;
use crate::types::Micros;

/// Whether a backend is out for one kind of fault.
#[derive(Debug)]
pub(super) struct Ejection {
    phase: Phase,
    time: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    In,
    Out {
        since: Micros,
    },
    /// It may get one request: the first one after `base` ends its welcome until that one's answer is known.
    Trial {
        base: u64,
        admitted: Option<Micros>,
    },
}

impl Ejection {
    pub(super) fn new(config: &HealthConfig) -> Ejection {
        Ejection {
            phase: Phase::In,
            time: config.eject_time,
        }
    }

    /// Whether it may get requests.
    pub(super) fn admits(&self) -> bool {
        matches!(self.phase, Phase::In | Phase::Trial { admitted: None, .. })
    }

    /// Whether nothing is held against it.
    pub(super) fn is_in(&self) -> bool {
        matches!(self.phase, Phase::In)
    }

    /// Whether it is on trial.
    pub(super) fn is_trial(&self) -> bool {
        matches!(self.phase, Phase::Trial { .. })
    }

    /// It failed, or failed its trial.
    pub(super) fn eject(&mut self, now: Micros, config: &HealthConfig) {
        match self.phase {
            Phase::Out { .. } => return,
            Phase::In => self.time = config.eject_time,
            Phase::Trial { .. } => self.time = (self.time * 2).min(config.eject_time_max),
        }
        self.phase = Phase::Out { since: now };
    }

    /// It is well again.
    pub(super) fn clear(&mut self, config: &HealthConfig) {
        self.phase = Phase::In;
        self.time = config.eject_time;
    }

    /// Begins a trial once its time is over; until `may_try` the time doesn't begin. `requests` = sent to it so far.
    pub(super) fn tick(&mut self, now: Micros, requests: u64, may_try: bool) {
        self.phase = match self.phase {
            Phase::Out { .. } if !may_try => Phase::Out { since: now },
            Phase::Out { since } if now.since(since) >= self.time => Phase::Trial {
                base: requests,
                admitted: None,
            },
            Phase::Trial { base, admitted: None } if requests > base => Phase::Trial {
                base,
                admitted: Some(now),
            },
            // The request of the trial ended without a word on the backend: its client left.
            Phase::Trial {
                admitted: Some(at), ..
            } if now.since(at) >= self.time => Phase::Trial {
                base: requests,
                admitted: None,
            },
            same => same,
        };
    }
}
