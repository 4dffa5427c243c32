//! Seeded bytes and numbers.

/// A small generator (SplitMix64): one seed, one sequence, on every host.
///
/// # Source
/// Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `max` inclusive.
    pub fn up_to(&mut self, max: usize) -> usize {
        // The remainder's bias is far below what a test could see.
        (self.next_u64() % (max as u64 + 1)) as usize
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        out.truncate(len);
        out
    }

    /// `bytes` cut into parts of 1 to `part_max` bytes.
    pub fn split<'a>(&mut self, bytes: &'a [u8], part_max: usize) -> Vec<&'a [u8]> {
        let mut parts = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (part, after) = rest.split_at((1 + self.up_to(part_max - 1)).min(rest.len()));
            parts.push(part);
            rest = after;
        }
        parts
    }
}
