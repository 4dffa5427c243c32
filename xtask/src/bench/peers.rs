//! The proxies beside which Warmpath is measured: their files, filled in.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;

/// HAProxy's file.
pub(super) const HAPROXY: &str = include_str!("peers/haproxy.cfg");
/// nginx's file.
pub(super) const NGINX: &str = include_str!("peers/nginx.conf");

/// A peer's file in `folder`, with every `{{NAME}}` of `values` filled in.
///
/// # Errors
/// Where it can't be written.
pub(super) fn fill(text: &str, values: &[(&str, String)], folder: &Path, name: &str) -> Result<PathBuf> {
    let mut filled = text.to_owned();
    for (key, value) in values {
        filled = filled.replace(&format!("{{{{{key}}}}}"), value);
    }
    let file = folder.join(name);
    std::fs::write(&file, filled).with_context(|| file.display().to_string())?;
    Ok(file)
}

/// The first line of what a peer says of its version; `None` = it isn't installed.
pub(super) fn version(program: &str) -> Option<String> {
    let out = Command::new(program).arg("-v").output().ok()?;
    // nginx says it on stderr.
    let text = [out.stdout, out.stderr].concat();
    let line = String::from_utf8_lossy(&text).lines().next()?.trim().to_owned();
    Some(line)
}

/// The kernel's release.
pub(super) fn kernel() -> String {
    process::output(Command::new("uname").arg("-r")).unwrap_or_default()
}
