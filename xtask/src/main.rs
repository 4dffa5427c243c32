//! Developer commands: what a newcomer, a developer and CI type.

mod bpf;
mod conformance;
mod host;
mod layers;
mod metrics;
mod plan;
mod process;
mod setup;
mod test;
mod workspace;

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
    /// Check the layer table of STYLE.md over the sources.
    Layers,
}

fn main() -> Result<()> {
    process::end_children_on_signals()?;
    match Arguments::parse().command {
        Command::Test { yes, only } => test::run(yes, &only),
        Command::Ci => ci(),
        Command::Build { yes, release } => test::build(yes, release),
        Command::Setup { yes } => {
            println!("{}", host::ensure_tools(yes)?);
            match setup::ensure_toolchain(yes)? {
                Some(_) => println!("The BPF toolchain is there."),
                None => println!("No BPF toolchain: the kernel path is left out of builds."),
            }
            Ok(())
        }
        Command::Layers => {
            println!("{}", layers::check(&workspace::root())?);
            Ok(())
        }
    }
}

/// Runs the script that CI runs, so that both can't differ.
fn ci() -> Result<()> {
    process::run_in_foreground(&mut std::process::Command::new(workspace::root().join(".ci/run")))
}
