//! The thresholds of health checking, with their defaults.

use std::time::Duration;

/// What a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// A GET of [`HealthConfig::path`].
    Get,
    /// A connection, closed at once; nothing else is known of a backend that is reached by TCP alone. Its silence and
    /// its resets count for nothing: both are common in the life of a healthy one.
    Connect,
}

/// When a backend loses and regains its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// Whether backends are probed and ejected at all.
    pub enabled: bool,
    /// How they are probed.
    pub probe: ProbeKind,
    /// The path that is probed; any status below 500 passes, so that an engine without this path isn't lost.
    pub path: String,
    /// From the begin of one probe to the begin of the next.
    pub interval: Duration,
    /// A probe's connection: no answer to the SYN in this time is a timeout.
    pub connect_timeout: Duration,
    /// A whole probe.
    pub probe_timeout: Duration,
    /// Failed probes in a row that eject; a refused connection ejects at once.
    pub fail_count: u32,
    /// Passed probes in a row that bring back.
    pub pass_count: u32,
    /// A backend that sent a response byte within this time isn't ejected by a probe's timeout: busy engines answer late.
    pub recent_byte: Duration,
    /// The least silence, with requests in flight, that counts as a stall.
    pub stall_silence_min: Duration,
    /// A stall is also longer than this many times the backend's own p99 gap between bytes.
    pub stall_gap_factor: u32,
    /// Whether the engine's token counters are read before a silent backend counts as stalled.
    pub stall_metrics: bool,
    /// The path of those counters.
    pub metrics_path: String,
    /// The time over which 5xx are counted.
    pub error_window: Duration,
    /// 5xx in the window below which nothing is ejected for them.
    pub error_count_min: u32,
    /// The share of the backend's answers that must be 5xx, in percent, exclusive.
    pub error_share_percent: u32,
    /// How many times the rate of the other backends its rate of 5xx must be, exclusive.
    pub error_pool_factor: u32,
    /// How long a backend stays out for 5xx, or without requests after a stall, before a request tries it again; doubled by each trial that fails.
    pub eject_time: Duration,
    /// The bound of that doubling.
    pub eject_time_max: Duration,
    /// The largest share of the pool that may be ejected, in percent; beyond it health is ignored.
    pub eject_share_percent: u32,
}

impl Default for HealthConfig {
    fn default() -> HealthConfig {
        HealthConfig {
            enabled: true,
            probe: ProbeKind::Get,
            path: "/health".to_owned(),
            interval: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(1),
            probe_timeout: Duration::from_secs(10),
            fail_count: 3,
            pass_count: 2,
            recent_byte: Duration::from_secs(15),
            stall_silence_min: Duration::from_secs(30),
            stall_gap_factor: 4,
            stall_metrics: true,
            metrics_path: "/metrics".to_owned(),
            error_window: Duration::from_secs(30),
            error_count_min: 5,
            error_share_percent: 50,
            error_pool_factor: 3,
            eject_time: Duration::from_secs(30),
            eject_time_max: Duration::from_secs(600),
            eject_share_percent: 50,
        }
    }
}
