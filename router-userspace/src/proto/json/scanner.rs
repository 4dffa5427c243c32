//! The structure: containers, commas, colons, scalars.

use super::number::Number;
use super::string::{Met, Text};
use super::{Container, DEPTH_MAX, Fault, Sink, StringRole};

const WORD_BITS: usize = u64::BITS as usize;

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value.
    Value,
    /// A value or `]`.
    FirstItem,
    /// A key or `}`.
    FirstKey,
    /// A key.
    Key,
    /// `:`
    Colon,
    /// A comma or the end of the container.
    AfterItem,
    /// The inside of a string.
    Text(StringRole),
    /// The rest of a number.
    Number(Number),
    /// The rest of `true`, `false` or `null`, from this index.
    Word(&'static [u8], usize),
    /// White space only.
    Done,
}

/// An incremental scanner for one JSON text.
///
/// Cost: one pass, linear in the bytes fed; about 1100 bytes of state, nothing allocated.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    depth: usize,
    /// For each level a bit: set = object.
    objects: [u64; DEPTH_MAX / WORD_BITS],
    text: Text,
    /// Bytes of earlier feeds.
    offset: u64,
}

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner {
            state: State::Value,
            depth: 0,
            objects: [0; DEPTH_MAX / WORD_BITS],
            text: Text::default(),
            offset: 0,
        }
    }
}

impl Scanner {
    /// A scanner at the start of a text.
    #[must_use]
    pub fn new() -> Scanner {
        Scanner::default()
    }

    /// Reads the next bytes of the text and tells `sink` what they are.
    ///
    /// # Errors
    /// [`Fault`] where the text isn't JSON or nests too deep; the scanner is of no further use then.
    pub fn feed<S: Sink>(&mut self, bytes: &[u8], sink: &mut S) -> Result<(), Fault> {
        let mut at = 0;
        while at < bytes.len() {
            at = match self.state {
                State::Text(role) => match self.text.read(bytes, at, sink) {
                    Met::EndOfInput => bytes.len(),
                    Met::Fault(at) => return Err(self.syntax(at)),
                    Met::Quote(next) => {
                        sink.string_end();
                        self.state = match role {
                            StringRole::Key => State::Colon,
                            StringRole::Value => self.after_value(),
                        };
                        next
                    }
                },
                State::Number(number) => self.number(number, bytes, at, at, sink)?,
                State::Word(word, known) => self.word(word, known, bytes, at, sink)?,
                _ => self.structure(bytes, at, sink)?,
            };
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Whether what was fed is a whole text.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        match self.state {
            State::Done => true,
            // Nothing but the end of the input ends a number that stands alone.
            State::Number(number) => self.depth == 0 && number.complete(),
            _ => false,
        }
    }

    fn structure<S: Sink>(&mut self, bytes: &[u8], mut at: usize, sink: &mut S) -> Result<usize, Fault> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
            at += 1;
        }
        let Some(&byte) = bytes.get(at) else {
            return Ok(at);
        };
        match (self.state, byte) {
            (State::Value | State::FirstItem, b'"') => self.begin_text(StringRole::Value, sink),
            (State::FirstKey | State::Key, b'"') => self.begin_text(StringRole::Key, sink),
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterItem, b',') => {
                self.state = match self.innermost() {
                    Container::Object => State::Key,
                    Container::Array => State::Value,
                }
            }
            (State::Value | State::FirstItem, b'{') => {
                self.open(Container::Object, at, sink)?;
                self.state = State::FirstKey;
            }
            (State::Value | State::FirstItem, b'[') => {
                self.open(Container::Array, at, sink)?;
                self.state = State::FirstItem;
            }
            (State::FirstKey, b'}') | (State::FirstItem, b']') => self.close(sink),
            (State::AfterItem, b'}') if self.innermost() == Container::Object => self.close(sink),
            (State::AfterItem, b']') if self.innermost() == Container::Array => self.close(sink),
            (State::Value | State::FirstItem, _) => {
                if let Some(number) = Number::begin(byte) {
                    return self.number(number, bytes, at, at + 1, sink);
                }
                self.state = word_of(byte).ok_or_else(|| self.syntax(at))?;
            }
            _ => return Err(self.syntax(at)),
        }
        Ok(at + 1)
    }

    fn begin_text<S: Sink>(&mut self, role: StringRole, sink: &mut S) {
        sink.string_begin(role);
        self.state = State::Text(role);
    }

    /// A number that begins or goes on at `start` and has been read up to `at`; then, in an array, the numbers
    /// right behind it.
    fn number<S: Sink>(
        &mut self,
        mut number: Number,
        bytes: &[u8],
        mut start: usize,
        mut at: usize,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        loop {
            if number == Number::Integer {
                at += digits(&bytes[at..]);
            }
            while let Some(next) = bytes.get(at).and_then(|&byte| number.next(byte)) {
                number = next;
                at += 1;
            }
            if at > start {
                sink.scalar_text(&bytes[start..at]);
            }
            if at == bytes.len() {
                self.state = State::Number(number);
                return Ok(at);
            }
            if !number.complete() {
                return Err(self.syntax(at));
            }
            sink.scalar_end();
            match bytes.get(at..at + 2) {
                // Prompts of token ids are long, so such lists don't go back to `structure` for each item.
                Some([b',', b'1'..=b'9']) if self.depth > 0 && self.innermost() == Container::Array => {
                    start = at + 1;
                    at += 2;
                    number = Number::Integer;
                }
                _ => {
                    self.state = self.after_value();
                    return Ok(at);
                }
            }
        }
    }

    fn word<S: Sink>(
        &mut self,
        word: &'static [u8],
        known: usize,
        bytes: &[u8],
        start: usize,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        let rest = &word[known..];
        let here = &bytes[start..bytes.len().min(start + rest.len())];
        if !rest.starts_with(here) {
            return Err(self.syntax(start));
        }
        if here.len() == rest.len() {
            sink.scalar_text(word);
            sink.scalar_end();
            self.state = self.after_value();
        } else {
            self.state = State::Word(word, known + here.len());
        }
        Ok(start + here.len())
    }

    fn open<S: Sink>(&mut self, container: Container, at: usize, sink: &mut S) -> Result<(), Fault> {
        if self.depth == DEPTH_MAX {
            return Err(Fault::TooDeep {
                at: self.offset + at as u64,
            });
        }
        let bit = 1 << (self.depth % WORD_BITS);
        let word = &mut self.objects[self.depth / WORD_BITS];
        match container {
            Container::Object => *word |= bit,
            Container::Array => *word &= !bit,
        }
        self.depth += 1;
        sink.begin(container);
        Ok(())
    }

    fn close<S: Sink>(&mut self, sink: &mut S) {
        sink.end(self.innermost());
        self.depth -= 1;
        self.state = self.after_value();
    }

    /// The innermost open container; only asked where there is one.
    fn innermost(&self) -> Container {
        let level = self.depth.saturating_sub(1);
        if self.objects[level / WORD_BITS] >> (level % WORD_BITS) & 1 == 1 {
            Container::Object
        } else {
            Container::Array
        }
    }

    fn after_value(&self) -> State {
        if self.depth == 0 {
            State::Done
        } else {
            State::AfterItem
        }
    }

    fn syntax(&self, at: usize) -> Fault {
        Fault::Syntax {
            at: self.offset + at as u64,
        }
    }
}

/// Decimal digits at the front.
fn digits(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(bytes.len())
}

fn word_of(byte: u8) -> Option<State> {
    match byte {
        b't' => Some(State::Word(b"true", 1)),
        b'f' => Some(State::Word(b"false", 1)),
        b'n' => Some(State::Word(b"null", 1)),
        _ => None,
    }
}
