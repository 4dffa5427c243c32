//! L4 listeners: TCP connections passed on as they are, TLS and all.
//!
//! A worker accepts, `opening` reads what it has to know (a trusted proxy's header, the name in a TLS hello),
//! `service` chooses the backend, and the relay carries the bytes both ways until both sides have ended.
//! They always go by copy: in the kernel each direction would need a bound on its memory of its own.

mod config;
mod connection;
mod counts;
mod maglev;
mod metrics;
mod opening;
mod page;
mod service;

pub use config::{IpRange, ProxyHeader, TCP_BACKENDS_MAX, TcpConfig, TcpHash};
pub(super) use connection::admit;
pub use metrics::register_tcp_metrics;
pub(super) use page::TcpPage;
pub use service::TcpService;
