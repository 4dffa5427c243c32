//! The inside of a string: plain runs found many bytes at a time, escapes decoded.

use super::Sink;

/// Decoded text gathered before the sink hears it, so that text full of escapes isn't one call for each.
const GATHERED_BYTES: usize = 1024;
/// A plain run longer than this goes to the sink from where it lies.
const RUN_COPIED_MAX: usize = 256;
/// Bytes that [`plain_lanes`] looks at together: the compiler makes vector code of it.
const LANE: usize = 32;
/// Bytes of a machine word.
const WORD: usize = size_of::<u64>();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Plain,
    /// Behind a backslash.
    Escape,
    /// Behind `\u` and this many hex digits.
    Hex(u8),
}

/// What [`Text::read`] met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// The end of the input.
    EndOfInput,
    /// The closing quote; reading goes on at this index.
    Quote(usize),
    /// A byte that no string may hold there.
    Fault(usize),
}

/// One string's state between reads.
#[derive(Debug)]
pub(super) struct Text {
    place: Place,
    hex: u16,
    /// A leading surrogate that waits for its partner.
    leading: Option<u16>,
    gathered: [u8; GATHERED_BYTES],
    gathered_len: usize,
}

impl Default for Text {
    fn default() -> Text {
        Text {
            place: Place::Plain,
            hex: 0,
            leading: None,
            gathered: [0; GATHERED_BYTES],
            gathered_len: 0,
        }
    }
}

impl Text {
    /// Reads from `bytes[at..]` up to the closing quote or the end of the input.
    pub(super) fn read<S: Sink>(&mut self, bytes: &[u8], mut at: usize, sink: &mut S) -> Met {
        while at < bytes.len() {
            match self.place {
                Place::Plain => {
                    at = self.plain(bytes, at, sink);
                    match bytes.get(at) {
                        None => break,
                        Some(b'"') => {
                            self.settle(sink);
                            self.flush(sink);
                            return Met::Quote(at + 1);
                        }
                        Some(b'\\') => at = self.escape(bytes, at, sink),
                        Some(_) => return Met::Fault(at),
                    }
                }
                Place::Escape => {
                    if !self.escaped(bytes[at], sink) {
                        return Met::Fault(at);
                    }
                    at += 1;
                }
                Place::Hex(digits) => {
                    let Some(value) = hex_value(bytes[at]) else {
                        return Met::Fault(at);
                    };
                    self.hex = self.hex << 4 | value;
                    at += 1;
                    if digits == 3 {
                        self.place = Place::Plain;
                        self.unit(self.hex, sink);
                    } else {
                        self.place = Place::Hex(digits + 1);
                    }
                }
            }
        }
        self.flush(sink);
        Met::EndOfInput
    }

    /// Takes what stands for itself, up to something special or the end of the input.
    ///
    /// Runs between escapes are short: they are copied by whole words as they are searched. Behind two plain
    /// words a run is taken for a long one and searched by lanes.
    fn plain<S: Sink>(&mut self, bytes: &[u8], mut at: usize, sink: &mut S) -> usize {
        let mut plain_words = 0;
        while let Some(word) = bytes[at..].first_chunk::<WORD>() {
            let run = plain_in_word(*word);
            if run == 0 {
                return at;
            }
            self.settle(sink);
            self.make_room(WORD, sink);
            self.gathered[self.gathered_len..self.gathered_len + WORD].copy_from_slice(word);
            self.gathered_len += run;
            at += run;
            if run < WORD {
                return at;
            }
            plain_words += 1;
            if plain_words == 2 {
                plain_words = 0;
                let lanes = plain_lanes(&bytes[at..]);
                self.plain_run(&bytes[at..at + lanes], sink);
                at += lanes;
            }
        }
        let rest = &bytes[at..];
        let run = rest.iter().position(|&byte| special(byte)).unwrap_or(rest.len());
        self.plain_run(&rest[..run], sink);
        at + run
    }

    fn plain_run<S: Sink>(&mut self, run: &[u8], sink: &mut S) {
        if run.is_empty() {
            return;
        }
        self.settle(sink);
        if run.len() > RUN_COPIED_MAX {
            self.flush(sink);
            sink.string_text(run);
        } else {
            self.make_room(run.len(), sink);
            self.gathered[self.gathered_len..self.gathered_len + run.len()].copy_from_slice(run);
            self.gathered_len += run.len();
        }
    }

    /// At a backslash: takes the whole escape, and those right behind it, where the input holds them; else only
    /// the backslash.
    fn escape<S: Sink>(&mut self, bytes: &[u8], mut at: usize, sink: &mut S) -> usize {
        while let Some([b'\\', b'u', digits @ ..]) = bytes.get(at..at + 6)
            && let Some(unit) = hex_unit(digits)
        {
            self.unit(unit, sink);
            at += 6;
        }
        match bytes.get(at..at + 2) {
            Some(&[b'\\', byte]) if let Some(decoded) = simple_escape(byte) => {
                self.settle(sink);
                self.push_byte(decoded, sink);
                at + 2
            }
            // Anything else that begins like an escape, the faulty included, goes byte by byte.
            _ if bytes.get(at) == Some(&b'\\') => {
                self.place = Place::Escape;
                at + 1
            }
            _ => at,
        }
    }

    /// The byte behind a backslash; false where it's none of the grammar's.
    fn escaped<S: Sink>(&mut self, byte: u8, sink: &mut S) -> bool {
        if byte == b'u' {
            self.hex = 0;
            self.place = Place::Hex(0);
            return true;
        }
        let Some(decoded) = simple_escape(byte) else {
            return false;
        };
        self.place = Place::Plain;
        self.settle(sink);
        self.push_byte(decoded, sink);
        true
    }

    /// A UTF-16 code unit from `\uXXXX`.
    fn unit<S: Sink>(&mut self, unit: u16, sink: &mut S) {
        match (self.leading, unit) {
            (Some(leading), 0xdc00..=0xdfff) => {
                self.leading = None;
                let high = u32::from(leading & 0x3ff) << 10;
                self.code_point(0x1_0000 + (high | u32::from(unit & 0x3ff)), sink);
            }
            (_, 0xd800..=0xdbff) => {
                self.settle(sink);
                self.leading = Some(unit);
            }
            _ => {
                self.settle(sink);
                self.code_point(u32::from(unit), sink);
            }
        }
    }

    /// A leading surrogate whose partner didn't come passes alone.
    fn settle<S: Sink>(&mut self, sink: &mut S) {
        if let Some(leading) = self.leading.take() {
            self.code_point(u32::from(leading), sink);
        }
    }

    /// UTF-8 by hand, since `char` knows no lone surrogates.
    fn code_point<S: Sink>(&mut self, code: u32, sink: &mut S) {
        let tail = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
        let (bytes, len) = match code {
            0..=0x7f => ([code as u8, 0, 0, 0], 1),
            0x80..=0x7ff => ([0xc0 | (code >> 6) as u8, tail(0), 0, 0], 2),
            0x800..=0xffff => ([0xe0 | (code >> 12) as u8, tail(6), tail(0), 0], 3),
            _ => ([0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)], 4),
        };
        self.make_room(bytes.len(), sink);
        self.gathered[self.gathered_len..self.gathered_len + bytes.len()].copy_from_slice(&bytes);
        self.gathered_len += len;
    }

    fn push_byte<S: Sink>(&mut self, byte: u8, sink: &mut S) {
        self.make_room(1, sink);
        self.gathered[self.gathered_len] = byte;
        self.gathered_len += 1;
    }

    fn make_room<S: Sink>(&mut self, bytes: usize, sink: &mut S) {
        if self.gathered_len + bytes > GATHERED_BYTES {
            self.flush(sink);
        }
    }

    fn flush<S: Sink>(&mut self, sink: &mut S) {
        if self.gathered_len > 0 {
            sink.string_text(&self.gathered[..self.gathered_len]);
            self.gathered_len = 0;
        }
    }
}

/// Whether a string can't hold `byte` as it is: quote, backslash, control characters.
///
/// No short cuts between the comparisons: they would keep a lane's from becoming vector code.
fn special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// Bytes of the whole lanes at the front that hold nothing special.
fn plain_lanes(bytes: &[u8]) -> usize {
    let (lanes, _) = bytes.as_chunks::<LANE>();
    let plain = lanes
        .iter()
        .take_while(|lane| !lane.iter().fold(false, |any, &byte| any | special(byte)))
        .count();
    plain * LANE
}

/// How many bytes at the front of a word stand for themselves.
///
/// The borrows of these subtractions only go upwards, so the lowest flag is always right.
fn plain_in_word(word: [u8; WORD]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    const QUOTES: u64 = ONES * b'"' as u64;
    const BACKSLASHES: u64 = ONES * b'\\' as u64;
    const SPACES: u64 = ONES * 0x20;
    let word = u64::from_le_bytes(word);
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(SPACES) & !word;
    let flags = (zero(word ^ QUOTES) | zero(word ^ BACKSLASHES) | control) & HIGH;
    // 64 zeros without a flag: the whole word.
    flags.trailing_zeros() as usize / 8
}

/// What a backslash and `byte` stand for, `\u` apart.
fn simple_escape(byte: u8) -> Option<u8> {
    match byte {
        b'"' | b'\\' | b'/' => Some(byte),
        b'b' => Some(0x08),
        b'f' => Some(0x0c),
        b'n' => Some(b'\n'),
        b'r' => Some(b'\r'),
        b't' => Some(b'\t'),
        _ => None,
    }
}

fn hex_value(digit: u8) -> Option<u16> {
    match HEX[usize::from(digit)] {
        NO_HEX => None,
        value => Some(value),
    }
}

/// The code unit that four hex digits spell.
fn hex_unit(digits: &[u8]) -> Option<u16> {
    let values = digits.iter().map(|digit| HEX[usize::from(*digit)]);
    let (unit, all) = values.fold((0u16, 0), |(unit, all), value| {
        (unit << 4 | value & 0xf, all | value)
    });
    (all != NO_HEX).then_some(unit)
}

/// All bits, so that one such digit shows in the union of several.
const NO_HEX: u16 = u16::MAX;

const HEX: [u16; 256] = {
    let mut table = [NO_HEX; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u16;
        table[b"0123456789ABCDEF"[value] as usize] = value as u16;
        value += 1;
    }
    table
};
