//! The inside of a string: plain runs found many bytes at a time, escapes decoded.

use super::Sink;

/// Decoded text gathered before the sink hears it, so that text full of escapes isn't one call for each.
const GATHERED_BYTES: usize = 512;
/// A plain run longer than this goes to the sink from where it lies.
const RUN_COPIED_MAX: usize = 96;
/// Short runs are copied by this many bytes, whatever their length: one fixed move costs less than a call.
const MOVE: usize = 32;
/// Bytes that [`plain_run`] looks at together: the compiler makes vector code of it.
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
        while let Some(&byte) = bytes.get(at) {
            match self.place {
                Place::Plain => {
                    let run = plain_run(&bytes[at..]);
                    if run > 0 {
                        self.plain(&bytes[at..], run, sink);
                        at += run;
                        continue;
                    }
                    match byte {
                        b'"' => {
                            self.settle(sink);
                            self.flush(sink);
                            return Met::Quote(at + 1);
                        }
                        b'\\' => at = self.escape(bytes, at, sink),
                        _ => return Met::Fault(at),
                    }
                }
                Place::Escape => {
                    if !self.escaped(byte, sink) {
                        return Met::Fault(at);
                    }
                    at += 1;
                }
                Place::Hex(digits) => {
                    let Some(value) = hex_value(byte) else {
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

    /// The first `run` of `bytes` stand for themselves.
    fn plain<S: Sink>(&mut self, bytes: &[u8], run: usize, sink: &mut S) {
        self.settle(sink);
        if run > RUN_COPIED_MAX {
            self.flush(sink);
            sink.string_text(&bytes[..run]);
            return;
        }
        self.make_room(run.max(MOVE), sink);
        let to = &mut self.gathered[self.gathered_len..];
        match (to.first_chunk_mut::<MOVE>(), bytes.first_chunk::<MOVE>()) {
            (Some(to), Some(from)) if run <= MOVE => *to = *from,
            _ => to[..run].copy_from_slice(&bytes[..run]),
        }
        self.gathered_len += run;
    }

    /// At a backslash: takes the whole escape where the input holds it, else only the backslash.
    fn escape<S: Sink>(&mut self, bytes: &[u8], at: usize, sink: &mut S) -> usize {
        if let Some([b'u', digits @ ..]) = bytes.get(at + 1..at + 6)
            && let Some(unit) = digits
                .iter()
                .try_fold(0, |unit, &digit| Some(unit << 4 | hex_value(digit)?))
        {
            self.unit(unit, sink);
            return at + 6;
        }
        if let Some(&byte) = bytes.get(at + 1)
            && let Some(decoded) = simple_escape(byte)
        {
            self.settle(sink);
            self.push_byte(decoded, sink);
            return at + 2;
        }
        // Anything else, the faulty included, goes byte by byte.
        self.place = Place::Escape;
        at + 1
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

/// How many bytes at the front of `bytes` stand for themselves.
///
/// memchr looks for the quote and the backslash only; control characters have to be refused too, so one pass of
/// our own is cheaper than two. Runs between escapes are short, so two words come first, then whole lanes.
fn plain_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk::<WORD>() {
        if let Some(found) = special_in_word(*word) {
            return at + found;
        }
        at += WORD;
        if at == 2 * WORD {
            at += plain_lanes(&bytes[at..]);
        }
    }
    let rest = &bytes[at..];
    at + rest.iter().position(|&byte| special(byte)).unwrap_or(rest.len())
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

/// The first special byte of a word.
///
/// The borrows of these subtractions only go upwards, so the lowest flag is always right.
fn special_in_word(word: [u8; WORD]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let word = u64::from_le_bytes(word);
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero(word ^ ONES * u64::from(b'"'));
    let backslash = zero(word ^ ONES * u64::from(b'\\'));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let flags = (quote | backslash | control) & HIGH;
    (flags != 0).then(|| flags.trailing_zeros() as usize / 8)
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
    let value = match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => return None,
    };
    Some(u16::from(value))
}
