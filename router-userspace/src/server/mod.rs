//! The proxy: workers, connections, request phases.

mod config;

pub use config::{DatapathMode, HalfClose, Limits, PathScope, RetryConfig, ServerConfig, Timeouts};
