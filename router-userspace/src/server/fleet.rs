//! Keeps what the policy believes of the engines' caches in step with what is known of the engines.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::backend::BackendSet;
use crate::policy::Fleet;
use crate::types::BackendState;

/// How often the engines' state is compared with what is believed; a scrape isn't more frequent.
const INTERVAL: Duration = Duration::from_millis(250);

/// What was known of one engine at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    restarts: u64,
    down: bool,
    capacity_tokens: Option<u64>,
}

/// Forgets the cache of an engine that is down or has restarted, and sizes each mirror by its engine's report.
pub(super) async fn keep_fleet(fleet: Fleet, backends: Arc<BackendSet>) {
    let mut known = vec![Known::default(); backends.backends.len()];
    loop {
        tokio::time::sleep(INTERVAL).await;
        for (backend, known) in backends.backends.iter().zip(&mut known) {
            let seen = Known {
                restarts: backend.stats.load.restarts_total.load(Ordering::Relaxed),
                down: backend.verdict() == BackendState::Unhealthy,
                capacity_tokens: backend.stats.load.capacity_tokens(),
            };
            if seen.restarts > known.restarts || (seen.down && !known.down) {
                fleet.reset(backend.id);
            }
            if let Some(tokens) = seen.capacity_tokens
                && seen.capacity_tokens != known.capacity_tokens
            {
                fleet.set_capacity(backend.id, tokens);
            }
            *known = seen;
        }
    }
}
