//! The engines behind the router: who they are, what they carry, how they are.

mod health;
mod registry;

pub use health::HealthConfig;
pub use registry::{
    Backend, BackendConfig, BackendSet, BackendStats, Charge, MAX_IN_FLIGHT_UNKNOWN, MAX_WAITING_DEFAULT,
};
