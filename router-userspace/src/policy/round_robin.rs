//! By turns.

use super::load::{eligible, refusal};
use super::{Decision, NoBackend, Policy, Reason, RequestView};
use crate::types::BackendSnapshot;

/// Gives each eligible backend its turn, whatever the prompt and the weights.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    /// Begins with this backend. Workers begin with different ones, so that their first requests don't meet.
    #[must_use]
    pub fn starting_at(next: usize) -> RoundRobin {
        RoundRobin { next }
    }
}

impl Policy for RoundRobin {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        let count = backends.len();
        let start = if self.next < count { self.next } else { 0 };
        let chosen = (start..count)
            .chain(0..start)
            .find(|index| eligible(request, &backends[*index]))
            .ok_or_else(|| refusal(request, backends))?;
        self.next = chosen + 1;
        Ok(Decision {
            backend: backends[chosen].id,
            reason: Reason::Load,
        })
    }
}
