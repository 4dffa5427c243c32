//! Building the BPF programs.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::setup::Toolchain;

/// Builds `target/bpf/warmpath.bpf.o` and gives its path.
///
/// # Errors
/// Where the build fails.
pub(crate) fn build(_toolchain: &Toolchain) -> Result<PathBuf> {
    bail!("the BPF build isn't supported yet")
}
