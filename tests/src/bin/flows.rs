//! The ends of the datapath bench as a program: `flows source`, `flows streams`, `flows requests`, `flows burner`.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use warmpath_tests::flows::{Answer, RequestLoad, StreamLoad, listeners, run_requests, run_streams, serve};

/// Ends of the datapath bench.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    end: End,
}

#[derive(Debug, Subcommand)]
enum End {
    /// Answer requests as they ask.
    Source {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Consecutive ports, or as many free ones.
        #[arg(long, default_value_t = 1)]
        count: u16,
        /// Before all ordinary threads.
        #[arg(long)]
        fifo: bool,
    },
    /// Read streams and time their chunks; figures as one line of JSON.
    Streams {
        #[command(flatten)]
        common: Common,
        /// COUNT of what: "200 chunked 200 20000" is 200 streams of 200-byte chunks each 20 ms.
        #[arg(long, required = true)]
        streams: Vec<String>,
        /// Processes whose memory counts.
        #[arg(long, value_delimiter = ',')]
        memory_of: Vec<u32>,
        /// Before all ordinary threads.
        #[arg(long)]
        fifo: bool,
    },
    /// Send small requests; figures as one line of JSON.
    Requests {
        #[command(flatten)]
        common: Common,
        #[arg(long, default_value_t = 32)]
        connections: usize,
        #[arg(long)]
        rate: u32,
        #[arg(long, default_value_t = 200)]
        prompt_bytes: usize,
    },
    /// Keep one CPU busy in bursts.
    Burner {
        #[arg(long)]
        cpu: usize,
        #[arg(long, default_value_t = 5000)]
        busy_us: u64,
        #[arg(long, default_value_t = 20_000)]
        period_us: u64,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    #[arg(long)]
    target: SocketAddr,
    #[arg(long, default_value_t = 700)]
    warmup_ms: u64,
    #[arg(long, default_value_t = 2000)]
    measure_ms: u64,
    /// Processes whose CPU counts.
    #[arg(long, value_delimiter = ',')]
    processes: Vec<u32>,
}

fn main() -> Result<()> {
    match Arguments::parse().end {
        End::Source { listen, count, fifo } => {
            let listeners = listeners(listen, count)?;
            for listener in &listeners {
                println!("listening on {}", listener.local_addr().context("address")?);
            }
            std::io::stdout().flush().context("stdout")?;
            serve(listeners, fifo)
        }
        End::Streams {
            common,
            streams,
            memory_of,
            fifo,
        } => {
            let figures = run_streams(&StreamLoad {
                target: common.target,
                streams: streams
                    .iter()
                    .map(|words| counted(words))
                    .collect::<Result<_>>()?,
                warmup: Duration::from_millis(common.warmup_ms),
                measure: Duration::from_millis(common.measure_ms),
                processes: common.processes,
                memory_of,
                fifo,
            })?;
            println!("{figures}");
            Ok(())
        }
        End::Requests {
            common,
            connections,
            rate,
            prompt_bytes,
        } => {
            let figures = run_requests(&RequestLoad {
                target: common.target,
                connections,
                rate,
                prompt_bytes,
                warmup: Duration::from_millis(common.warmup_ms),
                measure: Duration::from_millis(common.measure_ms),
                processes: common.processes,
            })?;
            println!("{figures}");
            Ok(())
        }
        End::Burner {
            cpu,
            busy_us,
            period_us,
        } => burn(
            cpu,
            Duration::from_micros(busy_us),
            Duration::from_micros(period_us),
        ),
    }
}

fn counted(words: &str) -> Result<(usize, Answer)> {
    let (count, rest) = words.split_once(' ').context("COUNT of what")?;
    Ok((count.parse().context("count")?, Answer::parse(rest)?))
}

fn burn(cpu: usize, busy: Duration, period: Duration) -> Result<()> {
    // SAFETY: a zeroed set is an empty one; both calls get a valid set of its own size.
    let pinned = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if pinned != 0 {
        return Err(std::io::Error::last_os_error()).context("pin to the CPU");
    }
    let mut begin = Instant::now();
    loop {
        while begin.elapsed() < busy {
            std::hint::spin_loop();
        }
        begin += period;
        std::thread::sleep(begin.saturating_duration_since(Instant::now()));
    }
}
