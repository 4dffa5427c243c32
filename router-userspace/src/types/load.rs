//! What an engine says of itself.

/// The load of one engine by its last report; `None` = it doesn't say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSnapshot {
    /// Requests in its running batch.
    pub running: Option<u32>,
    /// Requests that wait for a place in it.
    pub waiting: Option<u32>,
    /// Prompt tokens of those that are neither computed nor cached.
    pub waiting_uncached_tokens: Option<u64>,
    /// The share of its KV memory in use, 0 to 1.
    pub kv_usage_ratio: Option<f64>,
    /// How long ago the report came.
    pub age_ms: u32,
}
