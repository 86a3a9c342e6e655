//! `pelton plugin build`: compiles a project to one `.wasm` file. The compilers' messages go to stderr.

use crate::cli::BuildArgs;
use pelton_core::{Error, Result};
use pelton_toolchain::{Clang, RustToolchain, ToolchainError};
use std::path::{Path, PathBuf};

/// Builds it and says on stdout where the module lies.
pub(crate) fn run(arguments: &BuildArgs) -> Result<()> {
    let project = Project::find(&arguments.dir)?;
    let out = arguments.out.clone().unwrap_or_else(|| arguments.dir.join(format!("{}.wasm", project.name)));
    match &project.language {
        Sources::Rust { manifest } => build_rust(manifest, &arguments.dir, &out),
        Sources::C { files } => build_c(files, &arguments.dir, &out),
    }
    .map_err(explain)?;
    super::super::print_line(&out.display().to_string())
}

/// What there is to build.
#[derive(Debug, PartialEq, Eq)]
struct Project {
    name: String,
    language: Sources,
}

#[derive(Debug, PartialEq, Eq)]
enum Sources {
    Rust { manifest: PathBuf },
    C { files: Vec<PathBuf> },
}

impl Project {
    /// Looks into the folder: a `Cargo.toml` makes it Rust, C files here or in `src/` make it C.
    fn find(dir: &Path) -> Result<Self> {
        if !dir.is_dir() {
            return Err(Error::invalid(format!("there is no folder {}", dir.display())));
        }
        let manifest = dir.join("Cargo.toml");
        if manifest.is_file() {
            let name = pelton_toolchain::package_name(&manifest).map_err(explain)?;
            return Ok(Self { name, language: Sources::Rust { manifest } });
        }
        let files = [c_files(&dir.join("src")), c_files(dir)].concat();
        if files.is_empty() {
            return Err(Error::invalid(format!("{} holds neither a Cargo.toml nor C files", dir.display()))
                .hint("name the project's folder; `pelton plugin new NAME` starts one"));
        }
        let full = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let name = full.file_name().map_or_else(|| "plugin".to_owned(), |n| n.to_string_lossy().into_owned());
        Ok(Self { name, language: Sources::C { files } })
    }
}

/// In the order of their names, so that a build is the same everywhere.
fn c_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|file| file.extension().is_some_and(|e| e == "c")).collect();
    files.sort();
    files
}

fn build_rust(manifest: &Path, dir: &Path, out: &Path) -> Result<(), ToolchainError> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| dir.join("target"), PathBuf::from);
    RustToolchain::find()?.build(manifest, None, &target, out)
}

fn build_c(files: &[PathBuf], dir: &Path, out: &Path) -> Result<(), ToolchainError> {
    Clang::find()?.build(files, &[dir.join("pelton-sdk"), dir.to_owned()], out)
}

/// A compiler that is missing can be installed; a project that is none is a wrong request; all else is the
/// project's own fault.
fn explain(error: ToolchainError) -> Error {
    match error {
        ToolchainError::Missing { what, hint } => Error::unavailable(format!("{what} is missing")).hint(hint),
        ToolchainError::Project(_) => Error::invalid(error.to_string()),
        ToolchainError::Start { .. } | ToolchainError::Failed(_) | ToolchainError::File { .. } => {
            Error::plugin(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_known_by_its_files() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let refused = Project::find(folder.path()).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|e| e.contains("neither a Cargo.toml nor C files")));

        std::fs::create_dir(folder.path().join("src"))?;
        let source = folder.path().join("src/b.c");
        std::fs::write(&source, "")?;
        let found = Project::find(folder.path()).map(|p| p.language).map_err(|e| e.to_string());
        assert_eq!(found, Ok(Sources::C { files: vec![source] }));

        let manifest = folder.path().join("Cargo.toml");
        std::fs::write(&manifest, "[package]\nname = \"my-plugin\"\n")?;
        let found = Project::find(folder.path()).map_err(|e| e.to_string());
        assert_eq!(found, Ok(Project { name: "my-plugin".into(), language: Sources::Rust { manifest } }));
        Ok(())
    }
}
