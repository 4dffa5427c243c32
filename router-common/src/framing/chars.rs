//! Character classes as bit tests: no table in memory, since a BPF program would need a map for it.

/// Bits of the token characters 0x00–0x3f: `!#$%&'*+-.` and digits.
const TOKEN_LOW: u64 = 0x03ff_6cfa_0000_0000;
/// Bits of the token characters 0x40–0x7f: letters and `^_`` `|~`.
const TOKEN_HIGH: u64 = 0x57ff_ffff_c7ff_fffe;

/// Whether a byte may stand in a field name (RFC 9110, 5.6.2).
#[inline(always)]
pub(super) fn is_token(byte: u8) -> bool {
    let bits = if byte < 0x40 { TOKEN_LOW } else { TOKEN_HIGH };
    byte < 0x80 && (bits >> (byte & 0x3f)) & 1 == 1
}

/// Whether a byte may stand in a field value or an extension: anything but control characters; HTAB is allowed.
#[inline(always)]
pub(super) fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

/// The value of a hexadecimal digit; 16 and more for anything else.
#[inline(always)]
pub(super) fn hex(byte: u8) -> u32 {
    let digit = u32::from(byte).wrapping_sub(u32::from(b'0'));
    if digit < 10 {
        return digit;
    }
    let letter = u32::from(byte | 0x20).wrapping_sub(u32::from(b'a'));
    if letter < 6 { letter + 10 } else { 16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bits_equal_the_list_of_the_standard() {
        for byte in 0..=255u8 {
            let expected = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            assert_eq!(is_token(byte), expected, "byte {byte:#x}");
        }
    }

    #[test]
    fn hex_equals_the_standard_library() {
        for byte in 0..=255u8 {
            let expected = char::from(byte).to_digit(16);
            assert_eq!(Some(hex(byte)).filter(|d| *d < 16), expected, "byte {byte:#x}");
        }
    }
}
