//! Which backends are fit for new requests, found by probes, silence and their rate of 5xx.
//!
//! [`Health`] is pure: time and observations go in. [`watch_health`] does the I/O it asks for.

mod config;
mod driver;
mod ejection;
mod errors;
mod gaps;
mod machine;
mod probes;
mod stall;

pub use config::{HealthConfig, ProbeKind};
pub use driver::{SAMPLE_INTERVAL, watch_health};
pub use machine::{Health, Observation, Task, Verdict};
pub use probes::ProbeOutcome;

#[cfg(test)]
mod tests;
