//! Where things are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository.
pub(crate) fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), Path::to_path_buf)
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The binary `warmpath` of a profile's folder (`debug`, `release`), or the one that `WARMPATH_BIN` names.
pub(crate) fn warmpath(profile: &str) -> PathBuf {
    env::var_os("WARMPATH_BIN").map_or_else(|| target().join(profile).join("warmpath"), PathBuf::from)
}

/// The cargo that runs this command, in the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// The kit of HTTP conformance cases: `WARMPATH_CONFORMANCE`, or `../shared/conformance` beside the
/// repository. It isn't part of the repository.
pub(crate) fn conformance_kit() -> Option<PathBuf> {
    let folder = env::var_os("WARMPATH_CONFORMANCE")
        .map_or_else(|| root().join("../shared/conformance"), PathBuf::from);
    let folder = folder.canonicalize().ok()?;
    folder.join("cases.py").is_file().then_some(folder)
}

/// Whether a variable is set to 1 or true.
pub(crate) fn is_set(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

/// Whether the tests of the kernel path may not be skipped.
pub(crate) fn kernel_required() -> bool {
    is_set("WARMPATH_REQUIRE_KERNEL")
}
