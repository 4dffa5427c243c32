//! A naive reader of answers, fed with whatever the socket gives.

use anyhow::{Context as _, Result, bail};

use crate::message::{Framing, Head};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Length,
    ChunkLine,
    ChunkData,
    ChunkEnd,
    Trailers,
    Close,
    Done,
}

/// One answer as far as it has come.
#[derive(Debug)]
pub(super) struct Reader {
    method: &'static str,
    phase: Phase,
    ahead: Vec<u8>,
    at: usize,
    left: usize,
    /// The final head.
    pub(super) head: Option<Head>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<(String, String)>,
}

impl Reader {
    /// For the answer to a request with `method`, of which `ahead` was read already.
    pub(super) fn new(method: &'static str, ahead: Vec<u8>) -> Reader {
        Reader {
            method,
            phase: Phase::Head,
            ahead,
            at: 0,
            left: 0,
            head: None,
            body: Vec::new(),
            trailers: Vec::new(),
        }
    }

    pub(super) fn done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether the close of the connection is the end of the body.
    pub(super) fn until_close(&self) -> bool {
        self.phase == Phase::Close
    }

    /// What was read behind the answer.
    pub(super) fn into_ahead(mut self) -> Vec<u8> {
        self.ahead.split_off(self.at)
    }

    /// Takes `bytes` in.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.ahead.extend_from_slice(bytes);
        while self.step()? {}
        if self.phase != Phase::Done {
            self.ahead.drain(..self.at);
            self.at = 0;
        }
        Ok(())
    }

    fn rest(&self) -> &[u8] {
        &self.ahead[self.at..]
    }

    fn through(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        let at = self
            .rest()
            .windows(mark.len())
            .position(|window| window == mark)?;
        let found = self.rest()[..at + mark.len()].to_vec();
        self.at += found.len();
        Some(found)
    }

    /// Moves up to `left` bytes to the body.
    fn data(&mut self) -> bool {
        let count = self.left.min(self.rest().len());
        let (from, to) = (self.at, self.at + count);
        self.body.extend_from_slice(&self.ahead[from..to]);
        self.at = to;
        self.left -= count;
        self.left == 0
    }

    /// One step; `false` = more bytes are needed, or it's done.
    fn step(&mut self) -> Result<bool> {
        match self.phase {
            Phase::Done => return Ok(false),
            Phase::Head => return self.take_head(),
            Phase::Length => {
                if !self.data() {
                    return Ok(false);
                }
                self.phase = Phase::Done;
            }
            Phase::Close => {
                self.left = usize::MAX;
                self.data();
                return Ok(false);
            }
            Phase::ChunkLine => {
                let Some(line) = self.through(b"\r\n") else {
                    return Ok(false);
                };
                let line = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
                let digits = line.split(';').next().unwrap_or_default();
                self.left =
                    usize::from_str_radix(digits, 16).with_context(|| format!("chunk line {line:?}"))?;
                self.phase = if self.left == 0 {
                    Phase::Trailers
                } else {
                    Phase::ChunkData
                };
            }
            Phase::ChunkData => {
                if !self.data() {
                    return Ok(false);
                }
                self.phase = Phase::ChunkEnd;
            }
            Phase::ChunkEnd => {
                if self.rest().len() < 2 {
                    return Ok(false);
                }
                if !self.rest().starts_with(b"\r\n") {
                    bail!("a chunk without its CRLF");
                }
                self.at += 2;
                self.phase = Phase::ChunkLine;
            }
            Phase::Trailers => {
                let Some(line) = self.through(b"\r\n") else {
                    return Ok(false);
                };
                let line = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
                if line.is_empty() {
                    self.phase = Phase::Done;
                } else {
                    let (name, value) = line
                        .split_once(": ")
                        .with_context(|| format!("trailer {line:?}"))?;
                    self.trailers.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        Ok(true)
    }

    fn take_head(&mut self) -> Result<bool> {
        let Some(raw) = self.through(b"\r\n\r\n") else {
            return Ok(false);
        };
        let head = Head::parse(&raw)?;
        if !head.start.starts_with("HTTP/1.1 ") {
            bail!("not an answer: {:?}", head.start);
        }
        if matches!(head.status(), 100 | 102..=199) {
            return Ok(true);
        }
        self.phase = match head.response_framing(self.method)? {
            _ if head.status() == 101 => Phase::Done,
            Framing::None | Framing::Length(0) => Phase::Done,
            Framing::Length(length) => {
                self.left = usize::try_from(length)?;
                Phase::Length
            }
            Framing::Chunked => Phase::ChunkLine,
            Framing::Close => Phase::Close,
        };
        self.head = Some(head);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::soak::answer::Answer;

    #[test]
    fn answers_are_read_however_they_are_cut() {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let answer = Answer::new(&mut random, 1, 2000);
            let mut reader = Reader::new("GET", Vec::new());
            let raw = [&answer.raw[..], b"next"].concat();
            for part in random.split(&raw, 37) {
                reader.feed(part).unwrap();
            }
            if answer.framing == Framing::Close {
                assert!(reader.until_close() && reader.body.starts_with(&answer.body));
                continue;
            }
            assert!(reader.done() && reader.body == answer.body && reader.trailers == answer.trailers);
            assert_eq!(reader.into_ahead(), b"next");
        }
    }
}
