//! Ids, units, snapshots, the clock and the seeded random numbers: what every layer may know.

mod backend;
mod clock;
mod load;
mod progress;
mod rng;

pub use backend::{BackendId, BackendSnapshot, BackendState};
pub use clock::{Micros, now};
pub use load::LoadSnapshot;
pub use progress::Progress;
pub use rng::Rng;
