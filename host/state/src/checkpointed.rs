//! State that outlives the process: a working copy in memory, the truth in the checkpoint.
//!
//! # How it is kept
//! A micro-batch that changed state writes one file, `deltas/N`: each key that it changed with its value now, or the
//! range of keys that it removed, and in addition a piece of the *sweep*: the entries of a range of keys as they are, changed or not. The sweep goes round
//! through all keys, shard by shard and table by table, a piece with every file; as much as the micro-batch changed,
//! and at least what takes it round in [`SWEEP_FILES_MAX`] files. So the state of a commit is what comes out of
//! replaying the files since the beginning of the last complete sweep, and nothing before them is needed. There are
//! no snapshots that would have to be written in one go, no file but one a micro-batch, and what that costs follows
//! what it changed. All files that are needed hold at most about four times the bytes of the state, and are at most
//! twice [`SWEEP_FILES_MAX`].
//!
//! Each file names the one before it, with a checksum, and the commit names the last: a file that no such chain
//! leads to counts for nothing, whatever its name. A rerun of a micro-batch replaces its file by the same bytes.
//!
//! A damaged piece of a sweep loses nothing as long as the files of the sweep before are there; damaged changes, or a
//! file that is missing, are an error.
//!
//! Called by the engine through the port. Never reads the state as a whole but on opening; never deletes what a
//! retained commit needs.

mod file;
mod restore;
#[cfg(test)]
mod tests;

use crate::changes::Changes;
use crate::memory::check_order;
use crate::tables::{CHANGES_PER_THREAD_MIN, Shard, Table, Tables};
use crate::threads::in_order;
use async_trait::async_trait;
use bytes::Bytes;
use file::{Header, Link, Pair, Position, Section};
use pelton_core::{BatchId, Error, FileManager, Result, StateCommit, StateShard, StateStore};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A sweep is complete after at most about as many files.
pub const SWEEP_FILES_MAX: u64 = 1024;
/// A piece of a sweep has at least as many bytes, if there are any.
const SWEEP_BYTES_MIN: u64 = 4096;

/// A [`StateStore`] whose commits are in a checkpoint.
#[derive(Debug)]
pub struct CheckpointedStateStore {
    files: Arc<dyn FileManager>,
    tables: Tables,
    committed: Option<BatchId>,
    last: Option<Link>,
    sweep: Sweep,
    /// For each file that may be needed, by its number, where a replay up to it begins.
    bases: BTreeMap<BatchId, Option<BatchId>>,
    /// The files that are there, once it is known.
    stored: Option<BTreeSet<BatchId>>,
}

/// Where the sweep is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sweep {
    /// The file in which it began; none: it begins with the next.
    began: Option<BatchId>,
    /// The file in which the last complete one before it began; none: replays begin with the first file.
    before: Option<BatchId>,
    /// The last key that it has passed.
    at: Option<Position>,
}

/// What a commit holds.
#[derive(Debug, Serialize, Deserialize)]
struct Commit {
    format: u32,
    /// The last file; none: the state is empty and was never anything else.
    #[serde(default)]
    last: Option<Link>,
}

impl CheckpointedStateStore {
    /// Opens the state of a commit; none is the empty state. `files` is a directory for the state of one query alone.
    /// State that is damaged, incomplete or from a newer version is an error of kind `Data`.
    pub async fn open(files: Arc<dyn FileManager>, commit: Option<&StateCommit>) -> Result<Self> {
        let last = match commit {
            Some(commit) if !commit.0.is_null() => last_file(commit)?,
            _ => None,
        };
        let mut store = Self {
            files,
            tables: Tables::default(),
            committed: last.map(|link| link.batch),
            last,
            sweep: Sweep::default(),
            bases: BTreeMap::new(),
            stored: None,
        };
        if let Some(last) = last {
            restore::restore(&mut store, last).await?;
        }
        Ok(store)
    }

    /// The micro-batch of the last file of state, as far as this store knows.
    pub fn committed(&self) -> Option<BatchId> {
        self.committed
    }

    /// The bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.tables.bytes()
    }

    fn state_commit(&self) -> Result<StateCommit> {
        let commit = serde_json::to_value(Commit { format: file::FORMAT, last: self.last });
        commit.map(StateCommit).map_err(|e| Error::internal(format!("a state commit cannot be written: {e}")))
    }

    /// The file of a micro-batch and the sweep after it; none if nothing has changed.
    fn file(&self, batch_id: BatchId) -> Result<Option<(Vec<u8>, Link, Sweep)>> {
        let (changes, section) = self.changes();
        if section.is_empty() {
            return Ok(None);
        }
        let changed = changes.iter().flatten().map(|(_, _, changes)| changes.bytes()).sum();
        let budget = self.tables.bytes().div_ceil(SWEEP_FILES_MAX).max(changed);
        let (piece, at) = self.piece(budget.max(SWEEP_BYTES_MIN), &changes);
        let began = self.sweep.began.unwrap_or(batch_id);
        let header = Header {
            batch: batch_id,
            previous: self.last,
            changes: section.info(),
            sweep: piece.info(),
            sweep_began: began,
            sweep_before: self.sweep.before,
            sweep_at: at.clone(),
        };
        let (bytes, link) = file::write(&header, &section, &piece)
            .map_err(|e| Error::internal(format!("the header of a state file cannot be written: {e}")))?;
        let sweep = Sweep::after(&header);
        Ok(Some((bytes, link, sweep)))
    }

    /// What changed, by shard, and as a section. The number of threads has no influence on it.
    fn changes(&self) -> (Vec<Vec<Changed<'_>>>, Section) {
        let shards: Vec<_> = self.tables.shards.iter().enumerate().collect();
        let threads = self.tables.touched() / CHANGES_PER_THREAD_MIN;
        let mut all = Section::default();
        let changes = in_order(shards, threads, changes_of).into_iter().map(|(changes, section)| {
            all.append(section);
            changes
        });
        (changes.collect(), all)
    }

    /// The next piece of the sweep, and the last key in it; none if it is complete with this piece.
    fn piece(&self, budget: u64, changes: &[Vec<Changed<'_>>]) -> (Section, Option<Position>) {
        let mut section = Section::default();
        let mut left = budget;
        let from = self.sweep.at.as_ref();
        for (shard, tables) in changes.iter().enumerate() {
            for (name, table, changes) in tables {
                let start = match from.map(|from| (from.shard, from.table.as_str()).cmp(&(shard, name))) {
                    Some(std::cmp::Ordering::Greater) => continue,
                    Some(std::cmp::Ordering::Equal) => from.map(|from| from.key.as_slice()),
                    _ => None,
                };
                let (entries, stopped_at) = unchanged(table, start, &changes.set, &mut left);
                section.push(shard, name, &[], &entries);
                if let Some(key) = stopped_at {
                    let at = Position { shard, table: (*name).to_owned(), key: key.to_vec() };
                    return (section, Some(at));
                }
            }
        }
        (section, None)
    }
}

/// A table of a shard, its name and what changed in it.
type Changed<'a> = (&'a str, &'a Table, Changes<'a>);

/// What changed in a shard, by table, and as a section.
fn changes_of((number, shard): (usize, &Shard)) -> (Vec<Changed<'_>>, Section) {
    let mut section = Section::default();
    let mut of_tables = Vec::with_capacity(shard.tables.len());
    for (name, table) in &shard.tables {
        let changes = table.changes();
        section.push(number, name, &changes.cleared, &changes.set);
        of_tables.push((name.as_str(), table, changes));
    }
    (of_tables, section)
}

/// The entries behind a key but for those that were set: as many as are `left`, in bytes; those that were set count,
/// too. Gives the last key if nothing is left.
fn unchanged<'a>(
    table: &'a Table,
    start: Option<&'a [u8]>,
    set: &[Pair<'_>],
    left: &mut u64,
) -> (Vec<Pair<'a>>, Option<&'a [u8]>) {
    let mut entries = Vec::new();
    if start.is_none() && set.len() == table.len() && table.bytes() < *left {
        *left -= table.bytes();
        return (entries, None);
    }
    let first = start.map_or(0, |start| set.partition_point(|(key, _)| *key <= start));
    let mut set = set[first..].iter().peekable();
    for (key, value) in table.after(start) {
        if set.next_if(|(changed, _)| *changed == key).is_none() {
            entries.push((key, value));
        }
        *left = left.saturating_sub((key.len() + value.len()) as u64);
        if *left == 0 {
            return (entries, Some(key));
        }
    }
    (entries, None)
}

impl Sweep {
    /// Where it is after a file.
    fn after(header: &Header) -> Self {
        match &header.sweep_at {
            None => Self { began: None, before: Some(header.sweep_began), at: None },
            at => Self { began: Some(header.sweep_began), before: header.sweep_before, at: at.clone() },
        }
    }
}

#[async_trait]
impl StateStore for CheckpointedStateStore {
    fn shards(&mut self) -> Vec<&mut dyn StateShard> {
        self.tables.shards()
    }

    fn len(&self, table: &str) -> u64 {
        self.tables.len(table)
    }

    fn tables(&self) -> BTreeSet<String> {
        self.tables.names()
    }

    async fn commit(&mut self, batch_id: BatchId) -> Result<StateCommit> {
        check_order(self.committed, batch_id)?;
        if let Some((bytes, link, sweep)) = self.file(batch_id)? {
            let base = if sweep.began.is_none() { sweep.before } else { self.sweep.before };
            self.files
                .replace(&link.path(), Bytes::from(bytes))
                .await
                .map_err(|e| e.context(format!("the state of micro-batch {batch_id}")))?;
            self.last = Some(link);
            self.sweep = sweep;
            self.bases.insert(batch_id, base);
            if let Some(stored) = &mut self.stored {
                stored.insert(batch_id);
            }
        }
        self.tables.keep();
        self.committed = Some(batch_id);
        self.state_commit()
    }

    fn rollback(&mut self) -> Result<()> {
        self.tables.rollback();
        Ok(())
    }

    async fn retain(&mut self, oldest: BatchId) -> Result<()> {
        // The file that holds the state of `oldest`: the last one up to it.
        let Some(first) = self.bases.range(..=oldest).next_back().map(|(file, _)| *file) else {
            return Ok(());
        };
        self.bases = self.bases.split_off(&first);
        // None, the beginning, is the least.
        let Some(Some(needed)) = self.bases.values().min().copied() else { return Ok(()) };
        if self.stored.is_none() {
            self.stored = Some(restore::stored(&*self.files).await?);
        }
        let Some(stored) = &mut self.stored else { return Ok(()) };
        while let Some(file) = stored.first().copied().filter(|file| *file < needed) {
            self.files.delete(&file::path(file)).await?;
            stored.remove(&file);
        }
        Ok(())
    }
}

/// The last file that a commit names.
fn last_file(commit: &StateCommit) -> Result<Option<Link>> {
    let format = commit.0.get("format").and_then(serde_json::Value::as_u64);
    if format != Some(u64::from(file::FORMAT)) {
        let found =
            format.map_or_else(|| "an unknown format".to_owned(), |format| format!("format {format}"));
        return Err(Error::data(format!(
            "the commit log names state of {found}, this version of Pelton reads format {}",
            file::FORMAT
        ))
        .hint("run the version of Pelton that wrote the checkpoint, or start with a new checkpoint"));
    }
    let commit: Commit = serde_json::from_value(commit.0.clone())
        .map_err(|e| Error::data(format!("what the commit log says about state is not readable: {e}")))?;
    Ok(commit.last)
}
