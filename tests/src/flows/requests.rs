//! Small requests at a fixed rate over kept connections.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::chunk::now_ns;
use super::cpu::Reading;
use super::poll::{IN, Poll, receive, schedule, send};
use super::spec::{Answer, SPEC_FIELD};

/// Bytes of one receive.
const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes of an answer's body.
const ANSWER_BYTES: usize = 300;

/// Requests to send.
#[derive(Clone, Debug)]
pub struct RequestLoad {
    /// Where.
    pub target: SocketAddr,
    /// Connections kept open.
    pub connections: usize,
    /// Requests a second over all of them; those that find no idle connection wait.
    pub rate: u32,
    /// Bytes of the prompt in a request's body.
    pub prompt_bytes: usize,
    /// Time that isn't counted.
    pub warmup: Duration,
    /// Time that is.
    pub measure: Duration,
    /// The processes between source and sink, and the source's.
    pub processes: Vec<u32>,
}

struct Conn {
    socket: TcpStream,
    answer: Vec<u8>,
    sent_at: u64,
}

struct Sender {
    poll: Poll,
    conns: Vec<Conn>,
    idle: Vec<usize>,
    request: Vec<u8>,
    buffer: Vec<u8>,
    done: u64,
    latency_ns: Histogram<u64>,
}

/// Sends requests; gives the figures as one JSON object.
///
/// # Errors
/// Where a connection can't be opened or breaks, or an answer isn't a 200.
pub fn run_requests(load: &RequestLoad) -> Result<Value> {
    schedule(false)?;
    let mut sender = Sender::new(load)?;
    sender.run(load.rate, now_ns() + nanos(load.warmup))?;
    sender.done = 0;
    sender.latency_ns.reset();
    let (started, cpu) = (now_ns(), Reading::now(&load.processes));
    sender.run(load.rate, started + nanos(load.measure))?;
    let cpu = Reading::now(&load.processes).since(cpu);
    let seconds = (now_ns() - started) as f64 / 1e9;
    let at = |quantile: f64| sender.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
    Ok(json!({
        "chunks": sender.done,
        "seconds": seconds,
        "cpu_system_s": cpu.system.as_secs_f64(),
        "cpu_own_s": (cpu.processes + cpu.own + cpu.kernel_threads).as_secs_f64(),
        "cpu_kernel_threads_s": cpu.kernel_threads.as_secs_f64(),
        "delay_p50_us": at(0.5),
        "delay_p99_us": at(0.99),
    }))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Sender {
    fn new(load: &RequestLoad) -> Result<Sender> {
        let poll = Poll::new()?;
        let mut conns = Vec::new();
        for key in 0..load.connections {
            let socket =
                TcpStream::connect(load.target).with_context(|| format!("connect to {}", load.target))?;
            socket.set_nodelay(true).context("nodelay")?;
            poll.add(socket.as_raw_fd(), key, IN)?;
            conns.push(Conn {
                socket,
                answer: Vec::new(),
                sent_at: 0,
            });
        }
        let body = body(load.prompt_bytes);
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             accept: */*\r\nuser-agent: bench\r\ncontent-length: {}\r\n{SPEC_FIELD}: {}\r\n\r\n{body}",
            body.len(),
            Answer::Whole { bytes: ANSWER_BYTES }.field()
        );
        Ok(Sender {
            poll,
            idle: (0..conns.len()).collect(),
            conns,
            request: request.into_bytes(),
            buffer: vec![0; RECEIVE_BYTES],
            done: 0,
            latency_ns: Histogram::new_with_bounds(1, 100_000_000_000, 3).context("histogram")?,
        })
    }

    fn run(&mut self, rate: u32, end: u64) -> Result<()> {
        let interval = 1_000_000_000 / u64::from(rate.max(1));
        let mut due = now_ns();
        loop {
            let now = now_ns();
            if now >= end {
                return Ok(());
            }
            while due <= now {
                let Some(key) = self.idle.pop() else { break };
                self.send(key)?;
                due += interval;
            }
            let wait = if self.idle.is_empty() { end } else { due.min(end) };
            let ready: Vec<(usize, u32)> = self.poll.wait(wait.saturating_sub(now))?.collect();
            for (key, _) in ready {
                self.receive(key)?;
            }
            // What couldn't be sent in time isn't made up for in a burst.
            due = due.max(now.saturating_sub(interval * 8));
        }
    }

    fn send(&mut self, key: usize) -> Result<()> {
        let conn = &mut self.conns[key];
        conn.sent_at = now_ns();
        let mut rest = &self.request[..];
        while !rest.is_empty() {
            match send(conn.socket.as_raw_fd(), rest).context("send")? {
                Some(count) => rest = &rest[count..],
                // A prompt larger than the socket's buffer: its peer is about to read.
                None => std::thread::yield_now(),
            }
        }
        Ok(())
    }

    fn receive(&mut self, key: usize) -> Result<()> {
        let conn = &mut self.conns[key];
        match receive(conn.socket.as_raw_fd(), &mut self.buffer).context("receive")? {
            None => return Ok(()),
            Some(0) => bail!("the connection was closed between requests"),
            Some(count) => conn.answer.extend_from_slice(&self.buffer[..count]),
        }
        let Some(head) = memchr::memmem::find(&conn.answer, b"\r\n\r\n") else {
            return Ok(());
        };
        if !conn.answer.starts_with(b"HTTP/1.1 200") {
            bail!(
                "answered {:?}",
                String::from_utf8_lossy(&conn.answer[..head.min(60)])
            );
        }
        if conn.answer.len() >= head + 4 + ANSWER_BYTES {
            conn.answer.clear();
            self.done += 1;
            self.latency_ns.saturating_record(now_ns() - conn.sent_at);
            self.idle.push(key);
        }
        Ok(())
    }
}

/// A chat request whose prompt has that many bytes of words.
fn body(prompt_bytes: usize) -> String {
    let words = "the quick brown fox jumps over the lazy dog and runs away ";
    let mut prompt = words.repeat(prompt_bytes / words.len() + 1);
    prompt.truncate(prompt_bytes);
    format!(
        r#"{{"model":"bench","messages":[{{"role":"system","content":"{prompt}"}},{{"role":"user","content":"go on"}}],"max_tokens":16}}"#
    )
}
