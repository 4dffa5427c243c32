//! The only writer of the index: a mirror of each backend, kept in step with the shared table.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mirror::{self, Mirror};
use super::shared::{HAS_ROOM, NOBODY, PrefixIndex};
use super::table::{Full, Room, SLOTS_MAX, Table};
use crate::types::{BackendId, Micros};

/// Slots beyond two a backend, so that one or two backends may restart often.
const SLOTS_SPARE: usize = 6;
/// Blocks of forgotten mirrors that are cleared for each new block.
const CLEARED_PER_BLOCK: usize = 2;
/// Nodes and rows of the first table; it doubles as needed.
const NODES_FIRST: usize = 1 << 12;
const ROWS_FIRST: usize = 1 << 8;
/// Most backends there can be.
pub const BACKENDS_MAX: usize = (SLOTS_MAX - SLOTS_SPARE) / 2;

/// Sizes of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// Backends, at most [`BACKENDS_MAX`].
    pub backends: usize,
    /// Blocks that each backend's cache holds, until [`IndexWriter::set_capacity`] says otherwise.
    pub capacity_blocks: usize,
    /// Memory of the index, mirrors included. At this bound a backend with more than its share of it forgets its
    /// oldest blocks for each new one.
    pub bytes_max: usize,
}

#[derive(Debug)]
struct Live {
    slot: u32,
    generation: u32,
    capacity: usize,
    mirror: Mirror,
}

/// The writer. Not for sharing: one thread owns it.
#[derive(Debug)]
pub struct IndexWriter {
    index: PrefixIndex,
    table: Arc<Table>,
    room: Room,
    live: Vec<Live>,
    /// Forgotten mirrors whose bits aren't cleared yet.
    forgotten: VecDeque<(u32, Mirror)>,
    free_slots: Vec<u32>,
    slots: usize,
    /// Blocks of all mirrors, forgotten ones included.
    pairs: usize,
    pairs_max: usize,
    hand: usize,
}

impl IndexWriter {
    /// An empty index. Backends beyond [`BACKENDS_MAX`] are never found in it.
    #[must_use]
    pub fn new(config: &IndexConfig) -> IndexWriter {
        let backends = config.backends.min(BACKENDS_MAX);
        let slots = 2 * backends + SLOTS_SPARE;
        let (table, room) = Table::new(NODES_FIRST, ROWS_FIRST, slots);
        let index = PrefixIndex::new(backends, slots, table);
        let live = (0..backends).map(|slot| Live {
            slot: slot as u32,
            generation: 0,
            capacity: 0,
            mirror: Mirror::new(),
        });
        let mut writer = IndexWriter {
            table: index.shared.table.load_full(),
            room,
            live: live.collect(),
            forgotten: VecDeque::new(),
            free_slots: (backends as u32..slots as u32).rev().collect(),
            slots,
            pairs: 0,
            pairs_max: (config.bytes_max / pair_bytes(slots)).max(backends).max(1),
            hand: 0,
            index,
        };
        for backend in 0..backends {
            writer.set_capacity(BackendId(backend as u32), config.capacity_blocks);
        }
        writer
    }

    /// The readers' side.
    #[must_use]
    pub fn index(&self) -> PrefixIndex {
        self.index.clone()
    }

    /// Notes that a prompt was sent to `backend` at `now`, while it was in `generation`: its blocks become the
    /// most recently used there, the head the most of all, so that a tail is evicted before its head.
    pub fn insert(&mut self, backend: BackendId, generation: u32, blocks: &[u64], now: Micros) {
        let at = backend.0 as usize;
        if at >= self.live.len() {
            return;
        }
        self.renew(at);
        if self.live[at].generation != generation {
            return;
        }
        let blocks = &blocks[..blocks.len().min(self.live[at].capacity).min(self.share())];
        let mirror = &mut self.live[at].mirror;
        let held = blocks.iter().take_while(|&&hash| mirror.holds(hash)).count();
        for &hash in blocks[..held].iter().rev() {
            mirror.touch(hash, None, now);
        }
        // Head first: a reader never finds a block whose predecessors aren't there yet.
        let mut before = held.checked_sub(1).map(|last| blocks[last]);
        for &hash in &blocks[held..] {
            self.make_room(at);
            if self.live[at].mirror.touch(hash, before, now) {
                self.pairs += 1;
                self.add(hash, self.live[at].slot);
            }
            before = Some(hash);
        }
        self.publish(at);
    }

    /// Says how many blocks `backend`'s cache really holds.
    pub fn set_capacity(&mut self, backend: BackendId, blocks: usize) {
        let at = backend.0 as usize;
        let Some(live) = self.live.get_mut(at) else { return };
        live.capacity = blocks;
        while self.live[at].mirror.len() > blocks {
            self.evict(at);
        }
        self.publish(at);
    }

    /// Bytes of memory at most, by the sizes of what there is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.pairs * mirror::BLOCK_BYTES_MAX
    }

    /// Blocks in all mirrors, and the bound.
    #[must_use]
    pub fn blocks(&self) -> (usize, usize) {
        (self.pairs, self.pairs_max)
    }

    /// Each backend's part of the memory.
    fn share(&self) -> usize {
        (self.pairs_max / self.live.len().max(1)).max(1)
    }

    /// Gives a backend that was told to forget a new slot and an empty mirror.
    fn renew(&mut self, at: usize) {
        let shared = Arc::clone(&self.index.shared);
        let view = &shared.views[at];
        let generation = view.generation.load(Ordering::Acquire);
        if self.live[at].generation == generation {
            return;
        }
        // There are more slots than live backends, so clearing one forgotten mirror gives one.
        if self.free_slots.is_empty() {
            self.clear_forgotten(usize::MAX);
        }
        let Some(slot) = self.free_slots.pop() else { return };
        let live = &mut self.live[at];
        let mirror = std::mem::replace(&mut live.mirror, Mirror::new());
        shared.owners[live.slot as usize].store(NOBODY, Ordering::Release);
        self.forgotten.push_back((live.slot, mirror));
        (live.slot, live.generation) = (slot, generation);
        shared.owners[slot as usize].store(at as u32, Ordering::Release);
        view.slot.store(slot, Ordering::Release);
        // Whoever forgot again in between saw the old slot.
        if view.generation.load(Ordering::Acquire) != generation {
            shared.owners[slot as usize].store(NOBODY, Ordering::Release);
        }
    }

    /// Takes up to `count` blocks of the mirror that was forgotten first out of the table.
    fn clear_forgotten(&mut self, count: usize) {
        let Some((slot, mirror)) = self.forgotten.front_mut() else {
            return;
        };
        for _ in 0..count {
            let Some(hash) = mirror.evict() else { break };
            self.table.remove(&mut self.room, hash, *slot);
            self.pairs -= 1;
        }
        if mirror.len() == 0 {
            self.free_slots.push(*slot);
            self.forgotten.pop_front();
        }
    }

    /// Makes room for one block: in the mirror and, at the bound, in memory.
    fn make_room(&mut self, at: usize) {
        self.clear_forgotten(CLEARED_PER_BLOCK);
        if self.live[at].mirror.len() >= self.live[at].capacity {
            self.evict(at);
        }
        if self.pairs < self.pairs_max {
            return;
        }
        let share = self.share();
        for _ in 0..self.live.len() {
            self.hand = (self.hand + 1) % self.live.len();
            if self.live[self.hand].mirror.len() >= share {
                self.evict(self.hand);
                self.publish(self.hand);
                return;
            }
        }
    }

    fn evict(&mut self, at: usize) {
        let live = &mut self.live[at];
        if let Some(hash) = live.mirror.evict() {
            self.table.remove(&mut self.room, hash, live.slot);
            self.pairs -= 1;
        }
    }

    fn add(&mut self, hash: u64, slot: u32) {
        while self.table.add(&mut self.room, hash, slot) == Err(Full) {
            self.grow();
        }
    }

    /// Builds a table of twice the size beside the present one and lets readers have it.
    fn grow(&mut self) {
        let (nodes, rows) = (2 * self.table.node_count(), 2 * self.table.row_count());
        let (table, mut room) = Table::new(nodes, rows, self.slots);
        self.table.for_each(|hash, slot| {
            // It holds half of what there's room for.
            let _ = table.add(&mut room, hash, slot);
        });
        self.table = Arc::new(table);
        self.room = room;
        self.index.shared.table.store(Arc::clone(&self.table));
    }

    fn publish(&self, at: usize) {
        let live = &self.live[at];
        let view = &self.index.shared.views[at];
        let full = live.mirror.len() >= live.capacity;
        let oldest = live.mirror.oldest_use().filter(|_| full);
        view.oldest_use_us
            .store(oldest.map_or(HAS_ROOM, |used| used.0), Ordering::Relaxed);
        view.blocks.store(live.mirror.len() as u64, Ordering::Relaxed);
        view.capacity_blocks
            .store(live.capacity as u64, Ordering::Relaxed);
    }
}

/// Bytes that one block in one mirror takes at most: its entry there, a node of a table that has just doubled,
/// and its part of a row, which only hashes with five or more holders have.
fn pair_bytes(slots: usize) -> usize {
    let row = slots.div_ceil(64) * size_of::<u64>() + size_of::<u32>();
    mirror::BLOCK_BYTES_MAX + 2 * (40 + row / 5)
}
