//! Directory trees behind [`pelton_core::FileManager`]: local disk, object stores, memory.
//!
//! Called by the binary, which opens checkpoints and output directories by URL with [`open_url`] and hands
//! the trees on. Nothing here knows what the files mean.

mod local;
mod object;
mod url;

#[cfg(test)]
mod contract_tests;

pub use local::LocalFiles;
pub use object::ObjectStoreFiles;
pub use pelton_core::files::{Fault, FaultyFiles, MemoryFiles};
pub use url::{open_url, open_url_with};

use pelton_core::{Error, Result};

/// Refuses paths that could leave the tree or that not every storage can hold.
fn check_path(path: &str) -> Result<()> {
    let wrong = |part: &str| matches!(part, "" | "." | "..") || part.contains(['\\', '\0']);
    match path.split('/').find(|part| wrong(part)) {
        None => Ok(()),
        Some(_) => Err(Error::invalid(format!(
            "'{path}' is not a path within a directory: it must be relative, with '/', without '.', '..' and '\\'"
        ))),
    }
}

/// `path` below `prefix`, checked; an empty `path` is the prefix itself.
fn join(prefix: &str, path: &str) -> Result<String> {
    let full = match (prefix, path.trim_end_matches('/')) {
        (prefix, "") => prefix.to_owned(),
        ("", path) => path.to_owned(),
        (prefix, path) => format!("{prefix}/{path}"),
    };
    if !full.is_empty() {
        check_path(&full)?;
    }
    Ok(full)
}

/// [`join`] without the check, which the first operation in the subtree makes.
fn join_unchecked(prefix: &str, dir: &str) -> String {
    match (prefix, dir.trim_end_matches('/')) {
        (prefix, "") => prefix.to_owned(),
        ("", dir) => dir.to_owned(),
        (prefix, dir) => format!("{prefix}/{dir}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_the_tree() {
        assert_eq!(join("a", "b/c=%2F").unwrap(), "a/b/c=%2F");
        assert_eq!(join("", "").unwrap(), "");
        for path in ["../x", "a/../../x", "/etc/passwd", "a//b", "a\\b", "./a", "a/."] {
            assert!(join("tree", path).is_err(), "{path}");
        }
        assert!(join(&join_unchecked("tree", ".."), "x").is_err());
    }
}
