//! The least cost in tokens of prefill: what this request would wait for, and what computing it costs the others.
//!
//! For each eligible backend, with u = the tokens of this prompt that it lacks and W' = the prefill work that it
//! still has: cost = W' + (1 + λ + μ e^(−age/τ)) u + γ n. W' + u is the time to the first token; λ u is what
//! computing a second copy costs others; the exponential makes it dear where it would evict blocks that were in
//! use a moment ago (age: since the last use of what goes next), which spreads long sessions by memory; γ n is
//! the decoding of n requests in flight. Backends of unequal speed count in time.

use std::sync::Arc;

use super::fleet::{Fleet, Lookout, Prompt};
use super::least_load::LeastLoad;
use super::load::{eligible, refusal};
use super::ring::Ring;
use super::work::SPEED_ASSUMED;
use super::{Decision, LeastCostConfig, NoBackend, Policy, Reason, RequestView, Ticket};
use crate::types::{BackendId, BackendSnapshot};

/// Costs within this factor and these tokens of the least count as equal.
const EQUAL_FACTOR: f64 = 1.02;
const EQUAL_TOKENS: f64 = 64.0;
/// Speeds within this factor of the mean count as equal: the estimates are noisy.
const SPEED_EQUAL: f64 = 1.3;

/// A prefix that keeps its holders busy for this part of their time is hot.
const HOT_BUSY: f64 = 0.3;

/// The default policy.
#[derive(Debug)]
pub struct LeastCost {
    lookout: Lookout,
    config: LeastCostConfig,
    /// For the rendezvous rank.
    ring: Arc<Ring>,
    without_prompt: LeastLoad,
    /// Cost of each backend; infinite where it's not eligible.
    costs: Vec<f64>,
}

impl LeastCost {
    /// Chooses among the backends of `fleet`, which are the members of `ring` in the same order; `start` is where
    /// turns among equals begin for requests without a prompt.
    #[must_use]
    pub fn new(fleet: Fleet, config: LeastCostConfig, ring: Arc<Ring>, start: usize) -> LeastCost {
        LeastCost {
            lookout: Lookout::new(fleet),
            config,
            ring,
            without_prompt: LeastLoad::starting_at(start),
            costs: Vec::new(),
        }
    }

    /// How deep the deepest holder's hit is, and how much the price of a further copy of that counts: the less, the
    /// nearer those who hold it are to being kept busy by it alone. So a hot prefix spreads before its holders
    /// overflow.
    fn copying(&self, prompt: Prompt, request: &RequestView<'_>) -> Copying {
        let scores = &self.lookout.scores;
        let depths = scores.holders().iter().map(|&holder| scores.depth(holder));
        let deepest = depths.clone().max().unwrap_or(0);
        let held = prompt.cached(deepest);
        let blocks = request.key.map_or(&[][..], |key| &key.blocks);
        let Some(&prefix) = (deepest as usize)
            .checked_sub(1)
            .and_then(|last| blocks.get(last))
        else {
            return Copying { held, calm: 1.0 };
        };
        let holders = depths.filter(|&depth| depth == deepest).count() as f64;
        let per_s = self.lookout.fleet.heat.count(prefix, request.now);
        let uncached = prompt.tokens - held + self.config.in_flight_tokens;
        let busy = per_s * uncached / (holders * SPEED_ASSUMED);
        Copying {
            held,
            calm: (1.0 - busy / HOT_BUSY).max(0.0),
        }
    }

    /// Fills in all costs and gives the least.
    fn price(&mut self, prompt: Prompt, request: &RequestView<'_>, backends: &[BackendSnapshot]) -> f64 {
        let copying = self.copying(prompt, request);
        let pace = self.pace(request, backends);
        self.costs.clear();
        let mut least = f64::INFINITY;
        for backend in backends {
            let cost = if eligible(request, backend) {
                let pace = pace.of(self.speed(backend.id));
                self.cost(prompt, request, backend, copying, pace)
            } else {
                f64::INFINITY
            };
            least = least.min(cost);
            self.costs.push(cost);
        }
        least
    }

    fn cost(
        &self,
        prompt: Prompt,
        request: &RequestView<'_>,
        backend: &BackendSnapshot,
        copying: Copying,
        pace: f64,
    ) -> f64 {
        let fleet = &self.lookout.fleet;
        let config = &self.config;
        let cached = prompt.cached(self.lookout.scores.depth(backend.id));
        let uncached = prompt.tokens - cached;
        let counted = prompt.tokens - copying.held + copying.calm * (copying.held - cached);
        let pending = fleet
            .work(backend.id)
            .map_or(0.0, |work| work.pending_tokens(request.now));
        let in_use = fleet.index().oldest_use(backend.id).map_or(0.0, |used| {
            let age_s = request.now.since(used).as_secs_f64();
            (-age_s / config.memory.as_secs_f64()).exp()
        });
        let price = config.recompute + config.evict * in_use;
        let n = config.in_flight_tokens * f64::from(backend.in_flight);
        pace * (pending + uncached + n) + price * counted
    }

    fn speed(&self, backend: BackendId) -> Option<f64> {
        self.lookout.fleet.work(backend)?.speed()
    }

    fn pace(&self, request: &RequestView<'_>, backends: &[BackendSnapshot]) -> Pace {
        let known = backends
            .iter()
            .filter(|backend| request.allows(backend))
            .filter_map(|backend| self.speed(backend.id));
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count), speed| (sum + speed, count + 1.0));
        Pace {
            mean: (count > 1.0).then(|| sum / count),
        }
    }

    /// Among costs that count as equal: the deepest hit, the fewest in flight, the highest rendezvous rank.
    fn best(&self, least: f64, affinity: u64, backends: &[BackendSnapshot]) -> Option<BackendId> {
        let limit = least * EQUAL_FACTOR + EQUAL_TOKENS;
        let equal = backends
            .iter()
            .enumerate()
            .filter(|(at, _)| self.costs[*at] <= limit && self.costs[*at].is_finite());
        let mut best: Option<(usize, &BackendSnapshot, Option<u64>)> = None;
        for (at, backend) in equal {
            let Some((_, leader, leader_rank)) = best.as_mut() else {
                best = Some((at, backend, None));
                continue;
            };
            let depth = |backend: &BackendSnapshot| self.lookout.scores.depth(backend.id);
            let by_hit = depth(backend).cmp(&depth(leader));
            let order = by_hit.then(leader.in_flight.cmp(&backend.in_flight));
            if order.is_gt() {
                best = Some((at, backend, None));
            } else if order.is_eq() {
                let leading =
                    *leader_rank.get_or_insert_with(|| self.ring.rank(leader.id.0 as usize, affinity));
                let rank = self.ring.rank(at, affinity);
                if rank > leading {
                    best = Some((at, backend, Some(rank)));
                }
            }
        }
        best.map(|(_, backend, _)| backend.id)
    }

    /// Why `chosen` was chosen.
    fn reason(&self, chosen: BackendId) -> Reason {
        let scores = &self.lookout.scores;
        let depth = scores.depth(chosen);
        let unfit = |holder: &&BackendId| {
            let cost = self.costs.get(holder.0 as usize);
            scores.depth(**holder) > depth && cost.is_some_and(|cost| cost.is_infinite())
        };
        if scores.holders().iter().any(|holder| unfit(&holder)) {
            Reason::Overflow
        } else if depth > 0 {
            Reason::Affinity
        } else {
            Reason::Load
        }
    }
}

impl Policy for LeastCost {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        let Some(prompt) = self.lookout.look(request) else {
            return self.without_prompt.pick(request, backends);
        };
        let least = self.price(prompt, request, backends);
        let affinity = request.key.and_then(|key| key.affinity).unwrap_or(0);
        let backend = self
            .best(least, affinity, backends)
            .ok_or_else(|| refusal(request, backends))?;
        Ok(Decision {
            backend,
            reason: self.reason(backend),
        })
    }

    fn on_dispatch(&mut self, request: &RequestView<'_>, backend: BackendId) -> Option<Ticket> {
        self.lookout.dispatch(request, backend)
    }
}

/// What a further copy of what somebody holds costs.
#[derive(Clone, Copy, Debug)]
struct Copying {
    /// Tokens that the deepest holder has.
    held: f64,
    /// Part of the price that counts for them, 0 to 1.
    calm: f64,
}

/// How speeds compare.
#[derive(Clone, Copy, Debug)]
struct Pace {
    mean: Option<f64>,
}

impl Pace {
    /// How long a token takes at this speed, relative to the mean; 1 where speeds are equal or unknown.
    fn of(self, speed: Option<f64>) -> f64 {
        let (Some(mean), Some(speed)) = (self.mean, speed) else {
            return 1.0;
        };
        let ratio = mean / speed;
        if (1.0 / SPEED_EQUAL..=SPEED_EQUAL).contains(&ratio) {
            1.0
        } else {
            ratio
        }
    }
}
