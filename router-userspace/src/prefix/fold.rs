//! From chains to the key.

use super::chain::{Chain, Point};
use super::fields::{SLOTS, Seed, Slot};
use super::hash::{SEED, mix};
use super::key::{AFFINITY_BYTES, BLOCKS_MAX, PromptKey};
use super::walk::Walk;

/// The key of what `walk` has seen.
pub(super) fn key(walk: &Walk, block_bytes: usize) -> PromptKey {
    let mut blocks = Vec::new();
    let mut starts = [0; SLOTS];
    let mut chain_hash = seed(walk);
    let mut system_end = None;
    for (slot, chain) in walk.chains.iter().enumerate() {
        if slot == Slot::Media as usize
            && let Some(previous) = walk.seeds[Seed::PreviousResponse as usize]
        {
            chain_hash = mix(chain_hash, previous);
        }
        starts[slot] = chain_hash;
        if chain.is_empty() {
            continue;
        }
        for &block in chain.blocks() {
            chain_hash = mix(chain_hash, block);
            if blocks.len() < BLOCKS_MAX {
                blocks.push(chain_hash);
            }
        }
        // The border, so that text can't move from one part to the next unseen.
        chain_hash = mix(mix(chain_hash, chain.point().tail), slot as u64);
        if slot == Slot::System as usize && chain.text_bytes() > 0 {
            system_end = Some(chain_hash);
        }
    }
    let body = &walk.chains[Slot::Body as usize];
    let leading_system = walk
        .system_end
        .map(|point| hash_at(starts[Slot::Body as usize], body, point));
    PromptKey {
        affinity: leading_system
            .or(system_end)
            .or_else(|| front(walk, &starts, block_bytes)),
        blocks,
        text_bytes: walk.chains.iter().map(Chain::text_bytes).sum(),
        other_bytes: walk.chains.iter().map(Chain::other_bytes).sum(),
        model: walk.model.clone(),
        stream: walk.stream,
        output_tokens_max: walk.output_tokens_max,
    }
}

/// What separates caches from the first block on.
fn seed(walk: &Walk) -> u64 {
    let mixed = &walk.seeds[..Seed::PreviousResponse as usize];
    mixed
        .iter()
        .enumerate()
        .filter_map(|(field, value)| Some((field, (*value)?)))
        .fold(SEED, |chain, (field, value)| mix(mix(chain, field as u64), value))
}

fn hash_at(start: u64, chain: &Chain, point: Point) -> u64 {
    let blocks = &chain.blocks()[..point.blocks];
    mix(blocks.iter().copied().fold(start, mix), point.tail)
}

/// The affinity key without system text: after the first bytes, or the first message where that ends before.
fn front(walk: &Walk, starts: &[u64; SLOTS], block_bytes: usize) -> Option<u64> {
    let slot = [Slot::Body, Slot::Ids, Slot::Media, Slot::Tools]
        .into_iter()
        .map(|slot| slot as usize)
        .find(|&slot| !walk.chains[slot].is_empty())?;
    let chain = &walk.chains[slot];
    let end = walk
        .first_end
        .filter(|_| slot == Slot::Body as usize)
        .unwrap_or_else(|| chain.point());
    let first = AFFINITY_BYTES.div_ceil(block_bytes);
    if end.blocks < first {
        Some(hash_at(starts[slot], chain, end))
    } else {
        Some(chain.blocks()[..first].iter().copied().fold(starts[slot], mix))
    }
}
