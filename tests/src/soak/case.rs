//! What one request of the soak is like: its client, its engine and its answer, all by one seed and one number.

use crate::message::Framing;
use crate::random::Random;

use super::answer::Answer;

/// The kinds of cases, as they stand in the target's query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Everything that can happen to one request.
    Any,
    /// A request without a body and a client that reads: what is pipelined.
    Simple,
    /// An upgraded connection.
    Tunnel,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Any => "any",
            Kind::Simple => "simple",
            Kind::Tunnel => "tunnel",
        }
    }

    fn of(word: &str) -> Option<Kind> {
        [Kind::Any, Kind::Simple, Kind::Tunnel]
            .into_iter()
            .find(|kind| kind.word() == word)
    }
}

/// What goes wrong at the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// It closes without an answer.
    BeforeHead,
    /// It closes inside the answer, after so many bytes of it.
    At(usize),
    /// It falls silent there.
    Silent(usize),
    /// It closes behind the message, on a connection that should be kept.
    Behind,
    /// It answers before it has read the body.
    Early,
    /// It refuses with this status.
    Refuses(u16),
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Close,
    Reset,
    /// It ends its sending side and goes on reading.
    Half,
}

/// How the client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manners {
    Reads,
    /// A small receive buffer, read a bit at a time.
    Slow,
    /// Reads up to this byte of the body, then nothing for a while.
    Stops {
        at: usize,
        pause_ms: u64,
    },
    /// Reads nothing for longer than the router waits.
    Never,
    /// Leaves after so many bytes of its request.
    LeavesSending {
        at: usize,
        how: How,
    },
    /// Leaves after so many bytes of the answer's body; 0 = before its head.
    LeavesReading {
        at: usize,
        how: How,
    },
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) method: &'static str,
    pub(super) http10: bool,
    /// The request as it goes out.
    pub(super) request: Vec<u8>,
    /// Its body, without framing.
    pub(super) upload: Vec<u8>,
    pub(super) answer: Answer,
    pub(super) fault: Fault,
    /// Tries of the request that meet the fault.
    pub(super) fault_tries: u32,
    /// Whether the engine dies by RST.
    pub(super) engine_resets: bool,
    pub(super) manners: Manners,
    /// Time that the engine thinks, in ms.
    pub(super) think_ms: u64,
    /// For the sizes of writes.
    pub(super) cuts: Random,
}

/// The sizes of bodies: most are small, a few are large.
fn body_bytes(random: &mut Random) -> usize {
    let max = match random.up_to(99) {
        0..=29 => 200,
        30..=59 => 4 << 10,
        60..=84 => 64 << 10,
        85..=96 => 300 << 10,
        _ => 2 << 20,
    };
    random.up_to(max)
}

/// The body of a client that never reads: more than all buffers on the way hold.
const NEVER_BYTES: usize = 20 << 20;

impl Case {
    /// Case number `id` of the soak with this seed.
    pub(super) fn new(seed: u64, id: u64, kind: Kind) -> Case {
        let mut random = Random::new(Random::new(seed ^ id.rotate_left(32)).next_u64());
        let never = kind == Kind::Any && random.up_to(499) == 0;
        let bytes = if never {
            NEVER_BYTES
        } else {
            body_bytes(&mut random)
        };
        let answer = Answer::new(&mut random, id, bytes);
        let http10 = kind == Kind::Any && random.up_to(19) == 0;
        let method = match random.up_to(9) {
            _ if kind == Kind::Tunnel || kind == Kind::Simple => "GET",
            _ if never => "GET",
            0 => "HEAD",
            1..=4 => "GET",
            _ => "POST",
        };
        let (request, upload) = request(&mut random, id, kind, method, http10);
        let fault = if never {
            Fault::None
        } else {
            fault(&mut random, kind, &answer)
        };
        let manners = if never {
            Manners::Never
        } else {
            manners(&mut random, kind, request.len(), answer.body.len())
        };
        Case {
            id,
            kind,
            method,
            http10,
            request,
            upload,
            answer,
            fault,
            fault_tries: [1, 1, 99][random.up_to(2)],
            engine_resets: random.up_to(1) == 0,
            manners,
            think_ms: [0, 0, 0, 1, 20][random.up_to(4)],
            cuts: random,
        }
    }

    /// The case that a request's target names.
    pub(super) fn of_target(seed: u64, target: &str) -> Option<Case> {
        let (_, query) = target.split_once("?case=")?;
        let (id, kind) = query.split_once("&kind=")?;
        Some(Case::new(seed, id.parse().ok()?, Kind::of(kind)?))
    }

    /// The answer's framing as an HTTP client of this request sees it.
    pub(super) fn client_framing(&self) -> Framing {
        match self.answer.framing {
            _ if self.method == "HEAD" => Framing::None,
            Framing::Chunked if self.http10 => Framing::Close,
            framing => framing,
        }
    }
}

fn fault(random: &mut Random, kind: Kind, answer: &Answer) -> Fault {
    let raw = answer.raw.len();
    let in_body = raw > answer.head_bytes;
    match random.up_to(99) {
        0..=2 => Fault::BeforeHead,
        3..=4 => Fault::At(1 + random.up_to(answer.head_bytes - 2)),
        5..=9 if in_body => Fault::At(answer.head_bytes + random.up_to(raw - answer.head_bytes - 1)),
        // At the last chunk above all, where the count of what is in flight is taken down.
        10..=13 if in_body => Fault::At(raw - 1 - random.up_to(4.min(raw - answer.head_bytes - 1))),
        14..=17 => Fault::Behind,
        18..=20 if kind == Kind::Any => Fault::Early,
        21..=26 => Fault::Refuses([429, 503, 500][random.up_to(2)]),
        27 if in_body && random.up_to(9) == 0 => {
            Fault::Silent(answer.head_bytes + random.up_to(raw - answer.head_bytes - 1))
        }
        _ => Fault::None,
    }
}

fn manners(random: &mut Random, kind: Kind, request: usize, body: usize) -> Manners {
    if kind != Kind::Any {
        return Manners::Reads;
    }
    let how = [How::Close, How::Reset, How::Half][random.up_to(2)];
    match random.up_to(99) {
        0..=6 => Manners::Slow,
        7..=11 => Manners::Stops {
            at: random.up_to(body),
            pause_ms: 50 + random.up_to(500) as u64,
        },
        12..=14 => Manners::LeavesSending {
            at: random.up_to(request - 1),
            how,
        },
        15..=17 => Manners::LeavesReading { at: 0, how },
        18..=24 => Manners::LeavesReading {
            at: random.up_to(body),
            how,
        },
        _ => Manners::Reads,
    }
}

const PATHS: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/tokenize",
    "/any",
];

/// The request's bytes, and its body alone.
fn request(random: &mut Random, id: u64, kind: Kind, method: &str, http10: bool) -> (Vec<u8>, Vec<u8>) {
    let upload = if method == "POST" {
        upload(random)
    } else {
        Vec::new()
    };
    let path = PATHS[random.up_to(PATHS.len() - 1)];
    let version = if http10 { "1.0" } else { "1.1" };
    let mut out = format!(
        "{method} {path}?case={id}&kind={} HTTP/{version}\r\nHost: soak\r\n",
        kind.word()
    );
    for index in 0..random.up_to(3) {
        out.push_str(&format!(
            "X-Filler-{index}: {}\r\n",
            "f".repeat(random.up_to(400))
        ));
    }
    if kind == Kind::Tunnel {
        out.push_str("Connection: Upgrade\r\nUpgrade: websocket\r\n");
    }
    let mut out = out.into_bytes();
    if method != "POST" {
        out.extend_from_slice(b"\r\n");
    } else if http10 || random.up_to(2) > 0 {
        out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", upload.len()).as_bytes());
        out.extend_from_slice(&upload);
    } else {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        let part_max = [10, 1000, 64 << 10][random.up_to(2)].max(upload.len() / 500);
        for part in random.split(&upload, part_max.max(1)) {
            out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
    }
    (out, upload)
}

/// A prompt, or any bytes.
fn upload(random: &mut Random) -> Vec<u8> {
    let bytes = body_bytes(random).min(512 << 10);
    if random.up_to(1) == 0 {
        return random.bytes(bytes);
    }
    let mut text = String::from(r#"{"model":"m","stream":true,"messages":[{"role":"user","content":""#);
    while text.len() < bytes {
        text.push_str(&format!("{:x} ", random.next_u64()));
    }
    text.push_str(r#""}]}"#);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_known_by_its_seed_and_its_target() {
        for id in 0..200 {
            let case = Case::new(7, id, Kind::Any);
            let head = String::from_utf8_lossy(&case.request).into_owned();
            let target = head.split(' ').nth(1).unwrap_or_default();
            let again = Case::of_target(7, target).expect("a case");
            assert_eq!((again.id, &again.answer.raw), (id, &case.answer.raw));
            assert_eq!((again.fault, again.manners), (case.fault, case.manners));
        }
    }
}
