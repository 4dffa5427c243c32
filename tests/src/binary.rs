//! The binary under test.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The path of `warmpath`: `WARMPATH_BIN`, or the one beside this test in cargo's target folder. Cargo
/// doesn't build another package's binary for a test, so that it's built here where it's older than its
/// sources.
///
/// # Panics
/// Where it can't be built.
pub(crate) fn warmpath() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = env::var_os("WARMPATH_BIN") {
            return PathBuf::from(path);
        }
        let profile = profile_folder();
        let binary = profile.join("warmpath");
        if !is_fresh(&binary) {
            build(&profile);
        }
        binary
    })
}

/// `target/debug` of `target/debug/deps/serve-0123456789abcdef`.
fn profile_folder() -> PathBuf {
    let test = env::current_exe().expect("a path of this test");
    let deps = test.parent().expect("a folder");
    deps.parent().expect("a folder above deps").to_owned()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn is_fresh(binary: &Path) -> bool {
    let Some(built) = modified(binary) else {
        return false;
    };
    ["router-userspace", "router-common", "Cargo.lock", "target/bpf"]
        .iter()
        .all(|part| newest(&workspace().join(part)).is_none_or(|changed| changed <= built))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn newest(path: &Path) -> Option<SystemTime> {
    if !path.is_dir() {
        return modified(path);
    }
    let entries = fs::read_dir(path).ok()?;
    entries.flatten().filter_map(|entry| newest(&entry.path())).max()
}

fn build(profile: &Path) {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "router-userspace",
            "--bin",
            "warmpath",
        ])
        .current_dir(workspace());
    if profile.ends_with("release") {
        command.arg("--release");
    }
    if let Some(target) = profile.parent() {
        command.env("CARGO_TARGET_DIR", target);
    }
    let status = command.status().expect("cargo starts");
    assert!(status.success(), "warmpath doesn't build");
}
