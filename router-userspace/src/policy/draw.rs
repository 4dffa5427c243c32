//! Drawing an eligible backend by lot.

use super::load::{eligible, refusal, weight};
use super::{NoBackend, RequestView};
use crate::types::{BackendSnapshot, Rng};

/// The eligible backends of one decision; the list is kept from decision to decision, so nothing is allocated.
#[derive(Debug, Default)]
pub(super) struct Lots {
    indices: Vec<usize>,
    total_weight: u64,
}

impl Lots {
    /// Puts every eligible backend in.
    pub(super) fn fill(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<(), NoBackend> {
        self.indices.clear();
        self.total_weight = 0;
        for (index, backend) in backends.iter().enumerate() {
            if eligible(request, backend) {
                self.indices.push(index);
                self.total_weight += weight(backend);
            }
        }
        if self.indices.is_empty() {
            return Err(refusal(request, backends));
        }
        Ok(())
    }

    /// Takes one out, with a chance in proportion to its weight.
    pub(super) fn draw<'a>(
        &mut self,
        backends: &'a [BackendSnapshot],
        rng: &mut Rng,
    ) -> Option<&'a BackendSnapshot> {
        let mut lot = rng.below(usize::try_from(self.total_weight).unwrap_or(usize::MAX)) as u64;
        let place = self.indices.iter().position(|index| {
            let weight = weight(&backends[*index]);
            let here = lot < weight;
            lot = lot.wrapping_sub(weight);
            here
        })?;
        let backend = &backends[self.indices.swap_remove(place)];
        self.total_weight -= weight(backend);
        Some(backend)
    }
}
