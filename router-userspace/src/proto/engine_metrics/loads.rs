//! SGLang's `/v1/loads`: the same facts as its metrics page and the prefill work that waits, without a flag at its
//! start.

use serde::Deserialize;

use super::{EngineKind, EngineReport};

/// The path, with the parts that are read.
pub const ENGINE_LOADS_PATH: &str = "/v1/loads?include=core,queues";

#[derive(Deserialize)]
struct Loads {
    loads: Vec<RankLoad>,
}

/// Every field may be missing: versions differ.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RankLoad {
    num_running_reqs: Option<f64>,
    num_waiting_reqs: Option<f64>,
    num_waiting_uncached_tokens: Option<f64>,
    max_total_num_tokens: Option<f64>,
    token_usage: Option<f64>,
}

/// Reads the page; `None` where it is something else.
///
/// # Source
/// The fields that SGLang's gateway reads (`monitor.rs`); one entry of `loads` a data-parallel rank.
#[must_use]
pub fn parse_engine_loads(body: &[u8]) -> Option<EngineReport> {
    let Loads { loads } = serde_json::from_slice(body).ok()?;
    let amounts = |field: fn(&RankLoad) -> Option<f64>| {
        loads
            .iter()
            .filter_map(field)
            .filter(|value| value.is_finite() && *value >= 0.0)
    };
    let sum = |field| amounts(field).reduce(|sum, value| sum + value);
    let usage = || amounts(|rank| rank.token_usage);
    // Casts saturate; values are finite and not negative.
    let report = EngineReport {
        kind: Some(EngineKind::Sglang),
        running: sum(|rank| rank.num_running_reqs).map(|sum| sum as u32),
        waiting: sum(|rank| rank.num_waiting_reqs).map(|sum| sum as u32),
        waiting_uncached_tokens: sum(|rank| rank.num_waiting_uncached_tokens).map(|sum| sum as u64),
        kv_usage_ratio: usage()
            .reduce(|sum, value| sum + value)
            .map(|sum| (sum / usage().count() as f64).min(1.0)),
        capacity_tokens: sum(|rank| rank.max_total_num_tokens)
            .map(|sum| sum as u64)
            .filter(|tokens| *tokens > 0),
        ..EngineReport::default()
    };
    report.has_load().then_some(report)
}

impl EngineReport {
    /// Puts what `loads` says over what the metrics page said.
    #[must_use]
    pub fn with_loads(self, loads: &EngineReport) -> EngineReport {
        EngineReport {
            kind: loads.kind.or(self.kind),
            running: loads.running.or(self.running),
            waiting: loads.waiting.or(self.waiting),
            waiting_uncached_tokens: loads.waiting_uncached_tokens.or(self.waiting_uncached_tokens),
            kv_usage_ratio: loads.kv_usage_ratio.or(self.kv_usage_ratio),
            capacity_tokens: loads.capacity_tokens.or(self.capacity_tokens),
            ..self
        }
    }
}
