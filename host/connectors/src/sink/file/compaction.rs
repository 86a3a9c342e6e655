//! Puts small files of an output directory together, while runs write to it and others read it.
//!
//! The new files are written to `_pelton/compacted`, each under its name to be; the entry `_pelton/compactions/<n>` is created,
//! which decides that they take the place of the old ones: from then on a reader of the log reads them, where they are. After a
//! time in which readers that began before may end, the new files get their names and the old ones are deleted. So a reader that
//! knows nothing of the log sees the old files until then, and hardly ever both.
//!
//! A run never touches a file that is at its place, and a compaction no other, so they need not know of each other. Two
//! compactions contend for the entry.

use super::commit::{in_directory, run_token};
use super::committed::{CommittedFile, list, output_files};
use super::log::{HIDDEN, Layout, Log, VERSION, batch_of, parse};
use super::merge::{can_merge, merge};
use pelton_core::{BatchId, Created, Error, FileManager, Result, create_or_own};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Below [`HIDDEN`]: the entries.
const COMPACTIONS: &str = "compactions";
/// Below [`HIDDEN`]: new files.
pub(super) const COMPACTED: &str = "compacted";
/// Where the entries lie in an output directory.
pub(crate) const HIDDEN_COMPACTIONS: &str = "_pelton/compactions";
/// Where new files lie in an output directory until they get their names.
pub(crate) const HIDDEN_COMPACTED: &str = "_pelton/compacted";
/// How the names of new files begin: like those of others, for readers who ask for `part-*`.
pub(crate) const COMPACTED_PREFIX: &str = "part-c";
/// Below [`HIDDEN`]: held while a compaction works (local disks).
const LOCK: &str = "compaction.lock";
/// A file that no entry names may belong to a compaction that is at work; after a day it does not.
const LEFTOVER_MS: i64 = 24 * 3600 * 1000;

/// A compaction that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) at_ms: i64,
    /// How long the old files stay.
    pub(super) delete_after_ms: i64,
    pub(crate) files: Vec<CompactedFile>,
}

/// A new file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompactedFile {
    /// Its final place, relative to the directory; until then it lies at the same path below `_pelton/compacted`.
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    /// The micro-batch of its last rows.
    pub(super) batch_id: BatchId,
    /// The name of the micro-batch's file that its first rows come from: it gives the order.
    pub(super) first: String,
    /// The files that it was made of, in the order of their rows.
    pub(crate) replaces: Vec<Replaced>,
}

/// An old file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replaced {
    pub(crate) path: String,
    /// When it was written: readers that go by time ask for it.
    pub(crate) modified_ms: i64,
}

/// An entry, read by who has no [`FileManager`] for the directory; `place` is for messages.
pub(crate) fn read_compaction(place: &str, content: &[u8]) -> Result<Entry> {
    parse(place, content)
}

impl Entry {
    pub(super) fn delete_at_ms(&self) -> i64 {
        self.at_ms.saturating_add(self.delete_after_ms)
    }
}

/// All compactions with their numbers, in order.
pub(super) async fn entries(log: &Log) -> Result<Vec<(u64, Entry)>> {
    let mut entries = Vec::new();
    for number in log.numbered(COMPACTIONS).await? {
        if let Some(entry) = log.read(&format!("{COMPACTIONS}/{number}")).await? {
            entries.push((number, entry));
        }
    }
    Ok(entries)
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactOptions {
    /// Smaller files are put together until they have this size.
    pub target_size_bytes: u64,
    /// How long the old files stay.
    pub delete_after_ms: i64,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compaction {
    /// The new files.
    pub groups: Vec<CompactedGroup>,
    /// Old files that were deleted.
    pub deleted: usize,
    /// Old files that stay for now.
    pub kept: usize,
    /// Small files that were left alone, because an earlier release did not note how they were written.
    pub unknown: usize,
}

/// A new file and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactedGroup {
    /// Its place, relative to the directory.
    pub path: String,
    /// In bytes; those of the old files together if it is not written.
    pub size_bytes: u64,
    /// Their places.
    pub replaces: Vec<String>,
}

/// Puts small files together and deletes those that were replaced long enough ago.
pub async fn compact(
    directory: &Arc<dyn FileManager>,
    options: CompactOptions,
    now_ms: i64,
) -> Result<Compaction> {
    let log = Log::of(&**directory);
    if log.owner().await?.is_none() {
        return Err(Error::invalid(format!("{} is not the output of a file sink", directory.url()))
            .hint("name the `path` of a file sink: a directory with `_pelton` in it"));
    }
    if options.target_size_bytes == 0 {
        return Err(Error::invalid("the target size must be at least 1 byte"));
    }
    let work = Work { directory, log, options, now_ms, token: run_token() };
    if options.dry_run {
        let (groups, unknown) = work.groups().await?;
        let groups = groups.iter().enumerate().map(|(nth, group)| work.planned(nth, group)).collect();
        return Ok(Compaction { groups, unknown, ..Compaction::default() });
    }
    let _lock = work.log.files.lock(LOCK).await?;
    work.run().await
}

/// A compaction at work.
struct Work<'a> {
    directory: &'a Arc<dyn FileManager>,
    log: Log,
    options: CompactOptions,
    now_ms: i64,
    /// Part of the new files' names: no two compactions write to one.
    token: String,
}

/// Files that become one.
struct Group {
    directory: String,
    extension: String,
    head_bytes: u64,
    files: Vec<CommittedFile>,
}

impl Work<'_> {
    async fn run(&self) -> Result<Compaction> {
        let (groups, unknown) = self.groups().await?;
        let mut done = Compaction { unknown, ..Compaction::default() };
        if !groups.is_empty() {
            done.groups = self.replace(groups).await?;
        }
        let entries = entries(&self.log).await?;
        self.clean(&entries).await?;
        (done.deleted, done.kept) = self.delete_old(&entries).await?;
        Ok(done)
    }

    /// What belongs together: files next to each other in one directory, of one layout, each smaller than the target.
    async fn groups(&self) -> Result<(Vec<Group>, usize)> {
        let firsts = firsts(&entries(&self.log).await?);
        let layouts = self.log.layouts().await?;
        let mut live = output_files(&**self.directory).await?.live;
        let order = |file: &CommittedFile| {
            let (directory, name) = split(&file.path);
            (
                directory.to_owned(),
                place_in_order(firsts.get(&file.path).map_or(name, |first| first.as_str())),
            )
        };
        live.sort_by_cached_key(order);
        let (mut groups, mut unknown) = (Vec::<Group>::new(), 0);
        let mut open: Option<(Group, u64, Option<usize>)> = None;
        for file in live {
            let (directory, name) = split(&file.path);
            let extension = &name[name.find('.').unwrap_or(name.len())..];
            let layout = layout_at(&layouts, file.batch_id);
            let is_known = layout.is_some() || !extension.starts_with(".csv");
            let is_small = file.size_bytes < self.options.target_size_bytes && can_merge(extension);
            unknown += usize::from(is_small && !is_known);
            // A file that was written and not moved to its place yet belongs to its run. One that an earlier compaction made
            // may lie anywhere.
            let is_ours = file.pending.is_none() || firsts.contains_key(&file.path);
            if !(is_small && is_known && is_ours) {
                groups.extend(open.take().map(|(group, ..)| group));
                continue;
            }
            let fits = open.as_ref().is_some_and(|(group, _, of)| {
                group.directory == directory
                    && group.extension == extension
                    && *of == layout.map(|(nth, _)| nth)
            });
            if !fits {
                groups.extend(open.take().map(|(group, ..)| group));
                let head_bytes = layout.map_or(0, |(_, layout)| layout.head_bytes);
                let (directory, extension) = (directory.to_owned(), extension.to_owned());
                let group = Group { directory, extension, head_bytes, files: Vec::new() };
                open = Some((group, 0, layout.map(|(nth, _)| nth)));
            }
            let Some((group, size_bytes, _)) = &mut open else { continue };
            *size_bytes += file.size_bytes;
            group.files.push(file);
            if *size_bytes >= self.options.target_size_bytes {
                groups.extend(open.take().map(|(group, ..)| group));
            }
        }
        groups.extend(open.map(|(group, ..)| group));
        groups.retain(|group| group.files.len() > 1);
        Ok((groups, unknown))
    }

    fn path(&self, nth: usize, group: &Group, number: u64) -> String {
        let name = format!("{COMPACTED_PREFIX}{number:05}-{nth:05}-{}{}", self.token, group.extension);
        in_directory(&group.directory, &name)
    }

    fn planned(&self, nth: usize, group: &Group) -> CompactedGroup {
        let path =
            in_directory(&group.directory, &format!("{COMPACTED_PREFIX}…-{nth:05}-…{}", group.extension));
        let replaces = group.files.iter().map(|file| file.path.clone()).collect();
        CompactedGroup { path, size_bytes: group.files.iter().map(|file| file.size_bytes).sum(), replaces }
    }

    /// Writes the new files and decides for them.
    async fn replace(&self, groups: Vec<Group>) -> Result<Vec<CompactedGroup>> {
        let earlier = entries(&self.log).await?;
        let (firsts, number) = (firsts(&earlier), earlier.last().map_or(0, |(last, _)| last + 1));
        let listed = self.directory.list("").await?;
        let modified: BTreeMap<&str, i64> =
            listed.iter().map(|file| (file.path.as_str(), file.modified_ms)).collect();
        let mut files = Vec::new();
        for (nth, group) in groups.iter().enumerate() {
            let path = self.path(nth, group, number);
            let place = |file: &CommittedFile| file.pending.clone().unwrap_or_else(|| file.path.clone());
            let from: Vec<String> = group.files.iter().map(place).collect();
            let to = format!("{HIDDEN}/{COMPACTED}/{path}");
            let size_bytes = merge(&**self.directory, &from, &to, &group.extension, group.head_bytes).await?;
            let old = |file: &CommittedFile| Replaced {
                path: file.path.clone(),
                modified_ms: modified.get(place(file).as_str()).copied().unwrap_or(self.now_ms),
            };
            let (first, last) = (&group.files[0], &group.files[group.files.len() - 1]);
            let first = firsts.get(&first.path).cloned().unwrap_or_else(|| split(&first.path).1.to_owned());
            let replaces = group.files.iter().map(old).collect();
            files.push(CompactedFile { path, size_bytes, batch_id: last.batch_id, first, replaces });
        }
        // Files of an earlier compaction cannot appear before those that they replaced have gone, nor can what replaces them.
        let earlier_ends =
            earlier.iter().filter(|(_, entry)| entry.files.iter().any(|file| is_replaced(&files, file)));
        let wait_ms = earlier_ends.map(|(_, entry)| entry.delete_at_ms() - self.now_ms).max().unwrap_or(0);
        let delete_after_ms = self.options.delete_after_ms.max(wait_ms);
        let entry = Entry { at_ms: self.now_ms, delete_after_ms, files: files.clone() };
        let path = format!("{COMPACTIONS}/{number}");
        if create_or_own(&*self.log.files, &path, self.log.text(VERSION, &entry)?).await? == Created::Exists {
            for file in &files {
                self.log.files.delete(&format!("{COMPACTED}/{}", file.path)).await?;
            }
            return Err(Error::fenced(format!("another compaction of {} was quicker", self.directory.url()))
                .hint("let it end, then see whether there is anything left to do"));
        }
        let group = |CompactedFile { path, size_bytes, replaces, .. }| {
            let replaces = replaces.into_iter().map(|old: Replaced| old.path).collect();
            CompactedGroup { path, size_bytes, replaces }
        };
        Ok(files.into_iter().map(group).collect())
    }

    /// Gives new files their names and deletes the old ones, where their time has come.
    async fn delete_old(&self, entries: &[(u64, Entry)]) -> Result<(usize, usize)> {
        let listed = list(&**self.directory).await?;
        // What was compacted again need not appear any more.
        let gone: BTreeSet<&str> = due(entries, self.now_ms).flat_map(old_paths).collect();
        let (mut deleted, mut kept) = (0, 0);
        for (_, entry) in entries.iter().filter(|(_, entry)| entry.delete_at_ms() > self.now_ms) {
            kept += old_paths(entry).filter(|path| listed.contains_key(*path)).count();
        }
        for file in due(entries, self.now_ms).flat_map(|entry| &entry.files) {
            let pending = format!("{HIDDEN}/{COMPACTED}/{}", file.path);
            if listed.contains_key(&pending) && !gone.contains(file.path.as_str()) {
                self.directory.rename(&pending, &file.path).await?;
            }
        }
        for path in &gone {
            for place in [(*path).to_owned(), format!("{HIDDEN}/{COMPACTED}/{path}")] {
                if listed.contains_key(&place) {
                    self.directory.delete(&place).await?;
                    deleted += 1;
                }
            }
        }
        Ok((deleted, kept))
    }

    /// Removes files of compactions that died before they decided.
    async fn clean(&self, entries: &[(u64, Entry)]) -> Result<()> {
        let named: BTreeSet<String> = entries
            .iter()
            .flat_map(|(_, entry)| &entry.files)
            .map(|file| format!("{COMPACTED}/{}", file.path))
            .collect();
        for file in self.log.files.list(COMPACTED).await? {
            if !named.contains(&file.path) && file.modified_ms < self.now_ms - LEFTOVER_MS {
                self.log.files.delete(&file.path).await?;
            }
        }
        Ok(())
    }
}

fn due(entries: &[(u64, Entry)], now_ms: i64) -> impl Iterator<Item = &Entry> {
    entries.iter().map(|(_, entry)| entry).filter(move |entry| entry.delete_at_ms() <= now_ms)
}

fn old_paths(entry: &Entry) -> impl Iterator<Item = &str> {
    entry.files.iter().flat_map(|file| &file.replaces).map(|old| old.path.as_str())
}

fn is_replaced(by: &[CompactedFile], file: &CompactedFile) -> bool {
    by.iter().flat_map(|new| &new.replaces).any(|old| old.path == file.path)
}

/// Where the rows of each compacted file begin.
fn firsts(entries: &[(u64, Entry)]) -> BTreeMap<String, String> {
    let files = entries.iter().flat_map(|(_, entry)| &entry.files);
    files.map(|file| (file.path.clone(), file.first.clone())).collect()
}

/// The layout that a micro-batch was written in, and its number.
fn layout_at(layouts: &[(BatchId, Layout)], batch_id: BatchId) -> Option<(usize, &Layout)> {
    let after = layouts.partition_point(|(from, _)| *from <= batch_id);
    after.checked_sub(1).map(|nth| (nth, &layouts[nth].1))
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Micro-batch and number of a file's name: they give the order of the rows.
fn place_in_order(name: &str) -> (Option<BatchId>, u64) {
    let number = name.split(['-', '.']).nth(2).and_then(|number| number.parse().ok());
    (batch_of(name), number.unwrap_or(0))
}
