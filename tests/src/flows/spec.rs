//! What a request asks of the source, in a field of its head that proxies pass as it is.

use anyhow::{Context as _, Result, bail};

/// The field's name.
pub const SPEC_FIELD: &str = "x-flow";

/// How a streamed body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Chunked.
    Chunked,
    /// By the close of the connection.
    Close,
}

/// What the source answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A body of that many bytes, at once.
    Whole {
        /// Bytes of the body.
        bytes: usize,
    },
    /// Chunks without an end, until the connection closes.
    Stream {
        /// Bytes of one chunk's payload, at least 64.
        chunk_bytes: usize,
        /// Between two chunks; 0 = as fast as the connection takes them.
        interval_us: u64,
        /// The body's framing.
        ending: Ending,
    },
}

/// Bytes that a chunk's payload needs for its time and the SSE frame around it.
pub(super) const CHUNK_BYTES_MIN: usize = 64;
/// Bytes of the largest chunk.
pub(super) const CHUNK_BYTES_MAX: usize = 1 << 20;

impl Answer {
    /// The field's value.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Answer::Whole { bytes } => format!("whole {bytes}"),
            Answer::Stream {
                chunk_bytes,
                interval_us,
                ending,
            } => {
                let word = match ending {
                    Ending::Chunked => "chunked",
                    Ending::Close => "close",
                };
                format!("{word} {chunk_bytes} {interval_us}")
            }
        }
    }

    /// Reads a field's value.
    ///
    /// # Errors
    /// Where it isn't one of [`Answer::field`]'s.
    pub fn parse(field: &str) -> Result<Answer> {
        let words: Vec<&str> = field.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().with_context(|| format!("number {word:?}"));
        Ok(match words.as_slice() {
            ["whole", bytes] => Answer::Whole {
                bytes: usize::try_from(number(bytes)?)?,
            },
            [word @ ("chunked" | "close"), bytes, interval] => Answer::Stream {
                chunk_bytes: usize::try_from(number(bytes)?)?.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
                interval_us: number(interval)?,
                ending: if *word == "close" {
                    Ending::Close
                } else {
                    Ending::Chunked
                },
            },
            _ => bail!("{SPEC_FIELD}: {field:?} asks for nothing known"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_says_what_was_asked() {
        let asked = [
            Answer::Whole { bytes: 300 },
            Answer::Stream {
                chunk_bytes: 200,
                interval_us: 20_000,
                ending: Ending::Chunked,
            },
            Answer::Stream {
                chunk_bytes: 4096,
                interval_us: 0,
                ending: Ending::Close,
            },
        ];
        for answer in asked {
            assert_eq!(Answer::parse(&answer.field()).expect("its own"), answer);
        }
        assert!(Answer::parse("chunked many 1").is_err());
    }
}
