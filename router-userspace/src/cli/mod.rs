//! The command line: one file a subcommand.

pub mod bench;
mod check;
pub mod config;
pub mod engine;
mod serve;
pub mod simulate;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// How a command ended; scripts depend on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: something failed while running.
    Failed,
    /// 64: the command line or the configuration is wrong.
    Usage,
    /// 69: a kernel feature was demanded and this host lacks it.
    KernelAbsent,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 64,
            Exit::KernelAbsent => 69,
        })
    }
}

/// A cache-aware load balancer for LLM inference.
///
/// Sends each request to the engine that already holds the KV cache of its prompt's prefix, unless that engine is
/// saturated. Exit codes: 0 done, 64 wrong usage or configuration, 69 kernel feature demanded but absent, 1
/// anything else.
#[derive(Debug, Parser)]
#[command(name = "warmpath", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Routes requests to engines until stopped.
    Serve(serve::Args),
    /// Reports everything that is wrong with a configuration file.
    Check(check::Args),
    Bench(bench::BenchArgs),
    Engine(engine::EngineArgs),
    Simulate(simulate::SimulateArgs),
}

/// Runs the command that the arguments of this process name.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => {
            // Help and version arrive here too, for standard output and exit code 0.
            let _ = error.print();
            if error.use_stderr() {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            }
        }
    }
}

fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Bench(args) => return done(bench::run(&args)),
        Command::Engine(args) => return done(engine::run(&args)),
        Command::Simulate(args) => return done(simulate::run(&args)),
    }
    .into()
}

fn done(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        complain(&format!("warmpath: {error:#}"));
        Exit::Failed.into()
    })
}

/// Waits for SIGINT or SIGTERM.
///
/// # Errors
/// The handlers can't be installed.
pub async fn stopped() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}

/// Prints to standard output; a reader that has gone away is no error.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints to standard error.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
