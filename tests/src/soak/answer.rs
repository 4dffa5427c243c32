//! An engine's answer: its bytes on the wire and what a client has to make of them.

use crate::message::Framing;
use crate::random::Random;

/// A whole answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) framing: Framing,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<(String, String)>,
    /// All of it as it goes out.
    pub(super) raw: Vec<u8>,
    /// Those of them that are its head.
    pub(super) head_bytes: usize,
    /// Whether the engine says that it closes behind it.
    pub(super) closes: bool,
    /// For each chunk where its data begins in `raw`, and in the body.
    chunks: Vec<(usize, usize)>,
}

impl Answer {
    pub(super) fn new(random: &mut Random, id: u64, bytes: usize) -> Answer {
        let body = random.bytes(bytes);
        let framing = match random.up_to(9) {
            0..=2 => Framing::Length(body.len() as u64),
            3 => Framing::Close,
            _ => Framing::Chunked,
        };
        let closes = framing == Framing::Close || random.up_to(19) == 0;
        let mut answer = Answer {
            status: [200, 200, 200, 201, 404][random.up_to(4)],
            framing,
            trailers: Vec::new(),
            raw: Vec::new(),
            head_bytes: 0,
            closes,
            chunks: Vec::new(),
            body,
        };
        answer.write_head(random, id);
        match framing {
            Framing::Chunked => answer.write_chunks(random),
            _ => answer.raw.extend_from_slice(&answer.body),
        }
        answer
    }

    fn write_head(&mut self, random: &mut Random, id: u64) {
        let mut head = String::new();
        if random.up_to(19) == 0 {
            head.push_str("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
        }
        head.push_str(&format!(
            "HTTP/1.1 {} Any\r\nX-Case: {id}\r\nX-Filler: {}\r\n",
            self.status,
            "f".repeat(random.up_to(300))
        ));
        match self.framing {
            Framing::Length(length) => head.push_str(&format!("Content-Length: {length}\r\n")),
            Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
            Framing::Close | Framing::None => {}
        }
        if self.closes {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        self.raw = head.into_bytes();
        self.head_bytes = self.raw.len();
    }

    fn write_chunks(&mut self, random: &mut Random) {
        // Never more than some thousand chunks: a test's time goes into their number.
        let part_max = [1, 40, 300, 4000, 64 << 10][random.up_to(4)].max(self.body.len() / 1000);
        let body = std::mem::take(&mut self.body);
        let mut before = 0;
        for part in random.split(&body, part_max.max(1)) {
            let extension = ["", "", "", "", ";a", ";a=b", ";q=\"\\\"x;\""][random.up_to(6)];
            let zeros = ["", "", "", "00"][random.up_to(3)];
            let line = if random.up_to(1) == 0 {
                format!("{zeros}{:x}{extension}\r\n", part.len())
            } else {
                format!("{zeros}{:X}{extension}\r\n", part.len())
            };
            self.raw.extend_from_slice(line.as_bytes());
            self.chunks.push((self.raw.len(), before));
            before += part.len();
            self.raw.extend_from_slice(part);
            self.raw.extend_from_slice(b"\r\n");
        }
        self.body = body;
        self.raw.extend_from_slice(b"0\r\n");
        if random.up_to(4) == 0 {
            self.trailers = vec![("X-Usage".to_owned(), format!("{}", random.next_u64()))];
        }
        for (name, value) in &self.trailers {
            self.raw
                .extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        self.raw.extend_from_slice(b"\r\n");
    }

    /// Bytes of the body among the first `raw` bytes of the answer.
    pub(super) fn payload_at(&self, raw: usize) -> usize {
        if self.framing != Framing::Chunked {
            return raw.saturating_sub(self.head_bytes);
        }
        let index = self.chunks.partition_point(|(start, _)| *start <= raw);
        let Some((start, before)) = index.checked_sub(1).map(|index| self.chunks[index]) else {
            return 0;
        };
        let next = self
            .chunks
            .get(index)
            .map_or(self.body.len(), |(_, before)| *before);
        (before + raw - start).min(next)
    }

    /// The answer of an engine that refuses.
    pub(super) fn refusal(id: u64, status: u16) -> (Vec<u8>, Vec<u8>) {
        let body = format!("refused {id} with {status}").into_bytes();
        let mut raw = format!(
            "HTTP/1.1 {status} Any\r\nX-Case: {id}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        raw.extend_from_slice(&body);
        (raw, body)
    }

    /// Where to cut `bytes` of the wire into writes.
    pub(super) fn write_max(random: &mut Random, bytes: usize) -> usize {
        let max: usize = match bytes {
            0..=4000 => [1, 7, 40, 400, 1 << 20][random.up_to(4)],
            4001..=100_000 => [100, 1500, 16 << 10, 1 << 20][random.up_to(3)],
            _ => [1500, 16 << 10, 64 << 10, 1 << 20][random.up_to(3)],
        };
        max.max(bytes / 400).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_counted_without_framing() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let answer = Answer::new(&mut random, 1, 500);
            assert_eq!(answer.payload_at(answer.head_bytes), 0);
            assert_eq!(answer.payload_at(answer.raw.len()), 500, "seed {seed}");
        }
    }
}
