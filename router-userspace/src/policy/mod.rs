//! Choosing a backend: filter, score, pick. Policies see snapshots only.

mod config;
mod consistent_hash;
mod decision;
mod draw;
mod fleet;
mod heat;
mod least_cost;
mod least_load;
mod load;
mod plan;
mod power_of_two;
mod prefix_score;
#[cfg(test)]
mod prefix_tests;
mod prefix_threshold;
mod random;
mod ring;
mod round_robin;
#[cfg(test)]
mod tests;
mod work;

pub use config::{LeastCostConfig, PolicyConfig, PolicyKind};
pub use consistent_hash::ConsistentHash;
pub use decision::{Decision, NoBackend, Reason, RequestView};
pub use fleet::{Fleet, IndexTask};
pub use least_cost::LeastCost;
pub use least_load::LeastLoad;
pub use plan::{Member, PolicyPlan, build};
pub use power_of_two::PowerOfTwo;
pub use prefix_score::PrefixScore;
pub use prefix_threshold::{IMBALANCE_FACTOR, IMBALANCE_REQUESTS, PrefixThreshold};
pub use random::Random;
pub use ring::{RING_POINTS_MAX, Ring, WEIGHT_MAX};
pub use round_robin::RoundRobin;
pub use work::{BackendWork, Ticket};

use crate::types::{BackendId, BackendSnapshot};

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

    /// Notes that `request` is about to be sent to `backend`, straight after the `pick` that chose it and before
    /// any other call: prompt blocks into the index, work into the backend's FIFO. The ticket goes with the
    /// request: [`Ticket::first_token`] at the first byte of its answer's body, dropped at its end or failure.
    fn on_dispatch(&mut self, request: &RequestView<'_>, backend: BackendId) -> Option<Ticket> {
        let _ = (request, backend);
        None
    }
}
