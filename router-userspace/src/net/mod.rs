//! Sockets: the only module that names `tokio_uring` and `socket2`.
//!
//! A connection is a [`Conn`], which owns its descriptor and may move between threads. While a worker serves it,
//! a [`RingStream`] over a duplicate of the descriptor reads and writes through that worker's ring, and a
//! [`Departure`] tells when the peer leaves. Neither may have an operation pending when the [`Conn`] moves.

mod arrivals;
mod conn;
mod departure;
mod listen;
mod ring;
mod socket;

pub use arrivals::Arrivals;
pub use conn::Conn;
pub use departure::Departure;
pub use listen::{Listener, bind_listeners};
pub use ring::{IoFailure, RingError, RingStream, connect, run_ring};
pub use socket::{
    Idle, acked_bytes, fin_on_close, local_addr, peek_idle, raise_file_limit, reset_on_close, send_now,
    send_parts_now, shutdown, tune_tunnel, tune_upstream,
};
