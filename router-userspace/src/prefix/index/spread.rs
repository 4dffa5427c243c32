//! Hashing of block hashes, which are hashes already or, in traces, small numbers.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds a hasher that spreads block hashes over a map.
pub(super) type Spread = BuildHasherDefault<SpreadHasher>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpreadHasher(u64);

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
