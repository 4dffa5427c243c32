//! Longest common prefixes of one prompt with what each backend holds.
//!
//! Whoever holds a block holds all before it, so the set of holders only shrinks along the prompt. The walk
//! gallops (blocks 0, 1, 3, 7, …) and, where the set has shrunk between two probes, bisects until it knows where
//! each backend dropped out: O(log blocks) look-ups for each place where somebody does.

use super::mask::{for_each_bit, keep};

/// Buffers of a walk, kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Sets of the probes whose interval is open, one after the other.
    sets: Vec<u64>,
}

/// Calls `found` with each slot and the number of leading blocks it holds, for slots that hold any. `read` writes
/// the set of a hash to the words it gets.
pub(super) fn walk(
    blocks: &[u64],
    words: usize,
    scratch: &mut Scratch,
    read: &impl Fn(u64, &mut [u64]),
    found: &mut impl FnMut(usize, usize),
) {
    let Some(&head) = blocks.first() else { return };
    let sets = &mut scratch.sets;
    sets.clear();
    sets.resize(words, 0);
    read(head, sets);
    let mut low = 0;
    let mut stride = 1;
    while low + 1 < blocks.len() {
        let high = (low + stride).min(blocks.len() - 1);
        let any = probe(blocks[high], words, sets, 0, read);
        settle(blocks, words, sets, (0, low), (words, high), read, found);
        if !any {
            return;
        }
        sets.copy_within(words.., 0);
        sets.truncate(words);
        low = high;
        stride *= 2;
    }
    for_each_bit(&sets[..words], |slot| found(slot, blocks.len()));
}

/// Appends the set of `hash`, less whoever isn't in the set at `within`; says whether any is left.
fn probe(
    hash: u64,
    words: usize,
    sets: &mut Vec<u64>,
    within: usize,
    read: &impl Fn(u64, &mut [u64]),
) -> bool {
    let at = sets.len();
    sets.resize(at + words, 0);
    let (before, row) = sets.split_at_mut(at);
    read(hash, row);
    keep(row, &before[within..within + words])
}

/// Reports all who drop out between the probes `low` and `high`, each the place of its set and its block.
fn settle(
    blocks: &[u64],
    words: usize,
    sets: &mut Vec<u64>,
    low: (usize, usize),
    high: (usize, usize),
    read: &impl Fn(u64, &mut [u64]),
    found: &mut impl FnMut(usize, usize),
) {
    let same = (0..words).all(|word| sets[low.0 + word] == sets[high.0 + word]);
    if same {
        return;
    }
    if high.1 - low.1 == 1 {
        for word in 0..words {
            let gone = sets[low.0 + word] & !sets[high.0 + word];
            for_each_bit(&[gone], |bit| found(word * 64 + bit, low.1 + 1));
        }
        return;
    }
    let middle = (sets.len(), low.1 + (high.1 - low.1) / 2);
    probe(blocks[middle.1], words, sets, low.0, read);
    // Seen a moment later than `high`, it may lack who is in there.
    for word in 0..words {
        sets[middle.0 + word] |= sets[high.0 + word];
    }
    settle(blocks, words, sets, low, middle, read, found);
    settle(blocks, words, sets, middle, high, read, found);
    sets.truncate(middle.0);
}
