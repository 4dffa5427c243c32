//! How often engines are asked for their load.

use std::time::Duration;

/// Where and how often an engine's load is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadConfig {
    /// Whether it is read at all.
    pub enabled: bool,
    /// The metrics page, Prometheus text.
    pub path: String,
    /// From the begin of one reading to the begin of the next, give or take a tenth.
    pub interval: Duration,
    /// A whole reading, the connection included.
    pub timeout: Duration,
}

impl Default for LoadConfig {
    fn default() -> LoadConfig {
        LoadConfig {
            enabled: true,
            path: "/metrics".to_owned(),
            interval: Duration::from_millis(250),
            timeout: Duration::from_secs(2),
        }
    }
}
