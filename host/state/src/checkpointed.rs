//! State that outlives the process: a working copy in memory, the truth in the checkpoint.
//!
//! # How it is kept
//! A micro-batch that changed state writes one file, `deltas/N-CRC32`: each key that it changed with its value now, or the
//! range of keys that it removed, and in addition a piece of the *sweep*: the entries of a range of keys as they are,
//! changed or not. The sweep goes round through all keys, shard by shard and table by table, a piece with every file;
//! as much as the micro-batch changed, and at least what takes it round in [`SWEEP_FILES`] files, or, once such a piece
//! is no longer small, in [`SWEEP_FILES_MAX`]. So the state of
//! a commit is what comes out of replaying the files since the beginning of the last complete sweep. There are no
//! snapshots that would have to be written in one go, no file but one a micro-batch, and what that costs follows what
//! it changed. The complete sweep before the last one is kept, too, for the case of damage: all files that are kept
//! hold at most about six times the bytes of the state, and are at most three times [`SWEEP_FILES_MAX`].
//!
//! Each file names the one before it, with a checksum, and the commit names the last: a file that no such chain
//! leads to counts for nothing. The checksum is in a file's name, too, so a rerun of a micro-batch, or a run that was
//! thought to be dead, never replaces a committed file by another; what it leaves is deleted.
//!
//! A damaged piece of a sweep loses nothing: the sweep before it takes its place. Damaged changes, or a file that is
//! missing, are an error that says which tables and micro-batches it is about.
//!
//! # How it is worked with
//! All entries are in memory as long as [`StateOptions::memory_bytes_max`] suffices; beyond that a part of them is on
//! local disk. What a file says is the same either way; how it says it (which ranges of keys were removed, how long the
//! piece of the sweep is) may differ.
//!
//! Called by the engine through the port. Never reads the state as a whole but on opening; never deletes what a
//! retained commit needs.

mod file;
mod prefetch;
mod restore;
mod retain;
mod section;
#[cfg(test)]
mod tests;

use crate::StateOptions;
use crate::changes::{Changes, Undo};
use crate::memory::check_order;
use crate::tables::{CHANGES_PER_THREAD_MIN, Shard, Table, Tables};
use crate::threads::in_order;
use async_trait::async_trait;
use bytes::Bytes;
use file::{Header, Link, Position};
use pelton_core::{BatchId, Error, FileManager, Result, StateCommit, StateShard, StateStore, StateUsage};
use retain::Needs;
use section::Section;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A sweep is complete after at most about as many files.
const SWEEP_FILES_MAX: u64 = 4096;
/// And after so many if that takes only small pieces.
const SWEEP_FILES: u64 = 1024;
/// What is a small piece of a sweep: writing it takes no longer than what a micro-batch does anyhow.
const SWEEP_BYTES: u64 = 16 << 10;
/// A piece has at least as many bytes, if there are any.
const SWEEP_BYTES_MIN: u64 = 4096;

/// A [`StateStore`] whose commits are in a checkpoint.
#[derive(Debug)]
pub struct CheckpointedStateStore {
    files: Arc<dyn FileManager>,
    tables: Tables,
    committed: Option<BatchId>,
    last: Option<Link>,
    sweep: Sweep,
    needs: Needs,
}

/// Where the sweep is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sweep {
    /// The file in which it began; none: it begins with the next.
    began: Option<BatchId>,
    /// The file in which the last complete one before it began; none: replays begin with the first file.
    before: Option<BatchId>,
    /// The file in which the complete one before that began; none: as above.
    spare: Option<BatchId>,
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
        Self::open_with(files, commit, StateOptions::default()).await
    }

    /// The same within limits of one's own.
    pub async fn open_with(
        files: Arc<dyn FileManager>,
        commit: Option<&StateCommit>,
        options: StateOptions,
    ) -> Result<Self> {
        let last = match commit {
            Some(commit) if !commit.0.is_null() => last_file(commit)?,
            _ => None,
        };
        let query = files.url();
        let mut store = Self {
            files,
            tables: Tables::within(options, query),
            committed: last.map(|link| link.batch),
            last,
            sweep: Sweep::default(),
            needs: Needs::default(),
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

    /// The bytes of memory that the entries take, without those on local disk.
    pub fn memory_bytes(&self) -> u64 {
        self.tables.memory()
    }

    /// The changes since the last commit stand, in the working copy alone.
    pub(crate) fn keep(&mut self) -> Result<()> {
        let worked = self.tables.touched() * size_of::<Undo>();
        self.tables.keep();
        self.tables.make_room(worked as u64)
    }

    fn state_commit(&self) -> Result<StateCommit> {
        let commit = serde_json::to_value(Commit { format: file::FORMAT, last: self.last });
        commit.map(StateCommit).map_err(|e| Error::internal(format!("a state commit cannot be written: {e}")))
    }

    /// The file of a micro-batch and the sweep after it; none if nothing has changed.
    fn file(&self, batch_id: BatchId) -> Result<Option<(Vec<u8>, Link, Header)>> {
        let (changes, section) = self.changes()?;
        if section.is_empty() {
            return Ok(None);
        }
        let changed = changes.iter().flatten().map(|(_, _, changes)| changes.bytes()).sum();
        let (piece, at) = self.piece(sweep_bytes(self.tables.bytes(), changed), &changes)?;
        let header = Header {
            batch: batch_id,
            previous: self.last,
            changes: section.info(),
            sweep: piece.info(),
            sweep_began: self.sweep.began.unwrap_or(batch_id),
            sweep_before: self.sweep.before,
            sweep_spare: self.sweep.spare,
            sweep_at: at,
            tables: names(&changes),
        };
        drop(changes);
        let (bytes, link) = file::write(&header, section, piece)
            .map_err(|e| Error::internal(format!("the header of a state file cannot be written: {e}")))?;
        Ok(Some((bytes, link, header)))
    }

    /// What changed, by shard, and as a section. The number of threads has no influence on it.
    fn changes(&self) -> Result<(Vec<Vec<Changed<'_>>>, Section)> {
        let shards: Vec<_> = self.tables.shards.iter().enumerate().collect();
        let threads = self.tables.touched() / CHANGES_PER_THREAD_MIN;
        let mut all = Section::default();
        let changes = in_order(shards, threads, changes_of).into_iter().map(|of_shard| {
            let (changes, section) = of_shard?;
            all.append(section);
            Ok(changes)
        });
        Ok((changes.collect::<Result<_>>()?, all))
    }

    /// The next piece of the sweep, and the last key in it; none if it is complete with this piece.
    fn piece(&self, budget: u64, changes: &[Vec<Changed<'_>>]) -> Result<(Section, Option<Position>)> {
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
                let mut group = section.group(shard, name);
                let stopped_at =
                    unchanged(table, start, changes, &mut left, |key, value| group.set(key, value))?;
                group.finish();
                if let Some(key) = stopped_at {
                    return Ok((section, Some(Position { shard, table: (*name).to_owned(), key })));
                }
            }
        }
        Ok((section, None))
    }
}

/// How many bytes the next piece of a sweep has, given those of the state and of what the micro-batch changed.
fn sweep_bytes(state: u64, changed: u64) -> u64 {
    let small = state.div_ceil(SWEEP_FILES).clamp(SWEEP_BYTES_MIN, SWEEP_BYTES);
    state.div_ceil(SWEEP_FILES_MAX).max(small).max(changed)
}

/// A table of a shard, its name and what changed in it.
type Changed<'a> = (&'a str, &'a Table, Changes<'a>);

/// What changed in a shard, by table, and as a section.
fn changes_of((number, shard): (usize, &Shard)) -> Result<(Vec<Changed<'_>>, Section)> {
    let mut section = Section::default();
    let mut of_tables = Vec::with_capacity(shard.tables.len());
    for (name, table) in &shard.tables {
        let changes = table.changes()?;
        section.push(number, name, &changes);
        of_tables.push((name.as_str(), table, changes));
    }
    Ok((of_tables, section))
}

/// The names of the tables that changed.
fn names(changes: &[Vec<Changed<'_>>]) -> Vec<String> {
    let changed = changes.iter().flatten().filter(|(_, _, changes)| changes.bytes() > 0);
    let names: BTreeSet<&str> = changed.map(|(name, ..)| *name).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Shows the entries behind a key but for those that were set: as many as are `left`, in bytes; those that were set
/// count, too. Gives the last key if nothing is left.
fn unchanged(
    table: &Table,
    start: Option<&[u8]>,
    changes: &Changes<'_>,
    left: &mut u64,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<Option<Vec<u8>>> {
    let set = &changes.set;
    if start.is_none() && set.len() as u64 == table.len() && table.bytes() < *left {
        *left -= table.bytes();
        return Ok(None);
    }
    let first = start.map_or(0, |start| set.partition_point(|(key, _)| *key <= start));
    let mut set = set[first..].iter().peekable();
    let mut stopped_at = None;
    table.walk(start.map_or(Bound::Unbounded, Bound::Excluded), None, |key, value| {
        if set.next_if(|(changed, _)| *changed == key).is_none() {
            each(key, value);
        }
        *left = left.saturating_sub((key.len() + value.len()) as u64);
        if *left == 0 {
            stopped_at = Some(key.to_vec());
        }
        stopped_at.is_none()
    })?;
    Ok(stopped_at)
}

impl Sweep {
    /// Where it is after a file.
    fn after(header: &Header) -> Self {
        match &header.sweep_at {
            None => Self { began: None, before: header.base(), spare: header.spare(), at: None },
            at => Self {
                began: Some(header.sweep_began),
                before: header.sweep_before,
                spare: header.sweep_spare,
                at: at.clone(),
            },
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

    fn usage(&self, prefix: &str) -> StateUsage {
        self.tables.usage(prefix)
    }

    async fn commit(&mut self, batch_id: BatchId) -> Result<StateCommit> {
        check_order(self.committed, batch_id)?;
        let mut worked = self.tables.touched() * size_of::<Undo>();
        if let Some((bytes, link, header)) = self.file(batch_id)? {
            // The file, and what it was put together from.
            worked += 2 * bytes.len();
            if !self.needs.knows_files() {
                self.needs.stored(retain::stored(&*self.files).await?, &[]);
            }
            self.files
                .replace(&link.path(), Bytes::from(bytes))
                .await
                .map_err(|e| e.context(format!("the state of micro-batch {batch_id}")))?;
            self.last = Some(link);
            self.sweep = Sweep::after(&header);
            self.needs.written(&header, link);
        }
        self.tables.keep();
        self.committed = Some(batch_id);
        // If it fails, the file counts for nothing: no commit names it, and a rerun writes it again.
        self.tables.make_room(worked as u64)?;
        self.state_commit()
    }

    fn rollback(&mut self) -> Result<()> {
        self.tables.rollback();
        Ok(())
    }

    async fn retain(&mut self, oldest: BatchId) -> Result<()> {
        self.needs.retain(&*self.files, oldest).await
    }
}

/// The last file that a commit names.
fn last_file(commit: &StateCommit) -> Result<Option<Link>> {
    let format = commit.0.get("format").and_then(serde_json::Value::as_u64);
    if !format.is_some_and(|format| (file::FORMAT_MIN.into()..=file::FORMAT.into()).contains(&format)) {
        let found =
            format.map_or_else(|| "an unknown format".to_owned(), |format| format!("format {format}"));
        return Err(Error::data(format!(
            "the commit log names state of {found}, this version of Pelton reads formats {} to {}",
            file::FORMAT_MIN,
            file::FORMAT
        ))
        .hint("run the version of Pelton that wrote the checkpoint, or start with a new checkpoint"));
    }
    let commit: Commit = serde_json::from_value(commit.0.clone())
        .map_err(|e| Error::data(format!("what the commit log says about state is not readable: {e}")))?;
    Ok(commit.last)
}
