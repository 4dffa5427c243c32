//! The control thread: signals, health, the engines' load and the admin pages, on an ordinary tokio runtime beside the workers.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use prometheus_client::metrics::info::Info;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::backend::{
    BackendSet, HealthConfig, LoadConfig, ProbeKind, register_metrics, watch_health, watch_load,
};
use crate::cli::config::AdminSettings;
use crate::server::{
    AdminState, Guard, Scope, Stop, StopPhase, TcpService, bind_admin, listen_reason, register_tcp_metrics,
    serve_admin,
};
use crate::telemetry::{AccessLog, DecisionLog, Metrics};
use crate::types::now;

/// From the end of a watcher that panicked to the begin of the next.
const WATCHER_PAUSE: Duration = Duration::from_secs(1);

/// What the control thread works with.
pub(super) struct Parts {
    pub(super) admin: AdminSettings,
    pub(super) health: HealthConfig,
    pub(super) load: LoadConfig,
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

/// A control thread with all that it needs, before it runs.
pub(super) struct Control {
    metrics: Arc<Metrics>,
    stop: Stop,
    phase: watch::Sender<StopPhase>,
    runtime: Runtime,
    signals: (Signal, Signal),
    listeners: Vec<Bound>,
    admin: Arc<AdminState>,
    health: HealthConfig,
    load: LoadConfig,
}

impl Control {
    /// Takes ports and signals. Says nothing and serves nothing yet: the workers may still fail to start.
    pub(super) fn prepare(mut parts: Parts) -> Result<Control, StartError> {
        let listeners = listeners(&parts.admin)?;
        register(&mut parts);
        let metrics = Arc::new(parts.metrics);
        let (phase, stop) = watch::channel(StopPhase::Running);
        let admin = Arc::new(AdminState {
            backends: parts.backends,
            tcp: parts.tcp,
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
        drop(inside);
        Ok(Control {
            metrics,
            stop,
            phase,
            runtime,
            signals,
            listeners,
            admin,
            health: parts.health,
            load: parts.load,
        })
    }

    pub(super) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Begins to serve the admin pages, to probe and to heed signals.
    pub(super) fn start(self) -> Result<RunningControl, StartError> {
        let inside = self.runtime.enter();
        for Bound { key, listener, guard } in self.listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tracing::info!("{key} on http://{}/", listener.local_addr()?);
            tokio::spawn(serve_admin(listener, Arc::clone(&self.admin), guard));
        }
        drop(inside);
        let backends = Arc::clone(&self.admin.backends);
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                self.runtime.block_on(async {
                    tokio::spawn(watch_signals(self.signals, self.phase));
                    for service in &self.admin.tcp {
                        let health = HealthConfig {
                            probe: ProbeKind::Connect,
                            ..self.health.clone()
                        };
                        let watched = Arc::clone(service.backends());
                        tokio::spawn(keep_watching("health", move || {
                            watch_health(Arc::clone(&watched), health.clone())
                        }));
                    }
                    let (health, load) = (self.health, self.load);
                    let watched = Arc::clone(&backends);
                    tokio::spawn(keep_watching("health", move || {
                        watch_health(Arc::clone(&watched), health.clone())
                    }));
                    tokio::spawn(keep_watching("load", move || {
                        watch_load(Arc::clone(&backends), load.clone())
                    }));
                    // A dropped sender ends the thread as well.
                    let _ = ended.await;
                });
            })?;
        Ok(RunningControl { end, thread })
    }
}

/// The running control thread.
pub(super) struct RunningControl {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl RunningControl {
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

/// An admin port that has been taken.
struct Bound {
    key: &'static str,
    listener: TcpListener,
    guard: Guard,
}

/// Takes the admin ports.
fn listeners(admin: &AdminSettings) -> Result<Vec<Bound>, StartError> {
    let full = admin
        .listen
        .map(|addr| ("admin", addr, Scope::Full, admin.token.clone()));
    let read_only = admin.metrics.map(|addr| ("metrics", addr, Scope::ReadOnly, None));
    full.into_iter()
        .chain(read_only)
        .map(|(key, addr, scope, token)| {
            let listener = bind_admin(addr).map_err(|source| StartError::Listen { key, addr, source })?;
            let guard = Guard {
                scope,
                token,
                loopback: addr.ip().is_loopback(),
            };
            Ok(Bound { key, listener, guard })
        })
        .collect()
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

/// Watching outlives its own faults: without it a dead engine would keep its requests. It ends where it is disabled.
async fn keep_watching<F>(what: &str, watch: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    while let Err(error) = tokio::spawn(watch()).await {
        tracing::error!(%error, "the watcher of {what} ended; it is started again");
        tokio::time::sleep(WATCHER_PAUSE).await;
    }
}
