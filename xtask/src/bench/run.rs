//! The rounds of one load.

use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::Options;
use super::scenario::{Load, Scenario};
use super::variant::{Bed, Variant};
use super::veth::Side;
use crate::process::{self, Service};
use crate::workspace;

/// Time in which streams are opened.
const WARMUP_MS: u64 = 700;

/// The figures of one variant, one a round.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Which variant.
    pub(super) name: String,
    /// CPU a chunk or request beyond the direct run's, µs, by run times.
    pub(super) added_us: Vec<f64>,
    /// The same by /proc/stat.
    pub(super) added_system_us: Vec<f64>,
    /// Of it, the kernel's threads' CPU, not less the direct run's.
    pub(super) kernel_threads_us: Vec<f64>,
    /// Delay beyond the direct run's, µs.
    pub(super) added_p50_us: Vec<f64>,
    /// The same at the 99th percentile.
    pub(super) added_p99_us: Vec<f64>,
    /// Chunks or requests a second.
    pub(super) per_s: Vec<f64>,
    /// Megabytes a second.
    pub(super) megabytes_per_s: Vec<f64>,
    /// Memory that the open streams took, megabytes.
    pub(super) memory_mb: Vec<f64>,
    /// Streams that were closed before their time.
    pub(super) closed: u64,
}

/// The middle, the least and the most of `values`.
pub(super) fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => (0.0, 0.0, 0.0),
        n => (
            f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
            sorted[0],
            sorted[n - 1],
        ),
    }
}

impl Row {
    pub(super) fn json(&self) -> Value {
        let figure = |values: &[f64]| {
            let (median, least, most) = spread(values);
            json!({ "median": median, "least": least, "most": most, "rounds": values })
        };
        json!({
            "variant": self.name,
            "added_cpu_us": figure(&self.added_us),
            "added_cpu_system_us": figure(&self.added_system_us),
            "kernel_threads_us": figure(&self.kernel_threads_us),
            "added_p50_us": figure(&self.added_p50_us),
            "added_p99_us": figure(&self.added_p99_us),
            "per_s": figure(&self.per_s),
            "megabytes_per_s": figure(&self.megabytes_per_s),
            "memory_mb": figure(&self.memory_mb),
            "closed": self.closed,
        })
    }

    fn note(&mut self, seen: &Value, direct: &Value) -> Result<()> {
        let at = |value: &Value, key: &str| value[key].as_f64().with_context(|| format!("no {key}"));
        let each = |value: &Value, key: &str| {
            Ok::<_, anyhow::Error>(at(value, key)? * 1e6 / at(value, "chunks")?.max(1.0))
        };
        self.added_us
            .push(each(seen, "cpu_own_s")? - each(direct, "cpu_own_s")?);
        self.added_system_us
            .push(each(seen, "cpu_system_s")? - each(direct, "cpu_system_s")?);
        self.kernel_threads_us.push(each(seen, "cpu_kernel_threads_s")?);
        self.added_p50_us
            .push(at(seen, "delay_p50_us")? - at(direct, "delay_p50_us")?);
        self.added_p99_us
            .push(at(seen, "delay_p99_us")? - at(direct, "delay_p99_us")?);
        let seconds = at(seen, "seconds")?;
        self.per_s.push(at(seen, "chunks")? / seconds);
        self.megabytes_per_s
            .push(seen["bytes"].as_f64().unwrap_or(0.0) / seconds / 1e6);
        self.memory_mb
            .push(seen["memory_bytes"].as_f64().unwrap_or(0.0) / 1e6);
        self.closed += seen["closed"].as_u64().unwrap_or(0);
        Ok(())
    }
}

/// The direct run's row has its own figures, not what it adds to itself.
fn shown(name: &str) -> String {
    if name == "direct" {
        "direct (in all)".to_owned()
    } else {
        name.to_owned()
    }
}

/// Measures every variant in every round.
///
/// # Errors
/// Where a run fails.
pub(super) fn rounds(bed: &mut Bed, scenario: &Scenario, options: &Options) -> Result<Vec<Row>> {
    let burners = if scenario.busy { burners(bed)? } else { Vec::new() };
    let ends_first = matches!(scenario.load, Load::Streams(_));
    if ends_first {
        set_fifo(&bed.source, true)?;
    }
    let requests = matches!(scenario.load, Load::Requests { .. });
    let takes_part = |variant: &&Variant| {
        let aids = scenario.aids || !(variant.aided || variant.name.ends_with("normal"));
        aids && !(requests && (variant.streams_only || variant.aided))
    };
    let variants: Vec<&Variant> = bed.variants.iter().filter(takes_part).collect();
    let mut rows: Vec<Row> = variants
        .iter()
        .map(|variant| Row {
            name: shown(variant.name),
            ..Row::default()
        })
        .collect();
    for round in 0..options.rounds {
        // The direct run stands for itself.
        let mut direct = nothing();
        for (variant, row) in variants.iter().zip(&mut rows) {
            eprint!(
                "\r{}: round {} of {}, {:<24}",
                scenario.name,
                round + 1,
                options.rounds,
                variant.name
            );
            let seen = once(bed, variant, scenario, options.measure_ms)
                .with_context(|| format!("{}, {}", scenario.name, variant.name))?;
            row.note(&seen, &direct)?;
            if variant.name == "direct" {
                direct = seen;
            }
        }
    }
    eprint!("\r{:60}\r", "");
    if ends_first {
        set_fifo(&bed.source, false)?;
    }
    drop(burners);
    Ok(rows)
}

/// What nothing costs.
fn nothing() -> Value {
    json!({
        "chunks": 1, "cpu_own_s": 0.0, "cpu_system_s": 0.0, "delay_p50_us": 0.0, "delay_p99_us": 0.0,
    })
}

/// One run of the sink.
///
/// # Errors
/// Where it fails.
pub(super) fn once(bed: &Bed, variant: &Variant, scenario: &Scenario, measure_ms: u64) -> Result<Value> {
    let list = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let counted: Vec<u32> = bed.source.iter().chain(&variant.processes).copied().collect();
    let mut command = bed.net.command(Side::Sink, &bed.flows);
    match &scenario.load {
        Load::Streams(streams) | Load::FlatOut(streams) => {
            command.arg("streams");
            for stream in *streams {
                command.args(["--streams", stream]);
            }
            if !variant.processes.is_empty() {
                command.args(["--memory-of", &list(&variant.processes)]);
            }
            if matches!(scenario.load, Load::Streams(_)) {
                command.arg("--fifo");
            }
        }
        Load::Requests { rate, prompt_bytes } => {
            command.arg("requests");
            command.args([
                "--rate",
                &rate.to_string(),
                "--prompt-bytes",
                &prompt_bytes.to_string(),
            ]);
        }
    }
    command.args(["--target", &variant.target.to_string()]);
    command.args(["--processes", &list(&counted)]);
    command.args(["--measure-ms", &measure_ms.to_string()]);
    command.args(["--warmup-ms", &WARMUP_MS.to_string()]);
    let text = process::output(&mut command)?;
    serde_json::from_str(&text).with_context(|| text.clone())
}

/// A thread on each core that works in bursts.
fn burners(bed: &Bed) -> Result<Vec<Service>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..cores)
        .map(|cpu| {
            let mut command = Command::new(&bed.flows);
            command.args(["burner", "--cpu", &cpu.to_string()]);
            let log = workspace::target().join(format!("bench/burner-{cpu}.log"));
            Service::start("burner", &mut command, &log)
        })
        .collect()
}

/// Puts running processes before all ordinary threads, or back.
fn set_fifo(processes: &[u32], fifo: bool) -> Result<()> {
    for pid in processes {
        let (policy, priority) = if fifo { ("--fifo", "2") } else { ("--other", "0") };
        let pid = pid.to_string();
        process::output(Command::new("chrt").args(["--all-tasks", policy, "--pid", priority, &pid]))?;
    }
    Ok(())
}
