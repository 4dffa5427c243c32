//! One router: a contender and what it knows.

use std::collections::HashMap;
use std::sync::Arc;

use super::contender::Contender;
use super::setup::{Fault, Setup};
use crate::policy::{
    BackendWork, Fleet, LeastCostConfig, Member, NoBackend, Policy, PolicyConfig, PolicyPlan, RequestView,
    Ticket,
};
use crate::types::{BackendId, BackendSnapshot, BackendState, Micros};

/// Bytes of text that stand for a token.
pub(super) const BYTES_PER_TOKEN: u32 = 4;
/// Prefill tokens/s of an engine of speed 1, by its model.
const REFERENCE_SPEED: f64 = 20_000.0;

/// What backends really hold of the prompt at hand, in tokens; for the bounds only.
pub(super) type Truth<'a> = &'a dyn Fn(usize) -> u32;

enum Chooser {
    Policy {
        policy: Box<dyn Policy + Send>,
        fleet: Option<Fleet>,
    },
    /// Goes by the truth; `pooled` by work alone, since all backends hold the same.
    Bound {
        pooled: bool,
        work: Vec<Arc<BackendWork>>,
        next: usize,
    },
}

/// The router.
pub(super) struct Router {
    chooser: Chooser,
    snapshots: Vec<BackendSnapshot>,
    /// Where each request it knows of is.
    known: HashMap<u64, (BackendId, Option<Ticket>)>,
}

impl Router {
    pub(super) fn new(contender: Contender, setup: &Setup, block_tokens: u32, seed: u64) -> Router {
        let chooser = match contender {
            Contender::Policy(kind) => {
                let config = PolicyConfig {
                    kind,
                    block_bytes: block_tokens * BYTES_PER_TOKEN,
                    capacity_tokens_assumed: setup.capacity_believed(),
                    index_bytes_max: usize::MAX,
                    ..PolicyConfig::default()
                };
                let names: Vec<String> = (0..setup.backends).map(|at| format!("engine-{at}")).collect();
                let member = |name| Member { name, weight: 1 };
                let members: Vec<Member<'_>> = names.iter().map(|name| member(name)).collect();
                let plan = PolicyPlan::new(&config, &members);
                let fleet = plan.fleet().cloned();
                set_wrong_speeds(fleet.as_ref(), setup);
                Chooser::Policy {
                    policy: plan.policy(seed),
                    fleet,
                }
            }
            Contender::Pooled | Contender::Oracle => Chooser::Bound {
                pooled: contender == Contender::Pooled,
                work: (0..setup.backends).map(|_| Arc::default()).collect(),
                next: 0,
            },
        };
        let snapshot = |at: usize| BackendSnapshot {
            id: BackendId(at as u32),
            weight: 1,
            state: BackendState::Healthy,
            in_flight: 0,
            max_in_flight: setup.max_in_flight,
            waiting: None,
            max_waiting: u32::MAX,
        };
        Router {
            chooser,
            snapshots: (0..setup.backends).map(snapshot).collect(),
            known: HashMap::new(),
        }
    }

    pub(super) fn pick(
        &mut self,
        request: &RequestView<'_>,
        prompt_tokens: u32,
        truth: Truth<'_>,
    ) -> Result<BackendId, NoBackend> {
        let (work, next, pooled) = match &mut self.chooser {
            Chooser::Policy { policy, .. } => {
                return Ok(policy.pick(request, &self.snapshots)?.backend);
            }
            Chooser::Bound { work, next, pooled } => (work, next, *pooled),
        };
        let rule = LeastCostConfig::default();
        let count = work.len();
        let mut best = (f64::INFINITY, *next);
        for at in (0..count).map(|step| (*next + step) % count) {
            let pending = work[at].pending_tokens(request.now);
            let in_flight = f64::from(self.snapshots[at].in_flight);
            let cost = if pooled {
                // Less than a token: it only breaks ties.
                pending + in_flight / 1024.0
            } else {
                let uncached = f64::from(prompt_tokens - truth(at));
                pending + (1.0 + rule.recompute) * uncached + rule.in_flight_tokens * in_flight
            };
            if cost < best.0 {
                best = (cost, at);
            }
        }
        *next = (best.1 + 1) % count;
        Ok(BackendId(best.1 as u32))
    }

    /// Notes that request number `flight` goes to `backend`.
    pub(super) fn dispatched(
        &mut self,
        flight: u64,
        request: &RequestView<'_>,
        backend: BackendId,
        prompt_tokens: u32,
        truth: Truth<'_>,
    ) {
        let at = backend.0 as usize;
        let ticket = match &mut self.chooser {
            Chooser::Policy { policy, .. } => policy.on_dispatch(request, backend),
            Chooser::Bound { work, .. } => {
                let uncached = prompt_tokens - truth(at);
                Some(work[at].dispatch(u64::from(uncached), request.now))
            }
        };
        self.snapshots[at].in_flight += 1;
        self.known.insert(flight, (backend, ticket));
    }

    pub(super) fn first_token(&mut self, flight: u64, now: Micros) {
        if let Some((_, Some(ticket))) = self.known.get_mut(&flight) {
            ticket.first_token(now);
        }
    }

    pub(super) fn ended(&mut self, flight: u64) {
        if let Some((backend, _)) = self.known.remove(&flight) {
            self.snapshots[backend.0 as usize].in_flight -= 1;
        }
    }

    /// Notes that `backend` has restarted.
    pub(super) fn reset(&mut self, backend: BackendId) {
        match &self.chooser {
            Chooser::Policy { fleet, .. } => {
                if let Some(fleet) = fleet {
                    fleet.reset(backend);
                }
            }
            Chooser::Bound { work, .. } => work[backend.0 as usize].reset(),
        }
    }
}

fn set_wrong_speeds(fleet: Option<&Fleet>, setup: &Setup) {
    let wrong = setup.faults.iter().find_map(|fault| match fault {
        Fault::Speed(factor) => Some(*factor),
        _ => None,
    });
    let (Some(fleet), Some(factor)) = (fleet, wrong) else {
        return;
    };
    for at in 0..setup.backends {
        let factor = if at % 2 == 0 { factor } else { 1.0 / factor };
        if let Some(work) = fleet.work(BackendId(at as u32)) {
            work.set_speed(REFERENCE_SPEED * setup.speed(at) * factor);
        }
    }
}
