//! `cargo xtask demo`: the policies side by side on real bytes, with simulated engines.

mod stack;
mod table;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::process::{self, Service};
use crate::{bpf, metrics, setup, workspace};
use stack::{Stack, Started};
use table::Row;
pub(crate) use workload::REQUESTS_DEFAULT;
use workload::Sharing;

/// Policies that are always shown.
const POLICIES: &[&str] = &["round_robin", "least_load", "consistent_hash"];
/// The longest that a build may take on a slow host.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);
/// The longest that a row may take beyond the time for which it sends.
const ROW_LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(200);

/// What the command line says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Leave the last stack running.
    pub(crate) keep: bool,
    /// Leave the kernel path out.
    pub(crate) no_kernel: bool,
    /// Ask nothing.
    pub(crate) yes: bool,
    /// Requests of a row.
    pub(crate) requests: u64,
}

/// A row to run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    policy: String,
    label: String,
    sharing: Sharing,
}

/// Builds, runs every row and prints the table.
///
/// # Errors
/// Where the build fails, something doesn't start, or no request of a row succeeds.
pub(crate) fn run(options: Options) -> Result<()> {
    let mut parts = Vec::new();
    let kernel = timed(&mut parts, "BPF programs", || build_bpf(options))?;
    timed(&mut parts, "release build", build_release)?;
    let warmpath = workspace::warmpath("release");
    let requests = options.requests;
    let plans = plans(&default_policy(&warmpath)?);
    let mut demo = Demo {
        warmpath,
        requests,
        datapath: if kernel { "kernel" } else { "copy" },
        bar: progress_bar(plans.len() as u64 * requests),
    };
    let mut rows = Vec::new();
    let mut last = None;
    for plan in &plans {
        // The stack before ends here, so that its engines don't share the cores with the next one's.
        drop(last.take());
        let (row, stack) = timed(&mut parts, &plan.label, || demo.row(plan, rows.len() as u64))?;
        rows.push(row);
        last = Some(stack);
    }
    demo.bar.finish_and_clear();
    let caption = format!("simulated engines ({})", workload::in_words(requests));
    println!(
        "\n{}\n\nStreams went by {}. Time:",
        table::table(&caption, &rows),
        demo.datapath
    );
    for (part, took) in &parts {
        println!("  {:7.1} s  {part}", took.as_secs_f64());
    }
    let total: Duration = parts.iter().map(|(_, took)| *took).sum();
    println!("  {:7.1} s  in all", total.as_secs_f64());
    if let (true, Some(stack)) = (options.keep, last) {
        say_how_to_use(*stack);
    }
    Ok(())
}

fn timed<T>(parts: &mut Vec<(String, Duration)>, part: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let result = work().with_context(|| part.to_owned())?;
    parts.push((part.to_owned(), started.elapsed()));
    Ok(result)
}

/// Whether the kernel path is built in.
fn build_bpf(options: Options) -> Result<bool> {
    if options.no_kernel {
        return Ok(false);
    }
    match setup::ensure_toolchain(options.yes)? {
        Some(toolchain) => bpf::build(&toolchain).map(|_| true),
        None => Ok(false),
    }
}

/// Nothing where `WARMPATH_BIN` names a binary.
fn build_release() -> Result<()> {
    if std::env::var_os("WARMPATH_BIN").is_some() {
        return Ok(());
    }
    let arguments = [
        "build",
        "--release",
        "--locked",
        "--package",
        "router-userspace",
        "--bin",
        "warmpath",
    ];
    process::run(&mut workspace::cargo(&arguments), BUILD_LIMIT)
}

/// The policy that `serve --help` shows as its default.
fn default_policy(warmpath: &Path) -> Result<String> {
    let help = process::output(Command::new(warmpath).args(["serve", "--help"]))?;
    policy_of_help(&help).context("`warmpath serve --help` shows no default of --policy")
}

fn policy_of_help(help: &str) -> Option<String> {
    let (_, rest) = help.split_once("--policy")?;
    let (_, rest) = rest.split_once("[default: ")?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn plans(default: &str) -> Vec<Plan> {
    let mut policies = POLICIES.to_vec();
    if !policies.contains(&default) {
        policies.push(default);
    }
    let mut plans: Vec<Plan> = policies
        .iter()
        .map(|&policy| Plan {
            policy: policy.to_owned(),
            label: if policy == default {
                format!("{policy} (default)")
            } else {
                policy.to_owned()
            },
            sharing: Sharing::Groups,
        })
        .collect();
    plans.push(Plan {
        policy: default.to_owned(),
        label: format!("{default}, nothing shared"),
        sharing: Sharing::Nothing,
    });
    plans
}

fn progress_bar(requests: u64) -> ProgressBar {
    let bar = ProgressBar::new(requests);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} requests, {msg}, {eta} to go") {
        bar.set_style(style);
    }
    bar
}

struct Demo {
    warmpath: PathBuf,
    requests: u64,
    datapath: &'static str,
    bar: ProgressBar,
}

impl Demo {
    /// Runs a row on a fresh stack, which is given back running.
    fn row(&mut self, plan: &Plan, rows_done: u64) -> Result<(Row, Box<Stack>)> {
        self.bar.set_message(plan.label.clone());
        if self.bar.is_hidden() {
            println!("{} …", plan.label);
        }
        let logs = workspace::target()
            .join("demo")
            .join(plan.label.replace([' ', ',', '(', ')'], "_"));
        let mut stack = self.stack(plan, &logs)?;
        let figures = self.bench(plan, &mut stack, &logs, rows_done * self.requests);
        let figures = figures.map_err(|error| error.context(stack.tails()))?;
        let label = plan.label.clone();
        Ok((Row { label, figures }, stack))
    }

    /// A stack on the kernel path, or on the copy path where this host has none.
    fn stack(&mut self, plan: &Plan, logs: &Path) -> Result<Box<Stack>> {
        match Stack::start(&self.warmpath, &plan.policy, self.datapath, logs)? {
            Started::Running(stack) => return Ok(stack),
            Started::NoKernel(why) => self
                .bar
                .suspend(|| println!("No kernel path here, copying: {why}")),
        }
        self.datapath = "copy";
        match Stack::start(&self.warmpath, &plan.policy, self.datapath, logs)? {
            Started::Running(stack) => Ok(stack),
            Started::NoKernel(why) => anyhow::bail!("the copy path asks for the kernel: {why}"),
        }
    }

    fn bench(&self, plan: &Plan, stack: &mut Stack, logs: &Path, done_before: u64) -> Result<Value> {
        let json = logs.join("bench.json");
        // A file of an earlier run isn't this run's result.
        let _ = fs::remove_file(&json);
        let mut command = Command::new(&self.warmpath);
        command
            .args(workload::bench_arguments(plan.sharing, self.requests))
            .args(["--target", &stack.base, "--json"])
            .arg(&json);
        let mut bench = Service::start("warmpath bench", &mut command, &logs.join("bench.log"))?;
        let started = Instant::now();
        let succeeded = loop {
            if let Some(succeeded) = bench.ended()? {
                break succeeded;
            }
            stack.must_be_running()?;
            anyhow::ensure!(
                started.elapsed() < ROW_LIMIT,
                "bench takes too long\n{}",
                bench.tail()
            );
            if let Ok(page) = metrics::get(&stack.admin, "/metrics") {
                let answered = metrics::sum(&page, "warmpath_responses_total", &[]) as u64;
                self.bar.set_position(done_before + answered.min(self.requests));
            }
            thread::sleep(POLL);
        };
        anyhow::ensure!(succeeded, "bench failed\n{}", bench.tail());
        stack.must_be_running()?;
        self.bar.set_position(done_before + self.requests);
        let text = fs::read_to_string(&json).with_context(|| json.display().to_string())?;
        serde_json::from_str(&text).with_context(|| json.display().to_string())
    }
}

fn say_how_to_use(stack: Stack) {
    let (base, admin) = (stack.base.clone(), stack.admin.clone());
    let stop = stack.leave_running();
    println!(
        "\nThe last stack is left running. Try:\n  \
         curl -N {base}/v1/chat/completions -H 'Content-Type: application/json' \\\n    \
         -d '{{\"model\":\"simulated\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'\n  \
         curl {admin}/backends\n  curl '{admin}/explain?n=5'\n  curl {admin}/metrics\nStop it:\n  {stop}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_policy_is_read_from_the_help() {
        let help = "  --listen <ADDR>  [default: 127.0.0.1:8080]\n      --policy <NAME>\n          \
            one of them [default: least_cost]\n  --datapath <D>  [default: auto]";
        assert_eq!(policy_of_help(help).as_deref(), Some("least_cost"));
        assert_eq!(policy_of_help("--listen [default: x]"), None);
    }

    #[test]
    fn the_default_policy_has_one_row_and_is_marked() {
        let labels = |default: &str| {
            plans(default)
                .into_iter()
                .map(|plan| plan.label)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            labels("consistent_hash"),
            [
                "round_robin",
                "least_load",
                "consistent_hash (default)",
                "consistent_hash, nothing shared"
            ]
        );
        assert_eq!(labels("least_cost")[3], "least_cost (default)");
        assert_eq!(labels("least_cost").len(), 5);
    }
}
