//! Chunked bodies, as the client reads them.

use memchr::memchr;

use super::client::Failure;

/// Bytes of a size line or a trailer field.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChunkState {
    /// A chunk's size.
    #[default]
    Size,
    /// So many bytes of data.
    Data(u64),
    /// The line end behind the data.
    DataEnd,
    /// A trailer field, or the empty line that ends all.
    Trailer,
    /// Nothing.
    End,
}

/// Takes the chunks' frames off.
#[derive(Debug, Default)]
pub(super) struct ChunkDecoder {
    /// Where it stands.
    pub(super) state: ChunkState,
}

impl ChunkDecoder {
    /// Hands on the data in `bytes` and says how many bytes are done with; the others are an incomplete line.
    pub(super) fn decode(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<usize, Failure> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.state {
                ChunkState::Data(length) => {
                    let take = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
                    body(&rest[..take]);
                    at += take;
                    let left = length - take as u64;
                    self.state = if left == 0 {
                        ChunkState::DataEnd
                    } else {
                        ChunkState::Data(left)
                    };
                }
                ChunkState::End => break,
                line_state => {
                    let Some(end) = memchr(b'\n', rest) else {
                        if rest.len() > LINE_BYTES_MAX {
                            return Err(Failure::Malformed);
                        }
                        break;
                    };
                    self.state = after_line(line_state, rest[..end].trim_ascii())?;
                    at += end + 1;
                }
            }
        }
        Ok(at)
    }
}

fn after_line(state: ChunkState, line: &[u8]) -> Result<ChunkState, Failure> {
    match state {
        ChunkState::Size => {
            let digits = line
                .split(|&byte| byte == b';')
                .next()
                .unwrap_or_default()
                .trim_ascii();
            let text = std::str::from_utf8(digits).map_err(|_| Failure::Malformed)?;
            match u64::from_str_radix(text, 16).map_err(|_| Failure::Malformed)? {
                0 => Ok(ChunkState::Trailer),
                length => Ok(ChunkState::Data(length)),
            }
        }
        ChunkState::DataEnd if line.is_empty() => Ok(ChunkState::Size),
        ChunkState::Trailer if line.is_empty() => Ok(ChunkState::End),
        ChunkState::Trailer => Ok(ChunkState::Trailer),
        _ => Err(Failure::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkDecoder, ChunkState};
    use crate::cli::bench::client::Failure;

    #[test]
    fn chunks_decode_the_same_split_at_every_byte() {
        let wire = b"5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n";
        for split in 0..wire.len() {
            let mut decoder = ChunkDecoder::default();
            let mut out = Vec::new();
            let mut pending = wire[..split].to_vec();
            let done = decoder
                .decode(&pending, &mut |bytes| out.extend_from_slice(bytes))
                .unwrap();
            pending.drain(..done);
            pending.extend_from_slice(&wire[split..]);
            decoder
                .decode(&pending, &mut |bytes| out.extend_from_slice(bytes))
                .unwrap();
            assert_eq!(
                (&out[..], decoder.state),
                (&b"hello 0123456789"[..], ChunkState::End)
            );
        }
    }

    #[test]
    fn bad_chunks_are_malformed() {
        for wire in [&b"x\r\n"[..], b"1\r\nab\r\n", b"\r\n"] {
            let result = ChunkDecoder::default().decode(wire, &mut |_| {});
            assert_eq!(result, Err(Failure::Malformed));
        }
    }
}
