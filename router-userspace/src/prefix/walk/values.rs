//! How values outside canonical ones begin and end, by what is wanted of them.

use super::super::fields::{Slot, Want, label};
use super::super::frame::{FRAMES_MAX, Integer, Kind, Mode, Opened, Out, Target};
use super::{BILLING, QUOTE, Walk, open_byte};
use crate::proto::json::Container;

impl Walk {
    pub(super) fn begin_structured(&mut self, container: Container) {
        let want = self.next_want();
        if self.frames.len() >= FRAMES_MAX {
            self.mode = Mode::Skip(1);
            return;
        }
        match (want, container) {
            (Want::Root, Container::Object) => self.push_frame(Kind::Top, Opened::default()),
            (Want::Messages, Container::Array) => {
                self.push_frame(Kind::Array(Want::Message), Opened::default());
            }
            (Want::Message, Container::Object) => self.begin_message(),
            (Want::Content(label), Container::Array) => {
                let opened = self.open(label);
                // The list's parts are counted from here, whether it has a label or not.
                self.push_frame(Kind::Array(Want::Part), opened);
            }
            (Want::Part, Container::Object) => self.begin_part(),
            (Want::List(label), Container::Array) => {
                let opened = self.open(label);
                self.push_frame(Kind::Array(Want::Canonical(label::NONE)), opened);
            }
            (Want::Prompt, Container::Array) => {
                self.push_frame(Kind::Array(Want::PromptItem), Opened::default());
            }
            (Want::PromptItem, Container::Array) => {
                self.later_items(Want::Skip);
                self.push_frame(Kind::Array(Want::Id), Opened::default());
            }
            (Want::Canonical(label), _) => {
                self.opened = self.open(label);
                self.begin_canonical(container, Out::Chain);
            }
            (Want::Seed(seed), _) => {
                self.seed = Some(seed);
                self.digest.reset();
                self.begin_canonical(container, Out::Digest);
            }
            (Want::Media, _) => {
                self.opened = self.open(label::MEDIA);
                self.digest.reset();
                self.media_data = true;
                self.mode = Mode::Media(1);
            }
            _ => {
                self.refused |= want == Want::Root;
                self.mode = Mode::Skip(1);
            }
        }
    }

    /// The first item of a prompt's array decides what the others are.
    fn later_items(&mut self, want: Want) {
        if let Some(frame) = self.frames.last_mut() {
            frame.kind = Kind::Array(want);
        }
    }

    fn begin_canonical(&mut self, container: Container, out: Out) {
        self.mode = Mode::Canonical {
            depth: 1,
            out,
            dropped: 0,
        };
        self.canonical_raw(out, open_byte(container));
    }

    pub(super) fn end_structured(&mut self) {
        match self.frames.last().map(|frame| frame.kind) {
            Some(Kind::Message) => self.end_message(),
            _ => {
                if let Some(frame) = self.frames.pop() {
                    self.close(frame.opened);
                }
            }
        }
    }

    fn begin_text(&mut self, label: u64, target: Target) -> Target {
        self.opened = self.open(label);
        target
    }

    pub(super) fn begin_string(&mut self, want: Want) -> Target {
        match want {
            Want::Messages => {
                self.begin_message();
                self.digest.reset();
                self.digest.push(b"user");
                self.end_tag(label::ROLE);
                Target::Text
            }
            Want::Content(label) | Want::Text(label) => self.begin_text(label, Target::Text),
            Want::SystemText => self.begin_text(label::NONE, Target::Billing(0)),
            Want::Part => {
                // A bare string in an array of parts.
                self.begin_part();
                Target::Text
            }
            Want::Prompt => Target::Text,
            Want::PromptItem => {
                self.later_items(Want::Skip);
                Target::Text
            }
            Want::Tag(label) => {
                self.digest.reset();
                Target::Tag(label)
            }
            Want::Canonical(label) => {
                self.opened = self.open(label);
                self.raw(&[QUOTE]);
                Target::Quoted(Out::Chain)
            }
            Want::Seed(seed) => {
                self.seed = Some(seed);
                self.digest.reset();
                self.digest.push(&[QUOTE]);
                Target::Quoted(Out::Digest)
            }
            Want::Media => {
                self.opened = self.open(label::MEDIA);
                self.digest.reset();
                Target::Media
            }
            Want::Root => {
                self.refused = true;
                Target::Nowhere
            }
            _ => Target::Nowhere,
        }
    }

    pub(super) fn billing_text(&mut self, matched: usize, bytes: &[u8]) {
        let rest = &BILLING[matched..];
        let same = rest.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        if same == rest.len() {
            // The header is whole: the block is dropped.
            self.target = Target::Nowhere;
        } else if same == bytes.len() {
            self.target = Target::Billing(matched + same);
        } else {
            self.target = Target::Text;
            self.text(&BILLING[..matched]);
            self.text(bytes);
        }
    }

    pub(super) fn end_string(&mut self, want: Want, target: Target) {
        match target {
            Target::Text | Target::Nowhere => {}
            Target::Billing(matched) => self.text(&BILLING[..matched]),
            Target::Key => return,
            Target::Quoted(out) => self.canonical_raw(out, &[QUOTE]),
            Target::Tag(label) => return self.end_tag(label),
            Target::Media => {
                self.media_string_end();
                return self.end_media();
            }
        }
        match (want, self.frames.last().map(|frame| frame.kind)) {
            (Want::Messages, Some(Kind::Message)) => self.end_message(),
            (Want::Part, Some(Kind::Part)) => self.end_structured(),
            (Want::Seed(_), _) => self.end_seed(),
            (Want::Content(_) | Want::Text(_) | Want::Canonical(_), _) => self.close(self.opened),
            _ => {}
        }
    }

    /// A token's id: four bytes of text, since a token is about that long.
    fn token_id(&mut self, id: Option<u64>) {
        if let Some(id) = id {
            self.slot = Slot::Ids;
            self.raw(&(id as u32).to_le_bytes());
        }
    }

    pub(super) fn end_scalar(&mut self, want: Want) {
        let value = self.scalar.get();
        match want {
            Want::Stream => self.stream = value == b"true",
            Want::OutputMax => self.output_tokens_max = integer(value),
            Want::PromptItem => {
                let id = integer(value);
                self.later_items(Want::Id);
                self.token_id(id);
            }
            Want::Id => self.token_id(self.id.value()),
            Want::Seed(seed) if value != b"null" => {
                self.seed = Some(seed);
                self.digest.reset();
                self.digest.push(value);
                self.digest.push(b",");
                self.end_seed();
            }
            Want::Canonical(label) if value != b"null" => {
                let scalar = std::mem::take(&mut self.scalar);
                let opened = self.open(label);
                self.raw(scalar.get());
                self.raw(b",");
                self.close(opened);
            }
            Want::Root => self.refused = true,
            _ => {}
        }
    }
}

/// A plain non-negative integer.
fn integer(spelt: &[u8]) -> Option<u64> {
    let mut number = Integer::default();
    number.push(spelt);
    number.value()
}
