//! `cargo xtask soak`: the router between clients and engines that misbehave, for as long as one likes.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

use crate::{process, workspace};

/// How long a soak takes over each datapath where the command doesn't say.
pub(crate) const SECONDS_DEFAULT: u64 = 60;
/// Busy threads of `--pressure`.
const PRESSURE_THREADS: u32 = 48;

/// Who carries the streams of a soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Datapath {
    /// Userspace.
    Copy,
    /// The kernel.
    Kernel,
    /// One after the other.
    Both,
}

impl Datapath {
    fn each(self) -> &'static [&'static str] {
        match self {
            Datapath::Copy => &["copy"],
            Datapath::Kernel => &["kernel"],
            Datapath::Both => &["copy", "kernel"],
        }
    }
}

/// How to soak.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) seconds: u64,
    /// None: the clock's.
    pub(crate) seed: Option<u64>,
    pub(crate) datapath: Datapath,
    pub(crate) pressure: bool,
    pub(crate) release: bool,
}

/// Runs it. The seed is printed first, so that it's known whatever happens.
///
/// # Errors
/// Where the router lost or mixed up a byte, stalled, or kept something.
pub(crate) fn run(options: &Options) -> Result<()> {
    let seed = match options.seed {
        Some(seed) => seed,
        None => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("the clock")?
            .as_secs(),
    };
    let (profile, flags): (_, &[&str]) = if options.release {
        ("release", &["--release"])
    } else {
        ("debug", &[])
    };
    // Apart, since the binary's package isn't one that the soak's depends on.
    for target in [
        &["--package", "router-userspace", "--bin", "warmpath"],
        &["--package", "warmpath-tests", "--example", "soak"],
    ] {
        let mut build = workspace::cargo(&["build", "--locked", "--quiet"]);
        process::run_in_foreground(build.args(flags).args(target))?;
    }
    let pressure = if options.pressure { PRESSURE_THREADS } else { 0 };
    for datapath in options.datapath.each() {
        println!(
            "soak over {datapath}: --seed {seed} --seconds {}, {pressure} busy threads",
            options.seconds
        );
        let mut soak = std::process::Command::new(workspace::target().join(profile).join("examples/soak"));
        soak.args([
            options.seconds.to_string(),
            seed.to_string(),
            (*datapath).to_owned(),
            pressure.to_string(),
        ])
        .env("WARMPATH_BIN", workspace::warmpath(profile));
        process::run_in_foreground(&mut soak)?;
    }
    Ok(())
}
