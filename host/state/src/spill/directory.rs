//! The directory of a working copy: one for each open store, gone when the store is. Called when state outgrows memory.
//!
//! A process that died has left its own behind: whoever makes the next one for the same query removes it. A lock on a
//! file in the directory tells the living from the dead. Only its owner may look into one; what is no directory (a link,
//! say), or one of somebody else, is left alone.

use pelton_core::{Error, Result};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use twox_hash::XxHash64;

/// The file that is locked as long as the directory is in use.
const LOCK: &str = "in-use";
/// No query has more stores open at a time.
const STORES_MAX: u32 = 10_000;

/// A directory that is deleted when this is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Directory {
    /// Makes an empty directory in another one, and removes those that dead processes left of the same query.
    pub(super) fn make(parent: &Path, query: &str) -> Result<Self> {
        let name = format!("pelton-state-{:016x}", XxHash64::oneshot(0, query.as_bytes()));
        make(parent, &name).map_err(|e| {
            let parent = parent.display();
            Error::unavailable(format!("no working copy of the state can be made in {parent}: {e}"))
                .hint("name a directory that can be written to, on a disk with room for the state")
                .caused_by(e)
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.path) {
            tracing::warn!("{} is not needed any more and cannot be deleted: {e}", self.path.display());
        }
    }
}

fn make(parent: &Path, name: &str) -> io::Result<Directory> {
    fs::create_dir_all(parent)?;
    let mut made = None;
    for number in 0..STORES_MAX {
        let path = parent.join(format!("{name}-{number}"));
        if made.is_some() && !path.exists() {
            break;
        }
        // Locked by nobody: new, or of a process that is dead.
        let lock = match lock(&path) {
            Ok(Some(lock)) => lock,
            Ok(None) => continue,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => continue,
            Err(e) => return Err(e),
        };
        if made.is_none() {
            empty(&path)?;
            made = Some(Directory { path, _lock: lock });
        } else {
            fs::remove_dir_all(&path)?;
        }
    }
    made.ok_or_else(|| io::Error::other("too many are there"))
}

/// Takes a directory, made if there is none, unless another store has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let taken = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    match private().create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let there = fs::symlink_metadata(path);
            if !there.as_ref().is_ok_and(is_ours) {
                return Ok(None);
            }
        }
        made => made?,
    }
    let opened = lock_file(&path.join(LOCK));
    let file = match opened {
        Ok(file) => file,
        // Somebody removes it at this moment.
        Err(e) if taken(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    match file.try_lock() {
        Ok(()) => Ok(path.join(LOCK).exists().then_some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(e)) => Err(e),
    }
}

/// Makes a directory that must be new, for its owner alone.
fn private() -> fs::DirBuilder {
    #[allow(unused_mut, reason = "other systems have no modes")]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Whether it is a directory that only its owner may use. (Another user's could not be entered, then.)
fn is_ours(there: &fs::Metadata) -> bool {
    #[cfg(unix)]
    let is_private = std::os::unix::fs::PermissionsExt::mode(&there.permissions()) & 0o077 == 0;
    #[cfg(not(unix))]
    let is_private = true;
    there.file_type().is_dir() && is_private
}

/// Opens or makes a file; never one behind a link.
fn lock_file(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_file()) {
        return Err(io::Error::other(format!("{} is no file", path.display())));
    }
    File::options().write(true).create(true).truncate(false).open(path)
}

fn empty(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false if entry.file_name() == LOCK => {}
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_of_one_store_and_goes_with_it() {
        let parent = std::env::temp_dir().join(format!("pelton-state-directory-test-{}", std::process::id()));
        let names = || -> Vec<String> {
            let entries = fs::read_dir(&parent).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let first = Directory::make(&parent, "query").unwrap();
        let second = Directory::make(&parent, "query").unwrap();
        let other = Directory::make(&parent, "another").unwrap();
        assert_eq!(names().len(), 3);
        // What a dead process left.
        let left = parent
            .join(second.path().file_name().unwrap())
            .with_file_name(second.path().file_name().unwrap().to_str().unwrap().replace("-1", "-2"));
        private().create(&left).unwrap();
        fs::create_dir(left.join("rocksdb")).unwrap();
        // What is not ours.
        let foreign = parent.join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("kept"), "").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(
            &foreign,
            left.with_file_name(left.file_name().unwrap().to_str().unwrap().replace("-2", "-3")),
        )
        .unwrap();
        drop(first);
        let third = Directory::make(&parent, "query").unwrap();
        assert!(!left.exists() && third.path().exists() && second.path().exists());
        drop((second, third, other));
        assert!(foreign.join("kept").exists(), "nothing is removed behind a link");
        assert!(names().iter().all(|name| name == "foreign" || name.ends_with("-3")), "{:?}", names());
        fs::remove_dir_all(parent).unwrap();
    }
}
