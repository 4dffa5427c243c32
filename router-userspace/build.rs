//! Embeds the BPF programs where they have been built (`cargo xtask build`), else leaves the kernel path out.
//!
//! The object is `WARMPATH_BPF_OBJECT`, or `target/bpf/warmpath.bpf.o` of the workspace. With one, `cfg(warmpath_bpf)`
//! is set and the variable `WARMPATH_BPF_OBJECT_PATH` names it to `include_bytes`. `WARMPATH_NO_BPF=1` leaves it out
//! all the same.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=WARMPATH_BPF_OBJECT");
    println!("cargo:rerun-if-env-changed=WARMPATH_NO_BPF");
    if env::var_os("WARMPATH_NO_BPF").is_some_and(|value| value == "1") {
        return;
    }
    let Some(object) = given().or_else(built) else {
        return;
    };
    println!("cargo:rerun-if-changed={}", object.display());
    println!("cargo:rustc-cfg=warmpath_bpf");
    println!("cargo:rustc-env=WARMPATH_BPF_OBJECT_PATH={}", object.display());
}

/// The object that the environment names. One that isn't there is an error: it was asked for.
fn given() -> Option<PathBuf> {
    let named = env::var_os("WARMPATH_BPF_OBJECT").filter(|value| !value.is_empty())?;
    let path = fs::canonicalize(&named).unwrap_or_else(|error| {
        panic!(
            "WARMPATH_BPF_OBJECT={}: {error}; build it with `cargo xtask build` or unset the variable",
            named.display()
        )
    });
    Some(path)
}

/// The object that `cargo xtask build` wrote.
fn built() -> Option<PathBuf> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let folder = manifest.parent()?.join("target").join("bpf");
    watch(&folder);
    let object = folder.join("warmpath.bpf.o");
    object.is_file().then_some(object)
}

/// Has cargo run this script again once an object appears. A watched path that doesn't exist would make every
/// build a rebuild, so the folder is made first; where that fails the first build of an object needs a touch.
fn watch(folder: &Path) {
    if fs::create_dir_all(folder).is_ok() {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
}
