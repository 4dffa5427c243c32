//! A weighted sum of cached share and idleness.

use super::fleet::{Fleet, Lookout};
use super::least_load::LeastLoad;
use super::load::{compare, eligible, refusal};
use super::{Decision, NoBackend, Policy, Reason, RequestView, Ticket};
use crate::types::{BackendId, BackendSnapshot};

/// Chooses the highest α × cached share + (1 − α) × (1 − load), where load is relative to the eligible backend
/// with the most requests in flight. Equals by less load, then by turns.
#[derive(Debug)]
pub struct PrefixScore {
    lookout: Lookout,
    hit_weight: f64,
    next: usize,
    without_prompt: LeastLoad,
}

impl PrefixScore {
    /// `hit_weight` is α; `start` is where turns among equals begin.
    #[must_use]
    pub fn new(fleet: Fleet, hit_weight: f64, start: usize) -> PrefixScore {
        PrefixScore {
            lookout: Lookout::new(fleet),
            hit_weight: hit_weight.clamp(0.0, 1.0),
            next: start,
            without_prompt: LeastLoad::starting_at(start),
        }
    }
}

impl Policy for PrefixScore {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        let Some(prompt) = self.lookout.look(request) else {
            return self.without_prompt.pick(request, backends);
        };
        let fit = |backend: &&BackendSnapshot| eligible(request, backend);
        let loads = backends.iter().filter(fit).map(|backend| backend.in_flight);
        let most = f64::from(loads.max().unwrap_or(0).max(1));
        let score = |backend: &BackendSnapshot| {
            let hit = prompt.cached(self.lookout.scores.depth(backend.id)) / prompt.tokens;
            let idle = 1.0 - f64::from(backend.in_flight) / most;
            self.hit_weight * hit + (1.0 - self.hit_weight) * idle
        };
        let count = backends.len();
        let start = if self.next < count { self.next } else { 0 };
        // `min_by` keeps the first of equals, which is the next in turn.
        let chosen = (start..count)
            .chain(0..start)
            .filter(|at| eligible(request, &backends[*at]))
            .min_by(|left, right| {
                let (left, right) = (&backends[*left], &backends[*right]);
                score(right)
                    .total_cmp(&score(left))
                    .then_with(|| compare(left, right))
            })
            .ok_or_else(|| refusal(request, backends))?;
        let backend = backends[chosen].id;
        let reason = if self.lookout.scores.depth(backend) > 0 {
            Reason::Affinity
        } else {
            self.next = chosen + 1;
            Reason::Load
        };
        Ok(Decision { backend, reason })
    }

    fn on_dispatch(&mut self, request: &RequestView<'_>, backend: BackendId) -> Option<Ticket> {
        self.lookout.dispatch(request, backend)
    }
}
