//! The health of a whole pool as a pure state machine: observations and probe results go in, states come out.

use super::HealthConfig;
use super::errors::{Answers, Errors};
use super::probes::{ProbeOutcome, Probes};
use super::stall::Stall;
use crate::types::{BackendState, Micros};

/// What is known of one backend at one moment, all totals since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation {
    /// Requests charged to it and not ended.
    pub in_flight: u32,
    /// When it last sent a response byte.
    pub last_byte: Option<Micros>,
    /// Requests sent to it.
    pub requests: u64,
    /// Its answers: 2xx and 3xx, 4xx, 5xx.
    pub answers: [u64; 3],
    /// Requests that it broke off.
    pub broken: u64,
    /// Connections that it didn't accept.
    pub connect_failures: u64,
    /// Whether an operator is emptying it: it isn't part of the pool then.
    pub draining: bool,
}

/// What the driver should do for the backend with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Probe it and report by [`Health::probed`].
    Probe(usize),
    /// Read its token counters and report by [`Health::tokens_read`].
    ReadTokens(usize),
}

/// What health thinks of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Fit or not, by itself.
    pub state: BackendState,
    /// Why not; empty where it is fit.
    pub reason: &'static str,
}

#[derive(Debug)]
struct Member {
    probes: Probes,
    stall: Stall,
    errors: Errors,
    seen: Observation,
}

/// The health of a pool.
#[derive(Debug)]
pub struct Health {
    config: HealthConfig,
    members: Vec<Member>,
}

impl Health {
    /// A pool of `count` backends, all fit; their first probes are due at `now`.
    #[must_use]
    pub fn new(config: HealthConfig, count: usize, now: Micros) -> Health {
        let member = |_| Member {
            probes: Probes::new(now),
            stall: Stall::new(&config),
            errors: Errors::new(&config),
            seen: Observation::default(),
        };
        let members = (0..count).map(member).collect();
        Health { config, members }
    }

    /// Takes one observation for each backend; returns what to do now.
    ///
    /// Cost: linear in the backends. Call it about four times a second.
    pub fn observe(&mut self, now: Micros, observations: &[Observation]) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut windows = Vec::with_capacity(self.members.len());
        let config = &self.config;
        for (index, (member, seen)) in self.members.iter_mut().zip(observations).enumerate() {
            let troubled =
                seen.connect_failures > member.seen.connect_failures || seen.broken > member.seen.broken;
            if troubled {
                member.probes.hurry(now);
            }
            if member.probes.begin(now) {
                tasks.push(Task::Probe(index));
            }
            if member
                .stall
                .observe(now, seen.in_flight, seen.last_byte, seen.requests, config)
            {
                tasks.push(Task::ReadTokens(index));
            }
            let totals = Answers {
                all: seen.answers.iter().sum::<u64>() + seen.broken,
                errors: seen.answers[2] + seen.broken,
            };
            windows.push(member.errors.observe(now, totals, seen.requests, config));
            member.seen = *seen;
        }
        self.judge_errors(now, &windows);
        tasks
    }

    fn judge_errors(&mut self, now: Micros, windows: &[Answers]) {
        let sum = windows.iter().fold(Answers::default(), |sum, window| Answers {
            all: sum.all + window.all,
            errors: sum.errors + window.errors,
        });
        for (member, own) in self.members.iter_mut().zip(windows) {
            let others = Answers {
                all: sum.all - own.all,
                errors: sum.errors - own.errors,
            };
            member.errors.judge(now, others, &self.config);
        }
    }

    /// Takes the end of a probe.
    pub fn probed(&mut self, index: usize, now: Micros, outcome: ProbeOutcome) {
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        let byte = member.stall.last_byte();
        let recent = byte.is_some_and(|byte| now.since(byte) <= self.config.recent_byte);
        if outcome == ProbeOutcome::Passed {
            member.stall.probe_passed(now);
        }
        if member.probes.finish(now, outcome, recent, &self.config) {
            member.stall.forget(&self.config);
            member.errors.forget(&self.config);
        }
    }

    /// Takes the sum of a backend's token counters; `None` where it shows none.
    pub fn tokens_read(&mut self, index: usize, now: Micros, tokens: Option<u64>) {
        if let Some(member) = self.members.get_mut(index) {
            member.stall.tokens_read(now, tokens);
        }
    }

    /// What is thought of each backend.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        self.members.iter().map(verdict).collect()
    }

    /// Whether so many are unfit that health is ignored: then each backend gets requests as if it were fit, since
    /// the fault is likelier in the probing or in the network than in most engines at once.
    #[must_use]
    pub fn ignored(&self) -> bool {
        let pool = || self.members.iter().filter(|member| !member.seen.draining);
        let out = pool().filter(|member| verdict(member).state != BackendState::Healthy);
        out.count() * 100 > pool().count() * self.config.eject_share_percent as usize
    }
}

fn verdict(member: &Member) -> Verdict {
    let (state, reason) = if let Some(reason) = member.probes.out() {
        (BackendState::Unhealthy, reason)
    } else if !member.stall.admits() {
        (BackendState::Stalled, "it has requests and sends nothing")
    } else if !member.errors.admits() {
        (BackendState::Unhealthy, "most of its answers are 5xx")
    } else {
        (BackendState::Healthy, "")
    };
    Verdict { state, reason }
}
