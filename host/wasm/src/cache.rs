//! Compiled plugins kept on disk, so that a start does not wait for the compiler. `host` is the only caller.
//! It never decides what a plugin may do: an entry is only a faster way to the code that compiling would give.
//!
//! An entry is named by the digest of the plugin's bytes and a hash of everything the compiled code depends on
//! (Wasmtime's version, its configuration, the processor's features, the contract), so it is never out of date.
//! It is machine code that will be run, so:
//! - the directory is made readable and writable for its owner alone, and one that others can write to is not used;
//! - an entry carries the SHA-256 of its content; one that is damaged or cut short is compiled anew and replaced.
//!
//! Whoever can write as the same user can forge an entry; such a one could replace the binary as well.
#![allow(
    unsafe_code,
    reason = "Component::deserialize runs what it is given; see above why it may be given this"
)]

use crate::contract::CONTRACT_WIT;
use sha2::{Digest, Sha256};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use wasmtime::Engine;
use wasmtime::component::Component;

/// First bytes of an entry: what it is and the version of its layout (magic, SHA-256 of the rest, the rest).
const MAGIC: &[u8; 16] = b"pelton-module-1\n";
const HEAD_BYTES: usize = MAGIC.len() + 32;

/// More entries than these are not kept; the oldest go first.
const ENTRIES_MAX: usize = 256;

/// A directory of compiled plugins.
#[derive(Debug)]
pub(crate) struct ModuleCache {
    directory: PathBuf,
    environment: u64,
}

impl ModuleCache {
    /// Uses the directory, making it if need be. `None`, with a warning, if it cannot be used or trusted:
    /// without a cache everything works, only more slowly.
    pub(crate) fn open(directory: &Path, engine: &Engine) -> Option<Self> {
        match prepare(directory) {
            Ok(()) => Some(Self { directory: directory.to_owned(), environment: environment_hash(engine) }),
            Err(e) => {
                tracing::warn!("compiled plugins are not kept in '{}': {e}", directory.display());
                None
            }
        }
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.directory.join(format!("{digest}-{:016x}.cwasm", self.environment))
    }

    /// The compiled plugin, if there is an undamaged entry.
    pub(crate) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let path = self.path(digest);
        let entry = std::fs::read(&path).ok()?;
        let Some(code) = checked_content(&entry) else {
            tracing::warn!("'{}' is damaged; the plugin is compiled anew", path.display());
            return None;
        };
        // SAFETY: the content is what `store` wrote (its SHA-256 says so) from `Component::serialize`, the name
        // says it was for this very engine configuration, and nobody else may write to the directory.
        match unsafe { Component::deserialize(engine, code) } {
            Ok(component) => Some(component),
            Err(e) => {
                tracing::debug!("'{}' is not used: {e:#}", path.display());
                None
            }
        }
    }

    /// Keeps a compiled plugin: whole or not at all. A failure is only logged.
    pub(crate) fn store(&self, digest: &str, component: &Component) {
        let kept = component.serialize().map_err(io::Error::other).and_then(|code| self.write(digest, &code));
        if let Err(e) = kept {
            tracing::warn!("the compiled plugin is not kept in '{}': {e}", self.directory.display());
        }
    }

    fn write(&self, digest: &str, code: &[u8]) -> io::Result<()> {
        static UNIQUE: AtomicU64 = AtomicU64::new(0);
        let unique = UNIQUE.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!(".{digest}-{}-{unique}.tmp", std::process::id()));
        let written = std::fs::File::create(&temporary)
            .and_then(|mut file| {
                file.write_all(MAGIC)?;
                file.write_all(&Sha256::digest(code))?;
                file.write_all(code)
            })
            .and_then(|()| std::fs::rename(&temporary, self.path(digest)));
        if written.is_err() {
            // What is left of a failed write is of no use; if it cannot be removed either, it does no harm.
            let _ = std::fs::remove_file(&temporary);
        }
        written.and_then(|()| self.trim(ENTRIES_MAX))
    }

    /// Removes the oldest entries, those of older versions of Pelton among them.
    fn trim(&self, entries_max: usize) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "cwasm") {
                // Another process may have removed it by now.
                let Ok(written) = std::fs::metadata(&path).and_then(|file| file.modified()) else { continue };
                entries.push((written, path));
            }
        }
        entries.sort();
        let surplus = entries.len().saturating_sub(entries_max);
        entries.iter().take(surplus).try_for_each(|(_, path)| match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        })
    }
}

fn checked_content(entry: &[u8]) -> Option<&[u8]> {
    let (head, code) = entry.split_at_checked(HEAD_BYTES)?;
    let (magic, sum) = head.split_at(MAGIC.len());
    (magic == MAGIC && sum == Sha256::digest(code).as_slice()).then_some(code)
}

fn environment_hash(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    (env!("CARGO_PKG_VERSION"), CONTRACT_WIT).hash(&mut hasher);
    hasher.finish()
}

#[cfg(unix)]
fn prepare(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mode = std::fs::metadata(directory)?.permissions().mode();
    if mode & 0o022 != 0 {
        let message = format!("others can write to it (mode {:o}); chmod go-w makes it usable", mode & 0o777);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

#[cfg(not(unix))]
fn prepare(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "(component (core module (func (export \"f\"))))";

    fn cache(directory: &Path) -> (Engine, ModuleCache) {
        let engine = crate::engine::engine(512 << 10).unwrap();
        let cache = ModuleCache::open(directory, &engine).expect("usable");
        (engine, cache)
    }

    #[test]
    fn an_entry_is_found_again_and_a_damaged_one_is_not_run() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(&directory.path().join("modules"));
        assert!(cache.load(&engine, "d").is_none());
        cache.store("d", &Component::new(&engine, EMPTY).unwrap());
        assert!(cache.load(&engine, "d").is_some());
        let path = cache.path("d");
        let mut entry = std::fs::read(&path).unwrap();
        let middle = entry.len() / 2;
        entry[middle] ^= 1;
        std::fs::write(&path, &entry).unwrap();
        assert!(cache.load(&engine, "d").is_none());
        std::fs::write(&path, &entry[..7]).unwrap();
        assert!(cache.load(&engine, "d").is_none());
        let files = std::fs::read_dir(&cache.directory).unwrap().count();
        assert_eq!(files, 1, "no temporary file is left");
    }

    #[test]
    fn old_entries_make_room_for_new_ones() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(directory.path());
        let component = Component::new(&engine, EMPTY).unwrap();
        for digest in ["a", "b", "c"] {
            cache.store(digest, &component);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        cache.trim(2).unwrap();
        let there = |digest| cache.load(&engine, digest).is_some();
        assert!(!there("a") && there("b") && there("c"));
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_others_can_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let engine = crate::engine::engine(512 << 10).unwrap();
        assert!(ModuleCache::open(directory.path(), &engine).is_none());
    }
}
