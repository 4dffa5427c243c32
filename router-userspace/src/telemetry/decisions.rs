//! The last routing decisions, for `/explain`.

use std::collections::VecDeque;
use std::sync::Mutex;

/// Decisions kept; the oldest goes when a new one comes.
pub const DECISIONS_KEPT_MAX: usize = 1000;

/// One decision.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DecisionRecord {
    /// Milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// The request's path.
    pub path: String,
    /// The chosen backend's name; empty where there was none.
    pub backend: String,
    /// Why: the words of `policy::Reason`, or what refused it.
    pub reason: &'static str,
    /// The policy's name.
    pub policy: &'static str,
    /// Which try of its request this was, from 1.
    pub try_number: u32,
    /// Bytes of prompt text that were keyed.
    pub prompt_bytes: u64,
    /// In-flight count of each backend when it was made, in the order of the config.
    pub in_flight: Vec<u32>,
}

/// A bounded log of decisions.
#[derive(Debug, Default)]
pub struct DecisionLog {
    records: Mutex<VecDeque<DecisionRecord>>,
}

impl DecisionLog {
    /// Keeps a decision, unless a reader holds the log at this moment: a worker never waits for it.
    pub fn push(&self, record: DecisionRecord) {
        let Ok(mut records) = self.records.try_lock() else {
            return;
        };
        if records.len() >= DECISIONS_KEPT_MAX {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// The last `count` decisions, newest first.
    #[must_use]
    pub fn last(&self, count: usize) -> Vec<DecisionRecord> {
        let records = self
            .records
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        records.iter().rev().take(count).cloned().collect()
    }
}
