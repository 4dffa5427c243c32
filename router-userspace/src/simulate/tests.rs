//! The simulator on small traces that it makes itself.

mod generate;
mod loads;
mod policies;
mod traces;
