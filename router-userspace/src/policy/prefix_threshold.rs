//! The longest prefix where it's long enough and its holder isn't overloaded, else the least load.

use super::fleet::{Fleet, Lookout, Prompt};
use super::least_load::LeastLoad;
use super::load::eligible;
use super::{Decision, NoBackend, Policy, Reason, RequestView, Ticket};
use crate::types::{BackendId, BackendSnapshot};

/// Loads are out of balance where the greatest exceeds the least by more than this many requests …
pub const IMBALANCE_REQUESTS: u32 = 32;
/// … and by more than this factor.
pub const IMBALANCE_FACTOR: f64 = 1.5;

/// Follows the longest prefix above a threshold. While loads are out of balance only holders within
/// [`IMBALANCE_REQUESTS`] of the least loaded count, so that no more than the excess goes elsewhere.
#[derive(Debug)]
pub struct PrefixThreshold {
    lookout: Lookout,
    share_min: f64,
    by_load: LeastLoad,
}

impl PrefixThreshold {
    /// Follows prefixes that are at least `share_min` of their prompt; `start` is where turns among equally
    /// loaded backends begin.
    #[must_use]
    pub fn new(fleet: Fleet, share_min: f64, start: usize) -> PrefixThreshold {
        PrefixThreshold {
            lookout: Lookout::new(fleet),
            share_min,
            by_load: LeastLoad::starting_at(start),
        }
    }

    fn holder<'a>(
        &self,
        prompt: Prompt,
        request: &RequestView<'_>,
        backends: &'a [BackendSnapshot],
    ) -> Option<&'a BackendSnapshot> {
        let loads = backends.iter().filter(|backend| eligible(request, backend));
        let (least, most) = loads.fold((u32::MAX, 0), |(least, most), backend| {
            (least.min(backend.in_flight), most.max(backend.in_flight))
        });
        let gap = most.saturating_sub(least);
        let unbalanced = gap > IMBALANCE_REQUESTS && f64::from(most) > IMBALANCE_FACTOR * f64::from(least);
        let limit = if unbalanced {
            least + IMBALANCE_REQUESTS
        } else {
            u32::MAX
        };
        let scores = &self.lookout.scores;
        scores
            .holders()
            .iter()
            .filter_map(|holder| backends.get(holder.0 as usize))
            .filter(|backend| eligible(request, backend) && backend.in_flight <= limit)
            .filter(|backend| prompt.cached(scores.depth(backend.id)) >= self.share_min * prompt.tokens)
            .min_by_key(|backend| {
                let depth = scores.depth(backend.id);
                (std::cmp::Reverse(depth), backend.in_flight, backend.id)
            })
    }
}

impl Policy for PrefixThreshold {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        let prompt = self.lookout.look(request);
        match prompt.and_then(|prompt| self.holder(prompt, request, backends)) {
            Some(holder) => Ok(Decision {
                backend: holder.id,
                reason: Reason::Affinity,
            }),
            None => self.by_load.pick(request, backends),
        }
    }

    fn on_dispatch(&mut self, request: &RequestView<'_>, backend: BackendId) -> Option<Ticket> {
        self.lookout.dispatch(request, backend)
    }
}
