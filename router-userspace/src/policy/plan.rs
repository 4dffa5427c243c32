//! From settings to policies.

use std::sync::Arc;

use super::ring::Ring;
use super::{
    ConsistentHash, Fleet, IndexTask, LeastCost, LeastLoad, Policy, PolicyConfig, PolicyKind, PowerOfTwo,
    PrefixScore, PrefixThreshold, Random, RoundRobin,
};
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
    fleet: Option<Fleet>,
}

impl PolicyPlan {
    /// The plan for `members`, which are the backends in the order of their ids. Its index, if the policy needs
    /// one, is written on the spot by whoever dispatches, under a lock: for one thread. See
    /// [`PolicyPlan::queued`].
    #[must_use]
    pub fn new(config: &PolicyConfig, members: &[Member<'_>]) -> PolicyPlan {
        let needed = config.kind.needs_index();
        let fleet = needed.then(|| Fleet::direct(config, members.len()));
        PolicyPlan::over(config, members, fleet)
    }

    /// The same for several threads: the index, if the policy needs one, is written by the returned task, which
    /// has to run on a thread of its own.
    #[must_use]
    pub fn queued(config: &PolicyConfig, members: &[Member<'_>]) -> (PolicyPlan, Option<IndexTask>) {
        let needed = config.kind.needs_index();
        let (fleet, task) = needed.then(|| Fleet::queued(config, members.len())).unzip();
        (PolicyPlan::over(config, members, fleet), task)
    }

    fn over(config: &PolicyConfig, members: &[Member<'_>], fleet: Option<Fleet>) -> PolicyPlan {
        let virtual_nodes = match config.kind {
            PolicyKind::ConsistentHash => Some(config.virtual_nodes),
            // Only its ranks are asked for.
            PolicyKind::LeastCost => Some(1),
            _ => None,
        };
        PolicyPlan {
            config: config.clone(),
            members: members.len(),
            ring: virtual_nodes.map(|virtual_nodes| Arc::new(Ring::new(members, virtual_nodes))),
            fleet,
        }
    }

    /// What the policies share of caches and work, where they go by that: to be told of restarts and capacities.
    #[must_use]
    pub fn fleet(&self) -> Option<&Fleet> {
        self.fleet.as_ref()
    }

    /// A policy for one worker; all that chance decides follows from `seed`.
    #[must_use]
    pub fn policy(&self, seed: u64) -> Box<dyn Policy + Send> {
        let start = Rng::new(seed).below(self.members);
        let config = &self.config;
        match (config.kind, &self.ring, &self.fleet) {
            (PolicyKind::RoundRobin, ..) => Box::new(RoundRobin::starting_at(start)),
            (PolicyKind::Random, ..) => Box::new(Random::new(seed)),
            (PolicyKind::PowerOfTwo, ..) => Box::new(PowerOfTwo::new(seed)),
            (PolicyKind::ConsistentHash, Some(ring), _) => {
                Box::new(ConsistentHash::new(Arc::clone(ring), config.load_factor, start))
            }
            (PolicyKind::PrefixThreshold, _, Some(fleet)) => Box::new(PrefixThreshold::new(
                fleet.clone(),
                config.prefix_share_min,
                start,
            )),
            (PolicyKind::PrefixScore, _, Some(fleet)) => {
                Box::new(PrefixScore::new(fleet.clone(), config.hit_weight, start))
            }
            (PolicyKind::LeastCost, Some(ring), Some(fleet)) => Box::new(LeastCost::new(
                fleet.clone(),
                config.least_cost,
                Arc::clone(ring),
                start,
            )),
            (
                PolicyKind::LeastLoad
                | PolicyKind::ConsistentHash
                | PolicyKind::PrefixThreshold
                | PolicyKind::PrefixScore
                | PolicyKind::LeastCost,
                ..,
            ) => Box::new(LeastLoad::starting_at(start)),
        }
    }
}

/// A single policy for `members`; several workers take theirs from one [`PolicyPlan`].
#[must_use]
pub fn build(config: &PolicyConfig, members: &[Member<'_>], seed: u64) -> Box<dyn Policy + Send> {
    PolicyPlan::new(config, members).policy(seed)
}
