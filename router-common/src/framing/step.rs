//! The transitions: one byte of framing, or one run of payload.

use super::chars::{hex, is_text, is_token};
use super::{
    CHUNK_EXTENSION_BYTES_MAX, CHUNK_SIZE_DIGITS_MAX, Framing, FramingError, TRAILERS_BYTES_MAX, phase,
};

impl Framing {
    /// Whether the next byte is payload.
    #[must_use]
    #[inline(always)]
    pub fn is_in_data(&self) -> bool {
        matches!(self.phase, phase::LENGTH | phase::DATA | phase::UNTIL_CLOSE)
    }

    /// Eats up to `available` bytes of payload and says how many; 0 where payload isn't next.
    #[inline(always)]
    pub fn take_data(&mut self, available: u64) -> u64 {
        match self.phase {
            phase::UNTIL_CLOSE => available,
            phase::LENGTH | phase::DATA => {
                let taken = if available < self.remaining {
                    available
                } else {
                    self.remaining
                };
                self.remaining -= taken;
                if self.remaining == 0 {
                    self.phase = if self.phase == phase::LENGTH {
                        phase::DONE
                    } else {
                        phase::DATA_CR
                    };
                }
                taken
            }
            _ => 0,
        }
    }

    /// Eats one byte that isn't payload; `false` = refused, and the state is failed from now on.
    ///
    /// Where payload comes next ([`Framing::is_in_data`]) or the message has ended, the byte isn't this function's
    /// to eat: it returns `false` and changes nothing.
    #[inline(always)]
    pub fn step(&mut self, byte: u8) -> bool {
        match self.phase {
            phase::SIZE_START | phase::SIZE => self.step_size(byte),
            phase::SIZE_SPACE => match byte {
                b' ' | b'\t' => self.count_extension(phase::SIZE_SPACE),
                b';' => self.count_extension(phase::EXTENSION),
                _ => self.fail(FramingError::ChunkSize),
            },
            phase::EXTENSION => match byte {
                b'\r' => self.enter(phase::SIZE_LF),
                b'\n' => self.fail(FramingError::LineEnd),
                _ if is_text(byte) => self.count_extension(phase::EXTENSION),
                _ => self.fail(FramingError::ChunkExtension),
            },
            phase::SIZE_LF if byte == b'\n' => {
                self.line = 0;
                self.enter(if self.remaining == 0 {
                    phase::TRAILER_START
                } else {
                    phase::DATA
                })
            }
            phase::DATA_CR if byte == b'\r' => self.enter(phase::DATA_LF),
            phase::DATA_LF if byte == b'\n' => {
                self.chunks += 1;
                self.enter(phase::SIZE_START)
            }
            phase::END_LF if byte == b'\n' => self.enter(phase::DONE),
            phase::SIZE_LF | phase::DATA_CR | phase::DATA_LF | phase::END_LF => {
                self.fail(FramingError::LineEnd)
            }
            phase::TRAILER_START | phase::TRAILER_NAME | phase::TRAILER_VALUE | phase::TRAILER_LF => {
                self.step_trailer(byte)
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn step_size(&mut self, byte: u8) -> bool {
        let digit = hex(byte);
        if digit < 16 {
            if self.line >= CHUNK_SIZE_DIGITS_MAX {
                return self.fail(FramingError::ChunkSizeTooLong);
            }
            self.line += 1;
            self.remaining = (self.remaining << 4) | u64::from(digit);
            return self.enter(phase::SIZE);
        }
        if self.phase == phase::SIZE_START {
            return self.fail(FramingError::ChunkSize);
        }
        match byte {
            b'\r' => self.enter(phase::SIZE_LF),
            b'\n' => self.fail(FramingError::LineEnd),
            b';' => {
                self.line = 1;
                self.enter(phase::EXTENSION)
            }
            // RFC 9112 allows "bad whitespace" in front of an extension; without one it's an error.
            b' ' | b'\t' => {
                self.line = 1;
                self.enter(phase::SIZE_SPACE)
            }
            _ => self.fail(FramingError::ChunkSize),
        }
    }

    #[inline(always)]
    fn step_trailer(&mut self, byte: u8) -> bool {
        if self.phase == phase::TRAILER_START && byte == b'\r' {
            return self.enter(phase::END_LF);
        }
        if self.line >= TRAILERS_BYTES_MAX {
            return self.fail(FramingError::TrailersTooLong);
        }
        self.line += 1;
        match self.phase {
            phase::TRAILER_START if is_token(byte) => self.enter(phase::TRAILER_NAME),
            phase::TRAILER_NAME if byte == b':' => self.enter(phase::TRAILER_VALUE),
            phase::TRAILER_NAME if is_token(byte) => true,
            phase::TRAILER_VALUE if byte == b'\r' => self.enter(phase::TRAILER_LF),
            phase::TRAILER_VALUE if is_text(byte) => true,
            phase::TRAILER_LF if byte == b'\n' => self.enter(phase::TRAILER_START),
            phase::TRAILER_LF => self.fail(FramingError::LineEnd),
            _ if byte == b'\n' => self.fail(FramingError::LineEnd),
            _ => self.fail(FramingError::Trailer),
        }
    }

    #[inline(always)]
    fn count_extension(&mut self, phase: u32) -> bool {
        if self.line >= CHUNK_EXTENSION_BYTES_MAX {
            return self.fail(FramingError::ChunkExtensionTooLong);
        }
        self.line += 1;
        self.enter(phase)
    }

    #[inline(always)]
    fn enter(&mut self, phase: u32) -> bool {
        self.phase = phase;
        true
    }

    #[inline(always)]
    fn fail(&mut self, error: FramingError) -> bool {
        self.phase = phase::FAILED;
        self.line = error as u32;
        false
    }
}
