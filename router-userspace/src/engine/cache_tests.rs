//! The cache against a naive twin.

use super::BlockCache;
use proptest::prelude::*;

/// The same rules over a plain list, least recently used first.
#[derive(Default)]
struct Naive {
    capacity: usize,
    entries: Vec<(u64, u32)>,
    outputs: usize,
}

impl Naive {
    fn at(&self, hash: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.0 == hash)
    }

    fn free(&self) -> usize {
        self.capacity - self.entries.len() - self.outputs
    }

    fn unpinned(&self) -> usize {
        self.entries.iter().filter(|entry| entry.1 == 0).count()
    }

    fn make_room(&mut self) {
        if self.free() == 0 {
            let at = self.entries.iter().position(|entry| entry.1 == 0).unwrap();
            self.entries.remove(at);
        }
    }

    fn admit(&mut self, blocks: &[u64], outputs: usize) -> Option<usize> {
        let pinned = |hash: u64| self.at(hash).is_some_and(|at| self.entries[at].1 > 0);
        let need = blocks.iter().filter(|&&hash| !pinned(hash)).count() + outputs;
        if need > self.free() + self.unpinned() {
            return None;
        }
        let matched = blocks.iter().take_while(|&&hash| self.at(hash).is_some()).count();
        for &hash in blocks {
            if let Some(at) = self.at(hash) {
                self.entries[at].1 += 1;
            }
        }
        for &hash in blocks {
            if self.at(hash).is_none() {
                self.make_room();
                self.entries.push((hash, 1));
            }
        }
        for _ in 0..outputs {
            self.make_room();
            self.outputs += 1;
        }
        Some(matched)
    }

    fn abandon(&mut self, blocks: &[u64], computed: usize, outputs: usize) {
        self.outputs -= outputs;
        for (index, &hash) in blocks.iter().enumerate().rev() {
            let at = self.at(hash).unwrap();
            let (_, pins) = self.entries.remove(at);
            if pins > 1 {
                self.entries.insert(at, (hash, pins - 1));
            } else if index < computed {
                self.entries.push((hash, 0));
            }
        }
    }
}

/// Block i of a prompt that follows branch `path` at each fork: equal paths have equal hashes.
fn chained(path: &[u8]) -> Vec<u64> {
    let step = |hash: &mut u64, &branch: &u8| {
        *hash = *hash * 5 + u64::from(branch) + 1;
        Some(*hash)
    };
    path.iter().scan(0u64, step).collect()
}

proptest! {
    #[test]
    fn the_cache_does_what_a_plain_list_does(
        capacity in 1usize..24,
        actions in prop::collection::vec(
            (prop::collection::vec(0u8..3, 1..8), 0usize..4, any::<prop::sample::Index>(), 0u8..4),
            1..80,
        ),
    ) {
        let mut cache = BlockCache::new(capacity);
        let mut naive = Naive { capacity, ..Naive::default() };
        let mut held: Vec<(Vec<u64>, usize)> = Vec::new();
        for (path, outputs, pick, choice) in actions {
            if choice < 2 || held.is_empty() {
                let blocks = chained(&path);
                prop_assert_eq!(cache.matched(&blocks), blocks.iter().take_while(|&&h| naive.at(h).is_some()).count());
                let admitted = cache.admit(&blocks, outputs);
                prop_assert_eq!(admitted, naive.admit(&blocks, outputs));
                if admitted.is_some() {
                    held.push((blocks, outputs));
                }
            } else {
                let (blocks, outputs) = held.swap_remove(pick.index(held.len()));
                let computed = if choice == 2 { blocks.len() } else { pick.index(blocks.len() + 1) };
                cache.abandon(&blocks, computed, outputs);
                naive.abandon(&blocks, computed, outputs);
            }
            prop_assert_eq!(cache.free(), naive.free());
            prop_assert_eq!(cache.unpinned(), naive.unpinned());
            prop_assert_eq!(cache.used() + cache.free() + cache.unpinned(), capacity);
        }
        for (blocks, outputs) in held {
            cache.release(&blocks, outputs);
        }
        prop_assert_eq!(cache.used(), 0);
    }
}

#[test]
fn tail_blocks_are_evicted_before_head_blocks() {
    let mut cache = BlockCache::new(4);
    cache.admit(&[1, 2, 3, 4], 0);
    cache.release(&[1, 2, 3, 4], 0);
    cache.admit(&[9], 1);
    assert_eq!(cache.matched(&[1, 2, 3, 4]), 2);
}

#[test]
fn pinned_blocks_are_never_evicted() {
    let mut cache = BlockCache::new(4);
    assert_eq!(cache.admit(&[1, 2, 3], 0), Some(0));
    assert_eq!(cache.admit(&[8, 9], 0), None);
    assert_eq!(cache.admit(&[1, 2, 3], 1), Some(3));
    assert_eq!(cache.free(), 0);
}

#[test]
fn blocks_that_were_never_computed_are_dropped() {
    let mut cache = BlockCache::new(8);
    cache.admit(&[1, 2, 3, 4], 2);
    cache.abandon(&[1, 2, 3, 4], 1, 2);
    assert_eq!((cache.matched(&[1, 2, 3, 4]), cache.free()), (1, 7));
}
