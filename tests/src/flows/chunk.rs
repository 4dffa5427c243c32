//! A chunk's bytes, and finding its time in what arrives.

use memchr::memmem;

use super::spec::Ending;

/// Stands before a chunk's time.
const MARK: &[u8] = b"{\"t\":\"";
/// Digits of a time: nanoseconds of CLOCK_MONOTONIC in hexadecimal.
const DIGITS: usize = 16;

/// Nanoseconds of CLOCK_MONOTONIC, the same clock in all processes of a host.
pub(super) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// One server-sent event whose payload is `bytes` long, framed as `ending` says, with room for its time.
#[derive(Clone, Debug)]
pub(super) struct Template {
    bytes: Vec<u8>,
    time_at: usize,
}

impl Template {
    pub(super) fn new(payload: usize, ending: Ending) -> Template {
        let mut bytes = match ending {
            Ending::Chunked => format!("{payload:x}\r\n").into_bytes(),
            Ending::Close => Vec::new(),
        };
        let begin = bytes.len();
        bytes.extend_from_slice(b"data: ");
        bytes.extend_from_slice(MARK);
        let time_at = bytes.len();
        bytes.extend_from_slice(&[b'0'; DIGITS]);
        bytes.extend_from_slice(b"\",\"text\":\"");
        let end = b"\"}\n\n";
        while bytes.len() - begin + end.len() < payload {
            bytes.push(b'a');
        }
        bytes.extend_from_slice(end);
        if ending == Ending::Chunked {
            bytes.extend_from_slice(b"\r\n");
        }
        Template { bytes, time_at }
    }

    /// The chunk, sent at `time`.
    pub(super) fn at(&mut self, time: u64) -> &[u8] {
        for (place, digit) in self.bytes[self.time_at..self.time_at + DIGITS]
            .iter_mut()
            .enumerate()
        {
            let nibble = (time >> (4 * (DIGITS - 1 - place))) & 15;
            *digit = b"0123456789abcdef"[nibble as usize];
        }
        &self.bytes
    }

    /// Bytes of the chunk, its framing included.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Finds times in a stream, wherever its reads cut it.
#[derive(Debug)]
pub(super) struct Times {
    finder: memmem::Finder<'static>,
}

impl Times {
    pub(super) fn new() -> Times {
        Times {
            finder: memmem::Finder::new(MARK),
        }
    }

    /// Bytes of the end of one read that belong in front of the next.
    pub(super) const CARRY_MAX: usize = MARK.len() + DIGITS - 1;

    /// Calls `each` with every whole time in `bytes`; gives where the carry into the next read begins.
    pub(super) fn find(&self, bytes: &[u8], mut each: impl FnMut(u64)) -> usize {
        let mut at = 0;
        while let Some(found) = self.finder.find(&bytes[at..]) {
            let time = at + found + MARK.len();
            let Some(digits) = bytes.get(time..time + DIGITS) else {
                return at + found;
            };
            at = time + DIGITS;
            if let Some(time) = hexadecimal(digits) {
                each(time);
            }
        }
        at.max(bytes.len().saturating_sub(MARK.len() - 1))
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value: u64, digit| {
        let nibble = char::from(*digit).to_digit(16)?;
        Some(value << 4 | u64::from(nibble))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_found_once_however_the_stream_is_cut() {
        for ending in [Ending::Chunked, Ending::Close] {
            let mut template = Template::new(64, ending);
            let sent: Vec<u64> = (1..6).map(|n| n * 0x0123_4567_89ab).collect();
            let stream: Vec<u8> = sent.iter().flat_map(|time| template.at(*time).to_vec()).collect();
            assert_eq!(stream.len(), sent.len() * template.len());
            for size in 1..stream.len() {
                let (times, mut found, mut carry) = (Times::new(), Vec::new(), Vec::new());
                for part in stream.chunks(size) {
                    carry.extend_from_slice(part);
                    let rest = times.find(&carry, |time| found.push(time));
                    carry.drain(..rest);
                    assert!(carry.len() <= Times::CARRY_MAX);
                }
                assert_eq!(found, sent, "cut every {size} bytes");
            }
        }
    }
}
