//! The fewest requests in flight.

use super::load::{compare, eligible, refusal};
use super::{Decision, NoBackend, Policy, Reason, RequestView};
use crate::types::BackendSnapshot;

/// Chooses the eligible backend with the fewest requests in flight relative to its weight; equals by turns.
#[derive(Debug, Default)]
pub struct LeastLoad {
    next: usize,
}

impl LeastLoad {
    /// Equals are taken in turns beginning with this one. Workers begin with different ones: they see the same
    /// counts and would all choose the same.
    #[must_use]
    pub fn starting_at(next: usize) -> LeastLoad {
        LeastLoad { next }
    }
}

impl Policy for LeastLoad {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        let count = backends.len();
        let start = if self.next < count { self.next } else { 0 };
        // `min_by` keeps the first of equals, which is the next in turn.
        let chosen = (start..count)
            .chain(0..start)
            .filter(|index| eligible(request, &backends[*index]))
            .min_by(|left, right| compare(&backends[*left], &backends[*right]))
            .ok_or_else(|| refusal(request, backends))?;
        self.next = chosen + 1;
        Ok(Decision {
            backend: backends[chosen].id,
            reason: Reason::Load,
        })
    }
}
