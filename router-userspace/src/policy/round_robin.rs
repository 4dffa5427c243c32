//! By turns.

use super::{Decision, NoBackend, Policy, Reason, RequestView};
use crate::types::BackendSnapshot;

/// Gives each eligible backend its turn, whatever the prompt.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl Policy for RoundRobin {
    fn pick(
        &mut self,
        request: &RequestView<'_>,
        backends: &[BackendSnapshot],
    ) -> Result<Decision, NoBackend> {
        let mut healthy = false;
        for step in 0..backends.len() {
            let index = (self.next + step) % backends.len();
            let backend = &backends[index];
            if !request.allows(backend) {
                continue;
            }
            healthy = true;
            if !backend.saturated() {
                self.next = index + 1;
                return Ok(Decision {
                    backend: backend.id,
                    reason: Reason::Load,
                });
            }
        }
        Err(if healthy {
            NoBackend::AllSaturated
        } else {
            NoBackend::NoneHealthy
        })
    }
}
