//! The series of each backend, read from its live counts when a page is asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::{Backend, BackendSet, ProbeOutcome};
use crate::types::{BackendState, now};

/// The classes of `answers_total`, in its order.
const CLASSES: [&str; 3] = ["2xx_3xx", "4xx", "5xx"];

const STATES: [BackendState; 4] = [
    BackendState::Healthy,
    BackendState::Unhealthy,
    BackendState::Stalled,
    BackendState::Draining,
];

/// Adds the series of the backends to a page. Their names must stand in a label as they are: the encoder escapes
/// nothing, so the configuration refuses quotes and backslashes.
pub fn register_metrics(registry: &mut Registry, set: Arc<BackendSet>) {
    registry.register_collector(Box::new(BackendCollector(set)));
}

#[derive(Debug)]
struct BackendCollector(Arc<BackendSet>);

impl Collector for BackendCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let e = &mut encoder;
        self.states(e)?;
        self.gauge(e, "in_flight", "Requests in flight", |b| {
            Some(f64::from(b.in_flight()))
        })?;
        self.gauge(
            e,
            "last_probe_age_seconds",
            "Seconds since its last probe ended",
            last_probe_age,
        )?;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.counter(e, "requests", "Requests sent to it, retries included", |b| {
            load(&b.stats.requests_total)
        })?;
        self.counter(
            e,
            "connect_failures",
            "Connections that could not be opened",
            |b| load(&b.stats.connect_failures_total),
        )?;
        self.counter(e, "broken", "Requests that it broke off", |b| {
            load(&b.stats.broken_total)
        })?;
        self.counter(e, "response_bytes", "Response bytes received from it", |b| {
            b.stats.progress.bytes()
        })?;
        self.by_label(
            e,
            "answers",
            "Answers whose head arrived, by class",
            "class",
            &CLASSES,
            |b| &b.stats.answers_total,
        )?;
        let outcomes = ProbeOutcome::ALL.map(ProbeOutcome::as_str);
        self.by_label(
            e,
            "probes",
            "Probes that ended, by outcome",
            "outcome",
            &outcomes,
            |b| &b.stats.probes_total,
        )?;
        let help = "Whether so many backends are unfit that health is ignored";
        let ignored = self.0.health_ignored.load(Ordering::Relaxed);
        let encoder = e.encode_descriptor("health_ignored", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(ignored)).encode(encoder)
    }
}

impl BackendCollector {
    fn states(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "What health thinks of it: 1 for its state, 0 for the others";
        let mut family = encoder.encode_descriptor("backend_state", help, None, MetricType::Gauge)?;
        for backend in &self.0.backends {
            let now = if backend.draining() {
                BackendState::Draining
            } else {
                backend.verdict()
            };
            for state in STATES {
                let labels = [
                    ("backend", backend.config.name.as_str()),
                    ("state", state.as_str()),
                ];
                ConstGauge::new(i64::from(state == now)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Backend) -> Option<f64>,
    ) -> fmt::Result {
        let name = format!("backend_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for backend in &self.0.backends {
            if let Some(value) = value(backend) {
                let labels = [("backend", backend.config.name.as_str())];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn counter(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Backend) -> u64,
    ) -> fmt::Result {
        let name = format!("backend_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for backend in &self.0.backends {
            let labels = [("backend", backend.config.name.as_str())];
            count(value(backend), family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn by_label<const N: usize>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        label: &str,
        words: &[&str; N],
        values: impl Fn(&Backend) -> &[AtomicU64; N],
    ) -> fmt::Result {
        let name = format!("backend_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for backend in &self.0.backends {
            for (word, value) in words.iter().zip(values(backend)) {
                let labels = [("backend", backend.config.name.as_str()), (label, *word)];
                count(value.load(Ordering::Relaxed), family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn count(value: u64, encoder: MetricEncoder<'_>) -> fmt::Result {
    ConstCounter::new(value).encode(encoder)
}

/// How long ago its last probe ended: a growing age is a prober that died.
fn last_probe_age(backend: &Backend) -> Option<f64> {
    backend.last_probe().map(|at| now().since(at).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendConfig;

    #[test]
    fn each_backend_has_its_series_and_the_page_ends_as_openmetrics_does() {
        let config = BackendConfig {
            name: "a".to_owned(),
            addr: ([127, 0, 0, 1], 8000).into(),
            weight: 1,
            max_in_flight: None,
            max_waiting: 16,
        };
        let set = Arc::new(BackendSet::new(vec![config]));
        let backend = &set.backends[0];
        let _charge = backend.charge();
        backend.stats.answers_total[2].store(3, Ordering::Relaxed);
        backend.set_health(BackendState::Stalled, true);
        let mut registry = Registry::with_prefix("warmpath");
        register_metrics(&mut registry, Arc::clone(&set));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("strings take all");
        for line in [
            r#"warmpath_backend_in_flight{backend="a"} 1.0"#,
            r#"warmpath_backend_requests_total{backend="a"} 1"#,
            r#"warmpath_backend_answers_total{backend="a",class="5xx"} 3"#,
            r#"warmpath_backend_state{backend="a",state="stalled"} 1"#,
            r#"warmpath_backend_state{backend="a",state="healthy"} 0"#,
            r#"warmpath_backend_probes_total{backend="a",outcome="refused"} 0"#,
            "warmpath_health_ignored 0",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} not in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
        assert!(
            !page.contains("last_probe_age_seconds{"),
            "no age before the first probe"
        );
        assert_eq!(
            backend.state(),
            BackendState::Healthy,
            "ignored health leaves it in"
        );
    }
}
