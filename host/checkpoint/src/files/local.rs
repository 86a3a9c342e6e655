//! A directory tree on a local disk.
//!
//! A file is written under a name that starts with `.tmp-`, synced, and given its own name in one step; the
//! directory is synced last, so that what has returned survives a power cut. Temporary files carry a lock for
//! as long as their writer lives: that is how those of dead writers are told apart and removed.

use super::{join, join_unchecked};
use async_trait::async_trait;
use bytes::Bytes;
use pelton_core::{Created, Error, ErrorKind, FileInfo, FileManager, FileWriter, Result};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

const TEMPORARY: &str = ".tmp-";

/// A [`FileManager`] over a directory, which need not exist yet.
#[derive(Debug, Clone)]
pub struct LocalFiles {
    base: PathBuf,
    prefix: String,
}

impl LocalFiles {
    /// The tree at `base`; a relative path counts from the current directory of now.
    pub fn new(base: impl AsRef<Path>) -> Result<Self> {
        let base = base.as_ref();
        let base = std::path::absolute(base).map_err(|e| failed("find", base, e))?;
        Ok(Self { base, prefix: String::new() })
    }

    fn path(&self, path: &str) -> Result<PathBuf> {
        Ok(self.below(&join(&self.prefix, path)?))
    }

    /// Without a slash at the end, which joining with nothing would add.
    fn below(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.base.clone() } else { self.base.join(path) }
    }

    fn file_path(&self, path: &str) -> Result<PathBuf> {
        match path {
            "" => Err(Error::internal("a file needs a name")),
            path => self.path(path),
        }
    }
}

/// Disk work goes to the runtime's blocking threads: a sync may take long, and the loop must go on.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(stopped) => Err(Error::internal(format!("a file operation did not end: {stopped}"))),
    }
}

#[async_trait]
impl FileManager for LocalFiles {
    fn url(&self) -> String {
        format!("file://{}", self.below(&self.prefix).display())
    }

    async fn read(&self, path: &str) -> Result<Option<Bytes>> {
        let path = self.file_path(path)?;
        blocking(move || match fs::read(&path) {
            Ok(content) => Ok(Some(content.into())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("read", &path, e)),
        })
        .await
    }

    async fn create(&self, path: &str, content: Bytes) -> Result<Created> {
        let path = self.file_path(path)?;
        blocking(move || create(&path, &content).map_err(|e| failed("create", &path, e))).await
    }

    async fn replace(&self, path: &str, content: Bytes) -> Result<()> {
        let path = self.file_path(path)?;
        blocking(move || replace(&path, &content).map_err(|e| failed("write", &path, e))).await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWriter>> {
        let path = self.file_path(path)?;
        blocking(move || match Temporary::beside(&path) {
            Ok(temporary) => {
                Ok(Box::new(LocalWriter { temporary: Some(temporary), path }) as Box<dyn FileWriter>)
            }
            Err(e) => Err(failed("create", &path, e)),
        })
        .await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.file_path(from)?, self.file_path(to)?);
        blocking(move || rename(&from, &to)).await
    }

    async fn list(&self, dir: &str) -> Result<Vec<FileInfo>> {
        let (root, dir) = (self.path("")?, self.path(dir)?);
        blocking(move || {
            let mut found = Vec::new();
            walk(&dir, &mut |path, name| {
                if !name.starts_with(TEMPORARY)
                    && let Some(info) = file_info(&root, path)
                {
                    found.push(info);
                }
            })
            .map_err(|e| failed("list", &dir, e))?;
            found.sort_by(|a, b| a.path.cmp(&b.path));
            Ok(found)
        })
        .await
    }

    /// The directory is not synced: a deletion that a power cut takes back does no harm.
    async fn delete(&self, path: &str) -> Result<()> {
        let path = self.file_path(path)?;
        blocking(move || match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("delete", &path, e)),
            _ => Ok(()),
        })
        .await
    }

    /// Holds an advisory lock on the file `path` and removes what dead writers left in the tree.
    async fn lock(&self, path: &str) -> Result<Box<dyn Send + Sync>> {
        let (root, path) = (self.path("")?, self.file_path(path)?);
        blocking(move || {
            let lock = lock(&root, &path)?;
            remove_leftovers(&root);
            Ok(Box::new(lock) as Box<dyn Send + Sync>)
        })
        .await
    }

    fn subtree(&self, dir: &str) -> Arc<dyn FileManager> {
        Arc::new(Self { base: self.base.clone(), prefix: join_unchecked(&self.prefix, dir) })
    }
}

/// A file under its temporary name; it goes away with this value unless it has got its own.
struct Temporary {
    path: PathBuf,
    file: File,
    renamed: bool,
}

impl Temporary {
    fn beside(target: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let parent = parent(target);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{TEMPORARY}{}-{number}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                // Between the two steps somebody who looks for leftovers may have taken it for one.
                Ok(file) if is_taken_for_leftover(&path, &file) => {}
                Ok(file) => return Ok(Self { path, file, renamed: false }),
                // A process of the same number died here.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => create_directories(parent)?,
                Err(e) => return Err(e),
            }
        }
    }

    fn become_file(mut self, target: &Path) -> io::Result<()> {
        self.file.sync_data()?;
        fs::rename(&self.path, target)?;
        self.renamed = true;
        sync_directory(parent(target))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // It stays recognisable if this fails.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Locks a new temporary file. `remove_leftovers` holds the lock from before it deletes until after it, so whoever has the lock
/// and still sees the file keeps it. Where locks are missing, leftovers are kept rather than taken from a living writer.
fn is_taken_for_leftover(path: &Path, file: &File) -> bool {
    match file.try_lock() {
        Ok(()) => !path.exists(),
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
    }
}

struct LocalWriter {
    /// Absent only while a write is under way, and for good if the write was cancelled.
    temporary: Option<Temporary>,
    path: PathBuf,
}

impl LocalWriter {
    fn take(&mut self) -> Result<Temporary> {
        let cut_short = || Error::internal(format!("writing {} was cut short before", self.path.display()));
        self.temporary.take().ok_or_else(cut_short)
    }
}

#[async_trait]
impl FileWriter for LocalWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        let (mut temporary, path) = (self.take()?, self.path.clone());
        let written = blocking(move || match temporary.file.write_all(&content) {
            Ok(()) => Ok(temporary),
            Err(e) => Err(failed("write", &path, e)),
        });
        self.temporary = Some(written.await?);
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<()> {
        let (temporary, path) = (self.take()?, self.path.clone());
        blocking(move || temporary.become_file(&path).map_err(|e| failed("write", &path, e))).await
    }
}

/// A hard link is the one way to a name that fails if the name is taken, and it appears with all its content.
fn create(path: &Path, content: &[u8]) -> io::Result<Created> {
    if path.exists() {
        return Ok(Created::Exists);
    }
    let mut temporary = Temporary::beside(path)?;
    temporary.file.write_all(content)?;
    temporary.file.sync_data()?;
    match fs::hard_link(&temporary.path, path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(Created::Exists),
        Err(e) => return Err(e),
    }
    drop(temporary);
    sync_directory(parent(path))?;
    Ok(Created::New)
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = Temporary::beside(path)?;
    temporary.file.write_all(content)?;
    temporary.become_file(path)
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    let moved = match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && from.exists() => {
            create_directories(parent(to)).and_then(|()| fs::rename(from, to))
        }
        other => other,
    };
    match moved {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::data(format!("{} is not there to be renamed", from.display())).caused_by(e));
        }
        Err(e) => return Err(failed("rename", from, e)),
        Ok(()) => {}
    }
    // File systems with a journal forget the old name in the same step in which they learn the new one. Without one
    // the file may be there twice after a power cut, but never not at all.
    sync_directory(parent(to)).map_err(|e| failed("rename", from, e))
}

fn lock(root: &Path, path: &Path) -> Result<File> {
    create_directories(parent(path)).map_err(|e| failed("lock", path, e))?;
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open.map_err(|e| failed("lock", path, e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(taken(root, path, &mut file)),
        Err(TryLockError::Error(e)) => {
            let path = path.display();
            tracing::warn!("{path} cannot be locked ({e}): see to it that no second run uses this directory");
            return Ok(file);
        }
    }
    // For the message of whoever comes second.
    let note = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    note.map_err(|e| failed("lock", path, e))?;
    Ok(file)
}

fn taken(root: &Path, path: &Path, file: &mut File) -> Error {
    let mut holder = String::new();
    let _ = file.take(20).read_to_string(&mut holder);
    let by = match holder.trim() {
        "" => String::new(),
        id => format!(" (process {id})"),
    };
    Error::fenced(format!("{} is in use by another run{by}, which holds {}", root.display(), path.display()))
        .hint("stop that run first; the lock goes with its process, so there is no file to delete")
}

/// Best effort: what cannot be removed now is removed by a later run.
fn remove_leftovers(root: &Path) {
    let swept = walk(root, &mut |path, name| {
        if name.starts_with(TEMPORARY)
            && let Ok(file) = File::open(path)
            && file.try_lock().is_ok()
        {
            tracing::debug!("removing {}, left by a writer that died", path.display());
            let _ = fs::remove_file(path);
        }
    });
    if let Err(e) = swept {
        tracing::debug!("looking for leftovers in {}: {e}", root.display());
    }
}

/// Visits the files below `dir`. Links to directories are not followed: they may lead back.
fn walk(dir: &Path, visit: &mut dyn FnMut(&Path, &str)) -> io::Result<()> {
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(_) => visit(&path, &entry.file_name().to_string_lossy()),
                // It went away in the meantime.
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// `None` for what is no file, is gone by now, or has a name that is not Unicode.
fn file_info(root: &Path, path: &Path) -> Option<FileInfo> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let parts: Option<Vec<&str>> =
        path.strip_prefix(root).ok()?.components().map(|part| part.as_os_str().to_str()).collect();
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(FileInfo {
        path: parts?.join("/"),
        size_bytes: metadata.len(),
        modified_ms: modified.map_or(0, |since| since.as_millis() as i64),
    })
}

/// Creates a directory and those above it, each durably.
fn create_directories(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    fs::create_dir_all(dir)?;
    missing.into_iter().rev().try_for_each(|dir| sync_directory(parent(dir)))
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(unix)]
fn sync_directory(dir: &Path) -> io::Result<()> {
    match File::open(dir)?.sync_all() {
        // Some network file systems cannot; there the server answers for it.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}
/// Elsewhere directories cannot be opened, and renames are durable by themselves.
#[cfg(not(unix))]
fn sync_directory(_dir: &Path) -> io::Result<()> {
    Ok(())
}

fn failed(what: &str, path: &Path, e: io::Error) -> Error {
    use io::ErrorKind as K;
    let (kind, hint) = match e.kind() {
        K::PermissionDenied | K::ReadOnlyFilesystem => {
            (ErrorKind::Invalid, Some("choose a place that this user may write to"))
        }
        K::NotADirectory | K::IsADirectory => {
            (ErrorKind::Invalid, Some("a file lies where a directory is needed, or the other way round"))
        }
        K::StorageFull | K::QuotaExceeded => (ErrorKind::Unavailable, Some("make room and start again")),
        K::Unsupported => {
            (ErrorKind::Invalid, Some("use a file system that has hard links, or an object store"))
        }
        _ => (ErrorKind::Unavailable, None),
    };
    let error = Error::new(kind, format!("cannot {what} {}: {e}", path.display())).caused_by(e);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporaries(dir: &Path) -> usize {
        let mut count = 0;
        walk(dir, &mut |_, name| count += usize::from(name.starts_with(TEMPORARY))).unwrap();
        count
    }

    #[tokio::test]
    async fn leftovers_of_dead_writers_are_hidden_and_go_with_the_next_lock() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(dir.path()).unwrap();
        fs::create_dir_all(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/.tmp-1-1"), "half").unwrap();
        let mut alive = files.writer("a/b").await.unwrap();
        assert_eq!(files.list("").await.unwrap(), []);
        assert_eq!(temporaries(dir.path()), 2);

        let _guard = files.lock("lock").await.unwrap();
        assert_eq!(temporaries(dir.path()), 1, "the living writer keeps its file");
        alive.write(Bytes::from("x")).await.unwrap();
        alive.finish().await.unwrap();
        assert_eq!(files.read("a/b").await.unwrap().unwrap(), "x");
        assert_eq!(temporaries(dir.path()), 0);
    }

    #[tokio::test]
    async fn a_second_lock_names_the_holder_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(dir.path()).unwrap();
        let guard = files.lock("lock").await.unwrap();
        let refused = files.lock("lock").await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Fenced);
        assert!(refused.message().contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(refused.hint_text().unwrap().contains("stop that run"));
        drop(guard);
        files.lock("lock").await.unwrap();
    }

    #[test]
    fn a_new_file_that_somebody_takes_for_a_leftover_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".tmp-1-1");
        assert!(!is_taken_for_leftover(&path, &File::create(&path).unwrap()));

        let file = File::create(&path).unwrap();
        let looking = File::open(&path).unwrap();
        looking.try_lock().unwrap();
        assert!(is_taken_for_leftover(&path, &file), "it is about to be deleted");
        drop(looking);
        remove_leftovers(dir.path());
        assert!(is_taken_for_leftover(&path, &file), "it is deleted");
    }

    #[tokio::test]
    async fn of_many_creators_one_wins_and_its_content_stays() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(dir.path()).unwrap();
        let create = |i: u8| {
            let files = files.clone();
            tokio::spawn(async move { files.create("log/7", Bytes::from(vec![i; 1000])).await.unwrap() })
        };
        let mut winners = Vec::new();
        for (i, task) in (0..16).map(create).collect::<Vec<_>>().into_iter().enumerate() {
            if task.await.unwrap() == Created::New {
                winners.push(i as u8);
            }
        }
        assert_eq!(winners.len(), 1);
        assert_eq!(files.read("log/7").await.unwrap().unwrap(), vec![winners[0]; 1000]);
        assert_eq!(temporaries(dir.path()), 0);
    }

    #[tokio::test]
    async fn a_place_where_nothing_can_be_written_says_so() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let files = LocalFiles::new(dir.path().join("file")).unwrap();
        let error = files.create("a", Bytes::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("file"), "{error}");
    }
}
