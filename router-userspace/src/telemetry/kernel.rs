//! The kernel path's series, read from its maps when a page is asked for.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The kernel path at one moment.
#[derive(Clone, Debug, Default)]
pub struct KernelFigures {
    /// Engine and client connections in its maps.
    pub connections: (usize, usize),
    /// Streams that it has now, over all backends.
    pub in_flight: u64,
    /// Its program's counters by name.
    pub counters: Vec<(&'static str, u64)>,
}

type Read = dyn Fn() -> KernelFigures + Send + Sync;

/// Where the figures are read from, once the kernel path is loaded.
#[derive(Clone, Default)]
pub struct KernelSource(Arc<OnceLock<Box<Read>>>);

impl fmt::Debug for KernelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KernelSource").finish()
    }
}

impl KernelSource {
    /// Names the source; only the first one counts.
    pub fn set(&self, read: impl Fn() -> KernelFigures + Send + Sync + 'static) {
        // There is one kernel path in a process.
        let _ = self.0.set(Box::new(read));
    }
}

impl Collector for KernelSource {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(read) = self.0.get() else { return Ok(()) };
        let figures = read();
        let help = "Connections in the maps of the kernel path, by side";
        let mut family = encoder.encode_descriptor("kernel_connections", help, None, MetricType::Gauge)?;
        for (side, count) in [
            ("upstream", figures.connections.0),
            ("client", figures.connections.1),
        ] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(family.encode_family(&[("side", side)])?)?;
        }
        let help = "Streams that the kernel path has now";
        let in_flight = i64::try_from(figures.in_flight).unwrap_or(i64::MAX);
        let encoder_in_flight =
            encoder.encode_descriptor("kernel_in_flight", help, None, MetricType::Gauge)?;
        ConstGauge::new(in_flight).encode(encoder_in_flight)?;
        let help = "What the kernel path's program counted, by event";
        let mut family = encoder.encode_descriptor("kernel_events", help, None, MetricType::Counter)?;
        for (event, count) in figures.counters {
            ConstCounter::new(count).encode(family.encode_family(&[("event", event)])?)?;
        }
        Ok(())
    }
}
