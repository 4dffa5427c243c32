//! The pages for scripts. Keys are stable; units are in the names.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::AdminState;
use super::pages::health_ignored;
use crate::backend::{Backend, CarriedBy, EngineLoad, ProbeOutcome};
use crate::server::tcp::TcpPage;
use crate::telemetry::DecisionRecord;
use crate::types::{Micros, now};

#[derive(Serialize)]
struct Backends<'s> {
    policy: &'static str,
    health_ignored: bool,
    backends: Vec<BackendPage<'s>>,
    /// Absent where there are no L4 listeners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tcp: Vec<TcpPage<'s>>,
}

/// One backend, as `/backends` tells it.
#[derive(Serialize)]
pub(super) struct BackendPage<'s> {
    pub(super) id: u32,
    pub(super) name: &'s str,
    pub(super) addr: String,
    /// Whether it gets requests.
    pub(super) state: &'static str,
    /// What health thinks of it, heeded or not.
    pub(super) verdict: &'static str,
    weight: u32,
    pub(super) in_flight: u32,
    pub(super) max_in_flight: u32,
    /// `configured`, `learned` from the engine's reports, or `default`.
    max_in_flight_source: &'static str,
    max_waiting: u32,
    pub(super) saturated: bool,
    pub(super) engine: Engine,
    pub(super) requests_total: u64,
    pub(super) answers_total: Answers,
    pub(super) connect_failures_total: u64,
    pub(super) broken_total: u64,
    bytes_total: u64,
    /// What each way has carried of its answers' bodies.
    carried: Ways,
    probes_total: Probes,
    /// Absent before the first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_byte_age_ms: Option<u64>,
    /// Absent before the end of the first probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_probe_age_ms: Option<u64>,
}

/// What an engine says of itself; `null` = unknown.
#[derive(Serialize)]
pub(super) struct Engine {
    /// Whether a report at most 1 s old tells its load.
    load_known: bool,
    pub(super) running: Option<u32>,
    pub(super) waiting: Option<u32>,
    waiting_uncached_tokens: Option<u64>,
    pub(super) kv_usage_ratio: Option<f64>,
    report_age_ms: Option<u64>,
    block_tokens: Option<u32>,
    capacity_tokens: Option<u64>,
    prefix_queries_total: Option<u64>,
    prefix_hits_total: Option<u64>,
    restarts_total: u64,
}

fn engine(load: &EngineLoad) -> Engine {
    let at = now();
    let known = load.snapshot(at);
    let age_ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let prefix = load.prefix_totals();
    Engine {
        load_known: known.is_some(),
        running: known.and_then(|load| load.running),
        waiting: known.and_then(|load| load.waiting),
        waiting_uncached_tokens: known.and_then(|load| load.waiting_uncached_tokens),
        kv_usage_ratio: known.and_then(|load| load.kv_usage_ratio),
        report_age_ms: load.age(at).map(age_ms),
        block_tokens: load.block_tokens(),
        capacity_tokens: load.capacity_tokens(),
        prefix_queries_total: prefix.map(|(queries, _)| queries),
        prefix_hits_total: prefix.map(|(_, hits)| hits),
        restarts_total: load.restarts_total.load(Ordering::Relaxed),
    }
}

#[derive(Serialize)]
pub(super) struct Answers {
    #[serde(rename = "2xx_3xx")]
    pub(super) good: u64,
    #[serde(rename = "4xx")]
    pub(super) client: u64,
    #[serde(rename = "5xx")]
    pub(super) server: u64,
}

#[derive(Serialize)]
struct Ways {
    worker: Way,
    copy: Way,
    kernel: Way,
}

#[derive(Serialize)]
struct Way {
    requests_total: u64,
    bytes_total: u64,
}

#[derive(Serialize)]
struct Probes {
    passed: u64,
    failed: u64,
    timed_out: u64,
    refused: u64,
}

/// `/backends`.
pub(super) fn backends(state: &AdminState) -> String {
    render(&Backends {
        policy: state.policy,
        health_ignored: health_ignored(state),
        backends: state
            .backends
            .backends
            .iter()
            .map(|backend| backend_page(backend))
            .collect(),
        tcp: state.tcp.iter().map(|service| service.page()).collect(),
    })
}

pub(super) fn backend_page(backend: &Backend) -> BackendPage<'_> {
    let (stats, snapshot) = (&backend.stats, backend.snapshot());
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let way = |by: CarriedBy| Way {
        requests_total: count(&stats.carried[by as usize].requests_total),
        bytes_total: count(&stats.carried[by as usize].bytes_total),
    };
    let probes = |outcome: ProbeOutcome| count(&stats.probes_total[outcome as usize]);
    BackendPage {
        id: backend.id.0,
        name: &backend.config.name,
        addr: backend.config.addr.to_string(),
        state: snapshot.state.as_str(),
        verdict: backend.verdict().as_str(),
        weight: snapshot.weight,
        in_flight: snapshot.in_flight,
        max_in_flight: snapshot.max_in_flight,
        max_in_flight_source: match (backend.config.max_in_flight, stats.load.max_in_flight()) {
            (Some(_), _) => "configured",
            (None, Some(_)) => "learned",
            (None, None) => "default",
        },
        max_waiting: snapshot.max_waiting,
        saturated: snapshot.saturated(),
        engine: engine(&stats.load),
        requests_total: count(&stats.requests_total),
        answers_total: Answers {
            good: count(&stats.answers_total[0]),
            client: count(&stats.answers_total[1]),
            server: count(&stats.answers_total[2]),
        },
        connect_failures_total: count(&stats.connect_failures_total),
        broken_total: count(&stats.broken_total),
        bytes_total: stats.progress.bytes(),
        carried: Ways {
            worker: way(CarriedBy::Worker),
            copy: way(CarriedBy::Copy),
            kernel: way(CarriedBy::Kernel),
        },
        probes_total: Probes {
            passed: probes(ProbeOutcome::Passed),
            failed: probes(ProbeOutcome::Failed),
            timed_out: probes(ProbeOutcome::TimedOut),
            refused: probes(ProbeOutcome::Refused),
        },
        last_byte_age_ms: stats.progress.last_byte().map(age_ms),
        last_probe_age_ms: backend.last_probe().map(age_ms),
    }
}

fn age_ms(at: Micros) -> u64 {
    u64::try_from(now().since(at).as_millis()).unwrap_or(u64::MAX)
}

#[derive(Serialize)]
struct Decisions {
    policy: &'static str,
    /// The order of `in_flight` in each decision.
    backends: Vec<String>,
    decisions: Vec<DecisionRecord>,
}

/// `/explain`: the last `count` decisions, newest first.
pub(super) fn decisions(state: &AdminState, count: usize) -> String {
    render(&Decisions {
        policy: state.policy,
        backends: state
            .backends
            .backends
            .iter()
            .map(|backend| backend.config.name.clone())
            .collect(),
        decisions: state.decisions.last(count),
    })
}

fn render(value: &impl Serialize) -> String {
    // Plain structs of strings and numbers always serialise.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
