//! `warmpath simulate`: policies over a trace, on virtual time.

mod fault;
mod rows;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Exit, complain, print};
use crate::simulate::{self, Contender, Fault, Load, Setup, Trace};
use rows::Row;

/// Run a trace of requests against simulated engines, on virtual time, and compare policies.
///
/// The engines batch continuously, prefill in chunks and keep a prefix cache: 10 ms a step, 20,000 prefill
/// tokens/s, 0.1 ms a decoding sequence, 8192 tokens a step, 64 running. The policies are the router's own code.
/// Beside its policies there are two bounds: `pooled`, one cache as large as all together and seen by every
/// backend, and `oracle`, the rule of least_cost with what the caches really hold.
///
/// A trace is JSON lines, plain or gzip, with `timestamp` (ms) or with `session_id`, `session_start_ms`,
/// `think_ms`; `input_length`, `output_length`; `hash_ids`, or `hash_runs` [[first, count], ...]; `block_size`.
///
/// --json writes one object: trace, requests, block_tokens, backends, capacity_tokens, rate,
/// sessions_per_backend, saturate, seed, routers, rows. A row for each policy: policy, backends, rate, hit_ratio,
/// ttft_p50_s, ttft_p99_s, ttft_mean_s, requests_per_s (completions between 10 % and 90 % of them),
/// load_max_over_mean (computing time), decision_us_p50 (measured on this machine), completed, failed, span_s.
/// TTFT figures leave out the first 15 % of the requests; the hit ratio counts all. What wasn't measured is null.
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct SimulateArgs {
    /// The trace.
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// A policy, `pooled` or `oracle`; repeat it to compare.
    #[arg(long, value_name = "NAME", required = true, value_parser = contender)]
    pub policy: Vec<Contender>,
    /// Engines.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub backends: u32,
    /// Tokens that each engine's cache holds.
    #[arg(long, value_name = "C")]
    pub capacity_tokens: u64,
    /// Scale the trace's times to so many requests/s; without it, as recorded.
    #[arg(long, value_name = "R", value_parser = above_zero)]
    pub rate: Option<f64>,
    /// For a trace of sessions: so many a backend at a time, each in closed loop.
    #[arg(long, value_name = "M", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub sessions_per_backend: Option<u32>,
    /// Closed loop with 24 requests a backend under way and no pauses: what the fleet can carry.
    #[arg(long, conflicts_with_all = ["rate", "sessions_per_backend"])]
    pub saturate: bool,
    /// The engines' speeds, repeated as needed: 1,1,0.5.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = above_zero)]
    pub speeds: Vec<f64>,
    /// What goes wrong; may be repeated. slow:BACKEND:FACTOR[@S], restart:BACKEND@S, capacity:FACTOR (what the
    /// router believes over the truth), speed:FACTOR (likewise, up and down by turns), lag:MS (of engine events).
    #[arg(long, value_name = "FAULT", value_parser = fault::parse)]
    pub fault: Vec<Fault>,
    /// Tokens of context that double the cost of a prefilled token; without it context costs nothing.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub attention_tokens: Option<u32>,
    /// Routers that each get an equal part of the requests.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub routers: u32,
    /// How late a router hears of what the others did; without it they share nothing.
    #[arg(long, value_name = "L", requires = "routers")]
    pub peer_lag_ms: Option<u64>,
    /// Requests in flight from which a backend counts as saturated; without it none does.
    #[arg(long, value_name = "N")]
    pub max_in_flight: Option<u32>,
    /// The same seed gives the same figures.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures as JSON; `-`: to stdout, instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn contender(name: &str) -> Result<Contender, String> {
    Contender::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Contender::all().map(Contender::name).collect();
        format!("no such policy; one of {}", names.join(", "))
    })
}

fn above_zero(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

impl SimulateArgs {
    fn load(&self) -> Load {
        match (self.rate, self.sessions_per_backend) {
            _ if self.saturate => Load::Saturate,
            (Some(rate), _) => Load::Rate(rate),
            (None, Some(count)) => Load::Sessions(count as usize),
            (None, None) => Load::AsRecorded,
        }
    }

    fn setup(&self) -> Setup {
        Setup {
            speeds: self.speeds.clone(),
            faults: self.fault.clone(),
            attention_tokens: self.attention_tokens,
            routers: self.routers as usize,
            peer_lag: self.peer_lag_ms.map(Duration::from_millis),
            max_in_flight: self.max_in_flight.unwrap_or(u32::MAX),
            seed: self.seed,
            ..Setup::new(self.backends as usize, self.capacity_tokens, self.load())
        }
    }
}

/// Runs every policy and prints the figures.
///
/// # Errors
/// The trace can't be read, or the JSON can't be written.
pub fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let shown = args.trace.display();
    let file = File::open(&args.trace).with_context(|| format!("cannot open {shown}"))?;
    let trace = Trace::read(file).with_context(|| format!("{shown}"))?;
    let setup = args.setup();
    if let Err(error) = setup.check(&trace) {
        complain(&format!("warmpath simulate: {shown}: {error}"));
        return Ok(Exit::Usage.into());
    }
    let mut rows = Vec::new();
    for &contender in &args.policy {
        let bar = bar(trace.requests.len(), contender.name());
        let mut progress = |done: usize| bar.set_position(done as u64);
        let figures = simulate::run(&trace, contender, &setup, &mut progress)?;
        bar.finish_and_clear();
        rows.push(Row {
            policy: contender.name(),
            backends: args.backends,
            rate: args.rate,
            figures,
        });
    }
    let json = format!("{}\n", rows::json(args, &trace, &rows));
    match args.json.as_deref() {
        Some(path) if path.as_os_str() == "-" => print(json.trim_end()),
        Some(path) => {
            print(&rows::table(&rows));
            std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => print(&rows::table(&rows)),
    }
    Ok(Exit::Done.into())
}

/// A bar on stderr; nothing where that isn't a terminal.
fn bar(requests: usize, name: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(requests as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:16} {bar:40} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(name);
    bar
}
