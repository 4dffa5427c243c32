//! How far an engine's answers have come, noted by whoever reads from it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Micros;

/// Bytes received from one backend and when the last came; shared by workers, relays and the health driver.
#[derive(Debug, Default)]
pub struct Progress {
    bytes_total: AtomicU64,
    last_byte_us: AtomicU64,
}

impl Progress {
    /// Notes that `bytes` bytes came at `now`.
    pub fn note(&self, bytes: u64, now: Micros) {
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
        self.last_byte_us.store(now.0, Ordering::Relaxed);
    }

    /// Bytes received in the life of the process.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_total.load(Ordering::Relaxed)
    }

    /// When the last byte came; `None` = never.
    #[must_use]
    pub fn last_byte(&self) -> Option<Micros> {
        match self.last_byte_us.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Micros(micros)),
        }
    }
}
