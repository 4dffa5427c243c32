//! `warmpath bench`: a load generator for inference APIs.

mod chunks;
mod client;
mod events;
mod figures;
mod load;
mod report;
mod target;
mod workload;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::task::LocalSet;

use crate::prefix::Api;
use client::Connection;
use figures::Asked;
use load::{Limit, Load, Pace};
use target::{Target, TargetError};
pub use workload::WorkloadName;
use workload::{Shape, Workload};

/// How long the first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests at a time where neither a rate nor a concurrency is given.
const CONCURRENCY_DEFAULT: usize = 16;
/// How long to send where neither a duration nor a number is given.
const DURATION_DEFAULT_S: f64 = 10.0;
/// The exit code where a flag is wrong.
const USAGE: u8 = 64;
/// Steps of the progress bar.
const PROGRESS_STEPS: u64 = 1000;

/// Measure an inference server or router: first token, gaps between tokens, totals, cache hits, errors.
///
/// With --rate requests are sent at a constant rate whatever comes back, and every time is measured from the
/// moment at which the request should have been sent; with --concurrency each of N clients waits for its answer.
/// The hit ratio is the sum of cached tokens over the sum of prompt tokens that the answers' usage reports.
///
/// --json writes one object: target, workload, seed, rate, concurrency, duration_s, stopped_early, requests,
/// succeeded, errors, errors_by_kind {connect, reset, malformed, cut_stream, error_in_stream, timeout,
/// status_<code>}, unfinished, requests_per_s, output_tokens_per_s, prompt_tokens, cached_tokens, output_tokens,
/// hit_ratio, connections, and for each of ttft, itl (between tokens) and latency (total): <name>_mean_ms,
/// <name>_p50_ms, _p90_ms, _p99_ms, _p999_ms, _max_ms. What wasn't measured is null.
///
/// The exit code is 0 if any request succeeded, errors being part of the figures; 1 otherwise.
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct BenchArgs {
    /// Where to send: http://host:port, with a path in front of /v1 if need be; /v1 itself may be left out.
    #[arg(long, value_name = "URL")]
    pub target: String,
    /// Requests/s, open loop.
    #[arg(long, value_name = "R", conflicts_with = "concurrency", value_parser = rate)]
    pub rate: Option<f64>,
    /// Requests at a time, closed loop [default: 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub concurrency: Option<u16>,
    /// Seconds to send for; what is under way then is waited for [default: 10].
    #[arg(long, value_name = "S", conflicts_with = "requests", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Requests to send.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// What the requests say.
    #[arg(long, value_name = "NAME", default_value = "shared_prefix")]
    pub workload: WorkloadName,
    /// The same seed gives the same requests. A cache that has seen them answers from it: use another seed, or
    /// fresh engines, for each run.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Which API to call.
    #[arg(long, value_name = "API", default_value = "chat")]
    pub api: ApiName,
    /// Ask for whole answers instead of streams; first token and gaps are then not measured.
    #[arg(long)]
    pub no_stream: bool,
    /// The model to ask for.
    #[arg(long, value_name = "NAME", default_value = "simulated")]
    pub model: String,
    /// shared_prefix: groups of requests that share a system text.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub groups: u32,
    /// shared_prefix: exponent of the Zipf law by which groups are chosen; 0 = all alike.
    #[arg(long, value_name = "S", default_value_t = 0.8, value_parser = exponent)]
    pub zipf: f64,
    /// Tokens of the system text, at four bytes a token.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(0..=4_000_000))]
    pub prefix_tokens: u32,
    /// Tokens of a user's text.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub unique_tokens: u32,
    /// Tokens to generate.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub output_tokens: u32,
    /// Turns of a conversation; each request repeats the turns before it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Conversations that advance in turn.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
    /// Seconds after which a request counts as failed.
    #[arg(long, value_name = "S", default_value_t = 120.0, value_parser = seconds)]
    pub timeout: f64,
    /// Write the figures as JSON; `-`: to stdout, instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the figures as a page with their curves.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// APIs by short names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ApiName {
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
    /// /v1/responses
    Responses,
    /// /v1/messages
    Messages,
    /// /generate
    Generate,
}

impl From<ApiName> for Api {
    fn from(name: ApiName) -> Api {
        match name {
            ApiName::Chat => Api::ChatCompletions,
            ApiName::Completions => Api::Completions,
            ApiName::Responses => Api::Responses,
            ApiName::Messages => Api::Messages,
            ApiName::Generate => Api::Generate,
        }
    }
}

fn number_within(text: &str, low: f64, high: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(format!("must be a number from {low} to {high}")),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    number_within(text, 0.001, 1e6)
}

fn seconds(text: &str) -> Result<f64, String> {
    number_within(text, 0.001, 1e6)
}

fn exponent(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 10.0)
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// One object, as `--help` documents it.
    pub json: Value,
    /// A table for people.
    pub table: String,
    /// The same as a self-contained HTML page.
    pub html: String,
}

/// Sends the load; on the current `LocalSet`. `stop` ends it early.
///
/// # Errors
/// The target can't be understood or reached.
pub async fn drive(
    args: &BenchArgs,
    bar: ProgressBar,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Report> {
    let target = Target::resolve(&args.target).await?;
    let first = tokio::time::timeout(CONNECT_TIMEOUT, Connection::open(target.addr)).await;
    if !matches!(first, Ok(Ok(_))) {
        anyhow::bail!(
            "cannot connect to {} ({}): is the server running?",
            target.url,
            target.addr
        );
    }
    let pace = match (args.rate, args.concurrency) {
        (Some(rate), _) => Pace::Rate(rate),
        (None, concurrency) => Pace::Concurrency(concurrency.map_or(CONCURRENCY_DEFAULT, usize::from)),
    };
    let limit = match args.requests {
        Some(requests) => Limit::Requests(requests),
        None => Limit::Duration(Duration::from_secs_f64(
            args.duration.unwrap_or(DURATION_DEFAULT_S),
        )),
    };
    let asked = Asked {
        target: args.target.clone(),
        workload: args.workload.as_str(),
        seed: args.seed,
        rate: args.rate,
        concurrency: match pace {
            Pace::Rate(_) => None,
            Pace::Concurrency(concurrency) => Some(concurrency),
        },
    };
    let load = Load::new(
        target,
        workload(args),
        limit,
        Duration::from_secs_f64(args.timeout),
    );
    let stopped = tokio::select! {
        () = Rc::clone(&load).run(pace) => false,
        () = show(&load, &bar) => false,
        () = stop => true,
    };
    if stopped {
        load.end_now();
    }
    bar.finish_and_clear();
    let figures = load.figures.borrow();
    let json = figures.json(&asked, load.elapsed(), stopped);
    let table = figures.table(&asked, load.elapsed(), stopped);
    let html = report::html(&figures, &table, &json.to_string());
    Ok(Report { json, table, html })
}

fn workload(args: &BenchArgs) -> Workload {
    Workload::new(Shape {
        name: args.workload,
        api: args.api.into(),
        model: args.model.clone(),
        stream: !args.no_stream,
        groups: args.groups as usize,
        zipf: args.zipf,
        prefix_tokens: args.prefix_tokens as usize,
        unique_tokens: args.unique_tokens as usize,
        output_tokens: args.output_tokens as usize,
        turns: u64::from(args.turns),
        sessions: u64::from(args.sessions),
        seed: args.seed,
    })
}

/// Keeps the progress bar up to date, for ever.
async fn show(load: &Load, bar: &ProgressBar) {
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    loop {
        tick.tick().await;
        let figures = load.figures.borrow();
        let done = (load.share_done().min(1.0) * PROGRESS_STEPS as f64) as u64;
        bar.set_position(done);
        bar.set_message(format!(
            "{} answered, {} errors",
            figures.succeeded,
            figures.errors()
        ));
    }
}

/// Runs the load until its end, SIGINT or SIGTERM, and prints the figures.
///
/// # Errors
/// As [`drive`]; or the JSON can't be written.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Draws on stderr, and nothing where that isn't a terminal.
    let bar = ProgressBar::new(PROGRESS_STEPS);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} % {msg}") {
        bar.set_style(style);
    }
    let stop = async {
        if super::stopped().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let report = match LocalSet::new().block_on(&runtime, drive(args, bar, stop)) {
        Err(error) if error.is::<TargetError>() => {
            eprintln!("warmpath bench: {error}");
            return Ok(ExitCode::from(USAGE));
        }
        result => result?,
    };
    let text = format!("{}\n", report.json);
    let to_stdout = args.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let shown = if to_stdout { &text } else { &report.table };
    // A reader that left early (`| head`) is no failure of the run.
    let _ = std::io::stdout().write_all(shown.as_bytes());
    let json_file = args
        .json
        .as_ref()
        .filter(|_| !to_stdout)
        .map(|path| (path, &text));
    let html_file = args.report.as_ref().map(|path| (path, &report.html));
    for (path, content) in json_file.into_iter().chain(html_file) {
        std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let any = report.json["succeeded"].as_u64().unwrap_or(0) > 0;
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests;
