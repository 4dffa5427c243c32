//! The soak's engines: each request names its case, and the case says what the engine does.

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::answer::Answer;
use super::case::{Case, Fault, Kind};
use super::live::{Live, Phase, Shared};
use super::tunnel;
use crate::message::Head;
use crate::random::Random;
use crate::upstream::PROBE_ANSWER;
use crate::wire::Wire;

/// Times that an engine pauses in one answer.
const PAUSES_MAX: usize = 60;
/// Answers up to this size come token by token where they are paced.
const TOKENS_BYTES_MAX: usize = 20_000;
/// How long an engine is away when it restarts.
const AWAY: Duration = Duration::from_millis(300);
/// How long a silent engine waits for the router to give up.
const SILENCE: Duration = Duration::from_secs(20);

/// A listening engine.
#[derive(Debug)]
pub(super) struct Engine {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    stopping: AtomicBool,
    away: AtomicBool,
    /// Connections of an older life are dead.
    life: AtomicU64,
}

impl Engine {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Engine> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port")?;
        let address = listener.local_addr()?;
        let state = Arc::<State>::default();
        let (accepting, shared) = (Arc::clone(&state), Arc::clone(shared));
        let thread = thread::spawn(move || {
            let mut listener = Some(listener);
            while !accepting.stopping.load(Ordering::Acquire) {
                if accepting.away.load(Ordering::Acquire) {
                    drop(listener.take());
                    thread::sleep(AWAY);
                    accepting.life.fetch_add(1, Ordering::AcqRel);
                    accepting.away.store(false, Ordering::Release);
                }
                let open = match listener.take() {
                    Some(open) => open,
                    // The port may be another connection's for a moment.
                    None => match TcpListener::bind(address) {
                        Ok(open) => open,
                        Err(_) => {
                            thread::sleep(Duration::from_millis(5));
                            continue;
                        }
                    },
                };
                if let Ok((stream, _)) = open.accept() {
                    let (shared, state) = (Arc::clone(&shared), Arc::clone(&accepting));
                    thread::spawn(move || serve(stream, &shared, &state));
                }
                listener = Some(open);
            }
        });
        Ok(Engine {
            address,
            state,
            thread: Some(thread),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Dies with all its connections and comes back on the same port.
    pub(super) fn restart(&self) {
        self.state.life.fetch_add(1, Ordering::AcqRel);
        self.state.away.store(true, Ordering::Release);
        // Wakes the accepting thread; where that fails it isn't accepting.
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, shared: &Shared, state: &State) {
    let Ok(mut wire) = Wire::new(stream) else { return };
    let life = state.life.load(Ordering::Acquire);
    // Between requests a connection may end in any way.
    while let Ok(Some(head)) = wire.head() {
        let Some(case) = Case::of_target(shared.seed, head.target()) else {
            let probe = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                PROBE_ANSWER.len()
            );
            if wire.send(&[probe.as_bytes(), PROBE_ANSWER].concat()).is_err() {
                return;
            }
            continue;
        };
        let live = shared.live(case.id);
        let served = Serving {
            shared,
            dead: &|| state.life.load(Ordering::Acquire) != life,
            case: &case,
            live: &live,
            random: case.cuts.clone(),
        }
        .run(&mut wire, &head);
        match served {
            Ok(Next::Keep) => {}
            Ok(Next::Close) => return,
            Ok(Next::Reset) => {
                let _ = wire.reset();
                return;
            }
            // The router has closed: whether it should have is seen at the client.
            Err(_) => {
                live.refused.store(true, Ordering::Release);
                return;
            }
        }
    }
}

/// What becomes of the engine's connection.
enum Next {
    Keep,
    Close,
    Reset,
}

struct Serving<'a> {
    shared: &'a Shared,
    dead: &'a dyn Fn() -> bool,
    case: &'a Case,
    live: &'a Live,
    random: Random,
}

impl Serving<'_> {
    fn run(mut self, wire: &mut Wire, head: &Head) -> Result<Next> {
        let tries = self.live.tries.fetch_add(1, Ordering::AcqRel);
        if tries == 0 && self.case.upload.is_empty() && self.case.kind != Kind::Tunnel {
            self.note_request(head);
        }
        let fault = if tries < self.case.fault_tries {
            self.case.fault
        } else {
            Fault::None
        };
        if fault == Fault::Early {
            return self.early(wire, head);
        }
        self.take_body(wire, head)?;
        if (self.dead)() {
            self.live.died_early.store(true, Ordering::Release);
            return Ok(Next::Reset);
        }
        thread::sleep(Duration::from_millis(self.case.think_ms));
        if self.case.kind == Kind::Tunnel {
            return match fault {
                Fault::BeforeHead => Ok(self.die(&self.live.died_early)),
                _ => tunnel::engine(self.shared, self.case, wire).map(|()| Next::Close),
            };
        }
        match fault {
            Fault::None | Fault::Early => self.send(wire, usize::MAX),
            Fault::BeforeHead => Ok(self.die(&self.live.died_early)),
            Fault::At(at) => self.send(wire, at),
            Fault::Silent(at) => {
                let next = self.send(wire, at)?;
                if !matches!(next, Next::Keep) {
                    let _ = wire.stream().set_read_timeout(Some(SILENCE));
                    let _ = wire.closed();
                }
                Ok(next)
            }
            Fault::Behind => {
                if self.case.engine_resets {
                    // What is still on its way dies with the connection.
                    self.live.cut.store(true, Ordering::Release);
                }
                let next = self.send(wire, usize::MAX)?;
                thread::sleep(Duration::from_millis(self.random.up_to(3) as u64));
                Ok(if self.case.engine_resets {
                    Next::Reset
                } else {
                    next_close(next)
                })
            }
            Fault::Refuses(status) => {
                let (raw, body) = Answer::refusal(self.case.id, status);
                let raw = if self.case.method == "HEAD" {
                    &raw[..raw.len() - body.len()]
                } else {
                    &raw[..]
                };
                wire.send(raw)?;
                Ok(Next::Keep)
            }
        }
    }

    fn note_request(&self, head: &Head) {
        let Some(delay) = self.live.asked() else { return };
        if head.one("x-direct").is_some() {
            self.shared.counts.direct_requests.note(delay);
        } else if self.shared.in_phase(Phase::Calm) {
            self.shared.counts.calm_request_delays.note(delay);
        } else {
            self.shared.counts.request_delays.note(delay);
        }
    }

    fn die(&self, how: &AtomicBool) -> Next {
        how.store(true, Ordering::Release);
        if self.case.engine_resets {
            Next::Reset
        } else {
            Next::Close
        }
    }

    /// Answers first, then takes what still comes.
    fn early(mut self, wire: &mut Wire, head: &Head) -> Result<Next> {
        let next = self.send(wire, usize::MAX)?;
        // The router may have closed, since it sends no more of a body that was answered already.
        let body = wire.body(head.request_framing()?);
        Ok(if body.cut.is_some() { Next::Close } else { next })
    }

    fn take_body(&self, wire: &mut Wire, head: &Head) -> Result<()> {
        let body = wire.body(head.request_framing()?);
        if let Some(why) = body.cut {
            bail!("a cut request: {why}");
        }
        if body.bytes != self.case.upload {
            let (got, want) = (body.bytes.len(), self.case.upload.len());
            self.shared.fail(format!(
                "case {}: another body came up, {got} bytes for {want}",
                self.case.id
            ));
        }
        Ok(())
    }

    /// Sends the answer up to byte `until` of it, cut and paced as the case says.
    fn send(&mut self, wire: &mut Wire, until: usize) -> Result<Next> {
        let answer = &self.case.answer;
        let end = if self.case.method == "HEAD" {
            answer.head_bytes
        } else {
            answer.raw.len()
        };
        let whole = until >= end;
        let raw = &answer.raw[..until.min(end)];
        let max = Answer::write_max(&mut self.random, raw.len());
        let paced = self.random.up_to(2) == 0;
        let (mut sent, mut pauses) = (0, 0);
        for part in self.random.split(raw, max) {
            if (self.dead)() {
                let how = if sent < answer.head_bytes {
                    &self.live.died_early
                } else {
                    &self.live.cut
                };
                how.store(true, Ordering::Release);
                return Ok(Next::Reset);
            }
            if !whole && sent + part.len() == raw.len() {
                // Known before the client can see it.
                let how = if until < answer.head_bytes {
                    &self.live.died_early
                } else {
                    &self.live.cut
                };
                how.store(true, Ordering::Release);
            }
            wire.send(part)?;
            sent += part.len();
            self.live.note_sent(answer.payload_at(sent));
            let pause = paced && pauses < PAUSES_MAX;
            if pause && (raw.len() <= TOKENS_BYTES_MAX || self.random.up_to(3) == 0) {
                pauses += 1;
                thread::sleep(Duration::from_millis(self.random.up_to(3) as u64));
            }
        }
        Ok(match (whole, answer.closes) {
            (true, false) => Next::Keep,
            (true, true) => {
                // The client may already have closed its side.
                let _ = wire.stream().shutdown(Shutdown::Write);
                Next::Close
            }
            (false, _) if self.case.engine_resets => Next::Reset,
            (false, _) => Next::Close,
        })
    }
}

fn next_close(next: Next) -> Next {
    match next {
        Next::Keep => Next::Close,
        other => other,
    }
}
