//! The engines behind the router: who they are, what they carry, how they are.

mod health;
mod metrics;
mod registry;

pub use health::{
    Health, HealthConfig, Observation, ProbeOutcome, SAMPLE_INTERVAL, Task, Verdict, watch_health,
};
pub use metrics::register_metrics;
pub use registry::{
    Backend, BackendConfig, BackendSet, BackendStats, Charge, MAX_IN_FLIGHT_UNKNOWN, MAX_WAITING_DEFAULT,
};
