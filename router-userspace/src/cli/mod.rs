//! The subcommands.

pub mod bench;
pub mod engine;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A cache-aware load balancer for LLM inference.
#[derive(Parser, Debug)]
#[command(name = "warmpath", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Bench(bench::BenchArgs),
    Engine(engine::EngineArgs),
}

/// Parses the command line and runs it.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Engine(args) => engine::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("warmpath: {error:#}");
        ExitCode::FAILURE
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
