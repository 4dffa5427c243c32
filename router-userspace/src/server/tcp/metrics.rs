//! The series of L4 listeners, read from their live counts when a page is asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::TcpService;
use super::counts::{End, Route};
use crate::backend::{Backend, ProbeOutcome};
use crate::types::BackendState;

const STATES: [BackendState; 3] = [
    BackendState::Healthy,
    BackendState::Unhealthy,
    BackendState::Draining,
];

/// Adds the series of L4 listeners to a page. The names of listeners and backends must stand in a label as they are.
pub fn register_tcp_metrics(registry: &mut Registry, services: Vec<Arc<TcpService>>) {
    if !services.is_empty() {
        registry.register_collector(Box::new(TcpCollector(services)));
    }
}

#[derive(Debug)]
struct TcpCollector(Vec<Arc<TcpService>>);

impl Collector for TcpCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let e = &mut encoder;
        self.gauge(e, "tcp_connections", "Connections open to it", |backend| {
            i64::from(backend.in_flight())
        })?;
        self.states(e)?;
        self.health_ignored(e)?;
        self.counter(
            e,
            "tcp_connections",
            "Connections given to it, failed tries included",
            |_, backend| backend.stats.requests_total.load(Ordering::Relaxed),
        )?;
        self.counter(
            e,
            "tcp_connect_failures",
            "Connections that could not be opened",
            |_, backend| backend.stats.connect_failures_total.load(Ordering::Relaxed),
        )?;
        self.counter(
            e,
            "tcp_sent_bytes",
            "Bytes received from clients for it",
            |service, backend| {
                service
                    .sent
                    .get(backend.id.0 as usize)
                    .map_or(0, |sent| sent.bytes())
            },
        )?;
        self.counter(e, "tcp_received_bytes", "Bytes received from it", |_, backend| {
            backend.stats.progress.bytes()
        })?;
        self.probes(e)?;
        let routes = Route::ALL.map(|route| (route.as_str(), route));
        self.by_word(
            e,
            "tcp_routes",
            "Connections, by what chose their backend",
            ("by", &routes),
            |service, route| service.counts.routes(route),
        )?;
        let ends = End::ALL.map(|end| (end.as_str(), end));
        self.by_word(
            e,
            "tcp_ends",
            "Connections ended, by reason",
            ("reason", &ends),
            |service, end| service.counts.ends(end),
        )
    }
}

impl TcpCollector {
    fn each(&self) -> impl Iterator<Item = (&TcpService, &Backend)> {
        self.0.iter().flat_map(|service| {
            let backends = &service.backends().backends;
            backends.iter().map(|backend| (&**service, &**backend))
        })
    }

    fn gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Backend) -> i64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (service, backend) in self.each() {
            ConstGauge::new(value(backend)).encode(family.encode_family(&labels(service, backend))?)?;
        }
        Ok(())
    }

    fn states(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "What health thinks of it: 1 for its state, 0 for the others";
        let mut family = encoder.encode_descriptor("tcp_backend_state", help, None, MetricType::Gauge)?;
        for (service, backend) in self.each() {
            let now = if backend.draining() {
                BackendState::Draining
            } else {
                backend.verdict()
            };
            for state in STATES {
                let [listener, name] = labels(service, backend);
                let labels = [listener, name, ("state", state.as_str())];
                ConstGauge::new(i64::from(state == now)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn health_ignored(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether so many of its backends are unfit that health is ignored";
        let mut family = encoder.encode_descriptor("tcp_health_ignored", help, None, MetricType::Gauge)?;
        for service in &self.0 {
            let labels = [("listener", service.config.name.as_str())];
            let ignored = service.backends().health_ignored.load(Ordering::Relaxed);
            ConstGauge::new(i64::from(ignored)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counter(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&TcpService, &Backend) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (service, backend) in self.each() {
            count(
                value(service, backend),
                family.encode_family(&labels(service, backend))?,
            )?;
        }
        Ok(())
    }

    fn probes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Probes that ended, by outcome";
        let mut family = encoder.encode_descriptor("tcp_probes", help, None, MetricType::Counter)?;
        for (service, backend) in self.each() {
            for outcome in ProbeOutcome::ALL {
                let [listener, name] = labels(service, backend);
                let labels = [listener, name, ("outcome", outcome.as_str())];
                let ended = &backend.stats.probes_total[outcome as usize];
                count(ended.load(Ordering::Relaxed), family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn by_word<T: Copy, const N: usize>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        (label, words): (&str, &[(&str, T); N]),
        value: impl Fn(&TcpService, T) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for service in &self.0 {
            for (word, of) in words {
                let labels = [("listener", service.config.name.as_str()), (label, *word)];
                count(value(service, *of), family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn labels<'s>(service: &'s TcpService, backend: &'s Backend) -> [(&'static str, &'s str); 2] {
    [
        ("listener", service.config.name.as_str()),
        ("backend", backend.config.name.as_str()),
    ]
}

fn count(value: u64, encoder: MetricEncoder<'_>) -> fmt::Result {
    ConstCounter::new(value).encode(encoder)
}
