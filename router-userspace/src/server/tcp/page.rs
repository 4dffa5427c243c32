//! A listener as `/backends` tells it. Keys are stable; units are in the names.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::TcpService;
use crate::backend::Backend;
use crate::types::now;

/// One L4 listener.
#[derive(Serialize)]
pub(in crate::server) struct TcpPage<'s> {
    name: &'s str,
    listen: Vec<String>,
    hash: &'static str,
    health_ignored: bool,
    backends: Vec<TcpBackendPage<'s>>,
}

#[derive(Serialize)]
struct TcpBackendPage<'s> {
    name: &'s str,
    addr: String,
    /// Whether it gets connections.
    state: &'static str,
    /// What health thinks of it, heeded or not.
    verdict: &'static str,
    weight: u32,
    connections: u32,
    connections_total: u64,
    connect_failures_total: u64,
    broken_total: u64,
    sent_bytes_total: u64,
    received_bytes_total: u64,
    /// Absent before the end of the first probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_probe_age_ms: Option<u64>,
}

impl TcpService {
    pub(in crate::server) fn page(&self) -> TcpPage<'_> {
        let backends = self.backends();
        TcpPage {
            name: &self.config.name,
            listen: self.config.listen.iter().map(ToString::to_string).collect(),
            hash: self.config.hash.as_str(),
            health_ignored: backends.health_ignored.load(Ordering::Relaxed),
            backends: backends
                .backends
                .iter()
                .zip(&self.sent)
                .map(|(backend, sent)| backend_page(backend, sent.bytes()))
                .collect(),
        }
    }
}

fn backend_page(backend: &Backend, sent_bytes: u64) -> TcpBackendPage<'_> {
    let stats = &backend.stats;
    let age_ms = |at| u64::try_from(now().since(at).as_millis()).unwrap_or(u64::MAX);
    TcpBackendPage {
        name: &backend.config.name,
        addr: backend.config.addr.to_string(),
        state: backend.state().as_str(),
        verdict: backend.verdict().as_str(),
        weight: backend.config.weight,
        connections: backend.in_flight(),
        connections_total: stats.requests_total.load(Ordering::Relaxed),
        connect_failures_total: stats.connect_failures_total.load(Ordering::Relaxed),
        broken_total: stats.broken_total.load(Ordering::Relaxed),
        sent_bytes_total: sent_bytes,
        received_bytes_total: stats.progress.bytes(),
        last_probe_age_ms: backend.last_probe().map(age_ms),
    }
}
