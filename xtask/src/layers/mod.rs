//! `cargo xtask layers`: the layer table of STYLE.md, checked over the sources.
//!
//! Tests are checked like everything else: a unit test that needs a higher layer belongs to that layer.

mod paths;
mod rules;
mod tokens;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use paths::{Mention, Mentions, mentions};

/// One line of code that crosses a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Breach {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// Checks the sources below `root`.
///
/// # Errors
/// Where a line breaks the table (each is printed first), or a source can't be read.
pub(crate) fn check(root: &Path) -> Result<String> {
    let mut breaches = Vec::new();
    let mut files = 0;
    for (file, module) in sources(&root.join("router-userspace/src"))? {
        files += 1;
        let source = read(&file)?;
        judge_userspace(
            &relative(root, &file),
            &module,
            &mentions(&source, &module),
            &mut breaches,
        );
    }
    let ebpf = root.join("router-ebpf");
    let ebpf_sources = sources(&ebpf.join("src"))?;
    let own_modules: Vec<String> = ebpf_sources
        .iter()
        .filter_map(|(_, m)| m.last().cloned())
        .collect();
    for (file, module) in &ebpf_sources {
        files += 1;
        let found = mentions(&read(file)?, module);
        judge_ebpf(&relative(root, file), &found.uses, &own_modules, &mut breaches);
    }
    judge_ebpf_manifest(&read(&ebpf.join("Cargo.toml"))?, &mut breaches);
    for (file, module) in sources(&root.join("router-common/src"))? {
        files += 1;
        let found = mentions(&read(&file)?, &module);
        judge_common(&relative(root, &file), &found.roots, &mut breaches);
    }
    if breaches.is_empty() {
        return Ok(format!("{files} files keep the table of STYLE.md"));
    }
    for breach in &breaches {
        eprintln!("{breach}");
    }
    bail!("{} lines cross the layers of STYLE.md", breaches.len())
}

fn judge_userspace(file: &Path, module: &[String], found: &Mentions, breaches: &mut Vec<Breach>) {
    let breach = |at: &Mention, what: String| Breach {
        file: file.to_owned(),
        line: at.line,
        what,
    };
    let top = module.first().map_or("", String::as_str);
    for at in &found.roots {
        if let Some(door) = rules::DOORS
            .iter()
            .find(|d| d.krate == at.name && d.module != top)
        {
            let what = format!("`{}` may be named only in `{}`", door.krate, door.module);
            breaches.push(breach(at, what));
        }
    }
    // lib.rs and main.rs stand above the table: they list the modules and start `cli`.
    if module.is_empty() {
        return;
    }
    let Some(row) = rules::row(top) else {
        breaches.push(Breach {
            file: file.to_owned(),
            line: 1,
            what: format!("module `{top}` has no row in the layer table (xtask/src/layers/rules.rs)"),
        });
        return;
    };
    for at in &found.modules {
        match rules::row(&at.name) {
            Some(other) if row.may_name(other) => {}
            Some(other) => breaches.push(breach(
                at,
                format!(
                    "`{top}` (layer {}) names `{}` (layer {}); it may name {}",
                    row.layer,
                    other.module,
                    other.layer,
                    row.may_in_words()
                ),
            )),
            None => breaches.push(breach(
                at,
                format!(
                    "`{top}` names `crate::{}`; only paths that begin with a module show their layer",
                    at.name
                ),
            )),
        }
    }
    if !row.awaits {
        for at in &found.awaits {
            let what = format!("`{}` in `{top}`, which is plain functions over values", at.name);
            breaches.push(breach(at, what));
        }
    }
}

fn judge_ebpf(file: &Path, uses: &[Mention], own_modules: &[String], breaches: &mut Vec<Breach>) {
    for at in uses {
        if !rules::EBPF_MAY.contains(&at.name.as_str()) && !own_modules.contains(&at.name) {
            breaches.push(Breach {
                file: file.to_owned(),
                line: at.line,
                what: format!(
                    "router-ebpf imports `{}`; it may import {}",
                    at.name,
                    rules::EBPF_MAY.join(", ")
                ),
            });
        }
    }
}

/// The manifest is the wall: a crate that isn't a dependency can't be named at all.
fn judge_ebpf_manifest(manifest: &str, breaches: &mut Vec<Breach>) {
    let mut in_dependencies = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            in_dependencies = line.trim_matches(['[', ']']).ends_with("dependencies");
            continue;
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
        if in_dependencies
            && !name.is_empty()
            && !name.starts_with('#')
            && !rules::EBPF_DEPENDENCIES_MAY.contains(&name)
        {
            breaches.push(Breach {
                file: PathBuf::from("router-ebpf/Cargo.toml"),
                line: index + 1,
                what: format!(
                    "router-ebpf depends on `{name}`; it may depend on {}",
                    rules::EBPF_DEPENDENCIES_MAY.join(", ")
                ),
            });
        }
    }
}

/// router-common is no_std without alloc; `aya` only for its `Pod` impls, behind the feature.
fn judge_common(file: &Path, roots: &[Mention], breaches: &mut Vec<Breach>) {
    for at in roots
        .iter()
        .filter(|at| at.name == "alloc" || at.name == "router_userspace")
    {
        breaches.push(Breach {
            file: file.to_owned(),
            line: at.line,
            what: format!("router-common names `{}`; it is no_std without alloc", at.name),
        });
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| file.display().to_string())
}

fn relative(root: &Path, file: &Path) -> PathBuf {
    file.strip_prefix(root).unwrap_or(file).to_owned()
}

/// The Rust files below `src` with their module paths, sorted. A folder that isn't there has none.
fn sources(src: &Path) -> Result<Vec<(PathBuf, Vec<String>)>> {
    let mut out = Vec::new();
    if src.is_dir() {
        walk(src, &mut Vec::new(), &mut out)?;
    }
    out.sort();
    Ok(out)
}

fn walk(folder: &Path, module: &mut Vec<String>, out: &mut Vec<(PathBuf, Vec<String>)>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let stem = path
            .file_stem()
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default();
        if path.is_dir() {
            module.push(stem);
            walk(&path, module, out)?;
            module.pop();
        } else if path.extension().is_some_and(|e| e == "rs") {
            let mut full = module.clone();
            let root_file = full.is_empty() && (stem == "lib" || stem == "main");
            if stem != "mod" && !root_file {
                full.push(stem);
            }
            out.push((path, full));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(module: &[&str], source: &str) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|&m| m.to_owned()).collect();
        let mut out = Vec::new();
        judge_userspace(Path::new("f.rs"), &module, &mentions(source, &module), &mut out);
        out.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_policy_that_names_the_registry_is_told_where_and_why() {
        assert_eq!(
            breaches(
                &["policy", "x"],
                "use crate::types::Rng;\nuse crate::backend::Backend;"
            ),
            ["f.rs:2: `policy` (layer 3) names `backend` (layer 4); it may name types, telemetry, prefix"]
        );
    }

    #[test]
    fn tests_inside_a_module_are_held_to_the_same_table() {
        let source = "#[cfg(test)]\nmod tests {\n  use crate::server::ServerConfig;\n}";
        assert_eq!(breaches(&["proto", "sse"], source).len(), 1);
    }

    #[test]
    fn runtimes_have_one_door_and_lib_rs_is_no_exception() {
        assert_eq!(breaches(&["server"], "use tokio_uring::net::TcpStream;").len(), 1);
        assert_eq!(breaches(&[], "fn f() { aya::g() }").len(), 1);
        assert!(breaches(&["net", "conn"], "use socket2::Socket;").is_empty());
        assert!(breaches(&["datapath", "kernel"], "use aya::Ebpf;").is_empty());
    }

    #[test]
    fn sans_io_modules_hold_no_async() {
        assert_eq!(breaches(&["proto"], "async fn f() {}").len(), 1);
        assert!(breaches(&["server"], "async fn f() { g().await }").is_empty());
    }

    #[test]
    fn a_module_without_a_row_and_a_glob_of_the_root_are_breaches() {
        assert_eq!(breaches(&["utils"], "").len(), 1);
        assert_eq!(breaches(&["policy"], "use crate::*;").len(), 1);
    }

    #[test]
    fn the_bpf_programs_import_their_three_and_their_own_modules() {
        let source = "use aya_ebpf::macros::map;\nuse core::mem;\nuse verdict::Verdict;\nuse libc::c_int;";
        let mut out = Vec::new();
        let found = mentions(source, &[]);
        judge_ebpf(Path::new("f.rs"), &found.uses, &["verdict".to_owned()], &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].line, 4);
    }

    #[test]
    fn the_bpf_manifest_takes_nothing_but_its_three() {
        let mut out = Vec::new();
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nrouter-common.workspace = true\n\
            # why\naya-ebpf = \"1\"\nnetwork-types = \"0.1\"\n[lints]\nworkspace = true";
        judge_ebpf_manifest(manifest, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].line, 7);
    }

    #[test]
    fn the_sources_of_this_workspace_keep_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        check(&root).expect("the table is kept");
    }
}
