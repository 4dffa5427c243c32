//! The proxy: workers, connections, request phases.

mod admin;
mod config;
mod run;

pub use admin::{
    ADMIN_CONNECTION_TIME_MAX, ADMIN_CONNECTIONS_MAX, ADMIN_HEAD_BYTES_MAX, ADMIN_HEAD_TIME_MAX, AdminState,
    AdminToken, AdminTokenError, Guard, Scope, bind_admin, listen_reason, serve_admin,
};
pub use config::{DatapathMode, HalfClose, Limits, PathScope, RetryConfig, ServerConfig, Timeouts};
pub use run::{RunError, Stop, StopPhase, run};
