//! Where is this prefix cached? Chained block hashes → backends.
//!
//! For each backend a *mirror*, an LRU of the block hashes that were sent to it, as large as its cache. All mirrors
//! together fill one *table*, hash → set of backends, which any thread reads without a lock; one thread writes
//! (through a [`IndexFeed`]). A prompt's *walk* through the table gives each backend's longest common prefix.

mod feed;
mod mask;
mod mirror;
mod shared;
mod spread;
mod table;
#[cfg(test)]
mod tests;
mod walk;
mod writer;

/// The atomics of the table; the tests put others in their place.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

pub use feed::{IndexFeed, IndexNews, run};
pub use shared::{OverlapScores, PrefixIndex};
pub use writer::{BACKENDS_MAX, IndexConfig, IndexWriter};
