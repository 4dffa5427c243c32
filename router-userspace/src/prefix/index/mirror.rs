//! What one backend's prefix cache probably holds: an LRU over the block hashes that were sent to it.

use std::collections::HashMap;

use super::spread::Spread;
use crate::types::Micros;

/// No neighbour.
const NIL: u32 = u32::MAX;
/// Bytes that one block takes: its entry and its place in the map, at the map's worst load.
pub(super) const BLOCK_BYTES_MAX: usize = size_of::<Entry>() + 2 * (size_of::<(u64, u32)>() + 1);

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    used: Micros,
    older: u32,
    newer: u32,
}

/// The LRU. Every operation is O(1).
#[derive(Debug)]
pub(super) struct Mirror {
    index: HashMap<u64, u32, Spread>,
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl Mirror {
    pub(super) fn new() -> Mirror {
        Mirror {
            index: HashMap::default(),
            entries: Vec::new(),
            vacant: Vec::new(),
            oldest: NIL,
            newest: NIL,
        }
    }

    /// Blocks held.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether a block is held.
    pub(super) fn holds(&self, hash: u64) -> bool {
        self.index.contains_key(&hash)
    }

    /// Makes a block the most recently used, or, where `before` is given, the next less recently used to that
    /// one; says whether it's new.
    pub(super) fn touch(&mut self, hash: u64, before: Option<u64>, now: Micros) -> bool {
        if before == Some(hash) {
            return false;
        }
        let known = self.index.get(&hash).copied();
        let at = match known {
            Some(at) => {
                self.unlink(at);
                at
            }
            None => self.enter(hash),
        };
        let newer = before.and_then(|before| self.index.get(&before).copied());
        self.link(at, newer.unwrap_or(NIL), now);
        known.is_none()
    }

    fn enter(&mut self, hash: u64) -> u32 {
        let entry = Entry {
            hash,
            used: Micros(0),
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
        at
    }

    /// Forgets the least recently used block.
    pub(super) fn evict(&mut self) -> Option<u64> {
        let at = self.oldest;
        let hash = self.entries.get(at as usize)?.hash;
        self.unlink(at);
        self.index.remove(&hash);
        self.vacant.push(at);
        Some(hash)
    }

    /// When the block that goes next was last used.
    pub(super) fn oldest_use(&self) -> Option<Micros> {
        self.entries.get(self.oldest as usize).map(|entry| entry.used)
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
    }

    /// Links an entry behind `newer`, at the recent end where that's [`NIL`].
    fn link(&mut self, at: u32, newer: u32, now: Micros) {
        let older = match newer {
            NIL => std::mem::replace(&mut self.newest, at),
            _ => std::mem::replace(&mut self.entries[newer as usize].older, at),
        };
        match older {
            NIL => self.oldest = at,
            _ => self.entries[older as usize].newer = at,
        }
        let entry = &mut self.entries[at as usize];
        (entry.used, entry.older, entry.newer) = (now, older, newer);
    }
}
