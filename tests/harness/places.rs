//! Where the checkout, the built binary and the built plugins lie.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The checkout.
pub fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap_or(crate_folder).to_owned()
}

/// Cargo's target folder: this program runs from `target/debug/deps`.
pub fn target_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.ancestors().nth(3).context("the test program does not lie in a target folder")?;
    Ok(folder.to_owned())
}

/// The `pelton` binary, which must be as new as its sources.
pub fn pelton_binary() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let profile = program.ancestors().nth(2).context("the test program does not lie in a target folder")?;
    let binary = profile.join(format!("pelton{}", std::env::consts::EXE_SUFFIX));
    if !binary.is_file() {
        bail!(
            "{} is missing; run `cargo build -p pelton`, or all tests by `cargo xtask test`",
            binary.display()
        );
    }
    check_fresh(&binary)?;
    Ok(binary)
}

/// Fails if a source that the binary was built from is newer than the binary, by cargo's own list of them.
pub fn check_fresh(binary: &Path) -> Result<()> {
    let list = binary.with_extension("d");
    // `cargo test` makes the binary without one, and has just done so; `cargo build` leaves it.
    let Ok(list) = std::fs::read_to_string(&list) else { return Ok(()) };
    let built = changed(binary).context("the binary has no time of change")?;
    // `target: source source …`, with spaces in names escaped.
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources).replace("\\ ", "\0");
    let newer =
        sources.split_whitespace().map(|name| PathBuf::from(name.replace('\0', " "))).find(|source| {
            // A folder's time says nothing about the files in it.
            source.is_file() && changed(source).is_some_and(|time| time > built)
        });
    match newer {
        Some(source) => bail!(
            "{} is older than {}; run `cargo build -p pelton`, or all tests by `cargo xtask test`",
            binary.display(),
            source.display()
        ),
        None => Ok(()),
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|meta| meta.modified()).ok()
}

/// A plugin that `cargo xtask plugins` has built: `flights-rust.wasm`.
pub fn plugin(file: &str) -> Result<PathBuf> {
    let path = target_folder()?.join("plugins").join(file);
    if !path.is_file() {
        bail!("{} is missing; run `cargo xtask plugins`", path.display());
    }
    Ok(path)
}
