//! What the router counts of itself, and the page that shows it.

mod decisions;
mod metrics;

pub use decisions::{DECISIONS_KEPT_MAX, DecisionLog, DecisionRecord};
pub use metrics::{CopyReason, Metrics, OwnError};
