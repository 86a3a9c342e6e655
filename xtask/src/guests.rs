//! Builds every plugin of this repository to `target/plugins`. Used by the demo, the tests and by hand.

use crate::progress::heading;
use crate::workspace::Workspace;
use crate::{install, progress};
use anyhow::{Context, Result};
use pelton_toolchain::RustToolchain;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A Rust guest: its package (a member of the workspace) and the file it becomes.
const RUST: &[(&str, &str)] = &[
    ("flights-rust", "flights-rust.wasm"),
    ("redact", "redact.wasm"),
    ("sessionize", "sessionize.wasm"),
    ("running-total", "running-total.wasm"),
    ("top-k", "top-k.wasm"),
    ("dedup-key", "dedup-key.wasm"),
    ("webhook", "webhook.wasm"),
    ("conformance-guest", "conformance.wasm"),
    ("pelton-bench-guest", "bench.wasm"),
    ("pelton-groups-guest", "groups.wasm"),
    ("pelton-failing-guest", "failing.wasm"),
    ("pelton-totals-1-guest", "totals-1.wasm"),
    ("pelton-totals-2-guest", "totals-2.wasm"),
    ("pelton-totals-3-guest", "totals-3.wasm"),
];

/// The plugin of the demo and of most examples.
pub(crate) const FLIGHTS: &str = "flights-rust.wasm";

/// All of them.
pub(crate) fn build_all(workspace: &Workspace) -> Result<()> {
    heading("building plugins");
    let rust = install::rust()?;
    eprintln!("   Rust for Wasm: {}", rust.describe());
    for (package, file) in RUST {
        rust_guest(workspace, &rust, package, file)?;
    }
    c_guest(workspace, "flights-c")?;
    c_guest(workspace, "totals-c")?;
    c_guest(workspace, "visits-c")?;
    c_guest(workspace, "post-c")?;
    wat_guest(workspace, "flights-wat")?;
    wat_guest(workspace, "totals-wat")?;
    eprintln!("   plugins: {}", workspace.shown(&workspace.plugins()));
    Ok(())
}

/// The one that the demo needs: no C compiler is asked for.
pub(crate) fn build_flights(workspace: &Workspace) -> Result<()> {
    progress::heading("building the example plugin");
    let rust = install::rust()?;
    let (package, file) = RUST[0];
    rust_guest(workspace, &rust, package, file)
}

/// Cargo knows what is fresh.
fn rust_guest(workspace: &Workspace, rust: &RustToolchain, package: &str, file: &str) -> Result<()> {
    let manifest = workspace.root.join("Cargo.toml");
    rust.build(&manifest, Some(package), &workspace.guests(), &workspace.plugins().join(file))
        .with_context(|| format!("building the plugin {package}"))
}

/// The plugins in C.
fn c_guest(workspace: &Workspace, name: &str) -> Result<()> {
    let source = workspace.root.join("examples/plugins").join(name);
    let header = workspace.root.join("plugin-sdk/c");
    let out = workspace.plugins().join(format!("{name}.wasm"));
    let inputs = [files_in(&source)?, files_in(&header)?].concat();
    if is_fresh(&out, &inputs) {
        return Ok(());
    }
    let sources: Vec<PathBuf> = with_ending(&files_in(&source)?, "c");
    let clang = install::clang()?;
    clang.build(&sources, &[header], &out).with_context(|| format!("building the plugin {name}"))
}

/// The plugins in WAT: Pelton reads the text itself.
fn wat_guest(workspace: &Workspace, name: &str) -> Result<()> {
    let folder = workspace.root.join("examples/plugins").join(name);
    let sources = with_ending(&files_in(&folder)?, "wat");
    let source = sources.first().with_context(|| format!("examples/plugins/{name} holds no .wat file"))?;
    std::fs::create_dir_all(workspace.plugins())?;
    std::fs::copy(source, workspace.plugins().join(format!("{name}.wat")))
        .with_context(|| format!("copying {name}"))?;
    Ok(())
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.is_file());
    files.sort();
    Ok(files)
}

fn with_ending(files: &[PathBuf], ending: &str) -> Vec<PathBuf> {
    files.iter().filter(|file| file.extension().is_some_and(|e| e == ending)).cloned().collect()
}

/// Whether the result is newer than everything it is made of.
fn is_fresh(out: &Path, inputs: &[PathBuf]) -> bool {
    let changed = |file: &Path| file.metadata().and_then(|meta| meta.modified()).ok();
    let newest: Option<SystemTime> = inputs.iter().filter_map(|input| changed(input)).max();
    changed(out).is_some_and(|built| Some(built) > newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_result_is_not_fresh() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(!is_fresh(Path::new("/nowhere"), std::slice::from_ref(&manifest)));
        assert!(!is_fresh(&manifest, std::slice::from_ref(&manifest)), "as old as its source is not newer");
    }
}
