//! The sink: opens streams, and times each chunk on its arrival.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::chunk::{Times, now_ns};
use super::cpu::{Reading, resident_bytes};
use super::poll::{IN, Poll, receive, schedule};
use super::spec::{Answer, SPEC_FIELD};

/// Bytes of one receive.
const RECEIVE_BYTES: usize = 256 << 10;
/// The longest delay that is told from longer ones.
const DELAY_MAX_NS: u64 = 100_000_000_000;

/// Streams to open, and how long to read them.
#[derive(Clone, Debug)]
pub struct StreamLoad {
    /// Where.
    pub target: SocketAddr,
    /// How many of each kind.
    pub streams: Vec<(usize, Answer)>,
    /// Time in which they are opened and not yet counted.
    pub warmup: Duration,
    /// Time in which chunks and CPU are counted.
    pub measure: Duration,
    /// The processes between source and sink, and the source's.
    pub processes: Vec<u32>,
    /// Those of them whose memory counts.
    pub memory_of: Vec<u32>,
    /// Whether the sink goes before all ordinary threads.
    pub fifo: bool,
}

struct Stream {
    socket: TcpStream,
    answered: bool,
    carry: Vec<u8>,
}

/// What was seen in the time that counts.
struct Seen {
    chunks: u64,
    bytes: u64,
    closed: u64,
    refused: u64,
    delay_ns: Histogram<u64>,
}

/// Reads streams; gives the figures as one JSON object.
///
/// # Errors
/// Where the streams can't be opened.
pub fn run_streams(load: &StreamLoad) -> Result<Value> {
    schedule(load.fifo)?;
    let asked: Vec<Answer> = interleave(&load.streams);
    let memory_before = resident_bytes(&load.memory_of);
    let mut sink = Sink {
        poll: Poll::new()?,
        streams: Vec::new(),
        times: Times::new(),
        buffer: vec![0; RECEIVE_BYTES + Times::CARRY_MAX],
        seen: Seen::new()?,
    };
    let begin = now_ns();
    let warmup = nanos(load.warmup);
    // The last fifth is for the newest streams to get under way.
    let step = warmup * 4 / 5 / asked.len().max(1) as u64;
    for (index, answer) in asked.iter().enumerate() {
        sink.open(load.target, answer)?;
        sink.read_until(begin + step * (index as u64 + 1))?;
    }
    // From the last one on, whenever that came.
    sink.read_until(now_ns() + warmup / 5)?;
    ensure!(
        sink.seen.refused == 0,
        "{} streams were refused",
        sink.seen.refused
    );
    sink.seen = Seen::new()?;
    let memory_open = resident_bytes(&load.memory_of);
    let (started, cpu) = (now_ns(), Reading::now(&load.processes));
    sink.read_until(started + nanos(load.measure))?;
    let cpu = Reading::now(&load.processes).since(cpu);
    let seconds = (now_ns() - started) as f64 / 1e9;
    Ok(figures(
        &sink.seen,
        cpu,
        seconds,
        memory_open.saturating_sub(memory_before),
    ))
}

/// All that is asked, the kinds in turn.
fn interleave(streams: &[(usize, Answer)]) -> Vec<Answer> {
    let most = streams.iter().map(|(count, _)| *count).max().unwrap_or(0);
    (0..most)
        .flat_map(|index| streams.iter().filter(move |(count, _)| index < *count))
        .map(|(_, answer)| *answer)
        .collect()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn figures(seen: &Seen, cpu: Reading, seconds: f64, memory: u64) -> Value {
    let at = |quantile: f64| seen.delay_ns.value_at_quantile(quantile) as f64 / 1e3;
    json!({
        "chunks": seen.chunks,
        "bytes": seen.bytes,
        "closed": seen.closed,
        "seconds": seconds,
        "cpu_system_s": cpu.system.as_secs_f64(),
        "cpu_own_s": (cpu.processes + cpu.own + cpu.kernel_threads).as_secs_f64(),
        "cpu_kernel_threads_s": cpu.kernel_threads.as_secs_f64(),
        "delay_p50_us": at(0.5),
        "delay_p99_us": at(0.99),
        "delay_p999_us": at(0.999),
        "delay_max_us": seen.delay_ns.max() as f64 / 1e3,
        "memory_bytes": memory,
    })
}

impl Seen {
    fn new() -> Result<Seen> {
        Ok(Seen {
            chunks: 0,
            bytes: 0,
            closed: 0,
            refused: 0,
            delay_ns: Histogram::new_with_bounds(1, DELAY_MAX_NS, 3).context("histogram")?,
        })
    }
}

struct Sink {
    poll: Poll,
    streams: Vec<Option<Stream>>,
    times: Times,
    buffer: Vec<u8>,
    seen: Seen,
}

impl Sink {
    fn open(&mut self, target: SocketAddr, answer: &Answer) -> Result<()> {
        let mut socket = TcpStream::connect(target).with_context(|| format!("connect to {target}"))?;
        socket.set_nodelay(true).context("nodelay")?;
        let body = br#"{"model":"bench","stream":true,"messages":[{"role":"user","content":"hello"}]}"#;
        let mut request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n{SPEC_FIELD}: {}\r\n\r\n",
            body.len(),
            answer.field()
        )
        .into_bytes();
        request.extend_from_slice(body);
        socket.write_all(&request).context("request")?;
        self.poll.add(socket.as_raw_fd(), self.streams.len(), IN)?;
        self.streams.push(Some(Stream {
            socket,
            answered: false,
            carry: Vec::new(),
        }));
        Ok(())
    }

    fn read_until(&mut self, end: u64) -> Result<()> {
        // Once at least: where opening is late, what has come is read nevertheless.
        loop {
            let left = end.saturating_sub(now_ns());
            let ready: Vec<(usize, u32)> = self.poll.wait(left)?.collect();
            for (key, _) in ready {
                self.read(key);
            }
            if left == 0 {
                return Ok(());
            }
        }
    }

    fn read(&mut self, key: usize) {
        let Some(stream) = self.streams[key].as_mut() else {
            return;
        };
        let carried = stream.carry.len();
        self.buffer[..carried].copy_from_slice(&stream.carry);
        match receive(stream.socket.as_raw_fd(), &mut self.buffer[carried..]) {
            Ok(None) => {}
            Ok(Some(0)) | Err(_) => {
                self.seen.closed += 1;
                self.streams[key] = None;
            }
            Ok(Some(count)) => {
                let (now, seen) = (now_ns(), &mut self.seen);
                let bytes = &self.buffer[..carried + count];
                if !stream.answered {
                    stream.answered = true;
                    seen.refused += u64::from(!bytes.starts_with(b"HTTP/1.1 200"));
                }
                let rest = self.times.find(bytes, |sent| {
                    seen.chunks += 1;
                    seen.delay_ns.saturating_record(now.saturating_sub(sent));
                });
                seen.bytes += count as u64;
                stream.carry.clear();
                stream.carry.extend_from_slice(&bytes[rest..]);
            }
        }
    }
}
