//! Children: commands that run to their end and services that run beside, none of which outlives xtask.
//!
//! Each child leads a process group of its own, so that what it starts goes with it. The groups stand in
//! a table that a signal handler can read: Ctrl-C and SIGTERM take them down as well as a guard's drop.

mod groups;
mod service;

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

pub(crate) use groups::{Group, end_children_on_signals};
pub(crate) use service::{Service, free_port};

/// How often a running child is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Lines of a command's output that are kept for the caller.
const KEPT_LINES_MAX: usize = 20_000;

/// The command as one types it.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    if let Some(name) = std::path::Path::new(command.get_program()).file_name() {
        words.push(name.to_string_lossy().into_owned());
    }
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command to its end with its output on the terminal.
///
/// # Errors
/// Where it can't start, fails, or runs longer than `limit` (it is killed then).
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let name = shown(command);
    let group = Group::spawn(command.stdin(Stdio::null())).with_context(|| name.clone())?;
    finish(group, &name, limit)
}

/// Like [`run`], and gives the lines it printed too (the last [`KEPT_LINES_MAX`]).
///
/// # Errors
/// As [`run`]; the lines are lost then, but were shown.
pub(crate) fn run_and_keep(command: &mut Command, limit: Duration) -> (Result<()>, Vec<String>) {
    let name = shown(command);
    let spawned = Group::spawn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut group = match spawned.with_context(|| name.clone()) {
        Ok(group) => group,
        Err(error) => return (Err(error), Vec::new()),
    };
    let lines = Arc::new(Mutex::new(Vec::new()));
    let readers: Vec<_> = [
        group
            .child()
            .stdout
            .take()
            .map(|o| Box::new(o) as Box<dyn Read + Send>),
        group
            .child()
            .stderr
            .take()
            .map(|e| Box::new(e) as Box<dyn Read + Send>),
    ]
    .into_iter()
    .flatten()
    .map(|stream| {
        let lines = Arc::clone(&lines);
        thread::spawn(move || show_and_keep(stream, &lines))
    })
    .collect();
    let result = finish(group, &name, limit);
    for reader in readers {
        // A reader ends at its pipe's end and can't panic.
        let _ = reader.join();
    }
    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    (result, std::mem::take(&mut *lines))
}

fn show_and_keep(stream: Box<dyn Read + Send>, lines: &Mutex<Vec<String>>) {
    for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{line}");
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES_MAX {
            lines.remove(0);
        }
        lines.push(line);
    }
}

/// Whether a command starts and succeeds, its output dropped: `cargo nextest --version` and the like.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A short command's standard output, trimmed.
///
/// # Errors
/// Where it can't start or fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = shown(command);
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| name.clone())?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        bail!("{name}: {} {said}", out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Runs a command in xtask's own process group, where it may ask the terminal.
///
/// # Errors
/// Where it can't start or fails.
pub(crate) fn run_in_foreground(command: &mut Command) -> Result<()> {
    let name = shown(command);
    let status = command.status().with_context(|| name.clone())?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}

fn finish(mut group: Group, name: &str, limit: Duration) -> Result<()> {
    let started = Instant::now();
    loop {
        if let Some(status) = group.child().try_wait().with_context(|| name.to_owned())? {
            if status.success() {
                return Ok(());
            }
            bail!("{name}: {status}");
        }
        if started.elapsed() > limit {
            drop(group);
            bail!("{name}: killed after {} s", limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

/// Makes a command lead its own process group.
fn own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_command_is_shown_as_typed() {
        assert_eq!(
            shown(Command::new("/usr/bin/cargo").args(["fmt", "--check"])),
            "cargo fmt --check"
        );
    }

    #[test]
    fn lines_of_both_streams_are_kept() {
        let mut command = Command::new("sh");
        let (result, mut lines) = run_and_keep(command.args(["-c", "echo a; echo b >&2"]), LIMIT);
        result.expect("succeeds");
        lines.sort();
        assert_eq!(lines, ["a", "b"]);
    }

    #[test]
    fn a_failure_and_an_overrun_are_errors_that_name_the_command() {
        let failed = run(Command::new("sh").args(["-c", "exit 3"]), LIMIT).expect_err("fails");
        assert!(failed.to_string().contains("sh -c exit 3"));
        let overrun = run(Command::new("sleep").arg("60"), Duration::ZERO).expect_err("overruns");
        assert!(overrun.to_string().contains("killed"));
    }

    #[test]
    fn a_dropped_group_takes_its_grandchildren_along() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(Stdio::piped());
        let mut group = Group::spawn(&mut command).expect("starts");
        let stdout = group.child().stdout.take().expect("is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("prints its pid");
        let proc = std::path::PathBuf::from(format!("/proc/{}/stat", line.trim()));
        drop(group);
        let deadline = Instant::now() + LIMIT;
        // A zombie that nobody has reaped yet is dead too.
        while std::fs::read_to_string(&proc).is_ok_and(|stat| !stat.contains(") Z")) {
            assert!(Instant::now() < deadline, "the grandchild lives");
            thread::sleep(POLL);
        }
    }
}
