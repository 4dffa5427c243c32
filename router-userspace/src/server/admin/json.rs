//! The pages for scripts. Keys are stable; units are in the names.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::AdminState;
use super::pages::health_ignored;
use crate::backend::{Backend, ProbeOutcome};
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
    pub(super) saturated: bool,
    pub(super) requests_total: u64,
    pub(super) answers_total: Answers,
    pub(super) connect_failures_total: u64,
    pub(super) broken_total: u64,
    bytes_total: u64,
    probes_total: Probes,
    /// Absent before the first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_byte_age_ms: Option<u64>,
    /// Absent before the end of the first probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_probe_age_ms: Option<u64>,
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
        saturated: snapshot.saturated(),
        requests_total: count(&stats.requests_total),
        answers_total: Answers {
            good: count(&stats.answers_total[0]),
            client: count(&stats.answers_total[1]),
            server: count(&stats.answers_total[2]),
        },
        connect_failures_total: count(&stats.connect_failures_total),
        broken_total: count(&stats.broken_total),
        bytes_total: stats.progress.bytes(),
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
