//! The conformance kit: HTTP cases and real clients against `warmpath serve` before a strict upstream.
//!
//! The kit lives beside the repository; where it isn't there, its steps are skipped.

mod clients;
mod rig;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::plan::Outcome;
use crate::{metrics, process, workspace};
use rig::{Rig, Started};

/// Cases that have to pass in all; every `must` case has to pass besides.
const PASSING_MIN: usize = 68;
/// Share of the streamed chunked bytes that the kernel has to carry here. The kit's fastest streams arrive in one
/// burst with their heads and are over before a flow can be armed; the project's own suite, whose streams are paced,
/// demands 95 %.
const CARRIED_MIN: f64 = 0.75;
const CASES_LIMIT: Duration = Duration::from_secs(600);

/// A suite of the kit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    /// Raw-socket cases.
    Cases,
    /// Official client libraries.
    Clients,
}

impl Suite {
    /// Its name in output and paths.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Suite::Cases => "cases",
            Suite::Clients => "clients",
        }
    }
}

/// Who carries the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datapath {
    /// Userspace.
    Copy,
    /// The kernel.
    Kernel,
}

impl Datapath {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Datapath::Copy => "copy",
            Datapath::Kernel => "kernel",
        }
    }
}

/// Where logs and results go.
fn results() -> PathBuf {
    workspace::target().join("conformance")
}

/// Runs one suite over one datapath.
///
/// # Errors
/// Where a case that has to pass fails, or the kernel datapath carried too little.
pub(crate) fn run(suite: Suite, datapath: Datapath, warmpath: &Path) -> Result<Outcome> {
    let Some(kit) = workspace::conformance_kit() else {
        let where_to = "WARMPATH_CONFORMANCE or ../shared/conformance";
        return Ok(Outcome::Skipped(format!("no conformance kit ({where_to})")));
    };
    fs::create_dir_all(results()).context("target/conformance")?;
    let label = format!("{}-{}", suite.name(), datapath.name());
    let mut rig = match Rig::start(&kit, warmpath, datapath, &results().join(&label))? {
        Started::Running(rig) => rig,
        Started::NoKernel(why) if workspace::kernel_required() => bail!("no kernel datapath: {why}"),
        Started::NoKernel(why) => return Ok(Outcome::Skipped(format!("no kernel datapath: {why}"))),
    };
    let judged = judge(suite, &kit, rig.base(), rig.direct(), &label).and_then(|outcome| {
        rig.must_be_running()?;
        match (datapath, outcome) {
            (Datapath::Kernel, Outcome::Done(word)) => {
                Ok(Outcome::Done(format!("{word}; {}", kernel_carried(rig.admin())?)))
            }
            (_, outcome) => Ok(outcome),
        }
    });
    if judged.is_err() {
        eprintln!("{}", rig.tails());
    }
    judged
}

fn judge(suite: Suite, kit: &Path, base: &str, direct: &str, label: &str) -> Result<Outcome> {
    match suite {
        Suite::Cases => run_cases(kit, base, direct, label).map(Outcome::Done),
        Suite::Clients => clients::run(kit, base, direct, label),
    }
}

fn run_cases(kit: &Path, base: &str, direct: &str, label: &str) -> Result<String> {
    let json = results().join(format!("{label}.json"));
    // A file of an earlier run isn't this run's result.
    let _ = fs::remove_file(&json);
    let mut command = Command::new("python3");
    command
        .arg(kit.join("cases.py"))
        .args(["--base", base, "--direct", direct, "-q", "--json"])
        .arg(&json)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    // Its exit code tells of `must` cases only; the file tells everything.
    let ran = process::run(&mut command, CASES_LIMIT);
    let text = match (fs::read_to_string(&json), ran) {
        (Ok(text), _) => text,
        (Err(_), Err(error)) => return Err(error),
        (Err(error), Ok(())) => return Err(error).context("cases.py wrote no result"),
    };
    let verdicts: Value = serde_json::from_str(&text).with_context(|| json.display().to_string())?;
    judge_cases(&verdicts)
}

fn judge_cases(verdicts: &Value) -> Result<String> {
    let cases = verdicts.as_array().context("cases.py: no list")?;
    let is = |case: &Value, key: &str, value: &str| case[key].as_str() == Some(value);
    let passed = cases.iter().filter(|case| is(case, "verdict", "pass")).count();
    let failed: Vec<&Value> = cases.iter().filter(|case| is(case, "verdict", "FAIL")).collect();
    let ids = |list: &[&Value]| -> String {
        let ids: Vec<&str> = list.iter().filter_map(|case| case["id"].as_str()).collect();
        ids.join(", ")
    };
    let must: Vec<&Value> = failed
        .iter()
        .filter(|case| is(case, "sev", "must"))
        .copied()
        .collect();
    let counts = format!("{passed} of {} passed", cases.len());
    if !must.is_empty() {
        bail!("{counts}; `must` cases failed: {}", ids(&must));
    }
    if passed < PASSING_MIN {
        bail!("{counts}, {PASSING_MIN} are needed; failed: {}", ids(&failed));
    }
    if failed.is_empty() {
        return Ok(counts);
    }
    Ok(format!("{counts}, failed: {}", ids(&failed)))
}

/// Checks that the kernel carried what a kernel datapath should, so that a suite that always fell back to
/// copying can't pass.
fn kernel_carried(admin: &str) -> Result<String> {
    carried(&metrics::get(admin, "/metrics")?)
}

/// Chunked 2xx responses count. What came together with their heads is the workers' to send in any case, and
/// bodies with a length come at line rate in this kit and are spilled to copying on purpose.
fn carried(page: &str) -> Result<String> {
    let bytes = |path: &str| metrics::sum(page, "warmpath_chunked_bytes_total", &[path]);
    let kernel = bytes("path=\"kernel\"");
    let all = kernel + bytes("path=\"copy\"");
    if all == 0.0 {
        bail!("no streamed bytes were counted (warmpath_chunked_bytes_total)");
    }
    let share = kernel / all;
    let word = format!(
        "the kernel carried {:.1} % of {all:.0} streamed bytes",
        share * 100.0
    );
    if share < CARRIED_MIN {
        bail!("{word}, {:.0} % are needed", CARRIED_MIN * 100.0);
    }
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdicts(passed: usize, failed: &[(&str, &str)]) -> Value {
        let mut cases = vec![json!({"id": "P", "sev": "must", "verdict": "pass"}); passed];
        cases.extend(
            failed
                .iter()
                .map(|(id, sev)| json!({"id": id, "sev": sev, "verdict": "FAIL"})),
        );
        Value::Array(cases)
    }

    #[test]
    fn the_bar_is_every_must_case_and_68_in_all() {
        assert_eq!(
            judge_cases(&verdicts(68, &[("S05", "should")])).expect("passes"),
            "68 of 69 passed, failed: S05"
        );
        assert!(judge_cases(&verdicts(67, &[("S05", "should")])).is_err());
        let error = judge_cases(&verdicts(69, &[("F01", "must")])).expect_err("fails");
        assert!(error.to_string().contains("F01"));
    }

    #[test]
    fn a_kernel_run_that_was_copied_fails() {
        let page = |kernel: u64, copy: u64| {
            format!(
                "warmpath_chunked_bytes_total{{path=\"kernel\"}} {kernel}\n\
                warmpath_chunked_bytes_total{{path=\"copy\"}} {copy}\n\
                warmpath_chunked_bytes_total{{path=\"worker\"}} 1000\n\
                warmpath_flow_bytes_total{{path=\"copy\"}} 1000\n"
            )
        };
        assert!(carried(&page(75, 25)).is_ok());
        assert!(carried(&page(74, 26)).is_err());
        assert!(carried(&page(0, 0)).is_err());
    }
}
