//! The two ends of the datapath bench: a source that paces chunks, and a sink that times them.
//!
//! A chunk carries the moment at which it was sent, by CLOCK_MONOTONIC, so that one reading of the same clock at
//! the sink gives its one-way delay. Both ends are one thread around epoll without a runtime: what they cost is part
//! of every figure, the direct run's included, and is to be small beside a proxy's cost.

mod chunk;
pub mod cpu;
mod poll;
mod requests;
mod sink;
mod source;
mod spec;

pub use requests::{RequestLoad, run_requests};
pub use sink::{StreamLoad, run_streams};
pub use source::{listeners, serve};
pub use spec::{Answer, Ending, SPEC_FIELD};
