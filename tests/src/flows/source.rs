//! The source: answers each request as its head asks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result};

use socket2::{Domain, Protocol, Socket, Type};

use super::chunk::{Template, now_ns};
use super::poll::{IN, OUT, Poll, receive, schedule, send};
use super::spec::{Answer, Ending, SPEC_FIELD};
use crate::Random;

/// Bytes written at once by a stream without pace.
const BURST_BYTES: usize = 64 << 10;
/// Bytes of one receive.
const RECEIVE_BYTES: usize = 64 << 10;
/// Connections that wait to be accepted: all streams of a load may come at once.
const BACKLOG: i32 = 4096;
/// How long the loop sleeps without a chunk due.
const IDLE_NS: u64 = 1_000_000_000;

/// Serves `listeners` on this thread until the process ends.
///
/// # Errors
/// Where epoll or the scheduling can't be had.
pub fn serve(listeners: Vec<TcpListener>, fifo: bool) -> Result<()> {
    schedule(fifo)?;
    let mut source = Source {
        poll: Poll::new()?,
        listeners,
        conns: Vec::new(),
        free: Vec::new(),
        due: BinaryHeap::new(),
        random: Random::new(1),
        buffer: vec![0; RECEIVE_BYTES],
    };
    for (token, listener) in source.listeners.iter().enumerate() {
        listener.set_nonblocking(true).context("listener")?;
        source.poll.add(listener.as_raw_fd(), token, IN)?;
    }
    loop {
        source.turn()?;
    }
}

struct Source {
    poll: Poll,
    listeners: Vec<TcpListener>,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// When the next chunk of which connection is due; the number tells it from its successor in the same place.
    due: BinaryHeap<Reverse<(u64, usize, u64)>>,
    random: Random,
    buffer: Vec<u8>,
}

struct Conn {
    stream: TcpStream,
    number: u64,
    /// A request under way.
    request: Vec<u8>,
    streaming: Option<Streaming>,
    /// Bytes that the socket didn't take.
    unsent: Vec<u8>,
}

struct Streaming {
    template: Template,
    interval_ns: u64,
}

impl Source {
    fn turn(&mut self) -> Result<()> {
        let now = now_ns();
        let sleep = self
            .due
            .peek()
            .map_or(IDLE_NS, |Reverse((due, ..))| due.saturating_sub(now));
        let ready: Vec<(usize, u32)> = self.poll.wait(sleep)?.collect();
        for (token, events) in ready {
            if token < self.listeners.len() {
                self.accept(token)?;
            } else {
                self.conn_ready(token - self.listeners.len(), events);
            }
        }
        self.send_due();
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> Result<()> {
        while let Ok((stream, _)) = self.listeners[listener].accept() {
            stream.set_nodelay(true).context("nodelay")?;
            let key = self.free.pop().unwrap_or_else(|| {
                self.conns.push(None);
                self.conns.len() - 1
            });
            self.poll
                .add(stream.as_raw_fd(), key + self.listeners.len(), IN)?;
            self.conns[key] = Some(Conn {
                stream,
                number: self.random.next_u64(),
                request: Vec::new(),
                streaming: None,
                unsent: Vec::new(),
            });
        }
        Ok(())
    }

    fn conn_ready(&mut self, key: usize, events: u32) {
        let token = key + self.listeners.len();
        let Some(conn) = self.conns.get_mut(key).and_then(Option::as_mut) else {
            return;
        };
        let mut alive = true;
        if events & OUT != 0 {
            alive = conn.flush(&self.poll, token);
            if alive && conn.unsent.is_empty() && conn.is_unpaced() {
                alive = conn.burst(&self.poll, token);
            }
        }
        if alive && events & !OUT != 0 {
            alive = match receive(conn.stream.as_raw_fd(), &mut self.buffer) {
                Ok(Some(0)) | Err(_) => false,
                Ok(Some(count)) => {
                    conn.request.extend_from_slice(&self.buffer[..count]);
                    conn.answer(&self.poll, token, &mut self.due, key, &mut self.random)
                }
                Ok(None) => true,
            };
        }
        if !alive {
            self.close(key);
        }
    }

    fn close(&mut self, key: usize) {
        // The close takes it out of epoll too.
        self.conns[key] = None;
        self.free.push(key);
    }

    fn send_due(&mut self) {
        loop {
            let now = now_ns();
            let Some(Reverse((due, key, number))) = self.due.peek().copied() else {
                return;
            };
            if due > now {
                return;
            }
            self.due.pop();
            let token = key + self.listeners.len();
            let Some(conn) = self.conns[key].as_mut().filter(|conn| conn.number == number) else {
                continue;
            };
            let Some(interval) = conn.streaming.as_ref().map(|streaming| streaming.interval_ns) else {
                continue;
            };
            // A reader that is behind by a whole interval gets fewer chunks, as of an engine that is blocked.
            if !conn.unsent.is_empty() || conn.send_chunk(&self.poll, token) {
                self.due.push(Reverse((due + interval, key, number)));
            } else {
                self.close(key);
            }
        }
    }
}

impl Conn {
    fn is_unpaced(&self) -> bool {
        self.streaming
            .as_ref()
            .is_some_and(|streaming| streaming.interval_ns == 0)
    }

    /// Answers the requests that are whole; `false` = the connection is of no more use.
    fn answer(
        &mut self,
        poll: &Poll,
        token: usize,
        due: &mut BinaryHeap<Reverse<(u64, usize, u64)>>,
        key: usize,
        random: &mut Random,
    ) -> bool {
        while self.streaming.is_none() {
            let Some((length, answer)) = whole_request(&self.request) else {
                return true;
            };
            self.request.drain(..length);
            let alive = match answer {
                Answer::Whole { bytes } => {
                    let mut reply = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
                    )
                    .into_bytes();
                    reply.resize(reply.len() + bytes, b'a');
                    self.put(&reply, poll, token)
                }
                Answer::Stream {
                    chunk_bytes,
                    interval_us,
                    ending,
                } => {
                    let interval_ns = interval_us * 1000;
                    let framing = match ending {
                        Ending::Chunked => "transfer-encoding: chunked",
                        Ending::Close => "connection: close",
                    };
                    let head =
                        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n");
                    self.streaming = Some(Streaming {
                        template: Template::new(chunk_bytes, ending),
                        interval_ns,
                    });
                    if interval_ns > 0 {
                        // Streams of one pace don't beat together.
                        let phase = random.next_u64() % interval_ns;
                        due.push(Reverse((now_ns() + phase, key, self.number)));
                    }
                    self.put(head.as_bytes(), poll, token) && (interval_ns > 0 || self.burst(poll, token))
                }
            };
            if !alive {
                return false;
            }
        }
        true
    }

    fn send_chunk(&mut self, poll: &Poll, token: usize) -> bool {
        let Some(mut streaming) = self.streaming.take() else {
            return true;
        };
        let alive = self.put(streaming.template.at(now_ns()), poll, token);
        self.streaming = Some(streaming);
        alive
    }

    /// Sends as much as the socket takes in one call, for a stream without pace.
    fn burst(&mut self, poll: &Poll, token: usize) -> bool {
        let Some(streaming) = &mut self.streaming else {
            return true;
        };
        let count = (BURST_BYTES / streaming.template.len()).max(1);
        let bytes = streaming.template.at(now_ns()).repeat(count);
        // Always waits for room afterwards, so that each connection gets its turn.
        self.put(&bytes, poll, token) && poll.modify(self.stream.as_raw_fd(), token, IN | OUT).is_ok()
    }

    fn put(&mut self, bytes: &[u8], poll: &Poll, token: usize) -> bool {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return true;
        }
        match send(self.stream.as_raw_fd(), bytes) {
            Ok(Some(count)) if count == bytes.len() => true,
            Ok(count) => {
                self.unsent.extend_from_slice(&bytes[count.unwrap_or(0)..]);
                poll.modify(self.stream.as_raw_fd(), token, IN | OUT).is_ok()
            }
            Err(_) => false,
        }
    }

    fn flush(&mut self, poll: &Poll, token: usize) -> bool {
        match send(self.stream.as_raw_fd(), &self.unsent) {
            Ok(count) => {
                self.unsent.drain(..count.unwrap_or(0));
                let paced = !self.is_unpaced();
                !(self.unsent.is_empty() && paced) || poll.modify(self.stream.as_raw_fd(), token, IN).is_ok()
            }
            Err(_) => false,
        }
    }
}

/// The first request of `bytes`, where it is whole: its length and what it asks.
///
/// A request that asks nothing is a proxy's health check.
fn whole_request(bytes: &[u8]) -> Option<(usize, Answer)> {
    let head_end = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_end]).ok()?;
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    let body = field("content-length")
        .and_then(|value| value.parse().ok())
        .unwrap_or(0);
    let asked = field(SPEC_FIELD).and_then(|value| Answer::parse(value).ok());
    let length = head_end + body;
    (bytes.len() >= length).then(|| (length, asked.unwrap_or(Answer::Whole { bytes: 2 })))
}

fn listen(addr: SocketAddr) -> Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Listeners on `count` ports of the loopback, or from `first` on.
///
/// # Errors
/// Where one can't be had.
pub fn listeners(first: SocketAddr, count: u16) -> Result<Vec<TcpListener>> {
    (0..count)
        .map(|index| {
            let mut addr = first;
            if first.port() != 0 {
                addr.set_port(first.port() + index);
            }
            listen(addr).with_context(|| format!("listen on {addr}"))
        })
        .collect()
}
