//! Starts the threads, and stops them in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::watch;

use super::memory::BodyMemory;
use super::retry::RetryBudget;
use super::worker::{Shared, Worker};
use super::{ServerConfig, Stop};
use crate::backend::BackendSet;
use crate::datapath::{Relay, RelayConfig};
use crate::net::{self, RingError};
use crate::policy::{Policy, PolicyConfig};
use crate::telemetry::{DecisionLog, Metrics};
use crate::types::now;

/// Descriptors for other things than requests: listeners, rings, logs, the control thread.
const FILES_RESERVED: u64 = 256;
/// Descriptors that one request may hold: two for each of its connections.
const FILES_PER_CONNECTION: u64 = 4;

/// Why serving can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listening address can't be had.
    #[error("listen = \"{addr}\": {cause}; {remedy}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What bind answered.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The host refuses io_uring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A thread or its plumbing can't be had.
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
}

/// A running proxy.
#[derive(Debug)]
pub struct Server {
    /// Where it listens, ports filled in.
    pub addrs: Vec<SocketAddr>,
    shared: Arc<Shared>,
    workers: Vec<std::thread::JoinHandle<Result<(), RingError>>>,
    relays: Vec<Relay>,
    stop: watch::Sender<Stop>,
}

/// Starts workers and relays.
///
/// # Errors
/// [`StartError`], with nothing left running.
pub fn start(
    config: ServerConfig,
    policy: &PolicyConfig,
    backends: Arc<BackendSet>,
    metrics: Arc<Metrics>,
    decisions: Arc<DecisionLog>,
) -> Result<Server, StartError> {
    // Asked for once here, so that a refusal is one line at the start and not a dead thread.
    net::run_ring(async {})?;
    let count = config.workers.max(1);
    let mut addrs = Vec::new();
    let mut listeners: Vec<Vec<std::net::TcpListener>> = (0..count).map(|_| Vec::new()).collect();
    for addr in &config.listen {
        let bound = net::bind_listeners(*addr, count).map_err(|cause| listen_error(*addr, cause))?;
        addrs.push(
            bound
                .first()
                .and_then(|listener| listener.local_addr().ok())
                .unwrap_or(*addr),
        );
        for (worker, listener) in listeners.iter_mut().zip(bound) {
            worker.push(listener);
        }
    }
    let files = net::raise_file_limit().unwrap_or(1024);
    let connections_max = connections_max(config.limits.connections_max, files);
    let relay_config = RelayConfig {
        queue_max: config.limits.relay_queue_max,
        stream_idle: config.timeouts.stream_idle,
        client_write: config.timeouts.client_write,
    };
    let shared = Arc::new(Shared {
        body_memory: BodyMemory::new(config.limits.body_buffers_total_bytes, Arc::clone(&metrics)),
        budget: RetryBudget::default(),
        connections: AtomicUsize::new(0),
        refusals: AtomicUsize::new(0),
        connections_max,
        policy_name: policy.kind.name(),
        backends,
        metrics,
        decisions,
        config,
    });
    let (stop, stopped) = watch::channel(Stop::Running);
    let mut server = Server {
        addrs,
        shared: Arc::clone(&shared),
        workers: Vec::new(),
        relays: Vec::new(),
        stop,
    };
    for (index, listeners) in listeners.into_iter().enumerate() {
        let relay = Relay::start(
            &format!("relay-{index}"),
            relay_config.clone(),
            Arc::clone(&shared.metrics),
        )
        .map_err(StartError::Thread)?;
        let handle = relay.handle();
        server.relays.push(relay);
        let seed = now().0 ^ (index as u64) << 48 ^ u64::from(std::process::id());
        let (shared, stopped, policy) = (Arc::clone(&shared), stopped.clone(), policy.clone());
        let run = move || {
            net::run_ring(async move {
                let policy: Box<dyn Policy> =
                    crate::policy::build(&policy, &shared.backends.names_and_weights(), seed);
                Worker::new(shared, handle, policy, seed, stopped)
                    .run(listeners)
                    .await;
            })
        };
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(run);
        server.workers.push(thread.map_err(StartError::Thread)?);
    }
    Ok(server)
}

impl Server {
    /// Client connections that it takes at once.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        self.shared.connections_max
    }

    /// Stops taking connections and new requests; those under way go on.
    pub fn drain(&self) {
        self.stop.send_replace(Stop::Draining);
    }

    /// Client connections open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Time that requests under way get after [`Server::drain`].
    #[must_use]
    pub fn drain_time(&self) -> Duration {
        self.shared.config.timeouts.drain
    }

    /// Cuts what is still under way and waits for the threads.
    pub fn stop(self) {
        for relay in self.relays {
            relay.stop();
        }
        self.stop.send_replace(Stop::Now);
        for worker in self.workers {
            // A panicked worker has said so on stderr already.
            let _ = worker.join();
        }
    }
}

fn listen_error(addr: SocketAddr, cause: io::Error) -> StartError {
    let remedy = match cause.kind() {
        io::ErrorKind::AddrInUse => "another process listens there; choose another port or stop it",
        io::ErrorKind::AddrNotAvailable => "this host has no such address; see `ip addr`",
        io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "check the address",
    };
    StartError::Listen { addr, cause, remedy }
}

/// The configured cap, or what the limit of open files allows.
fn connections_max(configured: usize, files: u64) -> usize {
    let allowed =
        usize::try_from(files.saturating_sub(FILES_RESERVED) / FILES_PER_CONNECTION).unwrap_or(usize::MAX);
    let allowed = allowed.max(16);
    match configured {
        0 => allowed,
        wanted if wanted > allowed => {
            tracing::warn!(
                "limits.connections = {wanted}: the limit of open files ({files}) allows {allowed}; \
                 raise RLIMIT_NOFILE (systemd: LimitNOFILE)"
            );
            allowed
        }
        wanted => wanted,
    }
}
