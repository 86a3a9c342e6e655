//! How the commands of one user on one machine find each other's runs: a file a run, in a directory for that user alone.
//!
//! The file says where the run's API listens and what its token is, so it is for its owner's eyes (mode 0600, in a
//! directory of mode 0700 that must be its owner's). It is locked as long as the run lives: a file whose lock can be
//! had belongs to a dead one and is removed, whoever has its process number now.

use super::registry::Registry;
use super::token::Token;
use pelton_core::{Error, Result};
use pelton_engine::progress::iso8601;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a run says of itself.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Announcement {
    /// Its process.
    pub(crate) pid: u32,
    /// Where its API is: `http://127.0.0.1:4040`.
    pub(crate) url: String,
    /// What it answers to.
    pub(crate) token: String,
    /// Since when, ISO 8601 in UTC.
    pub(crate) started: String,
    /// Its queries.
    pub(crate) queries: Vec<AnnouncedQuery>,
}

/// A query of a run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AnnouncedQuery {
    /// The pipeline file's `name`.
    pub(crate) name: String,
    /// Where it is remembered.
    pub(crate) checkpoint: Option<String>,
}

impl Announcement {
    /// Of this process.
    pub(crate) fn new(listening: SocketAddr, token: &Token, registry: &Registry) -> Self {
        let queries = registry
            .queries()
            .iter()
            .map(|query| AnnouncedQuery { name: query.name.clone(), checkpoint: query.checkpoint.clone() });
        Self {
            pid: std::process::id(),
            url: format!("http://{listening}"),
            token: token.reveal().to_owned(),
            started: iso8601(registry.started_ms),
            queries: queries.collect(),
        }
    }

    /// The run for a person: where it is, and where each query of this name is remembered.
    pub(crate) fn shown(&self, name: &str) -> String {
        let checkpoint = self.queries.iter().find(|query| query.name == name);
        let checkpoint = checkpoint.and_then(|query| query.checkpoint.as_deref()).unwrap_or("none");
        format!("process {} with checkpoint {checkpoint} at {}", self.pid, self.url)
    }
}

/// A file that is there as long as this is.
pub(crate) struct Announced {
    path: PathBuf,
    _locked: File,
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Whoever finds it later sees that its owner is gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Tells the other commands. What dead runs have left is removed on the way.
pub(crate) fn announce(announcement: &Announcement) -> Result<Announced> {
    let directory = directory();
    make_private(&directory)?;
    let _ = living(&directory);
    write(&directory, announcement).map_err(|why| failed("write to", &directory, &why))
}

/// The runs of this user, oldest process first.
pub(crate) fn runs() -> Result<Vec<Announcement>> {
    let directory = directory();
    match directory.symlink_metadata() {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(failed("read", &directory, &why)),
        Ok(_) => check_private(&directory)?,
    }
    living(&directory).map_err(|why| failed("read", &directory, &why))
}

/// Takes its final name when all is in it and the lock is held. No name is used twice.
#[allow(clippy::disallowed_methods, reason = "a name, not data")]
fn write(directory: &Path, announcement: &Announcement) -> io::Result<Announced> {
    let name = format!("{}-{}", announcement.pid, uuid::Uuid::new_v4().simple());
    let (hidden, path) = (directory.join(format!(".{name}")), directory.join(format!("{name}.json")));
    let mut file = private_file().open(&hidden)?;
    // Removed again if anything fails.
    let mut announced = Announced { path: hidden.clone(), _locked: file.try_clone()? };
    file.lock()?;
    file.write_all(serde_json::to_string(announcement)?.as_bytes())?;
    std::fs::rename(&hidden, &path)?;
    announced.path = path;
    Ok(announced)
}

/// Reads what living runs have written and removes the rest.
fn living(directory: &Path) -> io::Result<Vec<Announcement>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        // One that is gone by now was its owner's to remove.
        let Ok(file) = File::open(&path) else { continue };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {}
            // Just made, and not locked yet.
            Ok(()) if path.extension().is_none() => continue,
            Ok(()) => {
                let _ = std::fs::remove_file(&path);
                continue;
            }
            Err(TryLockError::Error(why)) => return Err(why),
        }
        if let Ok(announcement) = serde_json::from_reader(file) {
            found.push(announcement);
        }
    }
    found.sort_by(|a: &Announcement, b| (&a.started, a.pid).cmp(&(&b.started, b.pid)));
    Ok(found)
}

fn failed(what: &str, directory: &Path, why: &io::Error) -> Error {
    Error::unavailable(format!("cannot {what} {}: {why}", directory.display()))
}

/// `$XDG_RUNTIME_DIR/pelton` if that is this user's, else a directory for this user among the temporary ones.
fn directory() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty());
    match runtime.map(PathBuf::from).filter(|directory| directory.is_dir() && is_own(directory)) {
        Some(runtime) => runtime.join("pelton"),
        None => std::env::temp_dir().join(format!("pelton-{}", user())),
    }
}

fn make_private(directory: &Path) -> Result<()> {
    match private_directory().create(directory) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => Err(failed("make", directory, &why)),
        _ => check_private(directory),
    }
}

/// What others can write would make us speak to whom they like, and what they can read would show them the token.
fn check_private(directory: &Path) -> Result<()> {
    let found = directory.symlink_metadata().map_err(|why| failed("read", directory, &why))?;
    match found.is_dir() && is_own(directory) && is_closed(&found) {
        true => Ok(()),
        false => Err(Error::unavailable(format!(
            "{} is not a directory for this user alone (mode 0700)",
            directory.display()
        ))
        .hint("remove it, or set XDG_RUNTIME_DIR to a directory of your own")),
    }
}

#[cfg(unix)]
mod system {
    use super::{DirBuilder, OpenOptions, Path};
    use std::fs::Metadata;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};

    pub(super) fn private_directory() -> DirBuilder {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder
    }

    pub(super) fn private_file() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options
    }

    pub(super) fn is_closed(directory: &Metadata) -> bool {
        directory.mode() & 0o077 == 0
    }

    /// Where the system does not tell who we are (it does on Linux), that the directory is closed to others must do:
    /// then we can use it only if it is ours.
    pub(super) fn is_own(directory: &Path) -> bool {
        let owner = |path: &Path| path.symlink_metadata().map(|found| found.uid());
        match (owner(Path::new("/proc/self")), owner(directory)) {
            (Ok(own), Ok(owner)) => own == owner,
            (Err(_), Ok(_)) => true,
            (_, Err(_)) => false,
        }
    }

    pub(super) fn user() -> String {
        match Path::new("/proc/self").symlink_metadata() {
            Ok(own) => own.uid().to_string(),
            Err(_) => std::env::var("USER").unwrap_or_default().replace(['/', '.'], "_"),
        }
    }
}

/// Elsewhere the directory for temporary files is the user's own.
#[cfg(not(unix))]
mod system {
    use super::{DirBuilder, OpenOptions, Path};
    use std::fs::Metadata;

    pub(super) fn private_directory() -> DirBuilder {
        DirBuilder::new()
    }

    pub(super) fn private_file() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        options
    }

    pub(super) fn is_closed(_directory: &Metadata) -> bool {
        true
    }

    pub(super) fn is_own(_directory: &Path) -> bool {
        true
    }

    pub(super) fn user() -> String {
        std::env::var("USERNAME").unwrap_or_default()
    }
}

use system::{is_closed, is_own, private_directory, private_file, user};

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(pid: u32) -> Announcement {
        let query = AnnouncedQuery { name: "q".to_owned(), checkpoint: Some("./c".to_owned()) };
        Announcement {
            pid,
            url: "http://127.0.0.1:1".to_owned(),
            token: "t".to_owned(),
            started: String::new(),
            queries: vec![query],
        }
    }

    fn pids(directory: &Path) -> Vec<u32> {
        living(directory).unwrap().iter().map(|found| found.pid).collect()
    }

    #[test]
    fn the_living_are_found_and_what_the_dead_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("pelton");
        make_private(&directory).unwrap();
        make_private(&directory).unwrap();
        let two = write(&directory, &announcement(2)).unwrap();
        let one = write(&directory, &announcement(1)).unwrap();
        std::fs::copy(&one.path, directory.join("3-dead.json")).unwrap();
        assert_eq!(pids(&directory), [1, 2]);
        assert!(!directory.join("3-dead.json").exists());
        drop(two);
        assert_eq!(pids(&directory), [1]);
        drop(one);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn what_others_could_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("pelton");
        make_private(&directory).unwrap();
        let written = write(&directory, &announcement(1)).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&written.path)), (0o700, 0o600));
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        let refused = make_private(&directory).unwrap_err();
        assert!(
            refused.message().ends_with("is not a directory for this user alone (mode 0700)"),
            "{refused}"
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        assert!(check_private(&link).is_err());
    }
}
