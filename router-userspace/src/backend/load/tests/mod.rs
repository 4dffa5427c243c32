mod driver;
mod learner;
mod published;

use crate::proto::engine_metrics::EngineReport;

fn report(running: u32, waiting: u32) -> EngineReport {
    EngineReport {
        running: Some(running),
        waiting: Some(waiting),
        ..EngineReport::default()
    }
}
