//! A stream on its way through a relay.

use std::sync::Arc;
use std::time::Duration;

use router_common::framing::Framing;
use tokio::sync::oneshot;

use super::kernel::{ClientSlot, UpstreamSlot};
use crate::net::Conn;
use crate::types::{BackendId, Progress};

/// What a flow carries.
#[derive(Debug)]
pub enum FlowKind {
    /// The rest of a response's body, passed on as it is.
    Body(Framing),
    /// The rest of a chunked body for an HTTP/1.0 client: its payload only, ended by the close.
    Dechunked(Framing),
    /// Bytes in both directions until both have ended (an upgraded connection).
    Tunnel,
}

/// What a tunnel of an L4 listener asks for, beyond what an upgraded connection gets.
///
/// Its end is passed on as it was: a FIN as a FIN, everything else as a reset of both connections.
#[derive(Clone, Debug)]
pub struct TunnelTerms {
    /// The time without a byte in either direction after which it is over.
    pub idle: Duration,
    /// Where the client's bytes are noted.
    pub sent: Arc<Progress>,
}

/// A stream, with everything that it owns.
///
/// `upstream.read_ahead` holds body bytes that were read and not yet written to the client; for a tunnel
/// `client.read_ahead` holds the same for the other direction.
#[derive(Debug)]
pub struct Flow {
    // The slots before the connections: what is closed must be out of the kernel's maps.
    /// The engine's connection in the kernel's maps; without it the flow is copied.
    pub upstream_slot: Option<UpstreamSlot>,
    /// The client's connection in the kernel's maps; without it the flow is copied.
    pub client_slot: Option<ClientSlot>,
    /// The client's connection; the response's head has been written to it.
    pub client: Conn,
    /// The engine's connection.
    pub upstream: Conn,
    /// What is carried.
    pub kind: FlowKind,
    /// Set for the tunnels of L4 listeners.
    pub tunnel: Option<TunnelTerms>,
    /// Whether it is a chunked 2xx response, what the kernel path is made for.
    pub chunked: bool,
    /// Whether a FIN from the client ends the flow.
    pub client_fin_aborts: bool,
    /// Which engine.
    pub backend: BackendId,
    /// Where the engine's bytes are noted.
    pub progress: Arc<Progress>,
    /// Gets the connections back.
    pub done: oneshot::Sender<FlowEnd>,
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The whole message was written to the client. Bytes left in `upstream.read_ahead` are behind its end.
    Complete,
    /// The client left or took nothing for too long; the engine's connection has been shut down.
    ClientLeft,
    /// The engine closed, broke its framing or fell silent inside the message.
    UpstreamCut(&'static str),
    /// A tunnel without a byte for longer than its [`TunnelTerms::idle`].
    Idle,
    /// The relay is being stopped.
    Stopped,
}

/// A flow that is over.
#[derive(Debug)]
pub struct FlowEnd {
    /// The engine's connection in the kernel's maps.
    pub upstream_slot: Option<UpstreamSlot>,
    /// The client's connection in the kernel's maps.
    pub client_slot: Option<ClientSlot>,
    /// The client's connection.
    pub client: Conn,
    /// The engine's connection.
    pub upstream: Conn,
    /// How it ended.
    pub outcome: Outcome,
    /// Bytes that reached the client for it, by either way.
    pub bytes: u64,
    /// Those of them that the kernel carried.
    pub kernel_bytes: u64,
    /// Chunks of the body that ended; 0 where it wasn't chunked.
    pub chunks: u64,
}
