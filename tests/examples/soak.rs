//! A soak at length: `cargo xtask soak` runs it. `soak SECONDS SEED copy|kernel PRESSURE_THREADS`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use warmpath_tests::{Datapath, SoakOptions, soak};

const CLIENTS: usize = 48;
const PROGRESS: Duration = Duration::from_secs(5);
/// Nothing may stand still for so long; beside other load the host itself stands still for seconds.
const STALL_MAX: Duration = Duration::from_secs(10);
const STALL_MAX_PRESSED: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    match run() {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, seed, datapath, pressure] = &words[..] else {
        bail!("soak SECONDS SEED copy|kernel PRESSURE_THREADS");
    };
    let datapath = match datapath.as_str() {
        "copy" => Datapath::Copy,
        "kernel" => Datapath::Kernel,
        other => bail!("{other}: neither copy nor kernel"),
    };
    let pressure: usize = pressure.parse().context("PRESSURE_THREADS")?;
    soak(&SoakOptions {
        datapath,
        seed: seed.parse().context("SEED")?,
        duration: Duration::from_secs(seconds.parse().context("SECONDS")?),
        clients: CLIENTS,
        pressure,
        stall_max: if pressure > 0 {
            STALL_MAX_PRESSED
        } else {
            STALL_MAX
        },
        progress: Some(PROGRESS),
    })
}
