//! One worker: what its connections share, and its accept loop.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::client::{Client, Link};
use super::connection;
use super::memory::BodyMemory;
use super::own::OwnAnswer;
use super::retry::RetryBudget;
use super::upstream::Pool;
use super::{HalfClose, ServerConfig, Stop, StopPhase};
use crate::backend::BackendSet;
use crate::datapath::RelayHandle;
use crate::datapath::kernel::Kernel;
use crate::net::Listener;
use crate::policy::{Decision, NoBackend, Policy, RequestView};
use crate::telemetry::{AccessLog, DecisionLog, Metrics, OwnError};
use crate::types::{BackendSnapshot, BackendState, Rng, now};

/// Connections over the cap that may be told so at the same time; the ones beyond are closed without a word.
const REFUSALS_MAX: usize = 64;
/// How often idle upstream connections are looked through.
const EXPIRE_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ServerConfig,
    pub(super) backends: Arc<BackendSet>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) decisions: Arc<DecisionLog>,
    pub(super) access_log: Option<Arc<AccessLog>>,
    pub(super) policy_name: &'static str,
    pub(super) body_memory: BodyMemory,
    pub(super) budget: RetryBudget,
    pub(super) connections: AtomicUsize,
    pub(super) connections_max: usize,
    pub(super) refusals: AtomicUsize,
    /// The kernel path, where it is used.
    pub(super) kernel: Option<Kernel>,
}

/// What the connections of one worker share.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) relay: RelayHandle,
    pub(super) pool: RefCell<Pool>,
    pub(super) rng: RefCell<Rng>,
    pub(super) stop: Stop,
    policy: RefCell<Box<dyn Policy>>,
    snapshots: RefCell<Vec<BackendSnapshot>>,
}

/// One client connection's place under the cap.
struct Seat(Arc<Shared>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.connections.dec();
    }
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        relay: RelayHandle,
        policy: Box<dyn Policy>,
        seed: u64,
        stop: Stop,
    ) -> Rc<Worker> {
        let limits = &shared.config.limits;
        let pool = Pool::new(
            shared.backends.backends.len(),
            limits.idle_upstreams_max,
            shared.config.timeouts.upstream_idle,
        );
        Rc::new(Worker {
            relay,
            pool: RefCell::new(pool),
            rng: RefCell::new(Rng::new(seed)),
            stop,
            policy: RefCell::new(policy),
            snapshots: RefCell::new(Vec::new()),
            shared,
        })
    }

    /// Serves until the stop signal, then until the last connection has ended or the drain time is over.
    pub(super) async fn run(self: Rc<Self>, listeners: Vec<std::net::TcpListener>) {
        for listener in listeners {
            match Listener::new(listener) {
                Ok(listener) => {
                    tokio_task(accept_loop(Rc::clone(&self), listener));
                }
                Err(error) => tracing::error!("a listener could not be used: {error}"),
            }
        }
        let mut stop = self.stop.clone();
        while *stop.borrow_and_update() != StopPhase::Now {
            tokio::select! {
                changed = stop.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(EXPIRE_INTERVAL) => self.pool.borrow_mut().expire(now()),
            }
        }
    }

    /// Chooses a backend.
    pub(super) fn pick(&self, request: &RequestView<'_>) -> Result<Decision, NoBackend> {
        let mut snapshots = self.snapshots.borrow_mut();
        snapshots.clear();
        snapshots.extend(
            self.shared
                .backends
                .backends
                .iter()
                .map(|backend| backend.snapshot()),
        );
        self.policy.borrow_mut().pick(request, &snapshots)
    }

    /// Ends when the client has left, by the operator's reading of a FIN.
    pub(super) async fn client_leaves(&self, link: &Link) {
        match self.shared.config.half_close {
            HalfClose::Abort => link.departure.wait().await,
            // The first failing write tells.
            HalfClose::Serve => std::future::pending().await,
        }
    }

    /// Whether any backend may get requests.
    pub(super) fn any_healthy(&self) -> bool {
        self.shared
            .backends
            .backends
            .iter()
            .any(|backend| backend.state() == BackendState::Healthy)
    }

    /// Whether new requests are still welcome on open connections.
    pub(super) fn stopping(&self) -> bool {
        *self.stop.borrow() != StopPhase::Running
    }

    /// Takes a connection in, or tells it that there's no room.
    fn admit(self: &Rc<Self>, fd: OwnedFd, peer: SocketAddr) {
        let shared = &self.shared;
        shared.metrics.connections_total.inc();
        let taken = shared.connections.fetch_add(1, Ordering::Relaxed);
        shared.metrics.connections.inc();
        let seat = Seat(Arc::clone(shared));
        let client = match Client::new(fd, peer, shared.config.timeouts.client_write) {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!("a client connection could not be served: {error}");
                return;
            }
        };
        if taken < shared.connections_max {
            let worker = Rc::clone(self);
            tokio_task(async move {
                connection::serve(&worker, client).await;
                drop(seat);
            });
            return;
        }
        drop(seat);
        shared.metrics.connections_refused_total.inc();
        if shared.refusals.fetch_add(1, Ordering::Relaxed) < REFUSALS_MAX {
            let worker = Rc::clone(self);
            tokio_task(async move {
                refuse(&worker.shared, client).await;
                worker.shared.refusals.fetch_sub(1, Ordering::Relaxed);
            });
        } else {
            shared.refusals.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn tokio_task(future: impl Future<Output = ()> + 'static) {
    // Detached: a connection's task ends with its connection.
    drop(tokio::task::spawn_local(future));
}

async fn refuse(shared: &Shared, client: Client) {
    let message = format!(
        "the router holds {} client connections, its limit (limits.connections_max); try again",
        shared.connections_max
    );
    let answer = OwnAnswer::new(OwnError::Overloaded, message);
    shared.metrics.count_own_error(answer.error);
    shared.metrics.count_response(answer.status);
    if client.link.write(answer.encode(b"", false, true)).await.is_ok() {
        client.linger().await;
    }
}

async fn accept_loop(worker: Rc<Worker>, listener: Listener) {
    let mut stop = worker.stop.clone();
    let mut next = Box::pin(listener.accept());
    loop {
        tokio::select! {
            biased;
            accepted = &mut next => match accepted {
                Ok((fd, peer)) => worker.admit(fd, peer),
                Err(error) => {
                    tracing::warn!("accept failed: {error}; raise RLIMIT_NOFILE if it is EMFILE");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            changed = stop.changed() => {
                if changed.is_err() || worker.stopping() {
                    break;
                }
                continue;
            }
        }
        next.set(listener.accept());
    }
    for (fd, peer) in listener.stop() {
        worker.admit(fd, peer);
    }
    // Ends with an error now; awaited since its buffer is the kernel's until then.
    let _ = next.await;
}
