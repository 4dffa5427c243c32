//! Sets of small numbers as words of bits.

/// Calls `each` with every member, in order.
pub(super) fn for_each_bit(words: &[u64], mut each: impl FnMut(usize)) {
    for (at, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            each(at * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// `words &= other`; says whether any member is left.
pub(super) fn keep(words: &mut [u64], other: &[u64]) -> bool {
    let mut any = 0;
    for (word, other) in words.iter_mut().zip(other) {
        *word &= other;
        any |= *word;
    }
    any != 0
}
