//! The BPF toolchain: finding it, and installing it where that's allowed.

use anyhow::Result;

/// A toolchain that can build the BPF programs.
#[derive(Debug)]
pub(crate) struct Toolchain {}

/// Finds the BPF toolchain or installs it, asking first unless `yes`.
///
/// # Errors
/// Where an installation that was agreed to fails.
pub(crate) fn ensure_toolchain(_yes: bool) -> Result<Option<Toolchain>> {
    println!("The BPF toolchain isn't supported yet.");
    Ok(None)
}
