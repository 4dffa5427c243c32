//! Upgraded connections: bytes both ways at once, ended by either side.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::answer::Answer;
use super::case::Case;
use super::client::Link;
use super::live::{Live, Shared};
use super::reader::Reader;
use crate::random::Random;
use crate::wire::Wire;

/// Who ends a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client ends its side; the engine ends its own when it has seen that.
    Client,
    /// The other way round.
    Engine,
    /// Each when it has sent everything.
    Both,
    /// The client resets in the middle.
    ClientResets,
    /// The engine does.
    EngineResets,
}

/// What a tunnel carries.
struct Plan {
    up: Vec<u8>,
    down: Vec<u8>,
    end: End,
    /// Whether the reading side is slow, the client's and the engine's.
    slow: (bool, bool),
    random: Random,
}

impl Plan {
    fn new(case: &Case) -> Plan {
        let mut random = case.cuts.clone();
        let mut bytes = || {
            let count = [100, 5_000, 400_000][random.up_to(2)];
            let count = random.up_to(count);
            random.bytes(count)
        };
        let (up, down) = (bytes(), bytes());
        let ends = [
            End::Client,
            End::Engine,
            End::Both,
            End::ClientResets,
            End::EngineResets,
        ];
        Plan {
            up,
            down,
            end: ends[random.up_to(4)],
            slow: (random.up_to(3) == 0, random.up_to(3) == 0),
            random,
        }
    }
}

/// The engine's side; the request has been read.
pub(super) fn engine(shared: &Shared, case: &Case, wire: &mut Wire) -> Result<()> {
    let plan = Plan::new(case);
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Case: {}\r\n\r\n",
        case.id
    );
    wire.send(head.as_bytes())?;
    let side = Side {
        out: &plan.down,
        expected: &plan.up,
        ends_first: matches!(plan.end, End::Engine | End::Both),
        resets: plan.end == End::EngineResets,
        peer_resets: plan.end == End::ClientResets,
        slow: plan.slow.1,
        random: plan.random,
    };
    let ahead = wire.read_ahead().to_vec();
    if let Err(what) = side.run(wire.stream(), ahead, shared.stall_max) {
        shared.fail(format!("tunnel {}: at the engine: {what:#}", case.id));
    }
    Ok(())
}

/// The client's side; the 101 has been read.
pub(super) fn client(shared: &Shared, case: &Case, link: Link, reader: Reader, live: &Live) -> Result<()> {
    let plan = Plan::new(case);
    let side = Side {
        out: &plan.up,
        expected: &plan.down,
        ends_first: matches!(plan.end, End::Client | End::Both),
        resets: plan.end == End::ClientResets,
        peer_resets: plan.end == End::EngineResets || live.cut.load(Ordering::Acquire),
        slow: plan.slow.0,
        random: plan.random,
    };
    side.run(&link.stream, reader.into_ahead(), shared.stall_max)
        .context("at the client")
}

struct Side<'a> {
    out: &'a [u8],
    expected: &'a [u8],
    /// Whether it ends its side when all is sent, or when the other one has ended.
    ends_first: bool,
    resets: bool,
    peer_resets: bool,
    slow: bool,
    random: Random,
}

impl Side<'_> {
    fn run(mut self, stream: &TcpStream, ahead: Vec<u8>, stall_max: Duration) -> Result<()> {
        stream.set_read_timeout(Some(stall_max))?;
        stream.set_write_timeout(Some(stall_max))?;
        let write_max = Answer::write_max(&mut self.random, self.out.len());
        let parts = self.random.split(self.out, write_max);
        let cut = self.resets.then(|| self.random.up_to(parts.len()));
        let may_break = self.resets || self.peer_resets;
        let (sent, received) = thread::scope(|scope| {
            let (ends_first, resets) = (self.ends_first, self.resets);
            let writer = scope.spawn(move || -> Result<()> {
                for (index, part) in parts.into_iter().enumerate() {
                    if Some(index) == cut {
                        break;
                    }
                    let mut stream = stream;
                    stream.write_all(part).context("send")?;
                }
                if resets {
                    // The reset itself comes with the close; this wakes the reading half.
                    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
                    stream.shutdown(Shutdown::Read)?;
                } else if ends_first {
                    stream.shutdown(Shutdown::Write)?;
                }
                Ok(())
            });
            let received = self.receive(stream, ahead);
            (writer.join(), received)
        });
        let sent = sent.map_err(|_| anyhow::anyhow!("a panic")).and_then(|sent| sent);
        if may_break {
            // A prefix is all that has to come; `receive` has checked it.
            return match received {
                Err(Trouble::Wrong(what)) => Err(anyhow::anyhow!(what)),
                Err(Trouble::Stalled) if !self.resets => Err(anyhow::anyhow!("a stall beside a reset")),
                _ => Ok(()),
            };
        }
        match received {
            Err(Trouble::Wrong(what) | Trouble::Broken(what)) => return Err(anyhow::anyhow!(what)),
            Err(Trouble::Stalled) => return Err(anyhow::anyhow!("a stall")),
            Ok(count) if count < self.expected.len() => {
                return Err(anyhow::anyhow!(
                    "ended after {count} of {} bytes",
                    self.expected.len()
                ));
            }
            Ok(_) => {}
        }
        sent?;
        if !self.ends_first {
            stream.shutdown(Shutdown::Write).context("shutdown")?;
        }
        Ok(())
    }

    /// Reads to the end, checking each byte.
    fn receive(&mut self, mut stream: &TcpStream, ahead: Vec<u8>) -> Result<usize, Trouble> {
        let mut count = 0;
        let mut take = |part: &[u8]| {
            if self.expected.get(count..count + part.len()) != Some(part) {
                return Err(Trouble::Wrong(format!("other bytes at {count}")));
            }
            count += part.len();
            Ok(count)
        };
        let mut taken = take(&ahead)?;
        let mut buffer = vec![0; if self.slow { 2048 } else { 64 << 10 }];
        loop {
            if self.slow {
                thread::sleep(Duration::from_millis(1));
            }
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(taken),
                Ok(bytes) => taken = take(&buffer[..bytes])?,
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {
                    return Err(Trouble::Stalled);
                }
                Err(error) => return Err(Trouble::Broken(format!("after {taken} bytes: {error}"))),
            }
        }
    }
}

enum Trouble {
    Wrong(String),
    Broken(String),
    Stalled,
}
