//! JSON as it arrives: tokens pushed into a [`Sink`], no tree, no recursion, bounded depth.
//!
//! A body may be cut into reads anywhere, also inside an escape or a UTF-8 sequence; the sink hears the same
//! text whatever the cuts. Grammar: RFC 8259. Two things are let through that it would allow a parser to refuse,
//! since engines take them and a router must not judge prompts: bytes ≥ 0x80 that aren't UTF-8 pass as they are,
//! and a surrogate without its partner is passed as its three-byte form.

mod number;
mod scanner;
mod string;
#[cfg(test)]
mod tests;

pub use scanner::Scanner;

/// How deep containers may nest; deeper is [`Fault::TooDeep`].
pub const DEPTH_MAX: usize = 128;

/// A container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
}

/// What a string is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringRole {
    /// The name of an object's member.
    Key,
    /// A value.
    Value,
}

/// Hears the tokens. Strings and scalars come in pieces whose borders mean nothing.
pub trait Sink {
    /// A container begins.
    fn begin(&mut self, container: Container);
    /// The innermost container ends.
    fn end(&mut self, container: Container);
    /// A string begins.
    fn string_begin(&mut self, role: StringRole);
    /// The next bytes of the string, escapes decoded.
    fn string_text(&mut self, bytes: &[u8]);
    /// The string ends.
    fn string_end(&mut self);
    /// The next bytes of a number, `true`, `false` or `null`, as spelt.
    fn scalar_text(&mut self, bytes: &[u8]);
    /// The scalar ends.
    fn scalar_end(&mut self);
}

/// Why a text isn't read on. Offsets count bytes from the start of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not JSON.
    #[error("not JSON at byte {at}")]
    Syntax {
        /// Where.
        at: u64,
    },
    /// Containers nest deeper than [`DEPTH_MAX`].
    #[error("nested deeper than {DEPTH_MAX} at byte {at}")]
    TooDeep {
        /// Where.
        at: u64,
    },
}
