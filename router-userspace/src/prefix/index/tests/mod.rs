//! The index against its naive twin, at its bounds, and under threads.

mod bounds;
mod interleaving;
mod naive;
mod properties;
