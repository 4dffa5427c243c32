//! Warmpath, a cache-aware load balancer for LLM inference.
//!
//! # The way of one request
//!
//! A client connects to a worker's listener (`server::worker`). The worker reads the request's head
//! ([`proto::http1`]; anything that two readers could take in two ways is refused), then its body, up to a bound,
//! while [`prefix::KeyScanner`] makes the prompt's key of the bytes as they pass. A [`policy`] looks at snapshots of
//! the [`backend`]s and picks one; the request is charged to it before a byte is sent. The worker lends a kept
//! connection or opens one, sends the request, and reads the response's head. A short answer it finishes itself.
//! A stream goes to a relay ([`datapath`]), which copies it or lets the kernel carry it, and gives both connections
//! back at the end of the message. All the while the client is watched: when it leaves, its engine is told at once
//! by a closed connection.
//!
//! Beside the workers one control thread probes the engines, reads their load and serves the admin pages
//! (`backend::health`, `backend::load`, `server::admin`).
//!
//! # Layers
//!
//! A module may use those above it in this list, never those below; `cargo xtask layers` checks it.

// Layer 0
pub mod telemetry;
pub mod types;
// Layer 1
pub mod net;
pub mod proto;
// Layer 2
pub mod prefix;
// Layer 3
pub mod policy;
// Layer 4
pub mod backend;
pub mod engine;
// Layer 5
pub mod datapath;
// Layer 6
pub mod server;
// Layer 7
pub mod cli;
