//! What each token does to the walk.

use super::super::fields::{self, Want};
use super::super::frame::{Integer, Mode, Out, Target};
use super::{QUOTE, Walk, close_byte, open_byte};
use crate::proto::json::{Container, Sink, StringRole};

impl Sink for Walk {
    fn begin(&mut self, container: Container) {
        match &mut self.mode {
            Mode::Structured => self.begin_structured(container),
            Mode::Skip(depth) | Mode::Media(depth) => *depth += 1,
            Mode::Canonical { dropped, .. } if *dropped > 0 || self.drop_next => {
                self.drop_next = false;
                *dropped += 1;
            }
            Mode::Canonical { depth, out, .. } => {
                *depth += 1;
                let out = *out;
                self.canonical_raw(out, open_byte(container));
            }
        }
    }

    fn end(&mut self, container: Container) {
        match &mut self.mode {
            Mode::Structured => self.end_structured(),
            Mode::Skip(depth) => {
                *depth -= 1;
                if *depth == 0 {
                    self.mode = Mode::Structured;
                }
            }
            Mode::Media(depth) => {
                *depth -= 1;
                self.media_data = true;
                if *depth == 0 {
                    self.mode = Mode::Structured;
                    self.end_media();
                }
            }
            Mode::Canonical { dropped, .. } if *dropped > 0 => *dropped -= 1,
            Mode::Canonical { depth, out, .. } => {
                *depth -= 1;
                let (depth, out) = (*depth, *out);
                self.canonical_raw(out, close_byte(container));
                if depth == 0 {
                    self.mode = Mode::Structured;
                    match out {
                        Out::Chain => self.close(self.opened),
                        Out::Digest => self.end_seed(),
                    }
                }
            }
        }
    }

    fn string_begin(&mut self, role: StringRole) {
        self.target = match (self.mode, role) {
            (Mode::Skip(_), _) => Target::Nowhere,
            (Mode::Canonical { dropped, .. }, _) if dropped > 0 => Target::Nowhere,
            (_, StringRole::Key) => {
                self.key.clear();
                Target::Key
            }
            (Mode::Structured, _) => {
                self.want = self.next_want();
                self.begin_string(self.want)
            }
            (Mode::Canonical { .. }, _) if self.drop_next => {
                self.drop_next = false;
                Target::Nowhere
            }
            (Mode::Canonical { out, .. }, _) => {
                self.canonical_raw(out, &[QUOTE]);
                Target::Quoted(out)
            }
            (Mode::Media(_), _) if self.media_data => Target::Media,
            (Mode::Media(_), _) => Target::Nowhere,
        };
    }

    fn string_text(&mut self, bytes: &[u8]) {
        match self.target {
            Target::Nowhere => {}
            Target::Key => self.key_text(bytes),
            Target::Text => self.text(bytes),
            Target::Billing(matched) => self.billing_text(matched, bytes),
            Target::Quoted(out) => self.canonical_text(out, bytes),
            Target::Tag(_) | Target::Media => self.digest.push(bytes),
        }
    }

    fn string_end(&mut self) {
        let target = std::mem::replace(&mut self.target, Target::Nowhere);
        match (self.mode, target) {
            (_, Target::Key) => self.key_end(),
            (Mode::Structured, _) => self.end_string(self.want, target),
            (_, Target::Quoted(out)) => self.canonical_raw(out, &[QUOTE]),
            (_, Target::Media) => self.media_string_end(),
            _ => {}
        }
    }

    fn scalar_text(&mut self, bytes: &[u8]) {
        match self.mode {
            Mode::Structured => {
                let want = match self.scalar_want {
                    Some(want) => want,
                    None => self.begin_scalar(),
                };
                if want == Want::Id {
                    self.id.push(bytes);
                } else {
                    self.scalar.push(bytes);
                }
            }
            Mode::Canonical { out, dropped: 0, .. } if !self.drop_next => self.canonical_raw(out, bytes),
            _ => {}
        }
    }

    fn scalar_end(&mut self) {
        match self.mode {
            Mode::Structured => {
                if let Some(want) = self.scalar_want.take() {
                    self.end_scalar(want);
                }
            }
            Mode::Canonical { out, dropped: 0, .. } if !self.drop_next => self.canonical_raw(out, b","),
            Mode::Canonical { dropped: 0, .. } => self.drop_next = false,
            _ => {}
        }
    }
}

impl Walk {
    fn begin_scalar(&mut self) -> Want {
        let want = self.next_want();
        self.scalar_want = Some(want);
        self.scalar.clear();
        self.id = Integer::default();
        want
    }

    fn key_text(&mut self, bytes: &[u8]) {
        let spilt = self.key.spilt;
        let taken = self.key.push(bytes);
        // A long key means nothing to us, but inside a canonical value it is prompt.
        if let Mode::Canonical { out, .. } = self.mode
            && self.key.spilt
        {
            if !spilt {
                let front = std::mem::take(&mut self.key);
                self.canonical_raw(out, &[QUOTE]);
                self.canonical_text(out, front.get());
                self.key.spilt = true;
            }
            self.canonical_text(out, &bytes[taken..]);
        }
    }

    fn key_end(&mut self) {
        match self.mode {
            Mode::Structured => self.key_read(),
            Mode::Media(_) => self.media_data = !self.key.spilt && fields::media_data(self.key.get()),
            Mode::Canonical { out, .. } if self.key.spilt => self.canonical_raw(out, &[QUOTE]),
            // Where a prompt is to be cached moves from turn to turn and is rendered nowhere.
            Mode::Canonical { depth: 1, .. } if self.key.get() == b"cache_control" => self.drop_next = true,
            Mode::Canonical { out, .. } => {
                let key = std::mem::take(&mut self.key);
                self.canonical_raw(out, &[QUOTE]);
                self.canonical_text(out, key.get());
                self.canonical_raw(out, &[QUOTE]);
            }
            Mode::Skip(_) => {}
        }
    }
}
