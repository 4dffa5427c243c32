//! `cargo xtask bench datapath`: what a proxy adds to a stream and to a request, in CPU and in delay.
//!
//! Every variant is measured once a round, one after another, so that a slow minute of the host meets all of them;
//! a figure is the median over the rounds, with the least and the most beside it. "Added" is what the same round's
//! direct run didn't need.

mod kernel_stats;
mod peers;
mod run;
mod scenario;
mod table;
mod variant;
mod veth;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::{process, workspace};
use scenario::Scenario;
use variant::Bed;
use veth::Net;

/// How long a build may take.
const BUILD: Duration = Duration::from_secs(1800);

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; every variant is measured once in each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measured time of one run.
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    measure_ms: u64,
    /// Only these scenarios, by name.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Only these variants, by name; `direct` is always among them.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    variants: Vec<String>,
    /// Threads of each proxy; 0 = one a core. Warmpath has as many workers, and a relay beside each.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// In network namespaces joined by veth pairs instead of on the loopback; needs root and iproute2.
    #[arg(long)]
    veth: bool,
    /// Where the figures go; `target/bench/datapath.json` otherwise.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures and prints.
///
/// # Errors
/// Where something can't be built or started, or a run fails.
pub(crate) fn datapath(options: &Options) -> Result<()> {
    for package in [["router-userspace", "warmpath"], ["warmpath-tests", "flows"]] {
        let [package, binary] = package;
        let arguments = ["build", "--release", "--locked", "-p", package, "--bin", binary];
        process::run(&mut workspace::cargo(&arguments), BUILD)?;
    }
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        count => count,
    };
    let folder = workspace::target().join("bench");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let net = if options.veth { Net::veth()? } else { Net::Loopback };
    let mut bed = Bed::start(net, &folder, threads, &options.variants)?;
    println!("{}", bed.describe(options.rounds, options.measure_ms));
    let scenarios: Vec<Scenario> = Scenario::all()
        .into_iter()
        .filter(|scenario| options.only.is_empty() || options.only.iter().any(|name| name == scenario.name))
        .collect();
    let mut all = Vec::new();
    for scenario in &scenarios {
        let rows = run::rounds(&mut bed, scenario, options)?;
        println!("\n{}", table::render(scenario, &rows));
        all.push(json!({
            "scenario": scenario.name,
            "what": scenario.what,
            "rows": rows.iter().map(run::Row::json).collect::<Vec<_>>(),
        }));
    }
    let program = kernel_stats::program(&mut bed, options.measure_ms)?;
    println!("\n{program}");
    let file = options
        .json
        .clone()
        .unwrap_or_else(|| folder.join("datapath.json"));
    let report = json!({
        "host": bed.host_json(),
        "rounds": options.rounds,
        "measure_ms": options.measure_ms,
        "scenarios": all,
        "program": program,
    });
    fs::write(&file, format!("{report:#}\n")).with_context(|| file.display().to_string())?;
    println!("\nFigures: {}", file.display());
    Ok(())
}
