//! Where things lie: the checkout and cargo's target folder. Nothing else here knows a path by itself.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checkout.
pub(crate) struct Workspace {
    /// The folder with the root `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target folder, wherever the user's settings put it.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn find() -> Result<Self> {
        // Cargo says where it was called; another checkout with the same target folder may have built this program.
        let called = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let manifest = called.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).join("Cargo.toml");
        let output = Command::new("cargo")
            .args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"])
            .arg(&manifest)
            .output()
            .context("cannot start cargo")?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let folder = |key: &str| {
            metadata[key].as_str().map(PathBuf::from).with_context(|| format!("cargo metadata has no {key}"))
        };
        Ok(Self { root: folder("workspace_root")?, target: folder("target_directory")? })
    }

    /// Where every plugin goes that the demo, the examples and the tests use.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.target.join("plugins")
    }

    /// Guests are compiled apart from the host: another compiler may build them, and neither should undo
    /// the other's work.
    pub(crate) fn guests(&self) -> PathBuf {
        self.target.join("guests")
    }

    /// The binary that `cargo build -p pelton` makes.
    pub(crate) fn pelton(&self) -> PathBuf {
        self.target.join("debug").join(format!("pelton{}", std::env::consts::EXE_SUFFIX))
    }

    /// A path as a person would type it from the checkout.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}
