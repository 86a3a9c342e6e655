//! The SDK as it comes along with a new project: the sources of this very version, so that plugin and host fit
//! together. Called by `plugin new`.

use super::{ProjectFile, collect};
use include_dir::{Dir, include_dir};
use std::path::Path;

static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugin-sdk/rust");
static MACROS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugin-sdk/rust-macros");
static C: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugin-sdk/c");

/// The Rust SDK and its macros, without their tests. Their manifests stand on their own.
pub(super) fn rust() -> Vec<ProjectFile> {
    let mut files = Vec::new();
    for (dir, folder) in [(&SDK, "rust"), (&MACROS, "rust-macros")] {
        collect(dir, &mut |path, contents| {
            if path == Path::new("Cargo.toml") || path.starts_with("src") {
                files.push((Path::new(folder).join(path), contents.to_vec()));
            }
        });
    }
    files
}

/// The C header and what belongs to it.
pub(super) fn c() -> Vec<ProjectFile> {
    let mut files = Vec::new();
    collect(&C, &mut |path, contents| files.push((path.to_owned(), contents.to_vec())));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdks_manifests_inherit_nothing() {
        let manifests = rust().into_iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
        for (path, contents) in manifests {
            let text = String::from_utf8_lossy(&contents).into_owned();
            assert!(!text.contains("workspace = true"), "{}:\n{text}", path.display());
        }
    }
}
