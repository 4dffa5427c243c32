//! One part of a prompt as blocks of text.
//!
//! The text is cut into blocks and each is hashed by itself; what isn't text (a role, the border between two
//! parts, a call id) is a *mark* at its place. A mark is a hash that is added to the hash of the block its place
//! lies in, so a role that comes behind its message's content ends up where it would have been before it. The
//! chaining over the blocks is left to the end, when all marks are in.

use super::hash::{Chunks, mix, piece};
use super::key::BLOCKS_MAX;

/// A place in a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Anchor {
    block: usize,
    offset: usize,
    /// Tells things apart that share a place.
    ordinal: u64,
}

/// A moment of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Full blocks before it.
    pub(super) blocks: usize,
    /// Hash of the text and marks behind them.
    pub(super) tail: u64,
}

/// One part's blocks.
#[derive(Debug)]
pub(super) struct Chain {
    chunks: Chunks,
    blocks: Vec<u64>,
    /// Blocks beyond [`BLOCKS_MAX`], folded.
    beyond: u64,
    /// Number of full blocks, those beyond included.
    full: usize,
    /// Marks of the block that isn't full yet.
    marks: u64,
    labels: u64,
    touched: bool,
    text_bytes: u64,
    other_bytes: u64,
}

impl Chain {
    pub(super) fn new(block_bytes: usize) -> Chain {
        Chain {
            chunks: Chunks::new(block_bytes),
            blocks: Vec::new(),
            beyond: 0,
            full: 0,
            marks: 0,
            labels: 0,
            touched: false,
            text_bytes: 0,
            other_bytes: 0,
        }
    }

    /// Forgets everything: the part's field has come again.
    pub(super) fn reset(&mut self) {
        self.chunks.clear();
        self.blocks.clear();
        (self.beyond, self.full, self.marks, self.labels) = (0, 0, 0, 0);
        (self.text_bytes, self.other_bytes) = (0, 0);
        self.touched = false;
    }

    /// Adds text.
    pub(super) fn text(&mut self, bytes: &[u8]) {
        self.other_bytes += other_bytes(bytes);
        self.raw(bytes);
    }

    /// Adds bytes that have no script: structure, token ids.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.touched |= !bytes.is_empty();
        self.text_bytes += bytes.len() as u64;
        let Chain {
            chunks,
            blocks,
            beyond,
            full,
            marks,
            ..
        } = self;
        chunks.push(bytes, |block| {
            let marks = std::mem::take(marks);
            if blocks.len() < BLOCKS_MAX {
                blocks.push(piece(block).wrapping_add(marks));
            } else {
                // A sum, so that a late mark can still be added.
                let place = mix(*full as u64, piece(block));
                *beyond = beyond.wrapping_add(place).wrapping_add(marks);
            }
            *full += 1;
        });
    }

    /// The present place, for marks whose order of arrival doesn't matter.
    pub(super) fn anchor(&self, ordinal: u64) -> Anchor {
        Anchor {
            block: self.full,
            offset: self.chunks.rest().len(),
            ordinal,
        }
    }

    /// Adds a mark at `anchor`.
    pub(super) fn mark(&mut self, anchor: Anchor, label: u64, value: u64) {
        self.touched = true;
        let hash = mark_hash(label, anchor.ordinal, anchor.offset as u64, value);
        if anchor.block == self.full {
            self.marks = self.marks.wrapping_add(hash);
        } else if let Some(block) = self.blocks.get_mut(anchor.block) {
            *block = block.wrapping_add(hash);
        } else {
            self.beyond = self.beyond.wrapping_add(hash);
        }
    }

    /// Adds a mark here, whose order among such marks matters.
    pub(super) fn label(&mut self, label: u64) {
        let anchor = self.anchor(self.labels);
        self.labels += 1;
        self.mark(anchor, label, 0);
    }

    /// Changes whenever text or a label is added.
    pub(super) fn tick(&self) -> u64 {
        self.text_bytes + self.labels
    }

    /// Whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        !self.touched
    }

    /// The present moment.
    pub(super) fn point(&self) -> Point {
        let tail = piece(self.chunks.rest()).wrapping_add(self.marks);
        Point {
            blocks: self.blocks.len(),
            tail: if self.full > BLOCKS_MAX {
                mix(tail, self.beyond)
            } else {
                tail
            },
        }
    }

    /// Hash of each full block by itself.
    pub(super) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    pub(super) fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    pub(super) fn other_bytes(&self) -> u64 {
        self.other_bytes
    }
}

/// Hash of a mark.
pub(super) fn mark_hash(label: u64, ordinal: u64, offset: u64, value: u64) -> u64 {
    let mut bytes = [0; 32];
    for (to, from) in bytes.chunks_exact_mut(8).zip([label, ordinal, offset, value]) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    piece(&bytes)
}

/// Bytes that aren't ASCII.
fn other_bytes(bytes: &[u8]) -> u64 {
    if bytes.is_ascii() {
        return 0;
    }
    // As many at a time as a byte can count: the compiler makes vector code of that.
    bytes
        .chunks(usize::from(u8::MAX))
        .map(|chunk| u64::from(chunk.iter().map(|byte| byte >> 7).sum::<u8>()))
        .sum()
}
