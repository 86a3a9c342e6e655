//! Finds the files of a location: a walk over directories that decides from names alone where to go, driven
//! by local directory listings or by those of an object store.
//!
//! As in Spark: names that start with `_` or `.` are hidden, and below a matched directory only `key=value`
//! directories are entered unless the source is recursive.

use super::location::{Level, Location, Place};
use super::log::FileEntry;
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use pelton_core::suggest::nearest;
use pelton_core::{Error, Result};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Lists of an object store that are asked for at once.
const LISTS_AT_ONCE: usize = 16;

/// Tells files that need no second look.
pub(super) type Known = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A directory to look into.
#[derive(Debug)]
struct Directory {
    path: String,
    /// How many of the patterns are behind; none left: everything visible counts.
    level: usize,
}

/// What a name in a directory leads to.
enum Step {
    Nothing,
    File,
    Enter(Vec<usize>),
}

/// All files of a location except for those that are known, in no particular order, each once.
pub(super) async fn list(location: &Location, recursive: bool, known: Known) -> Result<Vec<FileEntry>> {
    match &location.place {
        Place::Local => {
            let location = location.clone();
            let walk = move || list_local(&location, recursive, &known);
            tokio::task::spawn_blocking(walk)
                .await
                .map_err(|e| Error::internal(format!("listing failed: {e}")))?
        }
        Place::Remote { store, .. } => list_remote(location, store, recursive, &known).await,
    }
}

/// An error of kind `Invalid` if the location's base is not there.
pub(super) async fn check_base(location: &Location) -> Result<()> {
    match &location.place {
        Place::Local if std::path::Path::new(&location.base).exists() => Ok(()),
        Place::Local => {
            let path = std::path::Path::new(&location.base);
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let beside =
                path.parent().and_then(|p| std::fs::read_dir(p).ok()).into_iter().flatten().flatten();
            let names: Vec<String> = beside.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            let near = nearest(&name, names.iter().map(String::as_str));
            let near = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
            let shown = location.shown(&location.base).unwrap_or_else(|| location.base.clone());
            Err(Error::invalid(format!("there is no file or directory '{shown}'{near}")))
        }
        // An object store has no directories; an empty prefix may fill later.
        Place::Remote { store, .. } => {
            let prefix = (!location.base.is_empty()).then(|| Path::from(location.base.as_str()));
            store
                .list_with_delimiter(prefix.as_ref())
                .await
                .map(drop)
                .map_err(|e| remote(&location.shown_base(), e))
        }
    }
}

fn hidden(name: &str) -> bool {
    name.starts_with('.') || name.ends_with("._COPYING_") || (name.starts_with('_') && !name.contains('='))
}

/// Where a name at a level of the walk leads. Levels to go on with are several only behind `**`.
fn step(patterns: &[Level], level: usize, name: &str, is_dir: bool, recursive: bool) -> Step {
    if hidden(name) {
        return Step::Nothing;
    }
    let Some(pattern) = patterns.get(level) else {
        return match is_dir {
            false => Step::File,
            true if recursive || name.contains('=') => Step::Enter(vec![level]),
            true => Step::Nothing,
        };
    };
    if matches!(pattern, Level::AnyDepth) {
        let here = step(patterns, level + 1, name, is_dir, recursive);
        return match (here, is_dir) {
            (Step::Enter(mut levels), true) => {
                levels.push(level);
                Step::Enter(levels)
            }
            (Step::Nothing, true) => Step::Enter(vec![level]),
            (here, _) => here,
        };
    }
    match (pattern.fits(name), is_dir) {
        (false, _) => Step::Nothing,
        (true, true) => Step::Enter(vec![level + 1]),
        (true, false) if level + 1 == patterns.len() => Step::File,
        (true, false) => Step::Nothing,
    }
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() || dir.ends_with('/') { format!("{dir}{name}") } else { format!("{dir}/{name}") }
}

fn list_local(location: &Location, recursive: bool, known: &Known) -> Result<Vec<FileEntry>> {
    let mut found = Vec::new();
    let mut taken = BTreeSet::new();
    if location.patterns.is_empty() && std::path::Path::new(&location.base).is_file() {
        if !known(&location.base) {
            found.extend(local_entry(&location.base)?);
        }
        return Ok(found);
    }
    let mut open = vec![Directory { path: location.base.clone(), level: 0 }];
    while let Some(directory) = open.pop() {
        let entries = match std::fs::read_dir(&directory.path) {
            Ok(entries) => entries,
            // It went since its parent was read, or is a file where a pattern wanted a directory.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            Err(e) => return Err(local(&directory.path, e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| local(&directory.path, e))?;
            let name = entry.file_name();
            // Names that are not UTF-8 cannot be written down: they are as good as hidden.
            let Some(name) = name.to_str() else { continue };
            let path = join(&directory.path, name);
            match step(&location.patterns, directory.level, name, is_dir(&entry, &path), recursive) {
                Step::Nothing => {}
                Step::File if known(&path) || (taken_twice(location) && !taken.insert(path.clone())) => {}
                Step::File => found.extend(local_entry(&path)?),
                Step::Enter(levels) => {
                    open.extend(levels.into_iter().map(|level| Directory { path: path.clone(), level }));
                }
            }
        }
    }
    Ok(found)
}

/// Whether the walk can come to a file on several ways.
fn taken_twice(location: &Location) -> bool {
    location.patterns.iter().any(|level| matches!(level, Level::AnyDepth))
}

fn is_dir(entry: &std::fs::DirEntry, path: &str) -> bool {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => std::path::Path::new(path).is_dir(),
        Ok(kind) => kind.is_dir(),
        Err(_) => false,
    }
}

/// `None`: the file went in the meantime, or is no file.
fn local_entry(path: &str) -> Result<Option<FileEntry>> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(Some(FileEntry {
            path: path.to_owned(),
            size_bytes: meta.len(),
            modified_ms: modified_ms(&meta),
        })),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(local(path, e)),
    }
}

/// When a local file was modified, in milliseconds since the epoch.
pub(super) fn modified_ms(meta: &std::fs::Metadata) -> i64 {
    let Ok(modified) = meta.modified() else { return 0 };
    match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

async fn list_remote(
    location: &Location,
    store: &Arc<dyn ObjectStore>,
    recursive: bool,
    known: &Known,
) -> Result<Vec<FileEntry>> {
    let mut found = Vec::new();
    let mut taken = BTreeSet::new();
    let mut open = vec![Directory { path: location.base.clone(), level: 0 }];
    if location.patterns.is_empty()
        && !location.base.is_empty()
        && let Ok(meta) = store.head(&Path::from(location.base.as_str())).await
    {
        found.push(remote_entry(location, &meta));
        found.retain(|entry| !known(&entry.path));
        return Ok(found);
    }
    let mut asked = FuturesUnordered::new();
    loop {
        while asked.len() < LISTS_AT_ONCE
            && let Some(directory) = open.pop()
        {
            asked.push(async move {
                let prefix = (!directory.path.is_empty()).then(|| Path::from(directory.path.as_str()));
                let listed = store.list_with_delimiter(prefix.as_ref()).await;
                listed.map(|listed| (directory, listed))
            });
        }
        let Some((directory, listed)) =
            asked.try_next().await.map_err(|e| remote(&location.shown_base(), e))?
        else {
            return Ok(found);
        };
        let steps = |name: Option<&str>, is_dir| {
            name.map_or(Step::Nothing, |name| {
                step(&location.patterns, directory.level, name, is_dir, recursive)
            })
        };
        for dir in &listed.common_prefixes {
            if let Step::Enter(levels) = steps(dir.filename(), true) {
                open.extend(levels.into_iter().map(|level| Directory { path: dir.to_string(), level }));
            }
        }
        for meta in &listed.objects {
            let entry = remote_entry(location, meta);
            let wanted = matches!(steps(meta.location.filename(), false), Step::File);
            if wanted && !known(&entry.path) && taken.insert(entry.path.clone()) {
                found.push(entry);
            }
        }
    }
}

fn remote_entry(location: &Location, meta: &object_store::ObjectMeta) -> FileEntry {
    FileEntry {
        path: location.full(meta.location.as_ref()),
        size_bytes: meta.size,
        modified_ms: meta.last_modified.timestamp_millis(),
    }
}

pub(super) fn local(path: &str, e: io::Error) -> Error {
    Error::unavailable(format!("'{path}' cannot be read: {e}")).caused_by(e)
}

pub(super) fn remote(url: &str, e: object_store::Error) -> Error {
    Error::unavailable(format!("'{url}' cannot be read: {e}")).caused_by(e)
}

#[cfg(test)]
mod tests {
    use super::super::super::Stores;
    use super::*;
    use object_store::memory::InMemory;

    const FILES: [&str; 9] = [
        "a.json",
        "b.csv",
        "_hidden.json",
        ".hidden.json",
        "sub/c.json",
        "k=1/d.json",
        "k=1/l=x/e.json",
        "k=2/_tmp/f.json",
        "k=2/sub/g.json",
    ];

    async fn names(location: &str, stores: &Stores, recursive: bool) -> Vec<String> {
        let mut names = Vec::new();
        for location in Location::parse(location, stores).unwrap() {
            let found = list(&location, recursive, Arc::new(|_| false)).await.unwrap();
            names.extend(found.iter().map(|f| f.path.rsplit('/').next().unwrap().to_owned()));
        }
        names.sort();
        names
    }

    /// The same question to a local directory and to a store.
    async fn check(pattern: &str, recursive: bool, expected: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let stores = Stores::default();
        let store = Arc::new(InMemory::new());
        stores.put("memory://", store.clone());
        for file in FILES {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
            store.put(&Path::from(format!("in/{file}")), "x".into()).await.unwrap();
        }
        let local = format!("{}{pattern}", dir.path().display());
        assert_eq!(names(&local, &stores, recursive).await, expected, "local {pattern}");
        assert_eq!(
            names(&format!("memory:///in{pattern}"), &stores, recursive).await,
            expected,
            "remote {pattern}"
        );
    }

    #[tokio::test]
    async fn files_are_found_as_in_spark() {
        check("", false, &["a.json", "b.csv", "d.json", "e.json"]).await;
        check("/", true, &["a.json", "b.csv", "c.json", "d.json", "e.json", "g.json"]).await;
        check("/*.json", false, &["a.json"]).await;
        check("/*", false, &["a.json", "b.csv", "c.json", "d.json", "e.json"]).await;
        check("/a.json", false, &["a.json"]).await;
        check("/k=*/*.json", false, &["d.json"]).await;
        check("/**/*.json", false, &["a.json", "c.json", "d.json", "e.json", "g.json"]).await;
        check("/{sub/c,k=1/d}.json", false, &["c.json", "d.json"]).await;
        check("/none/*", false, &[]).await;
    }

    #[tokio::test]
    async fn a_missing_base_is_named_with_the_nearest() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("flights")).unwrap();
        let wrong = dir.path().join("flihgts").display().to_string();
        let location = &Location::parse(&format!("{wrong}/*.json"), &Stores::default()).unwrap()[0];
        let error = check_base(location).await.unwrap_err();
        assert_eq!(
            error.message(),
            format!("there is no file or directory '{wrong}'; did you mean 'flights'?")
        );
    }
}
