//! The memory that request bodies may take together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::telemetry::Metrics;

/// Bytes of one permit: fine enough to be fair, coarse enough for a 32-bit count.
const PAGE_BYTES: usize = 4096;

/// One bound for all held bodies of the process.
#[derive(Clone, Debug)]
pub(super) struct BodyMemory {
    pages: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

/// A request's part of the memory; given back when dropped.
#[derive(Debug)]
pub(super) struct BodyLease {
    memory: BodyMemory,
    permit: Option<OwnedSemaphorePermit>,
}

/// There was no room within the time allowed.
#[derive(Debug)]
pub(super) struct MemoryFull;

impl BodyMemory {
    pub(super) fn new(total_bytes: usize, metrics: Arc<Metrics>) -> BodyMemory {
        let pages = total_bytes.div_ceil(PAGE_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        BodyMemory {
            pages: Arc::new(Semaphore::new(pages)),
            metrics,
        }
    }

    pub(super) fn lease(&self) -> BodyLease {
        BodyLease {
            memory: self.clone(),
            permit: None,
        }
    }
}

impl BodyLease {
    /// Makes the lease cover `bytes`; reading pauses here while the memory is full.
    pub(super) async fn cover(&mut self, bytes: usize, wait: Duration) -> Result<(), MemoryFull> {
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(PAGE_BYTES).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let count = u32::try_from(missing).map_err(|_| MemoryFull)?;
        let pages = Arc::clone(&self.memory.pages);
        let more = match Arc::clone(&pages).try_acquire_many_owned(count) {
            Ok(more) => more,
            Err(_) => {
                self.memory.metrics.body_waits_total.inc();
                match tokio::time::timeout(wait, pages.acquire_many_owned(count)).await {
                    Ok(Ok(more)) => more,
                    _ => return Err(MemoryFull),
                }
            }
        };
        self.memory
            .metrics
            .body_buffer_bytes
            .inc_by((missing * PAGE_BYTES) as i64);
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}

impl Drop for BodyLease {
    fn drop(&mut self) {
        if let Some(permit) = &self.permit {
            self.memory
                .metrics
                .body_buffer_bytes
                .dec_by((permit.num_permits() * PAGE_BYTES) as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_full_memory_pauses_and_then_refuses_and_what_is_dropped_returns() {
        let metrics = Arc::new(Metrics::new());
        let memory = BodyMemory::new(4 * PAGE_BYTES, Arc::clone(&metrics));
        let mut first = memory.lease();
        first.cover(3 * PAGE_BYTES, Duration::from_secs(1)).await.unwrap();
        let mut second = memory.lease();
        second.cover(PAGE_BYTES, Duration::from_secs(1)).await.unwrap();
        assert!(
            second
                .cover(2 * PAGE_BYTES, Duration::from_secs(1))
                .await
                .is_err()
        );
        assert_eq!(metrics.body_waits_total.get(), 1);
        drop(first);
        second
            .cover(2 * PAGE_BYTES, Duration::from_secs(1))
            .await
            .unwrap();
        drop(second);
        assert_eq!(metrics.body_buffer_bytes.get(), 0);
    }
}
