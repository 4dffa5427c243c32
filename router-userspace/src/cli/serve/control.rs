//! The control thread: signals, health and the admin pages, on an ordinary tokio runtime beside the workers.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use prometheus_client::metrics::info::Info;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::backend::{BackendSet, HealthConfig, ProbeKind, register_metrics, watch_health};
use crate::cli::config::AdminSettings;
use crate::server::{
    AdminState, Guard, Scope, Stop, StopPhase, TcpService, bind_admin, listen_reason, register_tcp_metrics,
    serve_admin,
};
use crate::telemetry::{AccessLog, DecisionLog, Metrics};
use crate::types::now;

/// From the end of a prober that panicked to the begin of the next.
const PROBER_PAUSE: Duration = Duration::from_secs(1);

/// What the control thread works with.
pub(super) struct Parts {
    pub(super) admin: AdminSettings,
    pub(super) health: HealthConfig,
    pub(super) backends: Arc<BackendSet>,
    pub(super) metrics: Metrics,
    pub(super) decisions: Arc<DecisionLog>,
    pub(super) access_log: Option<Arc<AccessLog>>,
    pub(super) policy: &'static str,
    pub(super) tcp: Vec<Arc<TcpService>>,
}

/// Why the control thread didn't start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("the control thread can't be started ({0})")]
    Thread(#[from] std::io::Error),
    #[error("{key} = \"{addr}\": {}, or --{key} off", listen_reason(source))]
    Listen {
        key: &'static str,
        addr: SocketAddr,
        source: std::io::Error,
    },
}

/// The running control thread.
pub(super) struct Control {
    metrics: Arc<Metrics>,
    stop: Stop,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Control {
    pub(super) fn start(mut parts: Parts) -> Result<Control, StartError> {
        let guards = listeners(&parts.admin)?;
        register(&mut parts);
        let metrics = Arc::new(parts.metrics);
        let (phase, stop) = watch::channel(StopPhase::Running);
        let state = Arc::new(AdminState {
            backends: Arc::clone(&parts.backends),
            tcp: parts.tcp.clone(),
            metrics: Arc::clone(&metrics),
            decisions: parts.decisions,
            policy: parts.policy,
            stop: stop.clone(),
            started: now(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Registered before anything serves, so that no signal finds its default effect.
        let inside = runtime.enter();
        let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        for (listener, guard) in guards {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(serve_admin(listener, Arc::clone(&state), guard));
        }
        drop(inside);
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::spawn(watch_signals(signals, phase));
                    for service in &parts.tcp {
                        let health = HealthConfig {
                            probe: ProbeKind::Connect,
                            ..parts.health.clone()
                        };
                        tokio::spawn(keep_probing(Arc::clone(service.backends()), health));
                    }
                    tokio::spawn(keep_probing(parts.backends, parts.health));
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

/// Takes the admin ports.
fn listeners(admin: &AdminSettings) -> Result<Vec<(TcpListener, Guard)>, StartError> {
    let full = admin
        .listen
        .map(|addr| ("admin", addr, Scope::Full, admin.token.clone()));
    let read_only = admin.metrics.map(|addr| ("metrics", addr, Scope::ReadOnly, None));
    let mut taken = Vec::new();
    for (key, addr, scope, token) in full.into_iter().chain(read_only) {
        let listener = bind_admin(addr).map_err(|source| StartError::Listen { key, addr, source })?;
        // The port that was asked for may be 0; this is where the pages are.
        let bound = listener.local_addr().unwrap_or(addr);
        tracing::info!("{key} on http://{bound}/");
        let loopback = addr.ip().is_loopback();
        taken.push((
            listener,
            Guard {
                scope,
                token,
                loopback,
            },
        ));
    }
    Ok(taken)
}

/// Adds to the metrics what isn't the request path's.
fn register(parts: &mut Parts) {
    let registry = parts.metrics.registry_mut();
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "What runs", version);
    register_metrics(registry, Arc::clone(&parts.backends));
    register_tcp_metrics(registry, parts.tcp.clone());
    if let Some(log) = &parts.access_log {
        log.register(registry);
    }
}

/// Health checking outlives its own faults: without it a dead engine would keep its requests.
async fn keep_probing(backends: Arc<BackendSet>, health: HealthConfig) {
    if !health.enabled {
        return;
    }
    loop {
        let prober = tokio::spawn(watch_health(Arc::clone(&backends), health.clone()));
        if let Err(error) = prober.await {
            tracing::error!(%error, "the prober ended; it is started again");
        }
        tokio::time::sleep(PROBER_PAUSE).await;
    }
}
