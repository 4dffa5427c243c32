//! How busy the engines are by their own word, and the in-flight limit that follows from it.
//!
//! [`LoadLearner`] is pure: time and reports go in. [`watch_load`] does the I/O, and [`EngineLoad`] carries what it
//! found to the workers.

mod config;
mod driver;
mod learner;
mod outcome;
mod published;

pub use config::LoadConfig;
pub use driver::watch_load;
pub use learner::{LoadLearner, MAX_IN_FLIGHT_LEARNED_MIN};
pub use outcome::ScrapeOutcome;
pub use published::{EngineLoad, REPORT_AGE_MAX};

#[cfg(test)]
mod tests;
