//! Finds the compilers that turn Rust and C into plugins, and calls them.
//!
//! `pelton plugin build` and `cargo xtask plugins` use it. It installs nothing and downloads nothing by itself:
//! what is missing it names, with the command that would install it.

mod c;
mod rust;

pub use c::Clang;
pub use rust::{RustToolchain, package_name};

use std::path::{Path, PathBuf};
use std::process::Command;

/// The target that guests are built for: no operating system, nothing but what the host lends.
pub const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// The environment variable that names a `rustc` with a standard library for [`WASM_TARGET`].
pub const RUSTC_VARIABLE: &str = "PELTON_WASM_RUSTC";

/// Why a guest could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// No compiler for the target.
    #[error("{what} is missing\n  hint: {hint}")]
    Missing {
        /// The thing.
        what: String,
        /// How to get it.
        hint: String,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {cause}")]
    Start {
        /// Its name.
        program: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A compiler said no; it has printed why.
    #[error("{0} failed; its own messages stand above")]
    Failed(String),
    /// The project is not one that can be built.
    #[error("{0}")]
    Project(String),
    /// A file could not be read or written.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
}

/// `$XDG_CACHE_HOME/pelton` or `~/.cache/pelton`; `None` if neither variable is set.
pub fn cache_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|dir| dir.join("pelton"))
}

/// Where `cargo xtask` puts a `rustc` that it had to assemble itself.
pub fn assembled_rust() -> Option<PathBuf> {
    Some(cache_dir()?.join("wasm-rust"))
}

/// The first of these programs that the search path has.
pub fn on_path<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.into_iter().find_map(|name| dirs.iter().map(|dir| dir.join(name)).find(|file| is_program(file)))
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file() || file.with_extension("exe").is_file()
}

/// Runs a compiler with its messages going where ours go: to stderr.
fn run(mut command: Command, what: &str) -> Result<(), ToolchainError> {
    let status = command
        .stdin(std::process::Stdio::null())
        .status()
        .map_err(|cause| ToolchainError::Start { program: what.to_owned(), cause })?;
    if status.success() { Ok(()) } else { Err(ToolchainError::Failed(what.to_owned())) }
}

/// Puts the file in place under its final name in one step, so that no reader sees half of it.
fn place(from: &Path, to: &Path) -> Result<(), ToolchainError> {
    let parent = to.parent().unwrap_or(Path::new("."));
    let partial = to.with_extension(format!("{}.partial", std::process::id()));
    let at = |path: &Path| {
        let path = path.to_owned();
        move |cause| ToolchainError::File { path, cause }
    };
    std::fs::create_dir_all(parent).map_err(at(parent))?;
    std::fs::copy(from, &partial).map_err(at(from))?;
    std::fs::rename(&partial, to).map_err(at(to))
}
