//! The kernel path's counts on the metrics page, read when it is asked for.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Kernel;

/// The loaded kernel path, once there is one: the metrics page is there before it.
#[derive(Clone, Debug, Default)]
pub struct KernelCell(Arc<OnceLock<Kernel>>);

impl KernelCell {
    /// Makes `kernel` known; the first one stays.
    pub fn set(&self, kernel: Kernel) {
        // There's one kernel path in a process.
        let _ = self.0.set(kernel);
    }

    /// The kernel path, where it is loaded.
    #[must_use]
    pub fn get(&self) -> Option<&Kernel> {
        self.0.get()
    }

    /// Adds its counts to a page.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

/// The program's counters that count bytes.
const BYTES: &str = "redirected_bytes";
/// The prefixes of the counters of which every call of the program counts one.
const VERDICTS: [&str; 3] = ["redirected", "pass_", "drop_"];

impl Collector for KernelCell {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(kernel) = self.get() else {
            return Ok(());
        };
        let counters = kernel.counters();
        let is_verdict = |name: &str| name != BYTES && VERDICTS.iter().any(|prefix| name.starts_with(prefix));
        let named = |wanted: bool| {
            counters
                .iter()
                .filter(move |(name, _)| *name != BYTES && is_verdict(name) == wanted)
                .map(|(name, count)| (*name, *count))
        };
        let e = &mut encoder;
        counts(
            e,
            "kernel_verdicts",
            "What the kernel program did with a segment",
            "verdict",
            named(true),
        )?;
        counts(
            e,
            "kernel_events",
            "What happened inside the kernel program",
            "event",
            named(false),
        )?;
        let bytes = counters
            .iter()
            .find(|(name, _)| *name == BYTES)
            .map_or(0, |(_, count)| *count);
        let descriptor = e.encode_descriptor(
            "kernel_redirected_bytes",
            "Bytes that the kernel program sent to clients",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(bytes).encode(descriptor)?;
        let usage = kernel.usage();
        let maps = [
            ("upstreams", usage.upstreams, usage.upstreams_max),
            ("clients", usage.clients, usage.clients_max),
            ("armed_flows", usage.armed, usage.armed_max),
        ];
        gauges(
            e,
            "kernel_places",
            "Places taken in the kernel path's tables",
            maps.map(|(name, taken, _)| (name, taken)),
        )?;
        gauges(
            e,
            "kernel_places_max",
            "Places in the kernel path's tables",
            maps.map(|(name, _, most)| (name, most)),
        )
    }
}

fn counts(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: impl Iterator<Item = (&'static str, u64)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in values {
        ConstCounter::new(count).encode(family.encode_family(&[(label, value)])?)?;
    }
    Ok(())
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: [(&'static str, u64); 3],
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (table, count) in values {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        ConstGauge::new(count).encode(family.encode_family(&[("table", table)])?)?;
    }
    Ok(())
}
