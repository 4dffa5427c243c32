//! What a call of the kernel program costs, by the kernel's own run-time statistics.

use std::fs;

use anyhow::{Context as _, Result};

use super::run::once;
use super::scenario::Scenario;
use super::variant::Bed;

/// The switch of the statistics; they cost about 20 ns a call while they are on.
const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Runs the paced load once more with the statistics on; gives the sentence to print.
///
/// # Errors
/// Where the run fails or the switch can't be set.
pub(super) fn program(bed: &mut Bed, measure_ms: u64) -> Result<String> {
    let Some(variant) = bed
        .variants
        .iter()
        .find(|variant| variant.name == "warmpath kernel")
    else {
        return Ok("The kernel program wasn't measured: no kernel variant ran.".to_owned());
    };
    let Some(scenario) = Scenario::all()
        .into_iter()
        .find(|scenario| scenario.name == "paced")
    else {
        return Ok(String::new());
    };
    let before = fs::read_to_string(SWITCH).context(SWITCH)?;
    fs::write(SWITCH, "1").context(SWITCH)?;
    let (time, calls) = totals(&variant.processes);
    let run = once(bed, variant, &scenario, measure_ms);
    let (time_after, calls_after) = totals(&variant.processes);
    fs::write(SWITCH, before.trim()).context(SWITCH)?;
    run?;
    let calls = calls_after.saturating_sub(calls);
    let each = time_after.saturating_sub(time).checked_div(calls).unwrap_or(0);
    Ok(format!(
        "The kernel program took {each} ns a call over {calls} calls (kernel.bpf_stats_enabled = 1; {}).",
        scenario.what
    ))
}

/// Nanoseconds and calls of all programs that the processes hold.
fn totals(processes: &[u32]) -> (u64, u64) {
    let mut sums = (0, 0);
    for pid in processes {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
            continue;
        };
        let mut seen = Vec::new();
        for entry in entries.flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let field = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            };
            let (Some(id), Some(time), Some(calls)) =
                (field("prog_id:"), field("run_time_ns:"), field("run_cnt:"))
            else {
                continue;
            };
            if !seen.contains(&id) {
                seen.push(id);
                sums = (sums.0 + time, sums.1 + calls);
            }
        }
    }
    sums
}
