//! The proxy: workers, connections, request phases.
//!
//! A [running](run) server has one worker thread a core, each with a relay beside it. `connection` reads
//! requests in order, `request` holds the body and chooses a backend, `exchange` makes one try at it, `respond`
//! passes the answer on or hands it to the relay. `tcp` serves the L4 listeners.

mod admin;
mod body;
mod client;
mod config;
mod connection;
mod exchange;
mod memory;
mod own;
mod pass;
mod paths;
mod request;
mod respond;
mod retry;
mod run;
mod tcp;
mod trace;
mod upstream;
mod worker;

pub use admin::{
    ADMIN_CONNECTION_TIME_MAX, ADMIN_CONNECTIONS_MAX, ADMIN_HEAD_BYTES_MAX, ADMIN_HEAD_TIME_MAX, AdminState,
    AdminToken, AdminTokenError, Guard, Scope, bind_admin, listen_reason, serve_admin,
};
pub use config::{DatapathMode, HalfClose, Limits, PathScope, RetryConfig, ServerConfig, Timeouts};
pub use run::{RunError, Running, Server, Stop, StopPhase, run, start};
pub use tcp::{IpRange, ProxyHeader, TCP_BACKENDS_MAX, TcpConfig, TcpHash, TcpService, register_tcp_metrics};
