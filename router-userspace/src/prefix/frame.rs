//! Where a walk through a body stands.

use super::chain::Anchor;
use super::fields::Want;

/// Structured containers that may be open at once; deeper ones are skipped. A part inside a tool result inside a
/// message needs eight.
pub(super) const FRAMES_MAX: usize = 16;
/// Bytes of a key that are compared; a longer key is none of those that mean something.
const SHORT_BYTES: usize = 32;

/// A labelled value that is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opened {
    pub(super) label: u64,
    /// The chain's tick when it began.
    pub(super) start: u64,
    /// What was pending before it.
    pub(super) pending: u64,
}

/// A structured container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The body.
    Top,
    /// A message or item.
    Message,
    /// A part of a content array.
    Part,
    /// An array of such values.
    Array(Want),
}

/// An open structured container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) opened: Opened,
    pub(super) anchor: Anchor,
    /// Items begun, for an array.
    pub(super) items: u64,
    /// A message of the system.
    pub(super) system: bool,
}

/// What isn't structured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Structured,
    /// Inside a container that doesn't matter, this deep.
    Skip(u32),
    /// Inside a canonical value.
    Canonical {
        depth: u32,
        out: Out,
        /// Depth inside a member that is left out; 0 = none.
        dropped: u32,
    },
    /// Inside an image or the like.
    Media(u32),
}

/// Where a canonical value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Out {
    Chain,
    Digest,
}

/// Where the present string goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Nowhere,
    Key,
    Text,
    /// System text of which this many bytes are those of the billing header.
    Billing(usize),
    Quoted(Out),
    Tag(u64),
    Media,
}

/// The front of a short string.
#[derive(Debug, Default)]
pub(super) struct Short {
    bytes: [u8; SHORT_BYTES],
    len: usize,
    /// Whether there was more than fits.
    pub(super) spilt: bool,
}

impl Short {
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.spilt = false;
    }

    /// Takes as many of `bytes` as fit, and says how many.
    pub(super) fn push(&mut self, bytes: &[u8]) -> usize {
        if self.spilt {
            return 0;
        }
        let taken = bytes.len().min(SHORT_BYTES - self.len);
        self.bytes[self.len..self.len + taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
        self.spilt = taken < bytes.len();
        taken
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A non-negative integer that comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Integer {
    value: u64,
    digits: u32,
    /// Something else than digits, or too many of them.
    wrong: bool,
}

impl Integer {
    /// Digits that surely fit.
    const DIGITS_MAX: u32 = 19;

    pub(super) fn push(&mut self, spelt: &[u8]) {
        for &byte in spelt {
            let digit = byte.wrapping_sub(b'0');
            self.wrong |= digit > 9;
            self.value = self.value.wrapping_mul(10).wrapping_add(u64::from(digit));
        }
        self.digits = self.digits.saturating_add(spelt.len() as u32);
    }

    pub(super) fn value(self) -> Option<u64> {
        let plain = !self.wrong && self.digits > 0 && self.digits <= Integer::DIGITS_MAX;
        plain.then_some(self.value)
    }
}
