//! The two ends: a server that streams seeded bodies and a client that knows what it must receive.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use router_common::framing::{Framing, Progress};
use router_userspace::types::Rng;

/// Waits for a condition; the deadline is for a broken program, not for a slow machine.
pub(crate) fn until(deadline: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !holds() {
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How the server sends and the client reads. Everything follows from the response's seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    chunks_max: usize,
    chunk_bytes_max: usize,
    /// Pause behind the head, as of a model that thinks, and behind one write in `pause_every`.
    pause: Duration,
    pause_every: usize,
    /// Bytes of one write: 0 = a whole chunk.
    write_bytes_max: usize,
    extensions: bool,
    /// One response in this many has a Content-Length.
    length_every: usize,
    /// The client sleeps so long behind each read, through a small window.
    reader_pause: Duration,
    end: End,
    /// Added to every seed.
    seeds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Endless,
    Cut,
    Malformed,
    Excess,
}

impl Plan {
    pub(crate) fn paced() -> Plan {
        Plan {
            chunks_max: 300,
            chunk_bytes_max: 1_500,
            pause: Duration::from_micros(300),
            pause_every: 3,
            write_bytes_max: 0,
            extensions: false,
            length_every: 5,
            reader_pause: Duration::ZERO,
            end: End::Whole,
            seeds: 0,
        }
    }

    pub(crate) fn flood() -> Plan {
        Plan {
            reader_pause: Duration::ZERO,
            ..Plan::flood_of_slow_readers()
        }
    }

    pub(crate) fn with_seeds(self, seeds: u64) -> Plan {
        Plan { seeds, ..self }
    }

    pub(crate) fn flood_of_slow_readers() -> Plan {
        Plan {
            chunks_max: 200,
            chunk_bytes_max: 40_000,
            pause_every: usize::MAX,
            reader_pause: Duration::from_millis(1),
            ..Plan::paced()
        }
    }

    pub(crate) fn shredded() -> Plan {
        Plan {
            chunks_max: 60,
            chunk_bytes_max: 40,
            pause: Duration::from_micros(50),
            pause_every: 1,
            write_bytes_max: 9,
            extensions: true,
            length_every: usize::MAX,
            ..Plan::paced()
        }
    }

    pub(crate) fn tiny() -> Plan {
        Plan {
            chunks_max: 3,
            chunk_bytes_max: 100,
            pause: Duration::from_micros(400),
            pause_every: 1,
            ..Plan::paced()
        }
    }

    pub(crate) fn endless() -> Plan {
        Plan {
            chunks_max: 1_000_000,
            length_every: usize::MAX,
            end: End::Endless,
            ..Plan::paced()
        }
    }

    pub(crate) fn cut() -> Plan {
        Plan {
            end: End::Cut,
            ..Plan::paced()
        }
    }

    pub(crate) fn excess() -> Plan {
        Plan {
            chunks_max: 40,
            end: End::Excess,
            ..Plan::paced()
        }
    }

    pub(crate) fn malformed() -> Plan {
        Plan {
            length_every: usize::MAX,
            end: End::Malformed,
            ..Plan::paced()
        }
    }

    /// The writes of a response: the head, then the body as it lies on the wire.
    fn writes(&self, seed: u64) -> (Rng, bool, usize) {
        let mut rng = Rng::new(seed.wrapping_add(self.seeds));
        let has_length = rng.below(self.length_every) == 0 && self.length_every != usize::MAX;
        let chunks = if self.end == End::Endless {
            self.chunks_max
        } else {
            1 + rng.below(self.chunks_max)
        };
        (rng, has_length, chunks)
    }

    /// One chunk's payload.
    fn payload(&self, rng: &mut Rng) -> Vec<u8> {
        let bytes = 1 + rng.below(self.chunk_bytes_max);
        let first = rng.next_u64();
        (0..bytes as u64)
            .map(|index| (first.wrapping_mul(index | 1) >> 24) as u8)
            .collect()
    }

    /// The body of a response on the wire, in pieces.
    fn body(&self, seed: u64) -> (bool, Vec<Vec<u8>>) {
        let (mut rng, has_length, chunks) = self.writes(seed);
        let mut pieces: Vec<Vec<u8>> = (0..chunks)
            .map(|_| {
                let payload = self.payload(&mut rng);
                if has_length {
                    payload
                } else {
                    self.chunk(&payload, &mut rng)
                }
            })
            .collect();
        match self.end {
            End::Whole | End::Excess if has_length => {}
            End::Whole if self.extensions => pieces.push(b"000;last\r\nx-sum: 1\r\nY:\r\n\r\n".to_vec()),
            End::Whole | End::Excess => pieces.push(b"0\r\n\r\n".to_vec()),
            End::Malformed => pieces.push(b"3x\r\nabc\r\n".to_vec()),
            End::Cut | End::Endless => {}
        }
        if self.write_bytes_max > 0 {
            let all = pieces.concat();
            pieces.clear();
            let mut at = 0;
            while at < all.len() {
                let end = (at + 1 + rng.below(self.write_bytes_max)).min(all.len());
                pieces.push(all[at..end].to_vec());
                at = end;
            }
        }
        (has_length, pieces)
    }

    fn chunk(&self, payload: &[u8], rng: &mut Rng) -> Vec<u8> {
        let extension = if self.extensions && rng.below(2) == 0 {
            " ;k=\"v;w\""
        } else {
            ""
        };
        let zeros = "0".repeat(if self.extensions { rng.below(3) } else { 0 });
        let mut chunk = format!("{zeros}{:x}{extension}\r\n", payload.len()).into_bytes();
        chunk.extend(payload);
        chunk.extend(b"\r\n");
        chunk
    }

    pub(crate) fn body_bytes_before_cut(&self, seed: u64) -> Vec<u8> {
        self.body(seed).1.concat()
    }
}

/// Answers requests of 8 bytes (the seed) on any number of connections.
pub(crate) struct Server {
    addr: SocketAddr,
    cut_short: Arc<AtomicU64>,
}

impl Server {
    pub(crate) fn start(plan: Plan) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let cut_short = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&cut_short);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || {
                    if serve(stream, plan).is_err() {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Server { addr, cut_short }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Responses that the peer didn't take to their end.
    pub(crate) fn cut_short(&self) -> u64 {
        self.cut_short.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, plan: Plan) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0u8; 8];
    while stream.read_exact(&mut request).is_ok() {
        let seed = u64::from_le_bytes(request);
        if plan.end == End::Endless {
            return serve_endless(&mut stream, plan, seed);
        }
        let (has_length, pieces) = plan.body(seed);
        let total: usize = pieces.iter().map(Vec::len).sum();
        let length = if plan.end == End::Cut { total + 10 } else { total };
        let head = if has_length {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")
        } else {
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()
        };
        stream.write_all(head.as_bytes())?;
        std::thread::sleep(plan.pause);
        let held_back = usize::from(plan.end == End::Excess);
        for (index, piece) in pieces[..pieces.len() - held_back].iter().enumerate() {
            stream.write_all(piece)?;
            if index % plan.pause_every == plan.pause_every - 1 {
                std::thread::sleep(plan.pause);
            }
        }
        match plan.end {
            End::Whole => {}
            End::Excess => write_with_excess(&mut stream, pieces.last().map_or(&[], Vec::as_slice), seed)?,
            _ => break,
        }
    }
    Ok(())
}

/// The last piece and bytes that nobody asked for: in one segment, or behind it.
fn write_with_excess(stream: &mut TcpStream, last: &[u8], seed: u64) -> io::Result<()> {
    const EXCESS: &[u8] = b"HTTP/1.1 200 OK\r\n";
    if seed.is_multiple_of(2) {
        return stream.write_all(&[last, EXCESS].concat());
    }
    stream.write_all(last)?;
    stream.write_all(EXCESS)
}

fn serve_endless(stream: &mut TcpStream, plan: Plan, seed: u64) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
    loop {
        std::thread::sleep(plan.pause);
        let payload = plan.payload(&mut rng);
        stream.write_all(&plan.chunk(&payload, &mut rng))?;
    }
}

/// One client connection.
pub(crate) struct Client {
    stream: TcpStream,
    plan: Plan,
    /// Bytes received and not yet taken.
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr, plan: Plan) -> Client {
        let stream = TcpStream::connect(addr).expect("the relay listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a timeout");
        if !plan.reader_pause.is_zero() {
            socket2::SockRef::from(&stream)
                .set_recv_buffer_size(128 * 1024)
                .expect("a buffer size");
        }
        let buffer = Vec::new();
        Client { stream, plan, buffer }
    }

    pub(crate) fn ask(&mut self, seed: u64) -> io::Result<()> {
        self.stream.write_all(&seed.to_le_bytes())
    }

    /// Reads once and forgets.
    pub(crate) fn swallow(&mut self) -> io::Result<()> {
        let mut bytes = [0u8; 65_536];
        self.stream.read(&mut bytes).map(|_| ())
    }

    /// One request and its response, compared byte by byte with what the server must have sent.
    pub(crate) fn exchange(&mut self, seed: u64) -> io::Result<()> {
        // Made first, so that a slow build of the test isn't a slow reader.
        let (has_length, pieces) = self.plan.body(seed);
        let expected = pieces.concat();
        self.ask(seed)?;
        let head = self.head()?;
        let mut framing = if has_length {
            Framing::length(expected.len() as u64)
        } else {
            Framing::chunked()
        };
        let mut body = Vec::new();
        loop {
            let step = framing.advance(&self.buffer);
            body.extend(self.buffer.drain(..step.consumed));
            match step.progress {
                Progress::Done => break,
                Progress::More => self.fill()?,
                Progress::Failed(error) => {
                    return Err(fault(seed, &format!("{error} after {} bytes", body.len())));
                }
            }
        }
        if body != expected {
            let at = body.iter().zip(&expected).position(|(a, b)| a != b);
            return Err(fault(seed, &format!("differs at {at:?}; head {head:?}")));
        }
        if !self.buffer.is_empty() {
            return Err(fault(seed, "bytes behind the end"));
        }
        Ok(())
    }

    /// One request whose response ends too early: the body bytes that came.
    pub(crate) fn receive_until_cut(&mut self, seed: u64) -> io::Result<Vec<u8>> {
        self.ask(seed)?;
        self.head()?;
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    fn head(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Ok(String::from_utf8_lossy(&head).into_owned());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        std::thread::sleep(self.plan.reader_pause);
        let mut bytes = [0u8; 32_768];
        match self.stream.read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.buffer.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}

fn fault(seed: u64, what: &str) -> io::Error {
    io::Error::other(format!("response {seed}: {what}"))
}
