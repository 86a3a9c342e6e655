//! What the compactions of a file sink mean for a source that reads its directory: every row once, whichever of the files it is
//! in.
//!
//! A compacted file takes the place of those it is made of, if none of them was read; if all were, it is passed over. If some
//! were, the others are read as long as they are there, which is what the sink's grace period is for. Rows that have neither
//! been read nor are left apart are an error: reading the compacted file would give the others twice.

use super::listing;
use super::location::{Location, Place};
use super::log::FileEntry;
use crate::sink::file::{
    COMPACTED_PREFIX, CompactionEntry, HIDDEN_COMPACTED, HIDDEN_COMPACTIONS, read_compaction,
};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use pelton_core::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The compactions of the directories that were seen so far. Entries never change, so each is read once.
#[derive(Debug, Default)]
pub(super) struct Compactions {
    known: BTreeMap<(String, u64), Arc<CompactionEntry>>,
}

/// A compacted file as a source sees it.
struct Compacted {
    file: FileEntry,
    /// What sinks wrote and it is made of, with the times of writing.
    origins: Vec<(String, i64)>,
    /// Compacted files on the way from those to it.
    between: Vec<(String, i64)>,
    /// A later compaction has replaced it.
    is_replaced: bool,
}

impl Compactions {
    /// The files to be read instead of these, which were listed; `is_new` says of a file whether it was not read yet.
    pub(super) async fn apply(
        &mut self,
        locations: &[Location],
        files: Vec<FileEntry>,
        is_new: &(dyn Fn(&str, i64) -> bool + Sync),
    ) -> Result<Vec<FileEntry>> {
        let mut files: BTreeMap<String, FileEntry> =
            files.into_iter().map(|file| (file.path.clone(), file)).collect();
        let roots: BTreeSet<String> = files.keys().filter_map(|path| root_of(path)).collect();
        for root in roots {
            let Some(place) = locations.iter().find(|l| l.local_part(&root).is_some()) else { continue };
            let entries = self.entries(place, &root).await?;
            for compacted in compacted_files(&root, &entries) {
                compacted.apply(&mut files, is_new)?;
            }
        }
        Ok(files.into_values().collect())
    }

    /// The compactions of an output directory, in order.
    async fn entries(&mut self, place: &Location, root: &str) -> Result<Vec<Arc<CompactionEntry>>> {
        let directory = format!("{}/{HIDDEN_COMPACTIONS}", place.local_part(root).unwrap_or_default());
        let mut entries = Vec::new();
        for number in numbers(place, &directory).await? {
            let key = (root.to_owned(), number);
            if !self.known.contains_key(&key) {
                let path = format!("{directory}/{number}");
                let content = content(place, &path).await?;
                self.known.insert(key.clone(), Arc::new(read_compaction(&place.full(&path), &content)?));
            }
            entries.extend(self.known.get(&key).cloned());
        }
        Ok(entries)
    }
}

impl Compacted {
    fn apply(
        self,
        files: &mut BTreeMap<String, FileEntry>,
        is_new: &(dyn Fn(&str, i64) -> bool + Sync),
    ) -> Result<()> {
        let was_listed = files.remove(&self.file.path).is_some();
        if self.is_replaced {
            return Ok(());
        }
        let itself = (self.file.path.clone(), self.file.modified_ms);
        let read_since = self.between.iter().chain([&itself]).any(|(path, ms)| !is_new(path, *ms));
        let unread: Vec<&(String, i64)> =
            self.origins.iter().filter(|(path, ms)| !read_since && is_new(path, *ms)).collect();
        if unread.len() == self.origins.len() {
            let left = self.origins.iter().filter(|(path, _)| files.remove(path).is_some()).count();
            if was_listed || left > 0 {
                files.insert(self.file.path.clone(), self.file);
            }
            return Ok(());
        }
        let lost = unread.iter().find(|(path, _)| was_listed && !files.contains_key(path));
        if let Some((path, _)) = lost {
            let now_in = &self.file.path;
            return Err(Error::data(format!(
                "{path} was compacted away before it was read; its rows are in {now_in}, among others that were read"
            ))
            .hint(
                "no row is lost: a new checkpoint reads all of them once more; and compact with a `--delete-after` that \
                 is longer than this query ever lags or rests",
            ));
        }
        if read_since {
            // A file may still be there that was read as a part of a compacted one.
            self.origins.iter().for_each(|(path, _)| drop(files.remove(path)));
        }
        Ok(())
    }
}

/// All compacted files of a directory, each with what it comes from.
fn compacted_files(root: &str, entries: &[Arc<CompactionEntry>]) -> Vec<Compacted> {
    let full = |path: &str| format!("{root}/{path}");
    let mut made: BTreeMap<String, Compacted> = BTreeMap::new();
    for entry in entries {
        for file in &entry.files {
            let (mut origins, mut between) = (Vec::new(), Vec::new());
            for old in &file.replaces {
                match made.get_mut(&full(&old.path)) {
                    Some(earlier) => {
                        earlier.is_replaced = true;
                        origins.extend(earlier.origins.iter().cloned());
                        between.extend(earlier.between.iter().cloned());
                        between.push((earlier.file.path.clone(), earlier.file.modified_ms));
                    }
                    None => origins.push((full(&old.path), old.modified_ms)),
                }
            }
            let path = full(&file.path);
            let file =
                FileEntry { path: path.clone(), size_bytes: file.size_bytes, modified_ms: entry.at_ms };
            made.insert(path, Compacted { file, origins, between, is_replaced: false });
        }
    }
    made.into_values().collect()
}

/// The output directory that a file would lie in if a sink had written it: what is above `key=value` directories.
fn root_of(path: &str) -> Option<String> {
    let (mut directory, name) = path.rsplit_once('/')?;
    if !name.starts_with("part-") {
        return None;
    }
    while let Some((above, _)) = directory.rsplit_once('/').filter(|(_, level)| level.contains('=')) {
        directory = above;
    }
    Some(directory.to_owned())
}

/// Whether a file was made by a compaction. Where it lies tells nothing of when it was written.
pub(super) fn is_compacted(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(COMPACTED_PREFIX))
}

/// Where a compacted file lies (a path within its place) before those that it replaces are deleted, if it lies there.
pub(super) async fn place_before(location: &Location, file: &FileEntry) -> Option<String> {
    if !is_compacted(&file.path) {
        return None;
    }
    let path = location.local_part(&file.path)?;
    let root = root_of(path)?;
    let before =
        format!("{root}/{HIDDEN_COMPACTED}/{}", path.strip_prefix(root.as_str())?.trim_start_matches('/'));
    let is_there = match &location.place {
        Place::Local => std::path::Path::new(&before).is_file(),
        Place::Remote { store, .. } => store.head(&Path::from(before.as_str())).await.is_ok(),
    };
    is_there.then_some(before)
}

async fn numbers(place: &Location, directory: &str) -> Result<Vec<u64>> {
    let mut numbers: Vec<u64> = match &place.place {
        Place::Local => match std::fs::read_dir(directory) {
            Ok(entries) => {
                entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Vec::new()
            }
            Err(e) => return Err(listing::local(directory, e)),
        },
        Place::Remote { store, .. } => {
            let prefix = Path::from(directory);
            let listed = store.list_with_delimiter(Some(&prefix)).await;
            let listed = listed.map_err(|e| listing::remote(&place.full(directory), e))?;
            listed.objects.iter().filter_map(|meta| meta.location.filename()?.parse().ok()).collect()
        }
    };
    numbers.sort_unstable();
    Ok(numbers)
}

async fn content(place: &Location, path: &str) -> Result<Vec<u8>> {
    match &place.place {
        Place::Local => std::fs::read(path).map_err(|e| listing::local(path, e)),
        Place::Remote { store, .. } => {
            let failed = |e| listing::remote(&place.full(path), e);
            let found = store.get(&Path::from(path)).await.map_err(failed)?;
            Ok(found.bytes().await.map_err(failed)?.to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(json: serde_json::Value) -> Arc<CompactionEntry> {
        Arc::new(serde_json::from_value(json).unwrap())
    }

    /// `a`, `b` and `c` become `part-c1`; that and `d` become `part-c2`.
    fn twice() -> Vec<Arc<CompactionEntry>> {
        let old = |name: &str| serde_json::json!({"path": name, "modified_ms": 1});
        let file = |name: &str, replaces: Vec<serde_json::Value>| {
            serde_json::json!({"at_ms": 5, "delete_after_ms": 0, "files": [
                {"path": name, "size_bytes": 9, "batch_id": 2, "first": "part-00000-00000.json", "replaces": replaces}]})
        };
        vec![
            entry(file("part-c1", vec![old("part-a"), old("part-b"), old("part-c")])),
            entry(file("part-c2", vec![old("part-c1"), old("part-d")])),
        ]
    }

    /// What is read next, given what is there and what was read.
    fn next(there: &[&str], read: &[&str]) -> Result<Vec<String>> {
        let path = |name: &&str| format!("/out/{name}");
        let read: Vec<String> = read.iter().map(path).collect();
        let is_new = |path: &str, _: i64| !read.iter().any(|read| read == path);
        let file = |name: &&str| FileEntry { path: path(name), size_bytes: 1, modified_ms: 1 };
        let files = there.iter().map(file).filter(|file| is_new(&file.path, 1));
        let mut files: BTreeMap<String, FileEntry> = files.map(|file| (file.path.clone(), file)).collect();
        for compacted in compacted_files("/out", &twice()) {
            compacted.apply(&mut files, &is_new)?;
        }
        Ok(files.into_keys().map(|path| path.trim_start_matches("/out/part-").to_owned()).collect())
    }

    #[test]
    fn a_new_reader_reads_the_compacted_file_alone() {
        for there in [
            &["part-a", "part-b", "part-c", "part-d", "part-e"][..],
            &["part-c1", "part-d", "part-e"],
            &["part-c2", "part-a", "part-c1", "part-e"],
            &["part-c2", "part-e"],
        ] {
            assert_eq!(next(there, &[]).unwrap(), ["c2", "e"], "{there:?}");
        }
        assert_eq!(next(&["part-e"], &[]).unwrap(), ["e"], "another partition's files are not wanted");
    }

    #[test]
    fn who_has_read_all_passes_it_over() {
        let all = ["part-a", "part-b", "part-c", "part-d"];
        assert_eq!(next(&["part-c2"], &all).unwrap(), [""; 0]);
        assert_eq!(next(&["part-c2"], &["part-c1", "part-d"]).unwrap(), [""; 0]);
        assert_eq!(next(&["part-a", "part-c1", "part-c2"], &["part-c2"]).unwrap(), [""; 0]);
    }

    #[test]
    fn who_has_read_some_reads_the_others_as_long_as_they_are_there() {
        assert_eq!(next(&["part-b", "part-c", "part-d"], &["part-a"]).unwrap(), ["b", "c", "d"]);
        let error = next(&["part-c2", "part-b", "part-c"], &["part-a"]).unwrap_err();
        assert!(
            error
                .message()
                .contains("/out/part-d was compacted away before it was read; its rows are in /out/"),
            "{error}"
        );
    }

    #[test]
    fn an_output_directory_is_above_its_partitions() {
        assert_eq!(root_of("/data/out/part-1.json").unwrap(), "/data/out");
        assert_eq!(root_of("s3://b/out/a=1/b=2/part-1.json").unwrap(), "s3://b/out");
        assert_eq!(root_of("/data/out/x.json"), None);
    }
}
