//! The BPF toolchain: finding it, and installing it where that's allowed.
//!
//! Three parts: a compiler with `core` for the BPF target, LLVM's libraries, and bpf-linker built against them.

use std::env;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// The compiler and `core` for the BPF target, beside whatever rustup has installed.
const COMPILER_PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];
/// The LLVM that bpf-linker is built against; not older than the compiler's own.
const LLVM_PACKAGE: &str = "llvm-22-dev";
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";
const LINKER_VERSION: &str = "0.13.0";
const LINKER_FEATURES: &str = "llvm-22";
/// The compiler that the packages bring.
const SHIPPED_RUSTC: &str = "/usr/bin/rustc";
/// The workspace's `rust-version`.
const RUSTC_MIN: (u32, u32) = (1, 95);

/// A toolchain that can build the BPF programs.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub(crate) compiler: Compiler,
    /// bpf-linker.
    pub(crate) linker: PathBuf,
}

/// What compiles them.
#[derive(Debug)]
pub(crate) enum Compiler {
    /// A rustc that ships `core` for the BPF target.
    Shipped(PathBuf),
    /// rustup's nightly with `rust-src`, which builds `core` itself.
    Nightly,
}

/// What is missing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Missing {
    packages: Vec<&'static str>,
    linker: bool,
}

/// Finds the BPF toolchain or installs it.
///
/// What would be installed is listed first, and asked for unless `yes`, `CI=true` or no terminal. `None` = declined,
/// not root or not to be had; a line has said how to get it.
///
/// # Errors
/// Where the terminal can't be read.
pub(crate) fn ensure_toolchain(yes: bool) -> Result<Option<Toolchain>> {
    let missing = missing();
    if missing == Missing::default() {
        return Ok(found());
    }
    println!("The kernel path needs a BPF toolchain. To be installed:");
    if !missing.packages.is_empty() {
        println!("  with apt-get: {}", missing.packages.join(" "));
    }
    if missing.linker {
        println!(
            "  with cargo:   bpf-linker {LINKER_VERSION} into {} (1 to 3 minutes)",
            linker_folder().display()
        );
    }
    if let Some(reason) = obstacle(&missing) {
        return Ok(do_without(&reason, &missing));
    }
    if !yes && !agreed()? {
        return Ok(do_without("declined", &missing));
    }
    if let Err(error) = install(&missing) {
        return Ok(do_without(&format!("{error:#}"), &missing));
    }
    let found = found();
    if found.is_none() {
        return Ok(do_without(
            "the installed packages don't hold what the build needs",
            &missing,
        ));
    }
    Ok(found)
}

fn missing() -> Missing {
    let linker = linker().is_none();
    let mut packages = Vec::new();
    if compiler().is_none() {
        packages.extend(COMPILER_PACKAGES);
    }
    // Of use only to build the linker; its library is linked in dynamically where Debian has it so.
    if linker && !Path::new(LLVM_PREFIX).join("bin/llvm-config").exists() {
        packages.push(LLVM_PACKAGE);
    }
    Missing { packages, linker }
}

fn found() -> Option<Toolchain> {
    Some(Toolchain {
        compiler: compiler()?,
        linker: linker()?,
    })
}

/// The packaged compiler first: its LLVM is the one that the linker is built against, while a nightly's may be ahead.
fn compiler() -> Option<Compiler> {
    shipped().or_else(nightly)
}

fn shipped() -> Option<Compiler> {
    let rustc = Path::new(SHIPPED_RUSTC);
    let sysroot = PathBuf::from(answer(Command::new(rustc).args(["--print", "sysroot"]))?.trim());
    let version = version_of(&answer(Command::new(rustc).arg("--version"))?)?;
    let has_core = sysroot.join("lib/rustlib/bpfel-unknown-none/lib").is_dir();
    (has_core && version >= RUSTC_MIN).then(|| Compiler::Shipped(rustc.to_owned()))
}

fn nightly() -> Option<Compiler> {
    let sysroot = answer(Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]))?;
    let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core");
    source.is_dir().then_some(Compiler::Nightly)
}

/// `rustc 1.96.0 (…)` → (1, 96).
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The cached linker of the right version. It has to start: the LLVM library that it needs may be gone.
fn linker() -> Option<PathBuf> {
    let path = linker_folder().join("bin/bpf-linker");
    let version = answer(Command::new(&path).arg("--version"))?;
    version
        .split_whitespace()
        .any(|word| word == LINKER_VERSION)
        .then_some(path)
}

fn linker_folder() -> PathBuf {
    root().join("target/bpf-linker")
}

/// What a command prints, if it starts and succeeds.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Why it can't be installed from here.
fn obstacle(missing: &Missing) -> Option<String> {
    if missing.packages.is_empty() {
        return None;
    }
    if answer(Command::new("apt-get").arg("--version")).is_none() {
        return Some("this system has no apt-get".to_owned());
    }
    if answer(Command::new("id").arg("-u")).is_none_or(|id| id.trim() != "0") {
        return Some("not root".to_owned());
    }
    None
}

/// The line for those who go on without.
fn do_without(reason: &str, missing: &Missing) -> Option<Toolchain> {
    println!("Going on without the kernel path ({reason}).");
    if missing.packages.is_empty() {
        println!("To get it: cargo xtask setup");
    } else {
        println!(
            "To get it: sudo apt-get update && sudo apt-get install {} && cargo xtask setup",
            missing.packages.join(" ")
        );
    }
    None
}

fn agreed() -> Result<bool> {
    let asked = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !asked || env::var("CI").is_ok_and(|value| value == "true") {
        return Ok(true);
    }
    print!("Install them? [Y/n] ");
    io::stdout().flush().context("the terminal")?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).context("the terminal")?;
    Ok(read > 0 && matches!(line.trim(), "" | "y" | "Y" | "yes"))
}

fn install(missing: &Missing) -> Result<()> {
    if !missing.packages.is_empty() {
        run(apt().arg("update"))?;
        run(apt()
            .args(["install", "--yes", "--no-install-recommends"])
            .args(&missing.packages))?;
    }
    if missing.linker {
        let mut command = cargo();
        command
            .args([
                "install",
                "--quiet",
                "--locked",
                "bpf-linker",
                "--version",
                LINKER_VERSION,
            ])
            .args([
                "--no-default-features",
                "--features",
                LINKER_FEATURES,
                "--force",
                "--root",
            ])
            .arg(linker_folder())
            .env("LLVM_PREFIX", LLVM_PREFIX);
        run(&mut command)?;
    }
    Ok(())
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command
        .args([
            "-qq",
            "-o",
            "Acquire::http::Timeout=30",
            "-o",
            "Acquire::Retries=2",
        ])
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{} {}", command.get_program().display(), first_words(command));
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| shown.clone())?;
    anyhow::ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// The words of a command that aren't options, enough to know it by.
fn first_words(command: &Command) -> String {
    let words = command.get_args().map(|word| word.to_string_lossy());
    words
        .filter(|word| !word.starts_with('-') && !word.contains("::"))
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The cargo that runs this command, in the repository, without the flags of whoever called it.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for variable in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
    ] {
        command.env_remove(variable);
    }
    command
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .parent()
        .map_or_else(|| manifest.clone(), Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_versions_are_read_from_their_line() {
        assert_eq!(version_of("rustc 1.96.0 (ac68faa20 2026-05-25)\n"), Some((1, 96)));
        assert_eq!(version_of("rustc 1.85.0-nightly"), Some((1, 85)));
        assert_eq!(version_of("garbage"), None);
    }
}
