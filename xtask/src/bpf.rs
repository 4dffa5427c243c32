//! Building the BPF programs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::setup::{self, Compiler, Toolchain};

const TARGET: &str = "bpfel-unknown-none";

/// Builds `target/bpf/warmpath.bpf.o` and gives its path.
///
/// `target/bpf` holds nothing else: the build script of router-userspace watches it. The file is written only where
/// its content changes, so that an unchanged program rebuilds nothing.
///
/// # Errors
/// Where the compiler or the linker fails, or this architecture has no BPF flags.
pub(crate) fn build(toolchain: &Toolchain) -> Result<PathBuf> {
    let target = setup::root().join("target");
    // Apart from the host's builds: another compiler would throw their results away, and back.
    let work = target.join("bpf-build");
    let mut command = cargo(toolchain, &work)?;
    let status = command.status().context("cargo doesn't start")?;
    if !status.success() {
        bail!("the build of router-ebpf failed: {status}");
    }
    let built = work.join(TARGET).join("release").join("warmpath-bpf");
    let object = target.join("bpf").join("warmpath.bpf.o");
    install(&built, &object).with_context(|| format!("{} to {}", built.display(), object.display()))?;
    Ok(object)
}

fn cargo(toolchain: &Toolchain, work: &Path) -> Result<Command> {
    let mut command = setup::cargo();
    command
        .args([
            "build",
            "--quiet",
            "--locked",
            "--release",
            "--package",
            "router-ebpf",
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(work)
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            flags(&toolchain.linker)?.join("\u{1f}"),
        )
        // The workspace's release profile is the router's: unwinding and line tables are of no use here, while the
        // type data that the kernel reads is made from full debug information.
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "2")
        // Atomic operations on map memory are compiler intrinsics.
        .env("RUSTC_BOOTSTRAP", "1");
    match &toolchain.compiler {
        Compiler::Shipped(rustc) => {
            command.env("RUSTC", rustc);
        }
        Compiler::Nightly => {
            command
                .env("RUSTUP_TOOLCHAIN", "nightly")
                .env("CARGO_UNSTABLE_BUILD_STD", "core");
        }
    }
    Ok(command)
}

fn flags(linker: &Path) -> Result<Vec<String>> {
    let arch = match std::env::consts::ARCH {
        known @ ("x86_64" | "aarch64") => known,
        other => bail!("no BPF flags are known for {other}"),
    };
    Ok(vec![
        format!("-Clinker={}", linker.display()),
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        // 32-bit and atomic instructions.
        "-Ctarget-cpu=v3".to_owned(),
    ])
}

/// Copies through a temporary name beside the target folder, so that nobody sees half of it.
fn install(built: &Path, object: &Path) -> io::Result<()> {
    let new = fs::read(built)?;
    if fs::read(object).is_ok_and(|old| old == new) {
        return Ok(());
    }
    if let Some(folder) = object.parent() {
        fs::create_dir_all(folder)?;
    }
    let whole = built.with_extension("o");
    fs::write(&whole, new)?;
    fs::rename(whole, object)
}
