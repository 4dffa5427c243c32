//! The better of two drawn by lot.

use std::cmp::Ordering;

use super::draw::Lots;
use super::load::compare;
use super::{Decision, NoBackend, Policy, Reason, RequestView};
use crate::types::{BackendSnapshot, Rng};

/// Draws two different eligible backends and takes the one with less in flight relative to its weight.
///
/// # Source
/// Mitzenmacher, "The power of two choices in randomized load balancing", 2001. With counts that are a moment
/// old it doesn't send everyone to the same minimum, as least load would.
#[derive(Debug)]
pub struct PowerOfTwo {
    rng: Rng,
    lots: Lots,
}

impl PowerOfTwo {
    /// The whole sequence of lots follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> PowerOfTwo {
        PowerOfTwo {
            rng: Rng::new(seed),
            lots: Lots::default(),
        }
    }
}

impl Policy for PowerOfTwo {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        self.lots.fill(request, backends)?;
        let first = self
            .lots
            .draw(backends, &mut self.rng)
            .ok_or(NoBackend::NoneHealthy)?;
        let chosen = match self.lots.draw(backends, &mut self.rng) {
            // Of equals the first drawn, so chance decides.
            Some(second) if compare(second, first) == Ordering::Less => second,
            _ => first,
        };
        Ok(Decision {
            backend: chosen.id,
            reason: Reason::Load,
        })
    }
}
