//! Where the prompt's key belongs, within a bound on the load.

use std::sync::Arc;

use super::least_load::LeastLoad;
use super::load::{eligible, refusal, weight};
use super::ring::Ring;
use super::{Decision, NoBackend, Policy, Reason, RequestView};
use crate::types::BackendSnapshot;

/// Points of the ring that one decision looks at; where nearly all backends are unfit a ranking of those that
/// aren't is cheaper than going on.
const POINTS_WALKED_MAX: usize = 1024;

/// Consistent hashing on the affinity key with bounded load; requests without a key go by least load.
///
/// The first backend on the ring from the key on that is eligible and whose in-flight count is below
/// ceil(c × (total + 1) × weight / total weight) gets the request, with the totals taken over the eligible
/// backends. At least one is always below.
///
/// # Source
/// Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads", 2016.
#[derive(Debug)]
pub struct ConsistentHash {
    ring: Arc<Ring>,
    load_factor: f64,
    without_key: LeastLoad,
}

impl ConsistentHash {
    /// Chooses on `ring`, whose members are the backends in the order of their ids. `load_factor` is c, at
    /// least 1; `start` is where turns among equals begin for requests without a key.
    #[must_use]
    pub fn new(ring: Arc<Ring>, load_factor: f64, start: usize) -> ConsistentHash {
        ConsistentHash {
            ring,
            load_factor: if load_factor >= 1.0 { load_factor } else { 1.0 },
            without_key: LeastLoad::starting_at(start),
        }
    }

    fn by_key(
        &self,
        key: u64,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        let limit =
            Limit::new(self.load_factor, request, backends).ok_or_else(|| refusal(request, backends))?;
        let fit = |backend: &BackendSnapshot| eligible(request, backend) && limit.admits(backend);
        let mut reason = Reason::Affinity;
        for owner in self.ring.walk(key).take(POINTS_WALKED_MAX) {
            match backends.get(owner) {
                Some(backend) if fit(backend) => {
                    return Ok(Decision {
                        backend: backend.id,
                        reason,
                    });
                }
                _ => reason = Reason::Overflow,
            }
        }
        // The same key has the same ranking, so it still keeps to one backend as long as that is fit.
        backends
            .iter()
            .filter(|backend| fit(backend))
            .max_by_key(|backend| self.ring.rank(backend.id.0 as usize, key))
            .map(|backend| Decision {
                backend: backend.id,
                reason: Reason::Overflow,
            })
            .ok_or(NoBackend::AllSaturated)
    }
}

impl Policy for ConsistentHash {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        match request.key.and_then(|key| key.affinity) {
            Some(key) => self.by_key(key, request, backends),
            None => self.without_key.pick(request, backends),
        }
    }
}

/// The bound on the load, for each unit of weight.
struct Limit {
    for_each_weight: f64,
}

impl Limit {
    /// `None` where no backend is eligible.
    fn new(load_factor: f64, request: &RequestView<'_>, backends: &[BackendSnapshot]) -> Option<Limit> {
        let (mut total, mut total_weight) = (0u64, 0u64);
        for backend in backends.iter().filter(|backend| eligible(request, backend)) {
            total += u64::from(backend.in_flight);
            total_weight += weight(backend);
        }
        (total_weight > 0).then(|| Limit {
            for_each_weight: load_factor * (total + 1) as f64 / total_weight as f64,
        })
    }

    fn admits(&self, backend: &BackendSnapshot) -> bool {
        f64::from(backend.in_flight) < (self.for_each_weight * weight(backend) as f64).ceil()
    }
}
