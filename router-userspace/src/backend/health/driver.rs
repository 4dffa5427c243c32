//! Does what the state machine asks for, and writes what it finds into the registry. Runs on the control thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::machine::{Health, Observation, Task, Verdict};
use super::probes::ProbeOutcome;
use super::{HealthConfig, ProbeKind};
use crate::backend::fetch::{Fetch, FetchError, METRICS_BODY_BYTES_MAX};
use crate::backend::{Backend, BackendSet};
use crate::proto::engine_metrics::parse_engine_metrics;
use crate::types::{BackendState, now};

/// How often the counts of the workers are looked at.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes read of the answer to a probe; the status alone decides.
const PROBE_BODY_BYTES_MAX: usize = 64 << 10;

/// What a probe by connection alone counts as.
const CONNECTED: u16 = 200;

enum Report {
    Probed(usize, ProbeOutcome),
    Tokens(usize, Option<u64>),
}

/// Probes the backends of `set` and keeps their states; never returns while it is enabled.
pub async fn watch_health(set: Arc<BackendSet>, config: HealthConfig) {
    if !config.enabled {
        return;
    }
    let mut health = Health::new(config.clone(), set.backends.len(), now());
    let mut reports = JoinSet::new();
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = health.verdicts();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let observations: Vec<Observation> = set.backends.iter().map(|b| observation(b, config.probe)).collect();
                for task in health.observe(now(), &observations) {
                    begin(&mut reports, &set, &config, task);
                }
            }
            Some(report) = reports.join_next() => match report {
                Ok(Report::Probed(index, outcome)) => {
                    note_probe(&set, index, outcome);
                    health.probed(index, now(), outcome);
                }
                Ok(Report::Tokens(index, tokens)) => health.tokens_read(index, now(), tokens),
                Err(error) => tracing::error!(%error, "a health task ended without a report"),
            },
        }
        publish(&set, &health, &mut known);
    }
}

fn observation(backend: &Backend, probe: ProbeKind) -> Observation {
    let stats = &backend.stats;
    if probe == ProbeKind::Connect {
        return Observation {
            last_byte: stats.progress.last_byte(),
            connect_failures: stats.connect_failures_total.load(Ordering::Relaxed),
            draining: backend.draining(),
            ..Observation::default()
        };
    }
    Observation {
        in_flight: backend.producing(),
        last_byte: stats.progress.last_byte(),
        requests: stats.requests_total.load(Ordering::Relaxed),
        answers: [0, 1, 2].map(|class: usize| stats.answers_total[class].load(Ordering::Relaxed)),
        broken: stats.broken_total.load(Ordering::Relaxed),
        connect_failures: stats.connect_failures_total.load(Ordering::Relaxed),
        draining: backend.draining(),
    }
}

fn begin(reports: &mut JoinSet<Report>, set: &BackendSet, config: &HealthConfig, task: Task) {
    let (index, path, body_bytes_max) = match task {
        Task::Probe(index) => (index, &config.path, PROBE_BODY_BYTES_MAX),
        Task::ReadTokens(index) => (index, &config.metrics_path, METRICS_BODY_BYTES_MAX),
    };
    let Some(backend) = set.backends.get(index) else {
        return;
    };
    let fetch = Fetch {
        addr: backend.config.addr,
        path: path.clone(),
        connect_timeout: config.connect_timeout,
        timeout: config.probe_timeout,
        body_bytes_max,
    };
    if config.probe == ProbeKind::Connect {
        if let Task::Probe(index) = task {
            reports.spawn(async move {
                let connected = fetch.reach().await;
                Report::Probed(index, outcome(connected.map(|_| CONNECTED)))
            });
        }
        return;
    }
    reports.spawn(async move {
        let page = fetch.get().await;
        match task {
            Task::Probe(index) => Report::Probed(index, outcome(page.map(|page| page.status))),
            Task::ReadTokens(index) => {
                let page = page.ok().filter(|page| page.status == 200);
                let body = page.and_then(|page| page.body);
                Report::Tokens(
                    index,
                    body.and_then(|body| parse_engine_metrics(&body).tokens_total()),
                )
            }
        }
    });
}

fn outcome(status: Result<u16, FetchError>) -> ProbeOutcome {
    match status {
        Ok(status) if status < 500 => ProbeOutcome::Passed,
        Ok(_) | Err(FetchError::Broken) => ProbeOutcome::Failed,
        Err(FetchError::TimedOut) => ProbeOutcome::TimedOut,
        Err(FetchError::Refused) => ProbeOutcome::Refused,
    }
}

fn note_probe(set: &BackendSet, index: usize, outcome: ProbeOutcome) {
    let Some(backend) = set.backends.get(index) else {
        return;
    };
    backend
        .stats
        .last_probe_us
        .store(now().0.max(1), Ordering::Relaxed);
    backend.stats.probes_total[outcome as usize].fetch_add(1, Ordering::Relaxed);
}

fn publish(set: &BackendSet, health: &Health, known: &mut Vec<Verdict>) {
    let ignored = health.ignored();
    if set.health_ignored.swap(ignored, Ordering::Relaxed) != ignored {
        if ignored {
            tracing::warn!("too many backends are unfit: health is ignored and each gets requests");
        } else {
            tracing::info!("health is heeded again");
        }
    }
    let verdicts = health.verdicts();
    for ((backend, verdict), before) in set.backends.iter().zip(&verdicts).zip(known.iter()) {
        backend.set_health(verdict.state, ignored);
        if verdict.state == before.state {
            continue;
        }
        let (name, state) = (&backend.config.name, verdict.state.as_str());
        if verdict.state == BackendState::Healthy {
            tracing::info!(backend = %name, "healthy");
        } else {
            tracing::warn!(backend = %name, reason = verdict.reason, "{state}");
        }
    }
    *known = verdicts;
}
