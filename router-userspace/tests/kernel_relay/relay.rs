//! A relay as the kernel path wants it: one thread, level-triggered poll, one small state machine a connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use router_common::framing::{Framing, Progress};
use router_userspace::datapath::kernel::{
    Arm, Armed, ClientSlot, Drain, Event, EventRing, FlowId, Kernel, SWEEP_INTERVAL, UpstreamSlot,
};
use router_userspace::types::BackendId;

const RELAY: u32 = 0;
const BUFFER_BYTES: usize = 64 * 1024;
/// Waits between looks at a client that isn't drained.
const DRAIN_WAITS_US: [u64; 3] = [100, 1_000, 5_000];

/// Where the relay hears of its flows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The ring, and the sweep every 50 ms.
    Ring,
    /// Only the sweep, on every turn: the ring fills up.
    SweepOnly,
}

/// What a relay has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) body_bytes: u64,
    pub(crate) carried_bytes: u64,
    pub(crate) arms: u64,
    pub(crate) more_to_read: u64,
    pub(crate) no_room: u64,
    pub(crate) spills: u64,
    pub(crate) ended_in_kernel: u64,
    pub(crate) malformed: u64,
    pub(crate) condemned: u64,
    pub(crate) upstreams_opened: u64,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Report) {
        self.body_bytes += other.body_bytes;
        self.carried_bytes += other.carried_bytes;
        self.arms += other.arms;
        self.more_to_read += other.more_to_read;
        self.no_room += other.no_room;
        self.spills += other.spills;
        self.ended_in_kernel += other.ended_in_kernel;
        self.malformed += other.malformed;
        self.condemned += other.condemned;
        self.upstreams_opened += other.upstreams_opened;
    }
}

struct Upstream {
    stream: TcpStream,
    slot: UpstreamSlot,
    /// Bytes read from it since it was inserted.
    read: u64,
    /// Bytes came behind the end of a message: nothing it sends can be trusted to be an answer.
    condemned: bool,
}

#[derive(Debug)]
enum Phase {
    /// The client's turn.
    Request,
    /// Reading the response's head.
    Head(Vec<u8>),
    /// Userspace reads and writes.
    Copy,
    /// The kernel's; nothing is read or written.
    Kernel,
    /// Taken back; waiting until the client's socket has all redirected bytes. Looks so far, and when to look again.
    Drain { looks: usize, at: Instant, cut: bool },
    /// To be dropped.
    Over,
}

struct Pair {
    client: TcpStream,
    client_slot: ClientSlot,
    upstream: Option<Upstream>,
    phase: Phase,
    framing: Framing,
    /// Bytes for the client that its socket hasn't taken yet.
    pending: Vec<u8>,
    /// After a spill the client gets one turn of copying before the kernel is asked again.
    read_since_arm: bool,
}

pub(crate) struct Relay {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    state: Arc<Mutex<String>>,
    thread: JoinHandle<Report>,
}

impl Relay {
    pub(crate) fn start(kernel: Kernel, upstream: SocketAddr, news: News) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("non-blocking");
        let stop = Arc::new(AtomicBool::new(false));
        let state = Arc::new(Mutex::new(String::new()));
        let (seen, shown) = (Arc::clone(&stop), Arc::clone(&state));
        let thread = std::thread::spawn(move || {
            let ring = match news {
                News::Ring => Some(kernel.events(RELAY).expect("the ring is taken once")),
                News::SweepOnly => None,
            };
            let mut turns = Turns {
                kernel,
                ring,
                listener,
                upstream,
                news,
                pairs: Vec::new(),
                pool: Vec::new(),
                report: Report::default(),
                swept: Instant::now(),
            };
            while !seen.load(Ordering::Relaxed) {
                turns.turn();
                if turns.swept.elapsed() < Duration::from_millis(2) {
                    *shown.lock().expect("no panic") = turns.describe();
                }
            }
            turns.report
        });
        Relay {
            addr,
            stop,
            state,
            thread,
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn dump(&self) -> String {
        self.state.lock().expect("no panic").clone()
    }

    /// Stops it; every connection it holds is dropped.
    pub(crate) fn stop(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the relay doesn't panic")
    }
}

struct Turns {
    kernel: Kernel,
    ring: Option<EventRing>,
    listener: TcpListener,
    upstream: SocketAddr,
    news: News,
    pairs: Vec<Pair>,
    pool: Vec<Upstream>,
    report: Report,
    swept: Instant,
}

impl Turns {
    fn describe(&self) -> String {
        let pair = |pair: &Pair| {
            let slot = pair
                .upstream
                .as_ref()
                .map(|up| (up.slot.state(), up.read, up.slot.passed(), up.slot.redirected()));
            format!(
                "{:?} {slot:?} {:?} pending {}",
                pair.phase,
                pair.framing,
                pair.pending.len()
            )
        };
        self.pairs.iter().map(pair).collect::<Vec<_>>().join("\n")
    }

    fn turn(&mut self) {
        let ready = self.wait();
        while let Ok((stream, _)) = self.listener.accept() {
            self.accept(stream);
        }
        let mut events: Vec<(FlowId, Event)> = Vec::new();
        if let Some(ring) = &mut self.ring {
            ring.drain(|id, event| events.push((id, event)));
        }
        if self.news == News::SweepOnly || self.swept.elapsed() >= SWEEP_INTERVAL {
            self.kernel
                .sweep_dirty(RELAY, |id, event| events.push((id, event)));
            self.swept = Instant::now();
        }
        for (id, event) in events {
            self.handle(id, event);
        }
        for (index, (client, upstream)) in ready.into_iter().enumerate() {
            let mut pair = self.pairs.swap_remove(index);
            if self.advance(&mut pair, client, upstream).is_err() {
                pair.phase = Phase::Over;
            }
            self.pairs.push(pair);
            let last = self.pairs.len() - 1;
            self.pairs.swap(index, last);
        }
        self.pairs
            .retain_mut(|pair| !matches!(pair.phase, Phase::Over) || !end(pair));
    }

    /// Polls; the result is what is ready for each pair, client and upstream.
    fn wait(&self) -> Vec<(i16, i16)> {
        let poll = |fd: i32, events: i16| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut fds = vec![poll(self.listener.as_raw_fd(), libc::POLLIN)];
        if let Some(ring) = &self.ring {
            fds.push(poll(ring.as_fd().as_raw_fd(), libc::POLLIN));
        }
        let first = fds.len();
        let mut timeout = if self.news == News::SweepOnly { 1 } else { 20 };
        for pair in &self.pairs {
            let (client, upstream) = interest(pair);
            fds.push(poll(pair.client.as_raw_fd(), client));
            fds.push(poll(
                pair.upstream.as_ref().map_or(-1, |up| up.stream.as_raw_fd()),
                upstream,
            ));
            if matches!(pair.phase, Phase::Drain { .. }) {
                timeout = 1;
            }
        }
        // SAFETY: `fds` is a live array of its length.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
        fds[first..]
            .chunks(2)
            .map(|both| (both[0].revents, both[1].revents))
            .collect()
    }

    fn accept(&mut self, client: TcpStream) {
        client.set_nonblocking(true).expect("non-blocking");
        client.set_nodelay(true).expect("no delay");
        // A client that was reset meanwhile is refused; nothing to relay then.
        let Ok(client_slot) = self.kernel.insert_client(client.as_fd()) else {
            return;
        };
        self.pairs.push(Pair {
            client,
            client_slot,
            upstream: None,
            phase: Phase::Request,
            framing: Framing::none(),
            pending: Vec::new(),
            read_since_arm: true,
        });
    }

    /// Step 5: whatever the event was, the flow is taken back and the client drained.
    fn handle(&mut self, id: FlowId, event: Event) {
        let Some(pair) = self
            .pairs
            .iter_mut()
            .find(|p| p.upstream.as_ref().is_some_and(|up| up.slot.id() == id))
        else {
            return;
        };
        // News of an arming that userspace has taken back itself.
        if !matches!(pair.phase, Phase::Kernel) {
            return;
        }
        self.report.spills += u64::from(event == Event::Spilled);
        self.report.ended_in_kernel += u64::from(event == Event::Ended);
        take_back(pair, &mut self.report, false);
    }

    fn advance(&mut self, pair: &mut Pair, client: i16, upstream: i16) -> io::Result<()> {
        // Rule 5: a client that leaves ends everything.
        if client & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        match &mut pair.phase {
            Phase::Request if client & libc::POLLIN != 0 => self.request(pair),
            Phase::Head(_) if upstream != 0 => self.head(pair),
            Phase::Copy => self.copy(pair, upstream),
            Phase::Kernel if upstream & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0 => {
                // All bytes before the end have gone through the program by now: what it redirected is settled
                // by the take-back, what it passed is read after the drain.
                take_back(pair, &mut self.report, true);
                Ok(())
            }
            Phase::Drain { at, .. } if Instant::now() >= *at => self.drain(pair),
            _ => Ok(()),
        }
    }

    fn request(&mut self, pair: &mut Pair) -> io::Result<()> {
        let mut request = [0u8; 8];
        if pair.client.read(&mut request)? != request.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut upstream = loop {
            match self.pool.pop() {
                // Bytes came while it was idle.
                Some(upstream) if upstream.slot.passed() != upstream.read => {
                    self.report.condemned += 1;
                    close(upstream);
                }
                Some(upstream) => break upstream,
                None => break self.connect()?,
            }
        };
        upstream.stream.write_all(&request)?;
        pair.upstream = Some(upstream);
        pair.phase = Phase::Head(Vec::new());
        Ok(())
    }

    /// Step 1: inserted before anything is sent.
    fn connect(&mut self) -> io::Result<Upstream> {
        let stream = TcpStream::connect(self.upstream)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let slot = self
            .kernel
            .insert_upstream(stream.as_fd())
            .map_err(io::Error::other)?;
        self.report.upstreams_opened += 1;
        Ok(Upstream {
            stream,
            slot,
            read: 0,
            condemned: false,
        })
    }

    /// Step 2.
    fn head(&mut self, pair: &mut Pair) -> io::Result<()> {
        let upstream = pair.upstream.as_mut().expect("a response has an upstream");
        let Some(bytes) = read(upstream)? else {
            return Ok(());
        };
        let Phase::Head(head) = &mut pair.phase else {
            return Ok(());
        };
        head.extend(bytes);
        let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(());
        };
        let body = head.split_off(end + 4);
        let text = String::from_utf8_lossy(head).into_owned();
        pair.framing = match text.split("content-length: ").nth(1) {
            Some(rest) => Framing::length(rest.trim().parse().expect("a length")),
            None => Framing::chunked(),
        };
        pair.pending = std::mem::take(head);
        pair.phase = Phase::Copy;
        pair.read_since_arm = true;
        self.take_body(pair, &body)?;
        self.flush(pair)
    }

    fn take_body(&mut self, pair: &mut Pair, bytes: &[u8]) -> io::Result<()> {
        let step = pair.framing.advance(bytes);
        pair.pending.extend_from_slice(&bytes[..step.consumed]);
        self.report.body_bytes += step.consumed as u64;
        if let Some(upstream) = &mut pair.upstream {
            upstream.condemned |= step.consumed < bytes.len();
        }
        if matches!(step.progress, Progress::Failed(_)) {
            self.report.malformed += 1;
            // What was well formed is the client's, also where the head came in the same segment.
            write_pending(pair)?;
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(())
    }

    fn copy(&mut self, pair: &mut Pair, upstream_ready: i16) -> io::Result<()> {
        if pair.pending.is_empty() && upstream_ready != 0 {
            let upstream = pair.upstream.as_mut().expect("a response has an upstream");
            match read(upstream) {
                Ok(None) => return Ok(()),
                Ok(Some(bytes)) => {
                    pair.read_since_arm = true;
                    self.take_body(pair, &bytes)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.flush(pair)
    }

    /// Writes what is pending; once all is written the response has ended or the kernel may have it: step 3.
    fn flush(&mut self, pair: &mut Pair) -> io::Result<()> {
        write_pending(pair)?;
        if !pair.pending.is_empty() {
            return Ok(());
        }
        if pair.framing.is_done() {
            return self.finish(pair);
        }
        if !std::mem::take(&mut pair.read_since_arm) {
            return Ok(());
        }
        let upstream = pair.upstream.as_mut().expect("a response has an upstream");
        let arm = Arm {
            framing: pair.framing,
            read: upstream.read,
            backend: BackendId(0),
            relay: RELAY,
        };
        match upstream.slot.arm(&pair.client_slot, pair.client.as_fd(), &arm)? {
            Armed::Armed => {
                self.report.arms += 1;
                pair.phase = Phase::Kernel;
            }
            Armed::MoreToRead => self.report.more_to_read += 1,
            Armed::NoRoom => self.report.no_room += 1,
        }
        Ok(())
    }

    /// Step 6, then 7.
    fn drain(&mut self, pair: &mut Pair) -> io::Result<()> {
        let Phase::Drain { looks, at, cut } = &mut pair.phase else {
            return Ok(());
        };
        let upstream = pair.upstream.as_mut().expect("a response has an upstream");
        match upstream.slot.drained(pair.client.as_fd())? {
            Drain::Lost => return Err(io::ErrorKind::ConnectionReset.into()),
            Drain::Waiting(_) => {
                *at = Instant::now()
                    + Duration::from_micros(DRAIN_WAITS_US[(*looks).min(DRAIN_WAITS_US.len() - 1)]);
                *looks += 1;
                return Ok(());
            }
            Drain::Drained => {}
        }
        let cut = *cut;
        if pair.framing.is_done() {
            return self.finish(pair);
        }
        pair.phase = Phase::Copy;
        // An upstream that has ended shows it to the next read, behind the bytes that it passed.
        if cut {
            self.copy(pair, libc::POLLIN)
        } else {
            Ok(())
        }
    }

    /// Step 8.
    fn finish(&mut self, pair: &mut Pair) -> io::Result<()> {
        pair.phase = Phase::Request;
        let upstream = pair.upstream.take().expect("a response has an upstream");
        if upstream.condemned || upstream.slot.passed() != upstream.read {
            self.report.condemned += 1;
            close(upstream);
        } else {
            self.pool.push(upstream);
        }
        Ok(())
    }
}

/// What to poll for, client and upstream.
fn interest(pair: &Pair) -> (i16, i16) {
    let input = if matches!(pair.phase, Phase::Request) {
        libc::POLLIN
    } else {
        0
    };
    let output = if pair.pending.is_empty() { 0 } else { libc::POLLOUT };
    let upstream = match pair.phase {
        Phase::Head(_) => libc::POLLIN,
        Phase::Copy if pair.pending.is_empty() => libc::POLLIN,
        // Never POLLIN: every redirected segment would wake this thread.
        Phase::Kernel => libc::POLLRDHUP,
        _ => 0,
    };
    (input | output | libc::POLLRDHUP, upstream)
}

fn take_back(pair: &mut Pair, report: &mut Report, cut: bool) {
    let upstream = pair.upstream.as_mut().expect("an armed flow has an upstream");
    let Ok(back) = upstream.slot.take_back(upstream.stream.as_fd()) else {
        pair.phase = Phase::Over;
        return;
    };
    pair.framing = back.framing;
    report.carried_bytes += back.carried;
    report.body_bytes += back.carried;
    pair.phase = Phase::Drain {
        looks: 0,
        at: Instant::now(),
        cut,
    };
}

/// Reads once; `None` = nothing there, which also readiness doesn't rule out.
fn read(upstream: &mut Upstream) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0u8; BUFFER_BYTES];
    match upstream.stream.read(&mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            upstream.read += count as u64;
            bytes.truncate(count);
            Ok(Some(bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Out of the map, then shut down, then closed.
fn close(upstream: Upstream) {
    let Upstream { stream, slot, .. } = upstream;
    drop(slot);
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// The end of a pair: the upstream stops at once; the client keeps what it was given. Always `true`.
fn end(pair: &mut Pair) -> bool {
    if let Some(mut upstream) = pair.upstream.take() {
        let _ = upstream.slot.take_back(upstream.stream.as_fd());
        close(upstream);
    }
    true
}

/// Writes what is pending, as far as the client takes it.
fn write_pending(pair: &mut Pair) -> io::Result<()> {
    while !pair.pending.is_empty() {
        match pair.client.write(&pair.pending) {
            Ok(count) => drop(pair.pending.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
