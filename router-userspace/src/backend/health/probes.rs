//! What probes say of one backend.

use std::time::Duration;

use super::HealthConfig;
use crate::types::Micros;

/// How one probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// An answer below 500.
    Passed,
    /// An answer of 500 or above, a broken one, or a connection that was reset.
    Failed,
    /// No connection or no answer in time.
    TimedOut,
    /// Nothing listens there.
    Refused,
}

impl ProbeOutcome {
    /// All of them, in the order of their numbers.
    pub const ALL: [ProbeOutcome; 4] = [
        ProbeOutcome::Passed,
        ProbeOutcome::Failed,
        ProbeOutcome::TimedOut,
        ProbeOutcome::Refused,
    ];

    /// The word for it in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ProbeOutcome::Passed => "passed",
            ProbeOutcome::Failed => "failed",
            ProbeOutcome::TimedOut => "timed_out",
            ProbeOutcome::Refused => "refused",
        }
    }
}

/// A probe asked for early comes at least this long after the begin of the one before.
pub(super) const HURRY_SPACING: Duration = Duration::from_secs(1);

/// When the next probe is due, and what the last ones said.
#[derive(Debug)]
pub(super) struct Probes {
    due: Micros,
    begun: Option<Micros>,
    running: bool,
    fails: u32,
    passes: u32,
    out: Option<&'static str>,
}

impl Probes {
    /// Due at `first`.
    pub(super) fn new(first: Micros) -> Probes {
        Probes {
            due: first,
            begun: None,
            running: false,
            fails: 0,
            passes: 0,
            out: None,
        }
    }

    /// Why it is ejected; `None` = it isn't.
    pub(super) fn out(&self) -> Option<&'static str> {
        self.out
    }

    /// Whether a probe begins now. There is never more than one under way.
    pub(super) fn begin(&mut self, now: Micros) -> bool {
        if self.running || now < self.due {
            return false;
        }
        self.running = true;
        self.begun = Some(now);
        true
    }

    /// A request just found it unreachable or broken: probe it soon.
    pub(super) fn hurry(&mut self, now: Micros) {
        let earliest = self.begun.map_or(now, |begun| begun + HURRY_SPACING);
        self.due = self.due.min(earliest.max(now));
    }

    /// Takes a probe's end into account; returns whether it brought the backend back.
    pub(super) fn finish(
        &mut self,
        now: Micros,
        outcome: ProbeOutcome,
        sent_recently: bool,
        config: &HealthConfig,
    ) -> bool {
        self.running = false;
        let next = self.begun.unwrap_or(now) + config.interval;
        self.due = next.max(now);
        match outcome {
            ProbeOutcome::Passed => {
                self.fails = 0;
                self.passes = self.passes.saturating_add(1);
                if self.passes >= config.pass_count {
                    return self.out.take().is_some();
                }
            }
            ProbeOutcome::Refused => {
                self.passes = 0;
                self.out = Some("its port refuses connections");
            }
            // It is at work: its event loop is only too busy for the probe.
            ProbeOutcome::TimedOut if sent_recently => {}
            ProbeOutcome::TimedOut | ProbeOutcome::Failed => {
                self.passes = 0;
                self.fails = self.fails.saturating_add(1);
                if self.fails >= config.fail_count {
                    self.out.get_or_insert(match outcome {
                        ProbeOutcome::TimedOut => "its probes time out",
                        _ => "its probes fail",
                    });
                }
            }
        }
        false
    }
}
