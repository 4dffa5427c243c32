//! Choosing a backend: filter, score, pick. Policies see snapshots only.

mod decision;
mod round_robin;
mod work;

pub use decision::{Decision, NoBackend, Reason, RequestView};
pub use round_robin::RoundRobin;
pub use work::{BackendWork, Ticket};

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

/// Which policy.
#[derive(Clone, Copy, Debug)]
pub enum PolicyKind {
    /// By turns.
    RoundRobin,
}
impl PolicyKind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        "round_robin"
    }
}
/// A policy and its parameters.
#[derive(Clone, Debug)]
pub struct PolicyConfig {
    /// Which.
    pub kind: PolicyKind,
}
/// Builds one worker's instance.
#[must_use]
pub fn build(_: &PolicyConfig, _: &[(String, u32)], _: u64) -> Box<dyn Policy> {
    Box::new(RoundRobin::default())
}
