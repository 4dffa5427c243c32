//! Block hash → set of slots, written by one thread and read by many without a lock.
//!
//! Chained hashing over one arena of nodes. A bucket's word holds its first node and a version that is odd while
//! the writer changes anything in that bucket: a reader takes what it read only if the word was the same before
//! and after (a seqlock a bucket; Boehm, "Can seqlocks get along with programming language memory models?",
//! 2012). Everything is an atomic, so a torn read is impossible and a mixed one is detected. A reader that loses
//! the race [`READ_TRIES`] times reports the hash as absent: a missed hit, never a wrong one.
//!
//! A node holds up to four slots inline; more of them go to a row of bits. Growing means building a larger table
//! beside this one (`writer.rs`).

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// No node.
const NIL: u32 = u32::MAX;
/// Marks a node's set as the number of a row.
const SPILLED: u64 = 1 << 63;
/// Slots that a node holds without a row, 15 bits each, 0 = none.
const INLINE: usize = 4;
/// The bits of one inline slot.
const INLINE_BITS: usize = 15;
/// Slots are below this.
pub(super) const SLOTS_MAX: usize = (1 << INLINE_BITS) - 1;
/// How often a reader tries to read a bucket that is being changed.
const READ_TRIES: usize = 16;
/// Nodes that a reader follows at most; a longer chain is cut off, for readers only.
const CHAIN_MAX: usize = 64;

#[derive(Debug)]
struct Node {
    hash: AtomicU64,
    /// Inline slots, or [`SPILLED`] and a row.
    set: AtomicU64,
    next: AtomicU32,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    /// Version in the high half, first node in the low half; a power of two of them.
    buckets: Box<[AtomicU64]>,
    nodes: Box<[Node]>,
    rows: Box<[AtomicU64]>,
    row_words: usize,
}

/// What only the writer knows of a [`Table`]: which nodes and rows are free.
#[derive(Debug)]
pub(super) struct Room {
    nodes: Vec<u32>,
    rows: Vec<u32>,
}

/// There's no free node or row left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Table {
    /// An empty table for `nodes` hashes and `rows` sets of more than [`INLINE`] slots below `slots`.
    pub(super) fn new(nodes: usize, rows: usize, slots: usize) -> (Table, Room) {
        let row_words = slots.div_ceil(64);
        let table = Table {
            buckets: (0..nodes.next_power_of_two())
                .map(|_| AtomicU64::new(u64::from(NIL)))
                .collect(),
            nodes: (0..nodes).map(|_| Node::vacant()).collect(),
            rows: (0..rows * row_words).map(|_| AtomicU64::new(0)).collect(),
            row_words,
        };
        let room = Room {
            nodes: (0..nodes as u32).rev().collect(),
            rows: (0..rows as u32).rev().collect(),
        };
        (table, room)
    }

    /// Words of a set.
    pub(super) fn row_words(&self) -> usize {
        self.row_words
    }

    /// Hashes it can hold.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Rows it has.
    pub(super) fn row_count(&self) -> usize {
        self.rows.len() / self.row_words.max(1)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<u64>()
            + self.nodes.len() * (size_of::<Node>() + size_of::<u32>())
            + self.row_count() * (self.row_words * size_of::<u64>() + size_of::<u32>())
    }

    /// Writes the set of `hash` to `words` (as many as [`Table::row_words`]); all zero where it's absent.
    pub(super) fn read(&self, hash: u64, words: &mut [u64]) {
        self.read_within(READ_TRIES, hash, words);
    }

    pub(super) fn read_within(&self, tries: usize, hash: u64, words: &mut [u64]) {
        let bucket = &self.buckets[self.bucket_of(hash)];
        for _ in 0..tries {
            words.fill(0);
            let before = bucket.load(Ordering::Acquire);
            if version(before) & 1 == 0 {
                self.read_chain(first(before), hash, words);
                fence(Ordering::Acquire);
                if bucket.load(Ordering::Relaxed) == before {
                    return;
                }
            }
            std::hint::spin_loop();
        }
        words.fill(0);
    }

    fn read_chain(&self, mut at: u32, hash: u64, words: &mut [u64]) {
        for _ in 0..CHAIN_MAX {
            let Some(node) = self.nodes.get(at as usize) else {
                return;
            };
            if node.hash.load(Ordering::Relaxed) == hash {
                self.read_set(node.set.load(Ordering::Relaxed), words);
                return;
            }
            at = node.next.load(Ordering::Relaxed);
        }
    }

    fn read_set(&self, set: u64, words: &mut [u64]) {
        if set & SPILLED == 0 {
            for slot in inline_slots(set) {
                if let Some(word) = words.get_mut(slot / 64) {
                    *word |= 1 << (slot % 64);
                }
            }
        } else if let Some(row) = self.row((set & !SPILLED) as usize) {
            for (word, bits) in words.iter_mut().zip(row) {
                *word = bits.load(Ordering::Relaxed);
            }
        }
    }

    /// Adds `slot` to the set of `hash`. For the writer only.
    ///
    /// # Errors
    /// [`Full`], and no change, where that takes a node or a row and none is free.
    pub(super) fn add(&self, room: &mut Room, hash: u64, slot: u32) -> Result<(), Full> {
        let bucket = self.bucket_of(hash);
        let Some((at, _)) = self.find(bucket, hash) else {
            let at = room.nodes.pop().ok_or(Full)?;
            self.change(bucket, |head| {
                let node = &self.nodes[at as usize];
                node.hash.store(hash, Ordering::Relaxed);
                node.set.store(u64::from(slot) + 1, Ordering::Relaxed);
                node.next.store(head, Ordering::Relaxed);
                at
            });
            return Ok(());
        };
        let node = &self.nodes[at as usize];
        let set = node.set.load(Ordering::Relaxed);
        if set & SPILLED != 0 {
            self.change(bucket, |head| {
                self.set_bit(set, slot, true);
                head
            });
            return Ok(());
        }
        if inline_slots(set).any(|held| held == slot as usize) {
            return Ok(());
        }
        let count = inline_slots(set).count();
        if count < INLINE {
            let wider = set | (u64::from(slot) + 1) << (count * INLINE_BITS);
            self.change(bucket, |head| {
                node.set.store(wider, Ordering::Relaxed);
                head
            });
            return Ok(());
        }
        let row = u64::from(room.rows.pop().ok_or(Full)?);
        self.change(bucket, |head| {
            for bits in self.row(row as usize).into_iter().flatten() {
                bits.store(0, Ordering::Relaxed);
            }
            for held in inline_slots(set).chain([slot as usize]) {
                self.set_bit(row, held as u32, true);
            }
            node.set.store(row | SPILLED, Ordering::Relaxed);
            head
        });
        Ok(())
    }

    /// Takes `slot` out of the set of `hash`; an empty set's node is free again. For the writer only.
    pub(super) fn remove(&self, room: &mut Room, hash: u64, slot: u32) {
        let bucket = self.bucket_of(hash);
        let Some((at, previous)) = self.find(bucket, hash) else {
            return;
        };
        let node = &self.nodes[at as usize];
        let set = node.set.load(Ordering::Relaxed);
        let mut empty = false;
        self.change(bucket, |head| {
            if set & SPILLED != 0 {
                self.set_bit(set, slot, false);
                let mut row = self.row((set & !SPILLED) as usize).into_iter().flatten();
                empty = row.all(|bits| bits.load(Ordering::Relaxed) == 0);
            } else {
                let left = without(set, slot as usize);
                node.set.store(left, Ordering::Relaxed);
                empty = left == 0;
            }
            let next = node.next.load(Ordering::Relaxed);
            match previous {
                _ if !empty => head,
                None => next,
                Some(previous) => {
                    self.nodes[previous as usize].next.store(next, Ordering::Relaxed);
                    head
                }
            }
        });
        if empty {
            room.nodes.push(at);
            if set & SPILLED != 0 {
                room.rows.push((set & !SPILLED) as u32);
            }
        }
    }

    /// Calls `each` with every hash and slot. For the writer only.
    pub(super) fn for_each(&self, mut each: impl FnMut(u64, u32)) {
        let mut words = vec![0; self.row_words];
        for bucket in &self.buckets {
            let mut at = first(bucket.load(Ordering::Relaxed));
            while let Some(node) = self.nodes.get(at as usize) {
                words.fill(0);
                self.read_set(node.set.load(Ordering::Relaxed), &mut words);
                let hash = node.hash.load(Ordering::Relaxed);
                super::mask::for_each_bit(&words, |slot| each(hash, slot as u32));
                at = node.next.load(Ordering::Relaxed);
            }
        }
    }

    /// The node of `hash` and the one before it.
    fn find(&self, bucket: usize, hash: u64) -> Option<(u32, Option<u32>)> {
        let mut previous = None;
        let mut at = first(self.buckets[bucket].load(Ordering::Relaxed));
        while let Some(node) = self.nodes.get(at as usize) {
            if node.hash.load(Ordering::Relaxed) == hash {
                return Some((at, previous));
            }
            previous = Some(at);
            at = node.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Makes a change that readers see whole or not at all. `work` gets the first node and gives the new one.
    fn change(&self, bucket: usize, work: impl FnOnce(u32) -> u32) {
        let word = &self.buckets[bucket];
        let before = word.load(Ordering::Relaxed);
        let busy = version(before).wrapping_add(1);
        word.store(pack(busy, first(before)), Ordering::Relaxed);
        fence(Ordering::Release);
        let head = work(first(before));
        word.store(pack(busy.wrapping_add(1), head), Ordering::Release);
    }

    fn row(&self, row: usize) -> Option<&[AtomicU64]> {
        self.rows.get(row * self.row_words..(row + 1) * self.row_words)
    }

    fn set_bit(&self, set: u64, slot: u32, on: bool) {
        let row = self.row((set & !SPILLED) as usize);
        let Some(bits) = row.and_then(|row| row.get(slot as usize / 64)) else {
            return;
        };
        let (word, bit) = (bits.load(Ordering::Relaxed), 1 << (slot % 64));
        bits.store(if on { word | bit } else { word & !bit }, Ordering::Relaxed);
    }

    fn bucket_of(&self, hash: u64) -> usize {
        // Block hashes of traces are small numbers: multiply, fold, cut (Fibonacci hashing).
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 32)) as usize & (self.buckets.len() - 1)
    }
}

impl Node {
    fn vacant() -> Node {
        Node {
            hash: AtomicU64::new(0),
            set: AtomicU64::new(0),
            next: AtomicU32::new(NIL),
        }
    }
}

fn version(word: u64) -> u32 {
    (word >> 32) as u32
}

fn first(word: u64) -> u32 {
    word as u32
}

fn pack(version: u32, first: u32) -> u64 {
    u64::from(version) << 32 | u64::from(first)
}

/// The slots of a set without a row.
fn inline_slots(set: u64) -> impl Iterator<Item = usize> {
    (0..INLINE)
        .map(move |at| (set >> (at * INLINE_BITS)) as usize & SLOTS_MAX)
        .filter(|&stored| stored != 0)
        .map(|stored| stored - 1)
}

/// A set without a row, less one slot.
fn without(set: u64, slot: usize) -> u64 {
    inline_slots(set)
        .filter(|&held| held != slot)
        .enumerate()
        .fold(0, |left, (at, held)| {
            left | (held as u64 + 1) << (at * INLINE_BITS)
        })
}
