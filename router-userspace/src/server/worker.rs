//! One worker: what its connections share, and its accept loop.

use std::cell::RefCell;
use std::io;
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
use super::tcp::{self, TcpService};
use super::upstream::Pool;
use super::{HalfClose, ServerConfig, Stop, StopPhase};
use crate::backend::BackendSet;
use crate::datapath::RelayHandle;
use crate::datapath::kernel::Kernel;
use crate::net::{self, Listener};
use crate::policy::{Decision, NoBackend, Policy, RequestView, Ticket};
use crate::telemetry::{AccessLog, DecisionLog, Metrics, OwnError};
use crate::types::{BackendId, BackendSnapshot, BackendState, Rng, now};

/// Connections over the cap that may linger at the same time, so that what their clients send doesn't reset the
/// answer away; the ones beyond are closed right behind it.
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

/// What is behind a listener.
#[derive(Clone, Debug)]
pub(super) enum Door {
    Http,
    Tcp(Arc<TcpService>),
}

/// One client connection's place under the cap.
pub(super) struct Seat(Arc<Shared>);

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
    pub(super) async fn run(self: Rc<Self>, listeners: Vec<(std::net::TcpListener, Door)>) {
        for (listener, door) in listeners {
            match Listener::new(listener) {
                Ok(listener) => {
                    tokio_task(accept_loop(Rc::clone(&self), listener, door));
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
                .map(|backend| backend.snapshot_at(request.now)),
        );
        self.policy.borrow_mut().pick(request, &snapshots)
    }

    /// Notes that the request just picked for is about to be sent to `backend`.
    pub(super) fn on_dispatch(&self, request: &RequestView<'_>, backend: BackendId) -> Option<Ticket> {
        self.policy.borrow_mut().on_dispatch(request, backend)
    }

    /// Ends when the client has left, by the operator's reading of a FIN.
    pub(super) async fn client_leaves(&self, link: &Link) {
        match self.shared.config.half_close {
            HalfClose::Abort => link.departure.wait().await,
            // The first failing write tells.
            HalfClose::Serve => std::future::pending().await,
        }
        if link.ring.gave_up() {
            // It is still there, and is about to be told that it took too long.
            std::future::pending::<()>().await;
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

    /// Counts a connection, and gives it a place while there's one under the cap.
    pub(super) fn seat(&self) -> Option<Seat> {
        let shared = &self.shared;
        shared.metrics.connections_accepted_total.inc();
        let taken = shared.connections.fetch_add(1, Ordering::Relaxed);
        shared.metrics.connections.inc();
        let seat = Seat(Arc::clone(shared));
        (taken < shared.connections_max).then_some(seat)
    }

    /// Takes a connection in, or tells it that there's no room.
    fn admit(self: &Rc<Self>, fd: OwnedFd, peer: SocketAddr) {
        let shared = &self.shared;
        let seat = self.seat();
        let client = match Client::new(fd, peer, shared.config.timeouts.client_write) {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!("a client connection could not be served: {error}");
                return;
            }
        };
        if let Some(seat) = seat {
            let worker = Rc::clone(self);
            tokio_task(async move {
                connection::serve(&worker, client).await;
                drop(seat);
            });
            return;
        }
        shared.metrics.connections_refused_total.inc();
        if refuse(shared, &client).is_err() {
            return;
        }
        let refusal = Refusal::new(shared);
        if refusal.number < REFUSALS_MAX {
            tokio_task(async move {
                client.linger().await;
                drop(refusal);
            });
        }
    }
}

/// A refused connection that lingers.
struct Refusal {
    shared: Arc<Shared>,
    number: usize,
}

impl Refusal {
    fn new(shared: &Arc<Shared>) -> Refusal {
        Refusal {
            number: shared.refusals.fetch_add(1, Ordering::Relaxed),
            shared: Arc::clone(shared),
        }
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        self.shared.refusals.fetch_sub(1, Ordering::Relaxed);
    }
}

fn tokio_task(future: impl Future<Output = ()> + 'static) {
    // Detached: a connection's task ends with its connection.
    drop(tokio::task::spawn_local(future));
}

/// Tells a client that there's no room; the socket of a new connection takes so few bytes at once.
fn refuse(shared: &Shared, client: &Client) -> io::Result<()> {
    let message = format!(
        "the router holds {} client connections, its limit (limits.connections_max); try again",
        shared.connections_max
    );
    let answer = OwnAnswer::new(OwnError::Overloaded, message);
    shared.metrics.count_own_error(answer.error);
    shared.metrics.count_response(answer.status);
    net::send_now(client.conn.raw_fd(), &answer.encode(b"", false, true))?;
    Ok(())
}

impl Door {
    fn admit(&self, worker: &Rc<Worker>, fd: OwnedFd, peer: SocketAddr) {
        match self {
            Door::Http => worker.admit(fd, peer),
            Door::Tcp(service) => tcp::admit(worker, service, fd, peer),
        }
    }
}

async fn accept_loop(worker: Rc<Worker>, listener: Listener, door: Door) {
    let mut stop = worker.stop.clone();
    let mut next = Box::pin(listener.accept());
    loop {
        tokio::select! {
            biased;
            accepted = &mut next => match accepted {
                Ok((fd, peer)) => door.admit(&worker, fd, peer),
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
        door.admit(&worker, fd, peer);
    }
    // Ends with an error now; awaited since its buffer is the kernel's until then.
    let _ = next.await;
}
