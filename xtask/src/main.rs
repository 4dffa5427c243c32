//! Developer commands: what a newcomer, a developer and CI type.

mod bench;
mod bpf;
mod conformance;
mod demo;
mod host;
mod layers;
mod metrics;
mod plan;
mod process;
mod setup;
mod soak;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer commands of Warmpath.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the routing policies side by side: four simulated engines, the router, a load generator, one table.
    Demo {
        /// Leave the last stack running and say what to curl.
        #[arg(long)]
        keep: bool,
        /// Leave the kernel path and its toolchain out.
        #[arg(long)]
        no_kernel: bool,
        /// Install what is missing without asking.
        #[arg(long)]
        yes: bool,
        /// Requests of each row.
        #[arg(long, value_name = "N", default_value_t = demo::REQUESTS_DEFAULT, value_parser = clap::value_parser!(u64).range(1..))]
        requests: u64,
    },
    /// Everything that CI runs, with its own set-up: lints, builds, tests, conformance.
    Test {
        /// Install what is missing without asking.
        #[arg(long)]
        yes: bool,
        /// Only these steps of the plan, by name; steps they need are taken as done.
        #[arg(long, value_delimiter = ',', value_name = "STEP")]
        only: Vec<String>,
    },
    /// What CI runs: `test` where the kernel path and the client libraries may not be skipped.
    Ci,
    /// Build the BPF programs, where their toolchain is there, and the workspace.
    Build {
        /// Install the BPF toolchain without asking.
        #[arg(long)]
        yes: bool,
        /// Build with optimisation.
        #[arg(long)]
        release: bool,
    },
    /// Install what the tests and the BPF build need on this host.
    Setup {
        /// Install without asking.
        #[arg(long)]
        yes: bool,
    },
    /// Put the router between clients and engines that misbehave, and check every byte and that nothing is left.
    Soak {
        /// How long, over each datapath.
        #[arg(long, value_name = "S", default_value_t = soak::SECONDS_DEFAULT, value_parser = clap::value_parser!(u64).range(1..))]
        seconds: u64,
        /// The seed of all that is drawn; printed, the clock's where it isn't given.
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        /// Who carries the streams.
        #[arg(long, value_enum, default_value_t = soak::Datapath::Both)]
        datapath: soak::Datapath,
        /// Beside 48 busy threads of other load.
        #[arg(long)]
        pressure: bool,
        /// With optimised builds.
        #[arg(long)]
        release: bool,
    },
    /// Check the layer table of STYLE.md over the sources.
    Layers,
    /// Measure.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// What Warmpath, HAProxy and nginx add to streams and requests, in CPU and delay, in one interleaved run.
    Datapath(bench::Options),
}

fn main() -> ExitCode {
    let done = process::end_children_on_signals().and_then(|()| run(Arguments::parse().command));
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo {
            keep,
            no_kernel,
            yes,
            requests,
        } => demo::run(demo::Options {
            keep,
            no_kernel,
            yes,
            requests,
        })?,
        // Says itself what failed, with the runners' counts as its last lines.
        Command::Test { yes, only } => return test::run(yes, &only),
        Command::Ci => ci()?,
        Command::Build { yes, release } => test::build(yes, release)?,
        Command::Setup { yes } => {
            println!("{}", host::ensure_tools(yes)?);
            match setup::ensure_toolchain(yes)? {
                Some(_) => println!("The BPF toolchain is there."),
                None => println!("No BPF toolchain: the kernel path is left out of builds."),
            }
        }
        Command::Soak {
            seconds,
            seed,
            datapath,
            pressure,
            release,
        } => soak::run(&soak::Options {
            seconds,
            seed,
            datapath,
            pressure,
            release,
        })?,
        Command::Bench(Bench::Datapath(options)) => bench::datapath(&options)?,
        Command::Layers => println!("{}", layers::check(&workspace::root())?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the script that CI runs, so that both can't differ.
fn ci() -> Result<()> {
    process::run_in_foreground(&mut std::process::Command::new(workspace::root().join(".ci/run")))
}
