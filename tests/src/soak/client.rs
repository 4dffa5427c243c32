//! The soak's clients: connections with requests one after another, pipelined, left and abandoned.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::answer::Answer;
use super::case::{Case, Fault, How, Kind, Manners};
use super::judge::{End, judge};
use super::live::{Live, Phase, Shared};
use super::reader::Reader;
use super::tunnel;
use crate::random::Random;

/// Requests on one connection.
const REQUESTS_MAX: usize = 8;
/// Requests sent at once.
const PIPELINED_MAX: usize = 5;
/// The receive buffer of some connections, so that a client that reads slowly is full soon.
const SMALL_BUFFER: usize = 4 << 10;
/// Pauses of a slow reader in one answer.
const SLOW_PAUSES_MAX: usize = 300;
/// The longest pause before a request in a calm phase, in ms.
const CALM_PAUSE_MS: usize = 600;
/// How long a client that never reads waits: longer than the router's `client_write`.
const NEVER_READS: Duration = Duration::from_millis(5500);

/// What a client connects to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// Whether it is an engine itself: what this host does without a router.
    pub(super) direct: bool,
}

/// A connection, with what was read ahead.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: TcpStream,
    ahead: Vec<u8>,
    small: bool,
}

/// Runs connections until the soak is stopped.
pub(super) fn run(shared: &Shared, target: Target, seed: u64) {
    let mut random = Random::new(seed);
    while !shared.stopped() {
        match connect(shared, target, &mut random) {
            Ok(link) => session(shared, target, link, &mut random),
            Err(error) => shared.fail(format!("a client can't connect: {error}")),
        }
    }
}

fn connect(shared: &Shared, target: Target, random: &mut Random) -> io::Result<Link> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(target.address),
        socket2::Type::STREAM,
        None,
    )?;
    let small = random.up_to(4) == 0;
    if small {
        socket.set_recv_buffer_size(SMALL_BUFFER)?;
    }
    socket.connect_timeout(&target.address.into(), shared.stall_max)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_read_timeout(Some(shared.stall_max))?;
    socket.set_write_timeout(Some(shared.stall_max))?;
    shared.counts.connections.one();
    Ok(Link {
        stream: socket.into(),
        ahead: Vec::new(),
        small,
    })
}

fn session(shared: &Shared, target: Target, mut link: Link, random: &mut Random) {
    let requests = 1 + random.up_to(REQUESTS_MAX - 1);
    let mut sent = 0;
    while sent < requests && !shared.stopped() {
        let (kind, count) = match random.up_to(19) {
            _ if target.direct => (Kind::Any, 1),
            0 => (Kind::Tunnel, 1),
            1..=3 => (Kind::Simple, 2 + random.up_to(PIPELINED_MAX - 2)),
            _ => (Kind::Any, 1),
        };
        sent += count;
        let batch: Vec<(Case, Arc<Live>)> = (0..count)
            .map(|_| {
                let case = next_case(shared, target, kind);
                let live = shared.begin(case.id);
                (case, live)
            })
            .collect();
        if !shared.in_phase(Phase::Rush) {
            thread::sleep(Duration::from_millis(random.up_to(CALM_PAUSE_MS) as u64));
        }
        let kept = exchange(shared, target, link, &batch, random);
        for (case, _) in &batch {
            shared.end(case.id);
        }
        match kept {
            Some(kept) if !target.direct => link = kept,
            _ => return,
        }
    }
}

/// The next case; nobody ends the silence of an engine that is spoken to directly.
fn next_case(shared: &Shared, target: Target, kind: Kind) -> Case {
    loop {
        let case = Case::new(shared.seed, shared.next_id(), kind);
        if !(target.direct && matches!(case.fault, Fault::Silent(_))) {
            return case;
        }
    }
}

/// Sends the requests of a batch at once and reads their answers; the connection, where it stays.
fn exchange(
    shared: &Shared,
    target: Target,
    mut link: Link,
    batch: &[(Case, Arc<Live>)],
    random: &mut Random,
) -> Option<Link> {
    let mut bytes = Vec::new();
    for (case, _) in batch {
        bytes.extend_from_slice(&request_bytes(case, target.direct));
    }
    let (first, first_live) = batch.first()?;
    let until = match first.manners {
        Manners::LeavesSending { at, .. } => at,
        _ => bytes.len(),
    };
    first_live.note_asked();
    let sent_all = send(&link.stream, &bytes[..until], random).is_ok();
    if let Manners::LeavesSending { how, .. } = first.manners {
        return leave(
            shared,
            first,
            first_live,
            link,
            Reader::new(first.method, Vec::new()),
            how,
        );
    }
    for (case, live) in batch {
        shared.counts.requests.one();
        let ahead = std::mem::take(&mut link.ahead);
        let mut reader = Reader::new(case.method, ahead);
        let end = match receive(shared, target, case, live, &link, &mut reader) {
            Received::Ended(end) => end,
            Received::Leave(how) => return leave(shared, case, live, link, reader, how),
            Received::Wrong(what) => {
                shared.fail(format!("{}: {what}", describe(case)));
                return None;
            }
        };
        let upgraded = reader.head.as_ref().is_some_and(|head| head.status() == 101);
        if upgraded && case.kind == Kind::Tunnel {
            if let Err(what) = tunnel::client(shared, case, link, reader, live) {
                shared.fail(format!("tunnel {}: {what:#}", case.id));
            }
            shared.counts.tunnels.one();
            return None;
        }
        if let Err(what) = judge(shared, case, live, &reader, end, !sent_all || target.direct) {
            shared.fail(format!("{}: {what}", describe(case)));
            return None;
        }
        let head = reader.head.as_ref()?;
        let closes = head.connection_has("close") || reader.until_close() || case.http10;
        if end != End::Complete {
            return None;
        }
        link.ahead = reader.into_ahead();
        if closes && !target.direct {
            expect_close(shared, case, &mut link);
            return None;
        }
    }
    if !link.ahead.is_empty() {
        shared.fail(format!("{} bytes behind the last answer", link.ahead.len()));
        return None;
    }
    Some(link)
}

/// A case in words, for a failure.
fn describe(case: &Case) -> String {
    format!(
        "case {} ({} http10={} upload={} answer={:?} {} bytes, body {}, head {}, {:?} x{} resets={}, {:?})",
        case.id,
        case.method,
        case.http10,
        case.upload.len(),
        case.answer.framing,
        case.answer.raw.len(),
        case.answer.body.len(),
        case.answer.head_bytes,
        case.fault,
        case.fault_tries,
        case.engine_resets,
        case.manners
    )
}

fn request_bytes(case: &Case, direct: bool) -> Vec<u8> {
    let mut bytes = case.request.clone();
    if direct {
        let line = bytes.windows(2).position(|pair| pair == b"\r\n").unwrap_or(0) + 2;
        bytes.splice(line..line, *b"X-Direct: 1\r\n");
    }
    bytes
}

fn send(mut stream: &TcpStream, bytes: &[u8], random: &mut Random) -> io::Result<()> {
    let max = Answer::write_max(random, bytes.len());
    for part in random.split(bytes, max) {
        stream.write_all(part)?;
    }
    Ok(())
}

/// How reading an answer went on.
enum Received {
    Ended(End),
    /// It's time to leave.
    Leave(How),
    /// The bytes are malformed.
    Wrong(String),
}

/// Reads one answer by the manners of its case.
fn receive(
    shared: &Shared,
    target: Target,
    case: &Case,
    live: &Live,
    link: &Link,
    reader: &mut Reader,
) -> Received {
    let mut pauses = 0;
    let mut stopped = false;
    if case.manners == Manners::Never {
        thread::sleep(NEVER_READS);
    }
    if let Err(what) = reader.feed(&[]) {
        return Received::Wrong(format!("{what:#}"));
    }
    let mut buffer = vec![0; 64 << 10];
    while !reader.done() {
        let mut room = buffer.len();
        match case.manners {
            Manners::LeavesReading { at: 0, how } => {
                thread::sleep(Duration::from_millis(case.think_ms / 2));
                return Received::Leave(how);
            }
            Manners::LeavesReading { at, how } if reader.body.len() >= at => return Received::Leave(how),
            Manners::Slow if pauses < SLOW_PAUSES_MAX => {
                pauses += 1;
                room = 1 + reader.body.len() % 3000;
                thread::sleep(Duration::from_millis(1));
            }
            Manners::Stops { at, pause_ms } if !stopped && reader.body.len() >= at => {
                stopped = true;
                thread::sleep(Duration::from_millis(pause_ms));
            }
            _ => {}
        }
        let before = reader.body.len();
        match (&link.stream).read(&mut buffer[..room]) {
            Ok(0) if reader.until_close() => return Received::Ended(End::Complete),
            Ok(0) => return Received::Ended(End::Closed),
            Ok(count) => {
                if let Err(what) = reader.feed(&buffer[..count]) {
                    return Received::Wrong(format!("{what:#}"));
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Received::Ended(End::Stalled);
            }
            Err(_) => return Received::Ended(End::Reset),
        }
        let measured = case.manners == Manners::Reads && !link.small && reader.body.len() > before;
        if measured && live.tries.load(Ordering::Acquire) == 1 {
            let calm = shared.in_phase(Phase::Calm);
            let delays = match (target.direct, calm) {
                (true, _) => &shared.counts.direct,
                (false, true) => &shared.counts.calm_delays,
                (false, false) => &shared.counts.delays,
            };
            if let Some(delay) = live.under_way(before) {
                delays.note(delay);
            }
        }
    }
    Received::Ended(End::Complete)
}

/// Leaves; one that only ended its sending side reads on, and what comes has to be its own.
fn leave(
    shared: &Shared,
    case: &Case,
    live: &Live,
    link: Link,
    mut reader: Reader,
    how: How,
) -> Option<Link> {
    shared.counts.left.one();
    match how {
        How::Close => {}
        How::Reset => {
            // Where the option can't be set it is a close.
            let _ = socket2::SockRef::from(&link.stream).set_linger(Some(Duration::ZERO));
        }
        How::Half => {
            let _ = link.stream.shutdown(Shutdown::Write);
            let mut buffer = vec![0; 64 << 10];
            loop {
                match (&link.stream).read(&mut buffer) {
                    Ok(count) if count > 0 => {
                        if let Err(what) = reader.feed(&buffer[..count]) {
                            shared.fail(format!("{}: {what:#}", describe(case)));
                            break;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        shared.fail(format!("{}: the router doesn't close", describe(case)));
                        break;
                    }
                    _ => break,
                }
            }
            let end = if reader.done() { End::Complete } else { End::Reset };
            if let Err(what) = judge(shared, case, live, &reader, end, true) {
                shared.fail(format!("{} after a half-close: {what}", describe(case)));
            }
        }
    }
    None
}

/// Waits for the close that the answer has announced.
fn expect_close(shared: &Shared, case: &Case, link: &mut Link) {
    if !link.ahead.is_empty() {
        let count = link.ahead.len();
        shared.fail(format!(
            "{}: {count} bytes behind an answer that closes",
            describe(case)
        ));
        return;
    }
    match (&link.stream).read(&mut [0; 1]) {
        Ok(0) => {}
        Ok(_) => shared.fail(format!("{}: bytes behind an answer that closes", describe(case))),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            shared.fail(format!(
                "{}: an answer announced a close that doesn't come",
                describe(case)
            ));
        }
        // A reset closes as well.
        Err(_) => {}
    }
}
