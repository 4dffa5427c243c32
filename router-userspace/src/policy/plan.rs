//! From settings to policies.

use std::sync::Arc;

use super::ring::Ring;
use super::{ConsistentHash, LeastLoad, Policy, PolicyConfig, PolicyKind, PowerOfTwo, Random, RoundRobin};
use crate::types::Rng;

/// A backend as the ring knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name, unique in the set and the same on every node.
    pub name: &'a str,
    /// Its share relative to the others.
    pub weight: u32,
}

/// What policies of one backend set share: made once, given to every worker.
#[derive(Clone, Debug)]
pub struct PolicyPlan {
    config: PolicyConfig,
    members: usize,
    ring: Option<Arc<Ring>>,
}

impl PolicyPlan {
    /// The plan for `members`, which are the backends in the order of their ids.
    #[must_use]
    pub fn new(config: &PolicyConfig, members: &[Member<'_>]) -> PolicyPlan {
        let ring = (config.kind == PolicyKind::ConsistentHash)
            .then(|| Arc::new(Ring::new(members, config.virtual_nodes)));
        PolicyPlan {
            config: config.clone(),
            members: members.len(),
            ring,
        }
    }

    /// A policy for one worker; all that chance decides follows from `seed`.
    #[must_use]
    pub fn policy(&self, seed: u64) -> Box<dyn Policy + Send> {
        let start = Rng::new(seed).below(self.members);
        match (self.config.kind, &self.ring) {
            (PolicyKind::RoundRobin, _) => Box::new(RoundRobin::starting_at(start)),
            (PolicyKind::Random, _) => Box::new(Random::new(seed)),
            (PolicyKind::PowerOfTwo, _) => Box::new(PowerOfTwo::new(seed)),
            (PolicyKind::ConsistentHash, Some(ring)) => Box::new(ConsistentHash::new(
                Arc::clone(ring),
                self.config.load_factor,
                start,
            )),
            (PolicyKind::LeastLoad | PolicyKind::ConsistentHash, _) => {
                Box::new(LeastLoad::starting_at(start))
            }
        }
    }
}

/// A single policy for `members`; several workers take theirs from one [`PolicyPlan`].
#[must_use]
pub fn build(config: &PolicyConfig, members: &[Member<'_>], seed: u64) -> Box<dyn Policy + Send> {
    PolicyPlan::new(config, members).policy(seed)
}
