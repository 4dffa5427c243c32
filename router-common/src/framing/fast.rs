//! The commonest case in a straight line: an event stream arrives as one whole chunk a segment.

use super::Framing;
use super::chars::hex;

/// Hexadecimal digits that the straight line reads: chunks below 16 MiB.
const DIGITS_MAX: u32 = 6;

/// Whether a run of `length` bytes is exactly one chunk: size line without extension, data, CR LF.
///
/// `head` holds its first 8 bytes (whatever lies behind them where it is shorter), `tail` its last 2. The last
/// chunk (size 0) doesn't count as one, since it ends the message. `false` means "not in the simple way", never
/// "malformed". No loop and no memory access: the BPF verifier walks few paths.
#[must_use]
#[inline(always)]
pub fn is_one_chunk(head: [u8; 8], tail: [u8; 2], length: u64) -> bool {
    let mut size = 0u64;
    let mut digits = 0u32;
    let mut open = true;
    // Unrolled by the compiler; `open` turns false at the first byte that is no digit.
    let mut index = 0;
    while index < DIGITS_MAX as usize {
        let digit = hex(head[index]);
        open &= digit < 16;
        if open {
            size = (size << 4) | u64::from(digit);
            digits += 1;
        }
        index += 1;
    }
    // The two bytes behind the digits, without indexing by a value that the verifier would have to bound.
    let word = u64::from_le_bytes(head) >> (8 * digits);
    let line_ends = word & 0xffff == u64::from(u16::from_le_bytes(*b"\r\n"));
    size > 0 && line_ends && tail == *b"\r\n" && length == u64::from(digits) + 2 + size + 2
}

impl Framing {
    /// Counts one whole chunk at once; the caller has tested [`Framing::is_at_chunk_start`] and [`is_one_chunk`].
    #[inline(always)]
    pub fn skip_one_chunk(&mut self) {
        self.chunks += 1;
    }
}
