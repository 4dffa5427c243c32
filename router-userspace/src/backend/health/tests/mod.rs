//! The state machine in virtual time.

mod driver;
mod errors;
mod pool;
mod probes;
mod random;
mod stalls;
