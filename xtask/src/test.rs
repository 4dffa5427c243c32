//! `cargo xtask test`: everything that CI runs.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::conformance::{self, Datapath, Suite};
use crate::plan::{self, Outcome, Step};
use crate::setup::Toolchain;
use crate::{bpf, host, layers, process, setup, workspace};

/// The longest that one cargo command may take on a slow host.
const CARGO_LIMIT: Duration = Duration::from_secs(30 * 60);
const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// What the steps share.
struct State {
    yes: bool,
    toolchain: Option<Toolchain>,
    /// Lines of the test runners that hold counts, shown again at the end.
    counts: Vec<String>,
}

const STEPS: &[Step<State>] = &[
    Step {
        name: "host",
        about: "install what is missing on this host",
        needs: &[],
        work: |state| host::ensure_tools(state.yes).map(Outcome::Done),
    },
    Step {
        name: "toolchain",
        about: "find or install the BPF toolchain",
        needs: &[],
        work: find_toolchain,
    },
    Step {
        name: "fmt",
        about: "cargo fmt --check",
        needs: &[],
        work: |_| cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "layers",
        about: "the layer table of STYLE.md",
        needs: &[],
        work: |_| layers::check(&workspace::root()).map(Outcome::Done),
    },
    Step {
        name: "no-kernel",
        about: "router-userspace compiles without the BPF object",
        needs: &[],
        work: check_without_bpf,
    },
    Step {
        name: "bpf",
        about: "build the BPF programs",
        needs: &["toolchain"],
        work: build_bpf,
    },
    Step {
        name: "clippy",
        about: "cargo clippy -D warnings, all targets",
        needs: &[],
        work: |_| cargo(&["clippy", "--locked", "--all-targets", "--", "-D", "warnings"]),
    },
    Step {
        name: "build",
        about: "cargo build",
        needs: &[],
        work: |_| cargo(&["build", "--locked"]),
    },
    Step {
        name: "tests",
        about: "unit tests and whole-router tests over both datapaths",
        needs: &["build"],
        work: run_tests,
    },
    Step {
        name: "doc-tests",
        about: "examples in the docs",
        needs: &["build"],
        work: |state| cargo_test(&["test", "--locked", "--doc"], state),
    },
    Step {
        name: "aarch64",
        about: "compiles for aarch64",
        needs: &[],
        work: check_aarch64,
    },
    Step {
        name: "cases-copy",
        about: "HTTP conformance cases, copy datapath",
        needs: &["build"],
        work: |state| conformance(Suite::Cases, Datapath::Copy, state),
    },
    Step {
        name: "cases-kernel",
        about: "HTTP conformance cases, kernel datapath",
        needs: &["build"],
        work: |state| conformance(Suite::Cases, Datapath::Kernel, state),
    },
    Step {
        name: "clients-copy",
        about: "official client libraries, copy datapath",
        needs: &["build"],
        work: |state| conformance(Suite::Clients, Datapath::Copy, state),
    },
    Step {
        name: "clients-kernel",
        about: "official client libraries, kernel datapath",
        needs: &["build"],
        work: |state| conformance(Suite::Clients, Datapath::Kernel, state),
    },
];

/// Runs everything that CI runs, or those of its steps that `only` names.
///
/// # Errors
/// Where a name is none. A step that fails is said and makes the code a failure.
pub(crate) fn run(yes: bool, only: &[String]) -> Result<ExitCode> {
    if let Some(unknown) = only
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!("--only {unknown}: no such step; there are {}", names.join(", "));
    }
    let chosen = |step: &&Step<State>| only.is_empty() || only.iter().any(|name| name == step.name);
    let steps: Vec<&Step<State>> = STEPS.iter().filter(chosen).collect();
    let mut state = State {
        yes,
        toolchain: None,
        counts: Vec::new(),
    };
    let failed = plan::run(&steps, &mut state);
    if !state.counts.is_empty() {
        println!("\nTest runners:");
    }
    for line in &state.counts {
        println!("{line}");
    }
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds the BPF object where a toolchain is there, then the workspace.
///
/// # Errors
/// Where a build fails, or the kernel path is required and can't be built.
pub(crate) fn build(yes: bool, release: bool) -> Result<()> {
    match setup::ensure_toolchain(yes)? {
        Some(toolchain) => println!("{}", bpf::build(&toolchain)?.display()),
        None if workspace::kernel_required() => bail!("WARMPATH_REQUIRE_KERNEL=1 and no BPF toolchain"),
        None => println!("Building without the kernel path."),
    }
    let mut arguments = vec!["build", "--locked"];
    if release {
        arguments.push("--release");
    }
    process::run(&mut workspace::cargo(&arguments), CARGO_LIMIT)
}

fn cargo(arguments: &[&str]) -> Result<Outcome> {
    process::run(&mut workspace::cargo(arguments), CARGO_LIMIT)?;
    Ok(Outcome::done())
}

fn find_toolchain(state: &mut State) -> Result<Outcome> {
    state.toolchain = setup::ensure_toolchain(state.yes)?;
    match &state.toolchain {
        Some(_) => Ok(Outcome::done()),
        None if workspace::kernel_required() => bail!("WARMPATH_REQUIRE_KERNEL=1 and no BPF toolchain"),
        None => Ok(Outcome::Skipped(
            "no BPF toolchain: tests of the kernel path are skipped".to_owned(),
        )),
    }
}

fn build_bpf(state: &mut State) -> Result<Outcome> {
    match &state.toolchain {
        Some(toolchain) => Ok(Outcome::Done(bpf::build(toolchain)?.display().to_string())),
        None => Ok(Outcome::Skipped(
            "no BPF toolchain: building without the kernel path".to_owned(),
        )),
    }
}

/// In a target folder of its own, so that neither configuration rebuilds the other's crates.
fn check_without_bpf(_: &mut State) -> Result<Outcome> {
    let mut command = workspace::cargo(&["check", "--locked", "-p", "router-userspace", "--bin", "warmpath"]);
    command
        .env("WARMPATH_NO_BPF", "1")
        .env("CARGO_TARGET_DIR", workspace::target().join("no-kernel"));
    process::run(&mut command, CARGO_LIMIT)?;
    Ok(Outcome::done())
}

fn check_aarch64(_: &mut State) -> Result<Outcome> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--print", "target-libdir", "--target", AARCH64])
        .current_dir(workspace::root());
    let libdir = process::output(&mut rustc)?;
    if !Path::new(&libdir).is_dir() {
        return Ok(Outcome::Skipped(format!(
            "no std for it; have it: rustup target add {AARCH64}"
        )));
    }
    cargo(&["check", "--locked", "--target", AARCH64])
}

fn run_tests(state: &mut State) -> Result<Outcome> {
    if process::succeeds(&mut workspace::cargo(&["nextest", "--version"])) {
        cargo_test(&["nextest", "run", "--locked", "--no-fail-fast"], state)
    } else {
        cargo_test(
            &["test", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests"],
            state,
        )
    }
}

fn cargo_test(arguments: &[&str], state: &mut State) -> Result<Outcome> {
    let (result, lines) = process::run_and_keep(&mut workspace::cargo(arguments), CARGO_LIMIT);
    let counts = lines.into_iter().filter(|line| holds_counts(line));
    state.counts.extend(counts);
    result.map(|()| Outcome::done())
}

fn conformance(suite: Suite, datapath: Datapath, state: &mut State) -> Result<Outcome> {
    let outcome = conformance::run(suite, datapath, &workspace::warmpath("debug"))?;
    if let Outcome::Done(word) = &outcome {
        state
            .counts
            .push(format!("{} over {}: {word}", suite.name(), datapath.name()));
    }
    Ok(outcome)
}

/// `Summary [ 1.2s] 20 tests run: 20 passed, 0 skipped` and `test result: ok. 20 passed; …`; a crate
/// without tests has nothing to count.
fn holds_counts(line: &str) -> bool {
    let line = line.trim_start();
    let of_nextest = line.starts_with("Summary [") && line.contains("tests run");
    of_nextest || (line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed;"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_lines_of_both_runners_are_known() {
        assert!(holds_counts(
            "     Summary [   0.021s] 20 tests run: 20 passed, 0 skipped"
        ));
        assert!(holds_counts("test result: ok. 20 passed; 0 failed; 0 ignored"));
        assert!(!holds_counts("test result: ok. 0 passed; 0 failed; 0 ignored"));
        assert!(!holds_counts("        PASS [   0.005s] xtask plan::tests::x"));
    }

    #[test]
    fn every_need_is_an_earlier_step() {
        for (index, step) in STEPS.iter().enumerate() {
            for need in step.needs {
                assert!(
                    STEPS[..index].iter().any(|s| s.name == *need),
                    "{need} before {}",
                    step.name
                );
            }
        }
    }
}
