//! Choosing a backend: filter, score, pick. Policies see snapshots only.

mod config;
mod consistent_hash;
mod decision;
mod draw;
mod least_load;
mod load;
mod plan;
mod power_of_two;
mod random;
mod ring;
mod round_robin;
#[cfg(test)]
mod tests;

pub use config::{PolicyConfig, PolicyKind};
pub use consistent_hash::ConsistentHash;
pub use decision::{Decision, NoBackend, Reason, RequestView};
pub use least_load::LeastLoad;
pub use plan::{Member, PolicyPlan, build};
pub use power_of_two::PowerOfTwo;
pub use random::Random;
pub use ring::{RING_POINTS_MAX, Ring, WEIGHT_MAX};
pub use round_robin::RoundRobin;

use crate::types::BackendSnapshot;

/// A way to choose. Each worker owns its own instance, so `pick` may keep state without a lock.
pub trait Policy {
    /// Chooses a backend for `request` among `backends` (index = id).
    ///
    /// # Errors
    /// [`NoBackend`] where none may get it.
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend>;
}
