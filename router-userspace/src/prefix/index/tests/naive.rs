//! The twin: the definition, with no index and no shortcut.

use crate::prefix::index::{IndexConfig, IndexWriter};

/// One LRU list a backend, most recent first.
#[derive(Debug)]
pub(super) struct Naive {
    pub(super) caches: Vec<Vec<u64>>,
    pub(super) capacity: Vec<usize>,
}

impl Naive {
    pub(super) fn new(backends: usize, capacity: usize) -> Naive {
        Naive {
            caches: vec![Vec::new(); backends],
            capacity: vec![capacity; backends],
        }
    }

    pub(super) fn insert(&mut self, backend: usize, blocks: &[u64]) {
        let capacity = self.capacity[backend];
        let blocks = &blocks[..blocks.len().min(capacity)];
        let cache = &mut self.caches[backend];
        cache.retain(|hash| !blocks.contains(hash));
        cache.splice(0..0, blocks.iter().copied());
        cache.truncate(capacity);
    }

    pub(super) fn depth(&self, backend: usize, blocks: &[u64]) -> u32 {
        let held = |hash: &&u64| self.caches[backend].contains(hash);
        blocks.iter().take_while(held).count() as u32
    }
}

/// An index of the sizes that tests use.
pub(super) fn writer(backends: usize, capacity_blocks: usize) -> IndexWriter {
    IndexWriter::new(&IndexConfig {
        backends,
        capacity_blocks,
        bytes_max: 64 << 20,
    })
}

/// The chained hashes of a path through a tree: equal fronts give equal hashes.
pub(super) fn chained(path: &[u8]) -> Vec<u64> {
    let step = |chain: &mut u64, &label: &u8| {
        let mixed = (*chain ^ (u64::from(label) + 1)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        *chain = mixed ^ (mixed >> 29);
        Some(*chain)
    };
    path.iter().scan(0x51ed_270b_a7c3_9f1d, step).collect()
}
