//! What the router counts of itself, and the page that shows it.

mod access_log;
mod decisions;
mod kernel;
mod log;
mod metrics;

pub use access_log::{ACCESS_QUEUE_MAX, AccessLog, AccessLogTarget, AccessRecord};
pub use decisions::{DECISIONS_KEPT_MAX, DecisionLog, DecisionRecord};
pub use kernel::{KernelFigures, KernelSource};
pub use log::{LogFormat, LogLevel, init_log};
pub use metrics::{CopyReason, Metrics, OwnError};
