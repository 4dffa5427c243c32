//! The engines behind the router: who they are, what they carry, how they are.

mod fetch;
mod health;
mod load;
mod metrics;
mod registry;

pub use health::{
    Health, HealthConfig, Observation, ProbeKind, ProbeOutcome, SAMPLE_INTERVAL, Task, Verdict, watch_health,
};
pub use load::{
    EngineLoad, LoadConfig, LoadLearner, MAX_IN_FLIGHT_LEARNED_MIN, REPORT_AGE_MAX, ScrapeOutcome, watch_load,
};
pub use metrics::register_metrics;
pub use registry::{
    Backend, BackendConfig, BackendSet, BackendStats, Carried, CarriedBy, Charge, MAX_IN_FLIGHT_UNKNOWN,
    MAX_WAITING_DEFAULT,
};
