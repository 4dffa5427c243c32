//! Reads the load of every engine, each at its own times. Runs on the control thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::LoadConfig;
use super::learner::LoadLearner;
use super::outcome::ScrapeOutcome;
use crate::backend::fetch::{Fetch, FetchError, KeptFetch, METRICS_BODY_BYTES_MAX};
use crate::backend::{Backend, BackendSet};
use crate::proto::engine_metrics::{
    ENGINE_LOADS_PATH, EngineKind, EngineReport, parse_engine_loads, parse_engine_metrics,
};
use crate::types::now;

/// Readings of all engines together; with more engines than fit each is read less often.
const SCRAPES_PER_S_MAX: u32 = 2000;

/// Reads the load of the backends of `set` into their [`super::EngineLoad`]; ends only where it is disabled.
///
/// What fails here is counted and changes no backend's state: whether it serves is for health to say.
///
/// # Panics
/// Where a reader panicked.
pub async fn watch_load(set: Arc<BackendSet>, config: LoadConfig) {
    if !config.enabled {
        return;
    }
    let count = u32::try_from(set.backends.len()).unwrap_or(u32::MAX);
    let spread = Duration::from_secs(1) * count / SCRAPES_PER_S_MAX;
    let interval = config.interval.max(spread);
    let mut readers = JoinSet::new();
    for backend in &set.backends {
        readers.spawn(read_for_ever(Arc::clone(backend), config.clone(), interval));
    }
    while let Some(ended) = readers.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

async fn read_for_ever(backend: Arc<Backend>, config: LoadConfig, interval: Duration) {
    let seed = now().0 ^ u64::from(backend.id.0) << 32;
    let mut learner = LoadLearner::new(interval, seed, now());
    let fetch = KeptFetch::new(Fetch {
        addr: backend.config.addr,
        path: String::new(),
        connect_timeout: config.timeout,
        timeout: config.timeout,
        body_bytes_max: METRICS_BODY_BYTES_MAX,
    });
    let mut reader = Reader {
        fetch,
        path: config.path,
        loads: LoadsPage::Unasked,
    };
    let mut told = None;
    loop {
        tokio::time::sleep(learner.due().since(now())).await;
        learner.begin(now());
        let report = reader.read().await;
        if report == Err(FetchError::Refused) {
            // What comes back may be another version.
            reader.loads = LoadsPage::Unasked;
        }
        let outcome = take(&backend, &mut learner, report);
        backend.stats.load.count(outcome);
        note_change(&backend, &reader.path, &mut told, outcome);
    }
}

/// Whether an engine has SGLang's page of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadsPage {
    Unasked,
    Offered,
    Refused,
}

/// The pages of one engine.
struct Reader {
    fetch: KeptFetch,
    path: String,
    loads: LoadsPage,
}

impl Reader {
    /// `None` = there is no page with a load. SGLang's page of loads is asked for where the metrics are SGLang's or
    /// none: it is there without a flag, and says more.
    async fn read(&mut self) -> Result<Option<EngineReport>, FetchError> {
        let metrics = self.page(&self.path.clone()).await?;
        let metrics = metrics.map(|body| parse_engine_metrics(&body));
        let known = metrics.filter(EngineReport::has_load);
        let worth = match known.and_then(|report| report.kind) {
            Some(EngineKind::Vllm) => false,
            Some(EngineKind::Sglang) => self.loads != LoadsPage::Refused,
            None => true,
        };
        if !worth {
            return Ok(metrics);
        }
        match self.page(ENGINE_LOADS_PATH).await {
            Ok(body) => {
                let loads = body.and_then(|body| parse_engine_loads(&body));
                self.loads = if loads.is_some() {
                    LoadsPage::Offered
                } else {
                    LoadsPage::Refused
                };
                Ok(match loads {
                    Some(loads) => Some(metrics.unwrap_or_default().with_loads(&loads)),
                    None => metrics,
                })
            }
            // What the metrics said still stands.
            Err(_) if known.is_some() => Ok(metrics),
            Err(error) => Err(error),
        }
    }

    async fn page(&mut self, path: &str) -> Result<Option<Bytes>, FetchError> {
        let page = self.fetch.get(path).await?;
        Ok(page.body.filter(|_| page.status == 200))
    }
}

fn take(
    backend: &Backend,
    learner: &mut LoadLearner,
    report: Result<Option<EngineReport>, FetchError>,
) -> ScrapeOutcome {
    let load = &backend.stats.load;
    let outcome = match report {
        Ok(Some(report)) => {
            if learner.reported(&report) {
                load.restarts_total.fetch_add(1, Ordering::Relaxed);
                tracing::info!(backend = %backend.config.name, "its counters fell: it was restarted");
            }
            // By the time of its end: a busy engine makes its page late, not early.
            load.publish(&report, now());
            if report.has_load() {
                ScrapeOutcome::Reported
            } else {
                ScrapeOutcome::Absent
            }
        }
        Ok(None) => {
            learner.absent();
            ScrapeOutcome::Absent
        }
        Err(FetchError::Refused) => {
            learner.gone();
            ScrapeOutcome::Failed
        }
        // What was learned stays: a page that doesn't come says nothing of the engine's size.
        Err(FetchError::Broken) => ScrapeOutcome::Failed,
        Err(FetchError::TimedOut) => ScrapeOutcome::TimedOut,
    };
    load.set_max_in_flight(learner.max_in_flight());
    outcome
}

/// One line when reports begin and one when the page turns out to be none; failures come and go and are counted.
fn note_change(backend: &Backend, path: &str, told: &mut Option<bool>, outcome: ScrapeOutcome) {
    let reports = match outcome {
        ScrapeOutcome::Reported => true,
        ScrapeOutcome::Absent => false,
        ScrapeOutcome::TimedOut | ScrapeOutcome::Failed => return,
    };
    if told.replace(reports) == Some(reports) {
        return;
    }
    let name = &backend.config.name;
    if reports {
        tracing::info!(backend = %name, "reports its load");
    } else {
        tracing::warn!(backend = %name, "{path} tells no load, which stays unknown");
    }
}
