//! The control thread: signals, health and the admin pages, on an ordinary tokio runtime beside the workers.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::backend::{BackendSet, HealthConfig};
use crate::cli::config::AdminSettings;
use crate::server::{Stop, StopPhase};
use crate::telemetry::{AccessLog, DecisionLog, Metrics};

/// What the control thread works with.
pub(super) struct Parts {
    pub(super) admin: AdminSettings,
    pub(super) health: HealthConfig,
    pub(super) backends: Arc<BackendSet>,
    pub(super) metrics: Metrics,
    pub(super) decisions: Arc<DecisionLog>,
    pub(super) access_log: Option<Arc<AccessLog>>,
    pub(super) policy: &'static str,
}

/// Why the control thread didn't start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("the control thread can't be started ({0})")]
    Thread(#[from] std::io::Error),
}

/// The running control thread.
pub(super) struct Control {
    metrics: Arc<Metrics>,
    stop: Stop,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Control {
    pub(super) fn start(parts: Parts) -> Result<Control, StartError> {
        let _ = (
            &parts.admin,
            &parts.health,
            &parts.backends,
            &parts.decisions,
            &parts.access_log,
            parts.policy,
        );
        let metrics = Arc::new(parts.metrics);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (phase, stop) = watch::channel(StopPhase::Running);
        let (end, ended) = oneshot::channel();
        // Registered before anything serves, so that no signal finds its default effect.
        let signals = {
            let _inside = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::spawn(watch_signals(signals, phase));
                    // A dropped sender ends the thread as well.
                    let _ = ended.await;
                });
            })?;
        Ok(Control {
            metrics,
            stop,
            end,
            thread,
        })
    }

    pub(super) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    pub(super) fn finish(self) {
        let _ = self.end.send(());
        if self.thread.join().is_err() {
            tracing::error!("the control thread panicked");
        }
    }
}

/// The first SIGTERM or SIGINT drains, the second stops at once.
async fn watch_signals((mut terminate, mut interrupt): (Signal, Signal), phase: watch::Sender<StopPhase>) {
    for (next, message) in [
        (
            StopPhase::Drain,
            "stopping: requests in flight are finished; a second signal stops at once",
        ),
        (StopPhase::Now, "stopping at once"),
    ] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("{message}");
        phase.send_replace(next);
    }
    // Kept, so that a receiver never mistakes the end of this task for a stop.
    std::future::pending::<()>().await;
}
