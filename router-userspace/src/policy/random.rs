//! By lot.

use super::draw::Lots;
use super::{Decision, NoBackend, Policy, Reason, RequestView};
use crate::types::{BackendSnapshot, Rng};

/// Draws an eligible backend by lot, in proportion to the weights.
#[derive(Debug)]
pub struct Random {
    rng: Rng,
    lots: Lots,
}

impl Random {
    /// The whole sequence of lots follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random {
            rng: Rng::new(seed),
            lots: Lots::default(),
        }
    }
}

impl Policy for Random {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        self.lots.fill(request, backends)?;
        let chosen = self
            .lots
            .draw(backends, &mut self.rng)
            .ok_or(NoBackend::NoneHealthy)?;
        Ok(Decision {
            backend: chosen.id,
            reason: Reason::Load,
        })
    }
}
