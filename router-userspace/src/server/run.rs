//! Starts the threads, and stops them in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::fleet::keep_fleet;
use super::memory::BodyMemory;
use super::retry::RetryBudget;
use super::tcp::TcpService;
use super::worker::{Door, Shared, Worker};
use super::{DatapathMode, ServerConfig};
use crate::backend::BackendSet;
use crate::datapath::kernel::{self, Kernel, RELAYS_MAX};
use crate::datapath::{KernelRelay, Relay, RelayConfig, SchedulingClass};
use crate::net::{self, RingError};
use crate::policy::{Fleet, Member, PolicyConfig, PolicyPlan};
use crate::telemetry::{AccessLog, DecisionLog, KernelFigures, Metrics};
use crate::types::now;

/// Descriptors for other things than requests: listeners, rings, logs, the control thread.
const FILES_RESERVED: u64 = 256;
/// Descriptors that one request may hold: two for each of its connections.
const FILES_PER_CONNECTION: u64 = 4;
/// Without descriptors for a few connections nothing can be promised.
const FILES_MIN: u64 = FILES_RESERVED + 16 * FILES_PER_CONNECTION;
/// How often a drain looks whether the last connection has ended.
const DRAIN_POLL: Duration = Duration::from_millis(20);

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

/// Watches for a stop; cloned for each worker.
pub type Stop = watch::Receiver<StopPhase>;

/// Why serving ended otherwise than by a stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A listening address can't be had.
    #[error("listen = \"{addr}\": {}", super::admin::listen_reason(source))]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// `datapath = "kernel"` was demanded and this host can't.
    #[error("datapath = \"kernel\": {0}")]
    KernelAbsent(String),
    /// The host refuses io_uring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The limit of open files is too low.
    #[error(
        "{files} open files are too few: at least {FILES_MIN} are needed; raise RLIMIT_NOFILE (ulimit -n, systemd: LimitNOFILE)"
    )]
    Files {
        /// The hard limit.
        files: u64,
    },
    /// A thread or its plumbing can't be had.
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
}

/// What a server is made of, besides its configuration.
#[derive(Debug)]
pub struct Running {
    /// The engines.
    pub backends: Arc<BackendSet>,
    /// The policy and its parameters.
    pub policy: PolicyConfig,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
    /// Where it notes decisions.
    pub decisions: Arc<DecisionLog>,
    /// Where it notes requests, if anywhere.
    pub access_log: Option<Arc<AccessLog>>,
    /// The L4 listeners.
    pub tcp: Vec<Arc<TcpService>>,
}

/// Blocks until `stop` says so and the last request has ended.
///
/// # Errors
/// [`RunError`] where the clock of the drain can't be had.
pub fn run(server: Server, mut stop: Stop) -> Result<(), RunError> {
    let word = if server.shared.kernel.is_some() {
        "the kernel"
    } else {
        "copy"
    };
    let datapath = server.shared.config.datapath.as_str();
    tracing::info!("streams go by {word} (datapath = \"{datapath}\")");
    for addr in &server.addrs {
        tracing::info!("listening on http://{addr}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(RunError::Thread)?;
    runtime.block_on(async {
        if let Some(fleet) = server.fleet.clone() {
            tokio::spawn(keep_fleet(fleet, Arc::clone(&server.shared.backends)));
        }
        // An error means that the sender is gone, which is a stop as well.
        let _ = stop.wait_for(|phase| *phase != StopPhase::Running).await;
        server.stop.send_replace(StopPhase::Drain);
        let drained = async {
            while server.shared.connections.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(DRAIN_POLL).await;
            }
        };
        let drain = server.shared.config.timeouts.drain;
        tokio::select! {
            () = drained => {}
            () = tokio::time::sleep(drain) => tracing::warn!(
                "{} connections are cut: they did not end within {drain:?} (timeouts.drain)",
                server.shared.connections.load(Ordering::Relaxed)
            ),
            _ = stop.wait_for(|phase| *phase == StopPhase::Now) => {}
        }
    });
    server.stop();
    Ok(())
}

/// The threads of a running proxy.
pub struct Server {
    addrs: Vec<SocketAddr>,
    /// What the policy knows of the engines' caches, where it goes by that.
    fleet: Option<Fleet>,
    shared: Arc<Shared>,
    workers: Vec<std::thread::JoinHandle<Result<(), RingError>>>,
    relays: Vec<Relay>,
    stop: watch::Sender<StopPhase>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Server({:?})", self.addrs)
    }
}

impl Server {
    /// Cuts what is still under way and waits for the threads.
    fn stop(self) {
        for relay in self.relays {
            relay.stop();
        }
        self.stop.send_replace(StopPhase::Now);
        for worker in self.workers {
            // A panicked worker has said so on stderr already.
            let _ = worker.join();
        }
    }
}

/// Serves `config.listen` by threads of its own: workers and relays. Says nothing, so that a start which fails is
/// one line.
///
/// # Errors
/// [`RunError`] where serving can't begin.
pub fn start(config: ServerConfig, parts: Running) -> Result<Server, RunError> {
    let Running {
        backends,
        policy,
        metrics,
        decisions,
        access_log,
        tcp,
    } = parts;
    let files = net::raise_file_limit().unwrap_or(FILES_MIN);
    if files < FILES_MIN {
        return Err(RunError::Files { files });
    }
    // Asked for once here, so that a refusal is one line at the start and not a dead thread.
    net::run_ring(async {})?;
    let kernel = load_kernel(&config, &metrics, &backends)?;
    let count = worker_count(config.workers);
    let mut addrs = Vec::new();
    let mut listeners = Listeners((0..count).map(|_| Vec::new()).collect());
    for addr in &config.listen {
        addrs.push(listeners.bind(*addr, &Door::Http)?);
    }
    for service in &tcp {
        for addr in &service.config().listen {
            let at = listeners.bind(*addr, &Door::Tcp(Arc::clone(service)))?;
            tracing::info!("tcp {} listening on {at}", service.config().name);
        }
    }
    let connections_max = connections_max(config.limits.connections_max, files);
    let relay_config = RelayConfig {
        queue_max: config.limits.relay_queue_max,
        stream_idle: config.timeouts.stream_idle,
        client_write: config.timeouts.client_write,
        priority: config.relay_priority,
    };
    let shared = Arc::new(Shared {
        body_memory: BodyMemory::new(config.limits.body_buffers_total_bytes, Arc::clone(&metrics)),
        budget: RetryBudget::default(),
        connections: AtomicUsize::new(0),
        refusals: AtomicUsize::new(0),
        kernel,
        connections_max,
        policy_name: policy.kind.name(),
        backends,
        metrics,
        decisions,
        access_log,
        config,
    });
    let members: Vec<Member<'_>> = shared.backends.members().collect();
    let (plan, index_task) = PolicyPlan::queued(&policy, &members);
    if let Some(task) = index_task {
        // It ends with the last policy and fleet.
        let index = std::thread::Builder::new().name("index".to_owned());
        index.spawn(move || task.run()).map_err(RunError::Thread)?;
    }
    let (stop, stopped) = watch::channel(StopPhase::Running);
    let mut server = Server {
        addrs,
        shared: Arc::clone(&shared),
        fleet: plan.fleet().cloned(),
        workers: Vec::new(),
        relays: Vec::new(),
        stop,
    };
    for (index, listeners) in listeners.0.into_iter().enumerate() {
        let kernel = kernel_relay(shared.kernel.as_ref(), index);
        let name = format!("relay-{index}");
        let relay = Relay::start(&name, relay_config.clone(), kernel, Arc::clone(&shared.metrics))
            .map_err(RunError::Thread)?;
        let handle = relay.handle();
        server.relays.push(relay);
        let seed = now().0 ^ (index as u64) << 48 ^ u64::from(std::process::id());
        let (shared, stopped, plan) = (Arc::clone(&shared), stopped.clone(), plan.clone());
        let run = move || {
            net::run_ring(async move {
                let policy = plan.policy(seed);
                Worker::new(shared, handle, policy, seed, stopped)
                    .run(listeners)
                    .await;
            })
        };
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(run);
        server.workers.push(thread.map_err(RunError::Thread)?);
    }
    if let Some(relay) = server.relays.first() {
        tracing::info!(
            "relays run {} (relay_priority = \"{}\")",
            scheduling_words(relay.class()),
            shared.config.relay_priority.as_str()
        );
    }
    Ok(server)
}

/// The listeners of each worker.
struct Listeners(Vec<Vec<(std::net::TcpListener, Door)>>);

impl Listeners {
    /// Binds `addr` once for each worker; says where it is, since the port asked for may be 0.
    fn bind(&mut self, addr: SocketAddr, door: &Door) -> Result<SocketAddr, RunError> {
        let bound =
            net::bind_listeners(addr, self.0.len()).map_err(|source| RunError::Listen { addr, source })?;
        let first = bound.first().and_then(|listener| listener.local_addr().ok());
        for (worker, listener) in self.0.iter_mut().zip(bound) {
            worker.push((listener, door.clone()));
        }
        Ok(first.unwrap_or(addr))
    }
}

/// Loads the kernel path where the operator demands it; `auto` copies until the kernel path has proven itself.
fn load_kernel(
    config: &ServerConfig,
    metrics: &Metrics,
    backends: &Arc<BackendSet>,
) -> Result<Option<Kernel>, RunError> {
    let limits = kernel::Limits {
        flow_bytes_max: config.limits.kernel_flow_bytes_max,
        total_bytes_max: config.limits.kernel_flows_bytes_max,
        events_bytes: config.limits.kernel_events_bytes,
    };
    let kernel = match config.datapath {
        DatapathMode::Kernel => {
            let loaded = Kernel::load(limits);
            Some(loaded.map_err(|refusal| RunError::KernelAbsent(refusal.to_string()))?)
        }
        DatapathMode::Auto | DatapathMode::Copy => None,
    };
    if let Some(kernel) = kernel.clone() {
        let backends = Arc::clone(backends);
        metrics.kernel.set(move || KernelFigures {
            connections: kernel.connections(),
            in_flight: backends
                .backends
                .iter()
                .map(|backend| u64::from(kernel.in_flight(backend.id)))
                .sum(),
            counters: kernel.counters(),
        });
    }
    metrics.kernel_loaded.set(i64::from(kernel.is_some()));
    Ok(kernel)
}

/// The part of relay number `index` in the kernel path; relays beyond the number of event rings copy.
fn kernel_relay(kernel: Option<&Kernel>, index: usize) -> Option<KernelRelay> {
    let relay = u32::try_from(index).ok().filter(|relay| *relay < RELAYS_MAX)?;
    kernel.map(|kernel| KernelRelay {
        kernel: kernel.clone(),
        relay,
    })
}

fn scheduling_words(class: SchedulingClass) -> &'static str {
    match class {
        SchedulingClass::Fifo => "under SCHED_FIFO 1",
        SchedulingClass::Slice => "among the ordinary threads, with slices of 100 µs",
        SchedulingClass::Normal => "among the ordinary threads",
    }
}

/// The configured number, or one a core.
fn worker_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        count => count,
    }
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
                "limits.connections_max = {wanted}: the limit of open files ({files}) allows {allowed}; \
                 raise RLIMIT_NOFILE (systemd: LimitNOFILE)"
            );
            allowed
        }
        wanted => wanted,
    }
}
