//! Which backends are fit for new requests, found by probes, silence and their rate of 5xx.

mod config;

pub use config::HealthConfig;
