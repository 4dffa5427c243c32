//! A pool of invented engines that answers what the state machine asks for.

use std::time::Duration;

use crate::backend::health::{Health, HealthConfig, Observation, ProbeOutcome, SAMPLE_INTERVAL, Task};
use crate::types::{BackendState, Micros};

/// An invented engine.
pub(super) struct Engine {
    /// How its next probes end.
    pub(super) probe: ProbeOutcome,
    /// Its token counters; `None` = no such page.
    pub(super) tokens: Option<u64>,
    /// What the workers count.
    pub(super) counts: Observation,
    /// Probes begun so far.
    pub(super) probes: u32,
}

pub(super) struct Pool {
    pub(super) health: Health,
    pub(super) now: Micros,
    pub(super) engines: Vec<Engine>,
    pending: Vec<(Micros, Task, ProbeOutcome)>,
    config: HealthConfig,
}

impl Pool {
    pub(super) fn new(count: usize) -> Pool {
        Pool::with(HealthConfig::default(), count)
    }

    pub(super) fn with(config: HealthConfig, count: usize) -> Pool {
        let engine = |_| Engine {
            probe: ProbeOutcome::Passed,
            tokens: None,
            counts: Observation::default(),
            probes: 0,
        };
        let now = Micros(1_000_000);
        Pool {
            health: Health::new(config.clone(), count, now),
            now,
            engines: (0..count).map(engine).collect(),
            pending: Vec::new(),
            config,
        }
    }

    /// One sample interval passes.
    pub(super) fn step(&mut self) {
        self.now = self.now + SAMPLE_INTERVAL;
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|(at, ..)| *at <= now);
        self.pending = later;
        let due: Vec<_> = due;
        for (_, task, outcome) in due {
            match task {
                Task::Probe(index) => self.health.probed(index, now, outcome),
                Task::ReadTokens(index) => {
                    self.health.tokens_read(index, now, self.engines[index].tokens);
                }
            }
        }
        let counts: Vec<Observation> = self.engines.iter().map(|engine| engine.counts).collect();
        for task in self.health.observe(now, &counts) {
            let (Task::Probe(index) | Task::ReadTokens(index)) = task;
            let outcome = self.engines[index].probe;
            let takes = match (task, outcome) {
                (Task::Probe(_), ProbeOutcome::TimedOut) => self.config.probe_timeout,
                _ => Duration::ZERO,
            };
            self.engines[index].probes += u32::from(task == Task::Probe(index));
            self.pending.push((now + takes, task, outcome));
        }
    }

    /// Steps for `span`, with `each` before every step.
    pub(super) fn run_with(&mut self, span: Duration, mut each: impl FnMut(&mut Pool)) {
        let end = self.now + span;
        while self.now < end {
            each(self);
            self.step();
        }
    }

    pub(super) fn run(&mut self, seconds: u64) {
        self.run_with(Duration::from_secs(seconds), |_| {});
    }

    /// Steps until engine `index` is in `state`; the time that took, or a panic after `bound` seconds.
    pub(super) fn until(&mut self, index: usize, state: BackendState, bound: u64) -> Duration {
        let begin = self.now;
        while self.state(index) != state {
            let took = self.now.since(begin);
            assert!(
                took <= Duration::from_secs(bound),
                "not {state:?} within {bound} s"
            );
            self.step();
        }
        self.now.since(begin)
    }

    pub(super) fn state(&self, index: usize) -> BackendState {
        self.health.verdicts()[index].state
    }

    /// Engine `index` takes a request.
    pub(super) fn send(&mut self, index: usize) {
        let counts = &mut self.engines[index].counts;
        counts.in_flight += 1;
        counts.requests += 1;
    }

    /// Engine `index` sends response bytes.
    pub(super) fn byte(&mut self, index: usize) {
        self.engines[index].counts.last_byte = Some(self.now);
    }

    /// A request of engine `index` ends.
    pub(super) fn end(&mut self, index: usize) {
        self.engines[index].counts.in_flight -= 1;
    }

    /// Engine `index` takes and answers `count` requests with `status`.
    pub(super) fn answer(&mut self, index: usize, status: u16, count: u64) {
        let counts = &mut self.engines[index].counts;
        counts.requests += count;
        let class = match status {
            200..=399 => 0,
            400..=499 => 1,
            _ => 2,
        };
        counts.answers[class] += count;
        counts.last_byte = Some(self.now);
    }
}
