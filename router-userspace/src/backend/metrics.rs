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

use super::{Backend, BackendSet, ProbeOutcome, ScrapeOutcome};
use crate::types::{BackendState, LoadSnapshot, now};

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
        self.loads(e)?;
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

    /// What the engines say of themselves. Absent where it is unknown, since a zero would look idle.
    fn loads(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let at = now();
        let told =
            |field: fn(&LoadSnapshot) -> Option<f64>| move |b: &Backend| field(&b.stats.load.snapshot(at)?);
        let help = "Whether the engine's own load is known, by a report at most 1 s old";
        self.gauge(e, "load_known", help, |b| {
            Some(f64::from(u8::from(b.stats.load.snapshot(at).is_some())))
        })?;
        let help = "Requests in the engine's running batch, by its own report";
        self.gauge(
            e,
            "engine_running",
            help,
            told(|load| load.running.map(f64::from)),
        )?;
        let help = "Requests that wait inside the engine, by its own report";
        self.gauge(
            e,
            "engine_waiting",
            help,
            told(|load| load.waiting.map(f64::from)),
        )?;
        let help =
            "Prompt tokens that wait inside the engine, neither computed nor cached, by its own report";
        self.gauge(
            e,
            "engine_waiting_uncached_tokens",
            help,
            told(|load| load.waiting_uncached_tokens.map(|tokens| tokens as f64)),
        )?;
        let help = "The share of the engine's KV memory in use, by its own report";
        self.gauge(e, "kv_usage_ratio", help, told(|load| load.kv_usage_ratio))?;
        let help = "Seconds since the engine's last report came";
        self.gauge(e, "report_age_seconds", help, |b| {
            b.stats.load.age(at).map(|age| age.as_secs_f64())
        })?;
        let help = "Requests in flight from which it is saturated";
        self.gauge(e, "max_in_flight", help, |b| Some(f64::from(b.max_in_flight())))?;
        let help = "Tokens in a block of the engine's KV memory";
        self.gauge(e, "block_tokens", help, |b| {
            b.stats.load.block_tokens().map(f64::from)
        })?;
        let help = "Tokens that the engine's KV memory holds";
        self.gauge(e, "capacity_tokens", help, |b| {
            b.stats.load.capacity_tokens().map(|tokens| tokens as f64)
        })?;
        let help = "Restarts of the engine that showed in its counters";
        self.counter(e, "engine_restarts", help, |b| {
            b.stats.load.restarts_total.load(Ordering::Relaxed)
        })?;
        let outcomes = ScrapeOutcome::ALL.map(ScrapeOutcome::as_str);
        let help = "Readings of the engine's load that ended, by outcome";
        self.by_label(e, "scrapes", help, "outcome", &outcomes, |b| {
            &b.stats.load.scrapes_total
        })
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
    use crate::proto::engine_metrics::EngineReport;

    fn one() -> Arc<BackendSet> {
        Arc::new(BackendSet::new(vec![BackendConfig {
            name: "a".to_owned(),
            addr: ([127, 0, 0, 1], 8000).into(),
            weight: 1,
            max_in_flight: None,
            max_waiting: 16,
        }]))
    }

    fn page(set: &Arc<BackendSet>) -> String {
        let mut registry = Registry::with_prefix("warmpath");
        register_metrics(&mut registry, Arc::clone(set));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("strings take all");
        page
    }

    fn assert_lines(page: &str, lines: &[&str]) {
        for line in lines {
            assert!(page.lines().any(|found| found == *line), "{line} not in\n{page}");
        }
    }

    #[test]
    fn an_unknown_load_has_no_series_and_a_known_one_has() {
        let set = one();
        let load = &set.backends[0].stats.load;
        let unknown = page(&set);
        assert_lines(
            &unknown,
            &[
                r#"warmpath_backend_load_known{backend="a"} 0.0"#,
                r#"warmpath_backend_max_in_flight{backend="a"} 256.0"#,
                r#"warmpath_backend_scrapes_total{backend="a",outcome="reported"} 0"#,
            ],
        );
        for name in [
            "engine_running",
            "engine_waiting",
            "kv_usage_ratio",
            "report_age_seconds",
            "capacity_tokens",
        ] {
            assert!(!unknown.contains(&format!("_{name}{{")), "{name} in\n{unknown}");
        }
        // A time to come is as young as can be, however long the page takes.
        load.publish(
            &EngineReport {
                running: Some(3),
                kv_usage_ratio: Some(0.5),
                block_tokens: Some(16),
                capacity_tokens: Some(1 << 33),
                ..EngineReport::default()
            },
            now() + std::time::Duration::from_secs(3600),
        );
        load.set_max_in_flight(Some(80));
        let known = page(&set);
        assert_lines(
            &known,
            &[
                r#"warmpath_backend_load_known{backend="a"} 1.0"#,
                r#"warmpath_backend_engine_running{backend="a"} 3.0"#,
                r#"warmpath_backend_kv_usage_ratio{backend="a"} 0.5"#,
                r#"warmpath_backend_report_age_seconds{backend="a"} 0.0"#,
                r#"warmpath_backend_max_in_flight{backend="a"} 80.0"#,
                r#"warmpath_backend_block_tokens{backend="a"} 16.0"#,
                r#"warmpath_backend_capacity_tokens{backend="a"} 8589934592.0"#,
            ],
        );
        assert!(!known.contains("engine_waiting{"), "not told");
    }

    #[test]
    fn each_backend_has_its_series_and_the_page_ends_as_openmetrics_does() {
        let set = one();
        let backend = &set.backends[0];
        let _charge = backend.charge();
        backend.stats.answers_total[2].store(3, Ordering::Relaxed);
        backend.set_health(BackendState::Stalled, true);
        let page = page(&set);
        assert_lines(
            &page,
            &[
                r#"warmpath_backend_in_flight{backend="a"} 1.0"#,
                r#"warmpath_backend_requests_total{backend="a"} 1"#,
                r#"warmpath_backend_answers_total{backend="a",class="5xx"} 3"#,
                r#"warmpath_backend_state{backend="a",state="stalled"} 1"#,
                r#"warmpath_backend_state{backend="a",state="healthy"} 0"#,
                r#"warmpath_backend_probes_total{backend="a",outcome="refused"} 0"#,
                "warmpath_health_ignored 0",
            ],
        );
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
