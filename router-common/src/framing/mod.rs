//! Where an HTTP/1.1 message body ends: one state machine for the BPF program, the copy path and the parsers.
//!
//! A [`Framing`] is a plain value of 24 bytes that lies in a BPF map as well as on a stack. It eats bytes in any
//! split, never looks behind the end of the message, and refuses everything that two parsers could read in two
//! ways: bare CR or LF, whitespace where none belongs, sizes of more than 16 digits, folded trailers.
//!
//! Three ways to feed it:
//! - [`Framing::advance`]: how many of these bytes belong to the message, and is it over?
//! - [`Framing::next_piece`]: the same, cut into payload, chunk lines and trailers (for de-chunking);
//! - [`Framing::step`] and [`Framing::take_data`]: one byte, or one run of payload; what the BPF program calls.
//!
//! Beside them stands [`is_one_chunk`], the straight-line test of the commonest case.
//!
//! # Source
//! RFC 9112, section 6 (message body length) and 7.1 (chunked transfer coding); RFC 9110, section 5.6 (tokens).

mod chars;
mod fast;
mod step;

pub use fast::is_one_chunk;

/// Digits of one chunk size: 16 hexadecimal digits fill a `u64`, so that no size can overflow.
pub const CHUNK_SIZE_DIGITS_MAX: u32 = 16;
/// Bytes between the size and the CR of one chunk line. Nobody uses extensions; without a bound they are a way
/// to send megabytes for each byte of payload.
pub const CHUNK_EXTENSION_BYTES_MAX: u32 = 1024;
/// Bytes of all trailer fields of one message, line ends included.
pub const TRAILERS_BYTES_MAX: u32 = 8192;

/// Values of `Framing::phase`. Zeroed memory is a message that has ended.
mod phase {
    pub(super) const DONE: u32 = 0;
    /// Content-Length: `remaining` payload bytes to come.
    pub(super) const LENGTH: u32 = 1;
    /// Everything until the connection closes.
    pub(super) const UNTIL_CLOSE: u32 = 2;
    /// Before the first digit of a chunk size; `remaining` and `line` are 0.
    pub(super) const SIZE_START: u32 = 3;
    pub(super) const SIZE: u32 = 4;
    /// Whitespace behind a size: only a `;` may follow.
    pub(super) const SIZE_SPACE: u32 = 5;
    pub(super) const EXTENSION: u32 = 6;
    pub(super) const SIZE_LF: u32 = 7;
    /// Inside a chunk: `remaining` payload bytes to come.
    pub(super) const DATA: u32 = 8;
    pub(super) const DATA_CR: u32 = 9;
    pub(super) const DATA_LF: u32 = 10;
    /// Before a trailer field or the empty line; `line` counts the bytes of all trailer fields.
    pub(super) const TRAILER_START: u32 = 11;
    pub(super) const TRAILER_NAME: u32 = 12;
    pub(super) const TRAILER_VALUE: u32 = 13;
    pub(super) const TRAILER_LF: u32 = 14;
    /// Behind the CR of the empty line.
    pub(super) const END_LF: u32 = 15;
    /// Refused; `line` holds the error's code.
    pub(super) const FAILED: u32 = 16;
}

/// The state of one message body. No padding, and every bit pattern is a value, since it lies in a BPF map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "userspace",
    derive(
        zerocopy::FromBytes,
        zerocopy::IntoBytes,
        zerocopy::Immutable,
        zerocopy::KnownLayout
    )
)]
pub struct Framing {
    /// Payload bytes to come in the chunk or body; while a size is read, its value so far.
    remaining: u64,
    /// Chunks that have ended, the last one (size 0) not counted.
    chunks: u64,
    /// Where in the grammar: one of `phase`.
    phase: u32,
    /// Bytes of the bounded part: digits, extension or trailers; the error's code once failed.
    line: u32,
}

const _: () = assert!(size_of::<Framing>() == 24 && align_of::<Framing>() == 8);

/// Why a body was refused. All are the sender's fault; none is worth a retry on the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FramingError {
    /// A chunk size that is empty or holds something other than hexadecimal digits.
    ChunkSize = 1,
    /// A chunk size of more than [`CHUNK_SIZE_DIGITS_MAX`] digits.
    ChunkSizeTooLong = 2,
    /// A control character in a chunk extension.
    ChunkExtension = 3,
    /// An extension of more than [`CHUNK_EXTENSION_BYTES_MAX`] bytes.
    ChunkExtensionTooLong = 4,
    /// A line end that isn't CR LF.
    LineEnd = 5,
    /// A trailer line that isn't `name: value`, folded lines included.
    Trailer = 6,
    /// Trailers of more than [`TRAILERS_BYTES_MAX`] bytes.
    TrailersTooLong = 7,
}

impl FramingError {
    fn from_code(code: u32) -> FramingError {
        match code {
            2 => FramingError::ChunkSizeTooLong,
            3 => FramingError::ChunkExtension,
            4 => FramingError::ChunkExtensionTooLong,
            5 => FramingError::LineEnd,
            6 => FramingError::Trailer,
            7 => FramingError::TrailersTooLong,
            _ => FramingError::ChunkSize,
        }
    }

    /// What to tell a person.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            FramingError::ChunkSize => "chunk size is not a hexadecimal number",
            FramingError::ChunkSizeTooLong => "chunk size has more than 16 digits",
            FramingError::ChunkExtension => "chunk extension holds a control character",
            FramingError::ChunkExtensionTooLong => "chunk extension is longer than 1024 bytes",
            FramingError::LineEnd => "line of the chunked body does not end in CR LF",
            FramingError::Trailer => "trailer is not a field line",
            FramingError::TrailersTooLong => "trailers are longer than 8192 bytes",
        }
    }
}

impl core::fmt::Display for FramingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for FramingError {}

/// How a message stands after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes belong to the message.
    More,
    /// The message has ended.
    Done,
    /// The body is malformed; nothing behind the consumed bytes can be trusted.
    Failed(FramingError),
}

/// What [`Framing::advance`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Leading bytes that belong to the message and are well formed.
    pub consumed: usize,
    /// How the message stands behind them.
    pub progress: Progress,
}

/// A leading run of bytes of one kind, or the reason why there is none. Lengths are never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// So many bytes of payload.
    Payload(usize),
    /// So many bytes of chunk sizes, extensions and line ends; not payload.
    Framing(usize),
    /// So many bytes of trailer field lines with their line ends, the final empty line not among them.
    Trailers(usize),
    /// All of the input is consumed and the message goes on.
    More,
    /// The message has ended; the rest of the input isn't part of it.
    Done,
    /// The next byte is not allowed here.
    Failed(FramingError),
}

impl Framing {
    /// A message without a body; it has ended already.
    #[must_use]
    pub const fn none() -> Framing {
        Framing::in_phase(phase::DONE, 0)
    }

    /// A body of `length` bytes (Content-Length).
    #[must_use]
    pub const fn length(length: u64) -> Framing {
        if length == 0 {
            return Framing::none();
        }
        Framing::in_phase(phase::LENGTH, length)
    }

    /// A chunked body, at its first chunk size.
    #[must_use]
    pub const fn chunked() -> Framing {
        Framing::in_phase(phase::SIZE_START, 0)
    }

    /// A body that ends when the connection does; it is never done.
    #[must_use]
    pub const fn until_close() -> Framing {
        Framing::in_phase(phase::UNTIL_CLOSE, 0)
    }

    const fn in_phase(phase: u32, remaining: u64) -> Framing {
        Framing {
            remaining,
            chunks: 0,
            phase,
            line: 0,
        }
    }

    /// Whether the message has ended.
    #[must_use]
    #[inline(always)]
    pub const fn is_done(&self) -> bool {
        self.phase == phase::DONE
    }

    /// Whether the end of the connection is the end of the body, not a cut.
    #[must_use]
    pub const fn is_until_close(&self) -> bool {
        self.phase == phase::UNTIL_CLOSE
    }

    /// Whether the next byte begins a chunk size: where [`is_one_chunk`] applies.
    #[must_use]
    #[inline(always)]
    pub const fn is_at_chunk_start(&self) -> bool {
        self.phase == phase::SIZE_START
    }

    /// Chunks that have ended, the last one (size 0) not counted.
    #[must_use]
    pub const fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Takes over the state of `other`.
    ///
    /// Field by field: a copy of the whole struct becomes a memory intrinsic that bpf-linker can't lower.
    #[inline(always)]
    pub fn copy_from(&mut self, other: &Framing) {
        self.remaining = other.remaining;
        self.chunks = other.chunks;
        self.phase = other.phase;
        self.line = other.line;
    }

    /// How the message stands.
    #[must_use]
    pub fn progress(&self) -> Progress {
        match self.phase {
            phase::DONE => Progress::Done,
            phase::FAILED => Progress::Failed(FramingError::from_code(self.line)),
            _ => Progress::More,
        }
    }

    /// Eats the leading bytes that belong to the message; what is behind its end stays.
    ///
    /// After [`Progress::Done`] and [`Progress::Failed`] further calls consume nothing and say the same again.
    pub fn advance(&mut self, bytes: &[u8]) -> Step {
        let mut consumed = 0;
        while let Piece::Payload(n) | Piece::Framing(n) | Piece::Trailers(n) =
            self.next_piece(&bytes[consumed..])
        {
            consumed += n;
        }
        Step {
            consumed,
            progress: self.progress(),
        }
    }

    /// Eats the leading run of bytes of one kind and says how long it is.
    ///
    /// Call it again with the rest until it returns [`Piece::More`], [`Piece::Done`] or [`Piece::Failed`]. Bytes
    /// in front of a malformed one are reported first. Two neighbouring pieces may be of the same kind.
    pub fn next_piece(&mut self, bytes: &[u8]) -> Piece {
        let data = self.take_data(bytes.len() as u64);
        if data > 0 {
            // At most bytes.len(), so it fits.
            return Piece::Payload(data as usize);
        }
        let mut taken = 0;
        let in_trailers = self.is_in_trailers(bytes.first());
        while taken < bytes.len() && !self.is_settled() {
            if self.is_in_trailers(bytes.get(taken)) != in_trailers || !self.step(bytes[taken]) {
                break;
            }
            taken += 1;
        }
        match (taken, self.progress()) {
            (0, Progress::More) => Piece::More,
            (0, Progress::Done) => Piece::Done,
            (0, Progress::Failed(error)) => Piece::Failed(error),
            (n, _) if in_trailers => Piece::Trailers(n),
            (n, _) => Piece::Framing(n),
        }
    }

    /// Whether `step` has nothing to do: payload comes next, or the message is over.
    #[inline(always)]
    fn is_settled(&self) -> bool {
        self.is_in_data() || matches!(self.phase, phase::DONE | phase::FAILED)
    }

    fn is_in_trailers(&self, next: Option<&u8>) -> bool {
        match self.phase {
            phase::TRAILER_START => next.is_some_and(|byte| *byte != b'\r'),
            phase::TRAILER_NAME | phase::TRAILER_VALUE | phase::TRAILER_LF => true,
            _ => false,
        }
    }
}
