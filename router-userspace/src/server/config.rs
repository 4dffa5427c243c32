//! What the operator may set of the proxy itself, with its defaults.

use std::net::SocketAddr;
use std::time::Duration;

use crate::datapath::RelayPriority;

/// Which request paths pass to the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathScope {
    /// The inference, tokenise and models endpoints.
    Inference,
    /// Every path, engine control included.
    All,
}

/// What a FIN from a client means while its request is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfClose {
    /// The client is gone: its upstream is closed, so that the engine stops.
    Abort,
    /// The client has only finished sending: it gets its answer.
    Serve,
}

/// Who carries streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatapathMode {
    /// The relay decides for each flow.
    Auto,
    /// The kernel carries every flow that qualifies; serving refuses to start where it can't.
    Kernel,
    /// Userspace copies.
    Copy,
}

impl DatapathMode {
    /// The word for it in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            DatapathMode::Auto => "auto",
            DatapathMode::Kernel => "kernel",
            DatapathMode::Copy => "copy",
        }
    }
}

/// Bounds on what one client or all of them may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client connections over all workers; beyond it a new one gets a 503 and is closed. 0 = derived from RLIMIT_NOFILE.
    pub connections_max: usize,
    /// Bytes of a request's or response's head, start line included.
    pub head_bytes_max: usize,
    /// Fields in a head.
    pub head_fields_max: usize,
    /// Bytes of a request's body; beyond it 413.
    pub body_bytes_max: u64,
    /// Bytes of a request's body held for routing and for a retry; the rest streams through.
    pub body_buffer_bytes: usize,
    /// Bytes held for all requests together; beyond it reading pauses, then 503.
    pub body_buffers_total_bytes: usize,
    /// A body with at most this many bytes to go is finished on the worker; a longer one goes to a relay.
    pub short_answer_bytes_max: u64,
    /// Flows queued from one worker to its relay; beyond it the worker copies them itself.
    pub relay_queue_max: usize,
    /// Idle upstream connections kept by a worker for each backend.
    pub idle_upstreams_max: usize,
    /// Bytes of one stream that the kernel path may hold for a slow client; beyond it the stream is copied.
    pub kernel_flow_bytes_max: u64,
    /// The same for all streams together; beyond it none is given to the kernel.
    pub kernel_flows_bytes_max: u64,
    /// Bytes of one relay's ring of events from the kernel path; what doesn't fit is found up to 50 ms later.
    pub kernel_events_bytes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 0,
            head_bytes_max: 64 << 10,
            head_fields_max: 256,
            body_bytes_max: 64 << 20,
            body_buffer_bytes: 1 << 20,
            body_buffers_total_bytes: 256 << 20,
            short_answer_bytes_max: 64 << 10,
            relay_queue_max: 1024,
            idle_upstreams_max: 256,
            kernel_flow_bytes_max: 256 << 10,
            kernel_flows_bytes_max: 1 << 30,
            kernel_events_bytes: 64 << 10,
        }
    }
}

/// How long things may take; `None` = for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Opening an upstream connection.
    pub connect: Duration,
    /// A request's head, from its first byte (408).
    pub head: Duration,
    /// Between two reads of a request's body (408).
    pub body_idle: Duration,
    /// An idle client connection between requests.
    pub keep_alive: Duration,
    /// From the request's last byte to the response's first (504).
    pub first_byte: Option<Duration>,
    /// Between two bytes of a response.
    pub stream_idle: Duration,
    /// A client that takes nothing.
    pub client_write: Duration,
    /// An engine that takes nothing of a request (502).
    pub upstream_write: Duration,
    /// Requests in flight at a stop.
    pub drain: Duration,
    /// An idle upstream connection; below the 5 s at which uvicorn closes.
    pub upstream_idle: Duration,
    /// Waiting for room in `body_buffers_total_bytes` (503).
    pub body_buffer_wait: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(1),
            head: Duration::from_secs(10),
            body_idle: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            first_byte: None,
            stream_idle: Duration::from_secs(300),
            client_write: Duration::from_secs(60),
            upstream_write: Duration::from_secs(60),
            drain: Duration::from_secs(300),
            upstream_idle: Duration::from_secs(3),
            body_buffer_wait: Duration::from_secs(5),
        }
    }
}

/// When a failed request is sent again, to another backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Tries a request may have in all, the first included.
    pub tries_max: u32,
    /// Retries allowed as a share of the last 10 s' requests, in percent.
    pub budget_percent: u32,
    /// Retries allowed in 10 s whatever the share.
    pub budget_floor: u32,
    /// Engine answers that are tried elsewhere (429 and 503 are the sensible ones).
    pub statuses: Vec<u16>,
    /// Whether a generation call without server state may be repeated once elsewhere when its engine died.
    pub generation: bool,
}

impl Default for RetryConfig {
    fn default() -> RetryConfig {
        RetryConfig {
            tries_max: 3,
            budget_percent: 10,
            budget_floor: 10,
            statuses: Vec::new(),
            generation: false,
        }
    }
}

/// The proxy's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// Worker threads, each with a relay beside it; 0 = one a core.
    pub workers: usize,
    /// Which paths pass.
    pub paths: PathScope,
    /// What a client's FIN means.
    pub half_close: HalfClose,
    /// Who carries streams.
    pub datapath: DatapathMode,
    /// The relays' place among the threads of their cores.
    pub relay_priority: RelayPriority,
    /// Bounds.
    pub limits: Limits,
    /// Times.
    pub timeouts: Timeouts,
    /// Retries.
    pub retry: RetryConfig,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            workers: 0,
            paths: PathScope::Inference,
            half_close: HalfClose::Abort,
            datapath: DatapathMode::Auto,
            relay_priority: RelayPriority::Auto,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            retry: RetryConfig::default(),
        }
    }
}
