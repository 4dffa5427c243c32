//! What the tests need from the host: listed first, then asked for, then installed.

use std::io::{IsTerminal as _, Write as _};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{process, workspace};

const APT_LIMIT: Duration = Duration::from_secs(900);

/// A program that some tests need.
struct Need {
    /// The Debian package.
    package: &'static str,
    /// What needs it.
    why: &'static str,
    /// A command that succeeds where it is there.
    probe: &'static [&'static str],
    /// Whether only the conformance kit needs it.
    only_for_kit: bool,
}

const NEEDS: &[Need] = &[
    Need {
        package: "iproute2",
        why: "network namespaces for tests of lost hosts",
        probe: &["ip", "-Version"],
        only_for_kit: false,
    },
    Need {
        package: "curl",
        why: "curl as a client",
        probe: &["curl", "--version"],
        only_for_kit: true,
    },
    Need {
        package: "python3-venv",
        why: "the conformance kit and the Python clients",
        probe: &["python3", "-c", "import ensurepip, venv"],
        only_for_kit: true,
    },
    Need {
        package: "nodejs",
        why: "the JavaScript clients",
        probe: &["node", "--version"],
        only_for_kit: true,
    },
    Need {
        package: "npm",
        why: "the JavaScript clients",
        probe: &["npm", "--version"],
        only_for_kit: true,
    },
];

/// Whether one may ask: not with `--yes`, not in CI, not without a terminal.
fn may_ask(yes: bool) -> bool {
    !yes && !workspace::is_set("CI") && std::io::stdin().is_terminal()
}

/// Asks a question on the terminal; yes where one may not ask.
///
/// # Errors
/// Where the terminal can't be read.
fn agreed(question: &str, yes: bool) -> Result<bool> {
    if !may_ask(yes) {
        return Ok(true);
    }
    print!("{question} [Y/n] ");
    std::io::stdout().flush().context("terminal")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("terminal")?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes"))
}

/// Installs what is missing. What can't be had is said, and is no error: the steps that need it skip or
/// fail by their own rules.
///
/// # Errors
/// Where the terminal can't be read.
pub(crate) fn ensure_tools(yes: bool) -> Result<String> {
    let kit = workspace::conformance_kit().is_some();
    let missing: Vec<&Need> = NEEDS
        .iter()
        .filter(|need| kit || !need.only_for_kit)
        .filter(|need| !process::succeeds(Command::new(need.probe[0]).args(&need.probe[1..])))
        .collect();
    if missing.is_empty() {
        return Ok("nothing missing".to_owned());
    }
    println!("Missing on this host, to be installed with apt:");
    for need in &missing {
        println!("  {:14} {}", need.package, need.why);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let list = packages.join(" ");
    if !is_root() {
        return Ok(format!("not root; run: sudo apt-get install {list}"));
    }
    if !agreed("Install them?", yes)? {
        return Ok(format!("declined: {list}"));
    }
    match apt_install(&packages) {
        Ok(()) => Ok(format!("installed {list}")),
        Err(error) => Ok(format!("apt failed ({error}); missing: {list}")),
    }
}

fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and can't fail.
    unsafe { libc::geteuid() == 0 }
}

fn apt_install(packages: &[&str]) -> Result<()> {
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        process::run(&mut command, APT_LIMIT)
    };
    apt(&["-qq", "update"])?;
    let mut arguments = vec!["-qq", "install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments)
}
