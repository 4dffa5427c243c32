//! The router's policies against the engine model, on virtual time.
//!
//! A [`Trace`] says which requests come when; a [`Setup`] says to which engines, under which load and with which
//! faults; [`run`] gives the figures of one [`Contender`]: a policy, or one of the bounds that no router can
//! reach. One seed, one run: nothing but the measured cost of a decision depends on the machine.

mod arrivals;
mod contender;
mod record;
mod router;
mod setup;
mod source;
#[cfg(test)]
mod tests;
mod trace;
mod world;

pub use contender::Contender;
pub use record::Figures;
pub use setup::{Fault, Load, Setup, SetupError};
pub use trace::{Trace, TraceError, TraceRequest};
pub use world::run;
