//! The admin pages, on the control thread: never on the listeners of clients.
//!
//! Whoever may read them must either be on this host (and not be a web page that rebinds its name to it) or show a
//! token. They change nothing yet: anything but GET and HEAD is refused.

mod guard;
mod html;
mod json;
mod listener;
mod pages;
mod token;

pub use guard::{Guard, Scope};
pub use listener::{
    ADMIN_CONNECTION_TIME_MAX, ADMIN_CONNECTIONS_MAX, ADMIN_HEAD_BYTES_MAX, ADMIN_HEAD_TIME_MAX, bind_admin,
    serve_admin,
};
pub use token::{AdminToken, AdminTokenError};

use std::sync::Arc;

use super::{Stop, TcpService};
use crate::backend::BackendSet;
use crate::telemetry::{DecisionLog, Metrics};
use crate::types::Micros;

/// What the pages show.
#[derive(Debug)]
pub struct AdminState {
    /// The engines.
    pub backends: Arc<BackendSet>,
    /// The L4 listeners.
    pub tcp: Vec<Arc<TcpService>>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The last routing decisions.
    pub decisions: Arc<DecisionLog>,
    /// The policy's name.
    pub policy: &'static str,
    /// Whether the router is stopping.
    pub stop: Stop,
    /// When it started.
    pub started: Micros,
}

/// Why a listener couldn't be had, and what to do about it.
#[must_use]
pub fn listen_reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another process listens there; stop it or choose another port".to_owned()
        }
        std::io::ErrorKind::AddrNotAvailable => {
            "not an address of this host; choose one that `ip address` shows".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "not permitted; choose a port above 1023 or grant CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => format!("can't listen ({error})"),
    }
}

#[cfg(test)]
mod tests;
