//! Tests of the whole router over real sockets.
//!
//! A test starts an [`Upstream`] with a script, a [`Router`] before it (the binary `warmpath`, as a user
//! runs it), and talks to the router with a raw [`Client`]. [`for_each_datapath`] runs a test over both
//! datapaths. Every wait has a deadline; none is a sleep.
//!
//! ```no_run
//! use warmpath_tests::{Client, Router, Upstream, for_each_datapath};
//!
//! for_each_datapath(|datapath| {
//!     let upstream = Upstream::start(|conn| {
//!         while conn.request()?.is_some() {
//!             conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
//!         }
//!         Ok(())
//!     });
//!     let router = Router::start(datapath, &[&upstream]);
//!     let mut client = Client::connect(router.address());
//!     client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
//!     assert_eq!(client.response("GET").body, b"ok");
//!     router.assert_idle();
//! });
//! ```

mod binary;
mod client;
mod engine;
mod files;
pub mod flows;
mod gate;
mod log;
mod message;
mod metrics;
mod netns;
mod options;
mod random;
mod router;
mod soak;
mod tcp;
mod upstream;
mod wire;

pub use client::Client;
pub use engine::Engines;
pub use files::TempFile;
pub use gate::{Gate, wait_until, wait_within};
pub use message::{Body, Framing, Head, Message, chunked};
pub use metrics::MetricsPage;
pub use netns::{FAR, Namespace, TwoHosts};
pub use options::{Ended, RouterOptions, run};
pub use random::Random;
pub use router::{Datapath, Router, for_each_datapath, for_each_datapath_at_once, has_kernel, skip};
pub use soak::{SoakOptions, soak};
pub use tcp::{TcpBackend, TcpRouter, accept_any, connect_from};
pub use upstream::{PROBE_ANSWER, Upstream, UpstreamConn};
pub use wire::{Closed, DEADLINE, Wire};
