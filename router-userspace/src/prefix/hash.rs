//! The hashes. They must be the same on every node and in every build: change one and all affinities move.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Where every chain begins.
pub(super) const SEED: u64 = 0x7761_726d_7061_7468;
/// A [`Digest`] folds after this many bytes.
pub(super) const DIGEST_CHUNK_BYTES: usize = 256;

/// Hash of one piece. Without a seed, since XXH3 makes a new secret from a seed for every long piece; the
/// chains are seeded.
pub(super) fn piece(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// One step of a chain: a hash that covers all that `chain` covers, then `next`.
pub(super) fn mix(chain: u64, next: u64) -> u64 {
    xxh3_64_with_seed(&next.to_le_bytes(), chain)
}

/// Hands on bytes in chunks of one size; what doesn't fill a chunk waits. Large input is used where it lies.
#[derive(Debug)]
pub(super) struct Chunks {
    rest: Vec<u8>,
    size: usize,
}

impl Chunks {
    pub(super) fn new(size: usize) -> Chunks {
        Chunks {
            rest: Vec::new(),
            size,
        }
    }

    /// Takes `bytes`; `each` gets every chunk as soon as it's full.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        if !self.rest.is_empty() {
            let (head, tail) = bytes.split_at(bytes.len().min(self.size - self.rest.len()));
            self.rest.extend_from_slice(head);
            bytes = tail;
            if self.rest.len() < self.size {
                return;
            }
            each(&self.rest);
            self.rest.clear();
        }
        let mut chunks = bytes.chunks_exact(self.size);
        chunks.by_ref().for_each(&mut each);
        if !chunks.remainder().is_empty() {
            self.rest.reserve(self.size);
            self.rest.extend_from_slice(chunks.remainder());
        }
    }

    /// What waits for the next chunk.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }

    pub(super) fn clear(&mut self) {
        self.rest.clear();
    }
}

/// Hash of one value that comes in pieces.
#[derive(Debug)]
pub(super) struct Digest {
    chunks: Chunks,
    chain: u64,
    bytes: u64,
}

impl Digest {
    pub(super) fn new() -> Digest {
        Digest {
            chunks: Chunks::new(DIGEST_CHUNK_BYTES),
            chain: SEED,
            bytes: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        self.chunks.clear();
        self.chain = SEED;
        self.bytes = 0;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let chain = &mut self.chain;
        self.chunks
            .push(bytes, |chunk| *chain = mix(*chain, piece(chunk)));
    }

    pub(super) fn value(&self) -> u64 {
        mix(self.chain, piece(self.chunks.rest()))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The whole value, where it's shorter than a chunk.
    pub(super) fn short(&self) -> Option<&[u8]> {
        (self.bytes < DIGEST_CHUNK_BYTES as u64).then(|| self.chunks.rest())
    }
}
