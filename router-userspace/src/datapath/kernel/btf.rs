//! Where a member lies in one of the running kernel's structures, from the kernel's own type data.
//!
//! # Source
//! Documentation/bpf/btf.rst of the kernel.

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;

/// The offset in bytes of `member` in `structure`; `None` = no such thing, a bit field, or data this can't read.
pub(super) fn member_offset(btf: &[u8], structure: &str, member: &str) -> Option<u64> {
    let magic = u16::from_le_bytes(btf.get(..2)?.try_into().ok()?);
    if magic != MAGIC {
        return None;
    }
    let header = word(btf, 4)?;
    let types = section(btf, header, word(btf, 8)?, word(btf, 12)?)?;
    let strings = section(btf, header, word(btf, 16)?, word(btf, 20)?)?;
    let mut at = 0;
    while at < types.len() {
        let (name, info) = (word(types, at)?, word(types, at + 4)?);
        let (kind, count) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        if kind == KIND_STRUCT && text(strings, name)? == structure.as_bytes() {
            return offset_in(types, at + 12, count, info >> 31 == 1, strings, member);
        }
        at += 12 + tail_bytes(kind, count)?;
    }
    None
}

fn offset_in(
    types: &[u8],
    at: usize,
    count: usize,
    has_sizes: bool,
    strings: &[u8],
    member: &str,
) -> Option<u64> {
    for index in 0..count {
        let entry = at + index * 12;
        if text(strings, word(types, entry)?)? != member.as_bytes() {
            continue;
        }
        let offset = word(types, entry + 8)?;
        // With sizes the upper byte is the width of a bit field, 0 for an ordinary member.
        let (bits, width) = if has_sizes {
            (offset & 0x00ff_ffff, offset >> 24)
        } else {
            (offset, 0)
        };
        return (width == 0 && bits % 8 == 0).then_some(u64::from(bits / 8));
    }
    None
}

/// Bytes behind the common part of a type of this kind.
fn tail_bytes(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // int, var, declaration tag
        1 | 14 | 17 => 4,
        // array
        3 => 12,
        // struct, union, data section, 64-bit enum
        4 | 5 | 15 | 19 => count * 12,
        // enum, function prototype
        6 | 13 => count * 8,
        // pointer, forward, typedef, qualifiers, function, float, type tag
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn section(btf: &[u8], header: u32, offset: u32, length: u32) -> Option<&[u8]> {
    let start = header as usize + offset as usize;
    btf.get(start..start + length as usize)
}

fn text(strings: &[u8], at: u32) -> Option<&[u8]> {
    let rest = strings.get(at as usize..)?;
    let end = memchr::memchr(0, rest)?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An integer of 8 bytes and `struct pair { long first; long second; }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0long\0pair\0first\0second\0";
        let types: Vec<u32> = vec![
            1,
            1 << 24,
            8,
            64, // long
            6,
            (4 << 24) | 2,
            16, // struct pair
            11,
            1,
            0, // first
            17,
            1,
            64, // second
        ];
        let types: Vec<u8> = types.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut btf = vec![0x9f, 0xeb, 1, 0];
        let lengths = [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            strings.len() as u32,
        ];
        btf.extend(lengths.iter().flat_map(|value| value.to_le_bytes()));
        btf.extend(types);
        btf.extend(strings);
        btf
    }

    #[test]
    fn members_are_found_at_their_offsets() {
        let btf = sample();
        assert_eq!(member_offset(&btf, "pair", "first"), Some(0));
        assert_eq!(member_offset(&btf, "pair", "second"), Some(8));
        assert_eq!(member_offset(&btf, "pair", "third"), None);
        assert_eq!(member_offset(&btf, "long", "first"), None);
    }

    #[test]
    fn data_cut_anywhere_is_refused_without_a_panic() {
        let btf = sample();
        for end in 0..btf.len() {
            assert_eq!(member_offset(&btf[..end], "pair", "second"), None, "cut at {end}");
        }
    }
}
