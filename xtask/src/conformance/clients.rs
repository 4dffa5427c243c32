//! The official client libraries, installed below `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::results;
use crate::plan::Outcome;
use crate::{process, workspace};

const PYTHON_PACKAGES: &[&str] = &[
    "openai",
    "anthropic",
    "langchain-openai",
    "litellm",
    "httpx",
    "aiohttp",
    "requests",
    "h11",
    "websockets",
];
const NODE_PACKAGES: &[&str] = &["openai", "@anthropic-ai/sdk", "undici"];
const INSTALL_LIMIT: Duration = Duration::from_secs(900);
const RUN_LIMIT: Duration = Duration::from_secs(600);

/// Runs the Python and the JavaScript clients. Both run, whatever the first one says.
///
/// # Errors
/// Where a client's check fails, or in CI where the clients can't be installed.
pub(crate) fn run(kit: &Path, base: &str, direct: &str, label: &str) -> Result<Outcome> {
    let python = match installed("Python clients", python_clients()) {
        Ok(python) => python,
        Err(outcome) => return outcome,
    };
    let node = match installed("JavaScript clients", node_clients()) {
        Ok(node) => node,
        Err(outcome) => return outcome,
    };
    let json = results().join(format!("{label}.json"));
    let mut command = Command::new(python);
    command
        .arg(kit.join("clients.py"))
        .args(["--base", base, "--direct", direct, "--json"])
        .arg(&json)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let (by_python, python_lines) = process::run_and_keep(&mut command, RUN_LIMIT);

    let mut command = Command::new("node");
    command
        .arg(kit.join("clients.mjs"))
        .args([base, direct])
        .current_dir(node);
    let (by_node, node_lines) = process::run_and_keep(&mut command, RUN_LIMIT);

    by_python.with_context(|| failures(&python_lines))?;
    by_node.with_context(|| failures(&node_lines))?;
    Ok(Outcome::Done(format!(
        "Python {}, JavaScript {}",
        counts(&python_lines),
        counts(&node_lines)
    )))
}

/// The last line of either program ends in its counts, `26 pass, 0 FAIL` or `14 pass 0 FAIL`.
fn counts(lines: &[String]) -> String {
    let last = lines.iter().rfind(|line| line.contains(" pass"));
    let words: Vec<&str> = last.map_or(Vec::new(), |line| line.split_whitespace().collect());
    words[words.len().saturating_sub(4)..].join(" ")
}

fn failures(lines: &[String]) -> String {
    let failed: Vec<&str> = lines
        .iter()
        .filter(|line| line.starts_with("FAIL"))
        .map(String::as_str)
        .collect();
    format!("clients failed: {}", failed.join("; "))
}

/// Clients that can't be had are a failure in CI and a stated reason elsewhere.
fn installed(what: &str, folder: Result<PathBuf>) -> Result<PathBuf, Result<Outcome>> {
    folder.map_err(|error| {
        if workspace::is_set("CI") {
            Err(error.context(format!("{what} can't be installed")))
        } else {
            Ok(Outcome::Skipped(format!("{what} can't be installed: {error:#}")))
        }
    })
}

/// A Python with the packages.
fn python_clients() -> Result<PathBuf> {
    let venv = results().join("venv");
    let python = venv.join("bin/python");
    if !has_stamp(&venv, PYTHON_PACKAGES) {
        process::run(
            Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv),
            INSTALL_LIMIT,
        )?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        process::run(pip.args(PYTHON_PACKAGES), INSTALL_LIMIT)?;
        write_stamp(&venv, PYTHON_PACKAGES)?;
    }
    Ok(python)
}

/// A folder whose `node_modules` holds the packages.
fn node_clients() -> Result<PathBuf> {
    let folder = results().join("node");
    if !has_stamp(&folder, NODE_PACKAGES) {
        fs::create_dir_all(&folder).context("target/conformance/node")?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-fund", "--no-audit", "--prefix"])
            .arg(&folder)
            .args(NODE_PACKAGES)
            .current_dir(&folder);
        process::run(&mut npm, INSTALL_LIMIT)?;
        if !folder.join("node_modules/openai").is_dir() {
            bail!("npm installed nothing");
        }
        write_stamp(&folder, NODE_PACKAGES)?;
    }
    Ok(folder)
}

/// A finished installation says what it holds, so that a broken or older one is made again.
fn stamp(folder: &Path) -> PathBuf {
    folder.join("installed.txt")
}

fn has_stamp(folder: &Path, packages: &[&str]) -> bool {
    fs::read_to_string(stamp(folder)).is_ok_and(|text| text == packages.join("\n"))
}

fn write_stamp(folder: &Path, packages: &[&str]) -> Result<()> {
    fs::write(stamp(folder), packages.join("\n")).context("stamp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_both_programs_are_found_before_later_noise() {
        let python = [
            "pass openai x (0.1s)",
            "http://127.0.0.1:1: 26 pass, 0 FAIL",
            "Exception ignored in z",
        ];
        let node = ["pass a 3 ms", "http://127.0.0.1:1 14 pass 0 FAIL"];
        let owned = |lines: &[&str]| lines.iter().map(|&l| l.to_owned()).collect::<Vec<_>>();
        assert_eq!(counts(&owned(&python)), "26 pass, 0 FAIL");
        assert_eq!(counts(&owned(&node)), "14 pass 0 FAIL");
        assert_eq!(counts(&[]), "");
    }
}
