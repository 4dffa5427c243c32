//! The prefix cache of one engine: chained block hashes, pinned while a request runs, else in LRU order.
//!
//! Entries lie in a slab; those without a pin form a doubly linked list from the least to the most recently
//! used, so that every operation costs O(blocks of its request). A released request's tail blocks enter the list
//! before its head blocks. With chained hashes a block is thus never evicted before the blocks that follow it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// No neighbour.
const NIL: u32 = u32::MAX;

/// Spreads block hashes, some of which are small numbers, over a hash table.
#[derive(Clone, Copy, Debug, Default)]
struct SpreadHasher(u64);

impl Hasher for SpreadHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing; the fold brings the well-mixed high bits down to the bucket bits.
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    pins: u32,
    older: u32,
    newer: u32,
}

/// Which blocks of KV memory hold what.
#[derive(Clone, Debug)]
pub struct BlockCache {
    capacity: usize,
    index: HashMap<u64, u32, BuildHasherDefault<SpreadHasher>>,
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    oldest: u32,
    newest: u32,
    unpinned: usize,
    outputs: usize,
}

impl BlockCache {
    /// An empty cache of `capacity` blocks.
    #[must_use]
    pub fn new(capacity: usize) -> BlockCache {
        BlockCache {
            capacity,
            index: HashMap::default(),
            entries: Vec::new(),
            vacant: Vec::new(),
            oldest: NIL,
            newest: NIL,
            unpinned: 0,
            outputs: 0,
        }
    }

    /// All blocks.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Blocks that hold nothing.
    #[must_use]
    pub fn free(&self) -> usize {
        self.capacity - self.index.len() - self.outputs
    }

    /// Blocks that hold a prompt block which no running request needs.
    #[must_use]
    pub fn unpinned(&self) -> usize {
        self.unpinned
    }

    /// Blocks that running requests need, their outputs included.
    #[must_use]
    pub fn used(&self) -> usize {
        self.index.len() - self.unpinned + self.outputs
    }

    /// How many blocks from the front are present.
    #[must_use]
    pub fn matched(&self, blocks: &[u64]) -> usize {
        blocks
            .iter()
            .take_while(|hash| self.index.contains_key(hash))
            .count()
    }

    /// Whether a prompt and its output blocks fit into free and unpinned blocks; prompt blocks that another
    /// request has pinned already take no room.
    #[must_use]
    pub fn has_room(&self, blocks: &[u64], outputs: usize) -> bool {
        let room = self.free() + self.unpinned;
        if blocks.len() + outputs <= room {
            return true;
        }
        let pinned = |hash: &&u64| {
            self.index
                .get(*hash)
                .is_some_and(|&at| self.entries[at as usize].pins > 0)
        };
        let shared = blocks.iter().filter(pinned).count();
        blocks.len() - shared + outputs <= room
    }

    /// Pins a request's blocks and reserves its output blocks, evicting as needed; says how many blocks from the
    /// front were present. `None`, and no change, where [`BlockCache::has_room`] is false.
    pub fn admit(&mut self, blocks: &[u64], outputs: usize) -> Option<usize> {
        if !self.has_room(blocks, outputs) {
            return None;
        }
        let matched = self.matched(blocks);
        // What is present is pinned first, lest it be evicted to make room for the rest.
        let missing: Vec<u64> = blocks.iter().copied().filter(|&hash| !self.pin(hash)).collect();
        for hash in missing {
            if !self.pin(hash) {
                self.make_room();
                self.insert_pinned(hash);
            }
        }
        for _ in 0..outputs {
            self.make_room();
            self.outputs += 1;
        }
        Some(matched)
    }

    /// Ends a request: its output blocks are free, its prompt blocks stay until they are evicted, tail first.
    pub fn release(&mut self, blocks: &[u64], outputs: usize) {
        self.abandon(blocks, blocks.len(), outputs);
    }

    /// Ends a request of which only the first `computed` blocks were computed; the others are dropped, unless
    /// another request has pinned them.
    pub fn abandon(&mut self, blocks: &[u64], computed: usize, outputs: usize) {
        self.outputs -= outputs;
        for (block_index, &hash) in blocks.iter().enumerate().rev() {
            let Some(&at) = self.index.get(&hash) else {
                continue;
            };
            let entry = &mut self.entries[at as usize];
            entry.pins -= 1;
            if entry.pins > 0 {
                continue;
            }
            if block_index < computed {
                self.link_newest(at);
            } else {
                self.index.remove(&hash);
                self.vacant.push(at);
            }
        }
    }

    /// Pins a block if it is present.
    fn pin(&mut self, hash: u64) -> bool {
        let Some(&at) = self.index.get(&hash) else {
            return false;
        };
        if self.entries[at as usize].pins == 0 {
            self.unlink(at);
        }
        self.entries[at as usize].pins += 1;
        true
    }

    fn insert_pinned(&mut self, hash: u64) {
        let entry = Entry {
            hash,
            pins: 1,
            older: NIL,
            newer: NIL,
        };
        let at = if let Some(at) = self.vacant.pop() {
            self.entries[at as usize] = entry;
            at
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        };
        self.index.insert(hash, at);
    }

    /// Evicts the least recently used block if none is free.
    fn make_room(&mut self) {
        if self.free() > 0 || self.oldest == NIL {
            return;
        }
        let at = self.oldest;
        self.unlink(at);
        self.index.remove(&self.entries[at as usize].hash);
        self.vacant.push(at);
    }

    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match older {
            NIL => self.oldest = newer,
            _ => self.entries[older as usize].newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            _ => self.entries[newer as usize].older = older,
        }
        self.unpinned -= 1;
    }

    fn link_newest(&mut self, at: u32) {
        let previous = self.newest;
        let entry = &mut self.entries[at as usize];
        entry.older = previous;
        entry.newer = NIL;
        match previous {
            NIL => self.oldest = at,
            _ => self.entries[previous as usize].newer = at,
        }
        self.newest = at;
        self.unpinned += 1;
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
