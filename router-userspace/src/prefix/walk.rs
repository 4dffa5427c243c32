//! From tokens to chains.
//!
//! A canonical value (a tool, a call's arguments) is written without white space: `{`, `}`, `[`, `]`, strings
//! between 0xff bytes, which no UTF-8 holds, scalars as spelt with a comma behind them.

mod tokens;
mod values;

use super::chain::{Chain, Point};
use super::fields::{self, SEEDS, SLOTS, Seed, Slot, Want, label};
use super::frame::{FRAMES_MAX, Frame, Integer, Kind, Mode, Opened, Out, Short, Target};
use super::hash::Digest;
use super::key::{Api, MODEL_BYTES_MAX};
use crate::proto::json::Container;

/// Claude Code's first system block has a new value behind this in each request; engines drop the block.
pub(super) const BILLING: &[u8] = b"x-anthropic-billing-header";
/// Delimits strings inside canonical values.
pub(super) const QUOTE: u8 = 0xff;
/// Room that an image or the like takes in the text, so that its blocks say whether it is cached.
pub(super) const MEDIA_TEXT_BYTES: usize = 1024;

/// The state of a walk; `fold` makes the key of it.
#[derive(Debug)]
pub(super) struct Walk {
    api: Api,
    pub(super) chains: [Chain; SLOTS],
    pub(super) seeds: [Option<u64>; SEEDS],
    pub(super) model: Option<String>,
    pub(super) stream: bool,
    pub(super) output_tokens_max: Option<u64>,
    /// End of the leading system messages.
    pub(super) system_end: Option<Point>,
    /// End of the first message that isn't one of those.
    pub(super) first_end: Option<Point>,
    /// The body isn't an object.
    pub(super) refused: bool,
    messages: u64,
    slot: Slot,
    frames: Vec<Frame>,
    mode: Mode,
    /// The value behind the last key.
    want: Want,
    target: Target,
    key: Short,
    scalar: Short,
    scalar_want: Option<Want>,
    id: Integer,
    digest: Digest,
    opened: Opened,
    /// Labels that become a mark when text comes.
    pending: u64,
    /// The member whose key was last read is left out.
    drop_next: bool,
    /// The next string inside an image or the like is its data.
    media_data: bool,
    /// The seed whose value is being read.
    seed: Option<Seed>,
}

impl Walk {
    pub(super) fn new(api: Api, block_bytes: usize) -> Walk {
        Walk {
            api,
            chains: std::array::from_fn(|_| Chain::new(block_bytes)),
            seeds: [None; SEEDS],
            model: None,
            stream: false,
            output_tokens_max: None,
            system_end: None,
            first_end: None,
            refused: false,
            messages: 0,
            slot: Slot::Body,
            frames: Vec::with_capacity(FRAMES_MAX),
            mode: Mode::Structured,
            want: Want::Skip,
            target: Target::Nowhere,
            key: Short::default(),
            scalar: Short::default(),
            scalar_want: None,
            id: Integer::default(),
            digest: Digest::new(),
            opened: Opened::default(),
            pending: 0,
            drop_next: false,
            media_data: false,
            seed: None,
        }
    }

    fn chain(&mut self) -> &mut Chain {
        &mut self.chains[self.slot as usize]
    }

    /// What the value that begins now is.
    fn next_want(&mut self) -> Want {
        match self.frames.last_mut() {
            None => Want::Root,
            Some(frame) => match frame.kind {
                Kind::Array(item) => {
                    frame.items += 1;
                    item
                }
                _ => self.want,
            },
        }
    }

    /// A structured key has been read.
    fn key_read(&mut self) {
        self.want = Want::Skip;
        if self.key.spilt {
            return;
        }
        let Some(frame) = self.frames.last() else {
            return;
        };
        let key = self.key.get();
        match frame.kind {
            Kind::Top => {
                let (want, slot) = fields::top(self.api, key);
                self.want = want;
                self.top_field(want, slot);
            }
            Kind::Message => self.want = fields::message(key),
            Kind::Part => self.want = fields::part(self.slot, key),
            Kind::Array(_) => {}
        }
    }

    /// A top-level field begins: of fields that come twice the last counts.
    fn top_field(&mut self, want: Want, slot: Option<Slot>) {
        self.pending = 0;
        match want {
            Want::Stream => self.stream = false,
            Want::OutputMax => self.output_tokens_max = None,
            Want::Seed(seed) => {
                self.seeds[seed as usize] = None;
                if seed == Seed::Model {
                    self.model = None;
                }
            }
            _ => {}
        }
        let Some(slot) = slot else {
            return;
        };
        self.slot = slot;
        self.chain().reset();
        if slot == Slot::Body {
            self.messages = 0;
            self.system_end = None;
            self.first_end = None;
            if self.api == Api::Completions {
                self.chains[Slot::Ids as usize].reset();
            }
        }
    }

    fn open(&mut self, label: u64) -> Opened {
        let opened = Opened {
            label,
            start: self.chain().tick(),
            pending: self.pending,
        };
        if label != label::NONE {
            self.pending = push_label(self.pending, label);
        }
        opened
    }

    fn close(&mut self, opened: Opened) {
        if opened.label == label::NONE {
            return;
        }
        if self.chain().tick() == opened.start {
            self.pending = opened.pending;
        } else if opened.label != label::PART {
            self.chain().label(label::END);
        }
    }

    fn flush_label(&mut self) {
        if self.pending != 0 {
            let pending = std::mem::take(&mut self.pending);
            self.chain().label(pending);
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.flush_label();
            self.chain().text(bytes);
        }
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.flush_label();
        self.chain().raw(bytes);
    }

    fn canonical_raw(&mut self, out: Out, bytes: &[u8]) {
        match out {
            Out::Chain => self.raw(bytes),
            Out::Digest => self.digest.push(bytes),
        }
    }

    fn canonical_text(&mut self, out: Out, bytes: &[u8]) {
        match out {
            Out::Chain => self.text(bytes),
            Out::Digest => self.digest.push(bytes),
        }
    }

    fn push_frame(&mut self, kind: Kind, opened: Opened) {
        let message = if self.slot == Slot::Body { self.messages } else { 0 };
        let ordinal = match (kind, self.frames.last()) {
            // Parts count from their message, so that a text and an array of one part leave the same count.
            (Kind::Part, Some(list)) => message << 32 | list.items,
            _ => message,
        };
        let anchor = self.chain().anchor(ordinal);
        self.frames.push(Frame {
            kind,
            opened,
            anchor,
            items: 0,
            system: false,
        });
    }

    fn begin_message(&mut self) {
        self.messages += 1;
        self.pending = 0;
        self.push_frame(Kind::Message, Opened::default());
        self.mark(label::MESSAGE, 0);
    }

    fn end_message(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        self.pending = 0;
        let chain = &self.chains[self.slot as usize];
        if self.first_end.is_some() {
            return;
        }
        if !frame.system {
            self.first_end = Some(chain.point());
        } else if chain.text_bytes() > 0 {
            self.system_end = Some(chain.point());
        }
    }

    /// A mark at the start of the innermost message or part.
    fn mark(&mut self, label: u64, value: u64) {
        if let Some(frame) = self.frames.last() {
            let anchor = frame.anchor;
            self.chain().mark(anchor, label, value);
        }
    }

    fn end_tag(&mut self, label: u64) {
        if self.digest.bytes() == 0 {
            return;
        }
        let value = self.digest.value();
        self.mark(label, value);
        if label == label::ROLE
            && let Some(frame) = self.frames.last_mut()
        {
            frame.system = matches!(self.digest.short(), Some(b"system" | b"developer"));
        }
    }

    fn begin_part(&mut self) {
        let first = self.frames.last().map_or(0, |list| list.opened.start);
        let label = if self.chain().tick() == first {
            label::NONE
        } else {
            label::PART
        };
        let opened = self.open(label);
        self.push_frame(Kind::Part, opened);
    }

    fn media_string_end(&mut self) {
        if self.digest.bytes() > 0 {
            self.digest.push(&[QUOTE]);
        }
    }

    fn end_media(&mut self) {
        if self.digest.bytes() > 0 {
            let value = self.digest.value().to_le_bytes();
            let mut room = [0; MEDIA_TEXT_BYTES];
            for chunk in room.chunks_exact_mut(value.len()) {
                chunk.copy_from_slice(&value);
            }
            self.raw(&room);
        }
        self.close(self.opened);
    }

    fn end_seed(&mut self) {
        let Some(seed) = self.seed.take() else {
            return;
        };
        // An empty value is the same as none.
        let empty: [&[u8]; 3] = [&[QUOTE, QUOTE], b"{}", b"[]"];
        let short = self.digest.short();
        if short.is_some_and(|value| empty.contains(&value)) {
            return;
        }
        self.seeds[seed as usize] = Some(self.digest.value());
        if seed == Seed::Model
            && let Some([QUOTE, name @ .., QUOTE]) = short
            && name.len() <= MODEL_BYTES_MAX
        {
            self.model = String::from_utf8(name.to_vec()).ok();
        }
    }
}

fn push_label(pending: u64, label: u64) -> u64 {
    pending.wrapping_mul(64).wrapping_add(label)
}

fn open_byte(container: Container) -> &'static [u8] {
    match container {
        Container::Object => b"{",
        Container::Array => b"[",
    }
}

fn close_byte(container: Container) -> &'static [u8] {
    match container {
        Container::Object => b"}",
        Container::Array => b"]",
    }
}
