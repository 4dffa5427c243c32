//! The proxy: workers, connections, request phases.

mod admin;
mod config;
mod run;

pub use admin::{AdminToken, AdminTokenError};
pub use config::{DatapathMode, HalfClose, Limits, PathScope, RetryConfig, ServerConfig, Timeouts};
pub use run::{RunError, Stop, StopPhase, run};
