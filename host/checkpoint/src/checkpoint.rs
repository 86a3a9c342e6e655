//! One query's checkpoint, owned by one run: opened and checked, read for where to go on, appended to, trimmed.
//!
//! Called by the engine. It decides nothing itself: [`crate::recovery`] does.

use crate::layouts::{self, LayoutId};
use crate::log::{CommitEntry, CommitLog, OffsetEntry, OffsetLog};
use crate::metadata::Metadata;
use crate::recovery::{self, LogDamage, ResumePoint};
use crate::{layout, plugins};
use bytes::Bytes;
use pelton_core::{BatchId, Error, FileManager, PluginDigest, QueryId, Result, RunId, StateLayout};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Spark's `spark.sql.streaming.minBatchesToRetain`.
pub const MIN_BATCHES_TO_RETAIN: u64 = 100;

/// Entries of each log that one micro-batch removes at most, so that no micro-batch pays for a long past.
const TRIM_ENTRIES_MAX: u64 = 4;

/// Who opens a checkpoint.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The pipeline file's `name`.
    pub query_name: String,
    /// The id that the query gets if the checkpoint is new.
    pub new_query_id: QueryId,
    /// This run.
    pub run_id: RunId,
    /// Milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// How many micro-batches the logs remember, at least 2. Spark's default is [`MIN_BATCHES_TO_RETAIN`].
    pub min_batches_to_retain: u64,
}

/// Where the run goes on, with all that it must know for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// A new query.
    Fresh,
    /// This micro-batch runs again, exactly as its entry says.
    Rerun {
        /// Which one.
        batch_id: BatchId,
        /// What it is.
        entry: OffsetEntry,
        /// That the one before it is done: what it left behind. None if this is the first, or if its record is lost
        /// (then `commits_lost`).
        before: Option<CommitEntry>,
        /// The record of the micro-batch before is lost (somebody deleted it).
        commits_lost: bool,
    },
    /// All is done up to the one before this.
    Next {
        /// Which one is to be planned.
        batch_id: BatchId,
        /// What the one before it was.
        last: OffsetEntry,
        /// That it is done: the watermark to go on with, the state.
        commit: CommitEntry,
    },
}

impl Resume {
    /// The last micro-batch that is surely done.
    pub fn last_committed(&self) -> Option<BatchId> {
        match self {
            Self::Fresh => None,
            Self::Rerun { batch_id, .. } | Self::Next { batch_id, .. } => {
                batch_id.0.checked_sub(1).map(BatchId)
            }
        }
    }

    /// The record of that micro-batch, unless it is lost.
    pub fn last_commit(&self) -> Option<&CommitEntry> {
        match self {
            Self::Fresh => None,
            Self::Rerun { before, .. } => before.as_ref(),
            Self::Next { commit, .. } => Some(commit),
        }
    }

    /// The newest entry of the offset log.
    pub fn newest_entry(&self) -> Option<&OffsetEntry> {
        match self {
            Self::Fresh => None,
            Self::Rerun { entry, .. } => Some(entry),
            Self::Next { last, .. } => Some(last),
        }
    }
}

/// A checkpoint that this run owns for as long as the value lives.
pub struct Checkpoint {
    files: Arc<dyn FileManager>,
    metadata: Metadata,
    run_id: RunId,
    retain: u64,
    offsets: OffsetLog,
    commits: CommitLog,
    /// Everything below this number is trimmed.
    trimmed_to: AtomicU64,
    _lock: Box<dyn Send + Sync>,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("url", &self.files.url())
            .field("metadata", &self.metadata)
            .finish()
    }
}

impl Checkpoint {
    /// Takes the checkpoint in `files` for this run and checks that it is this query's; makes it if there is none.
    ///
    /// Errors: `Fenced` if another run holds it, `Invalid` if it is another query's, `Data` if it is damaged,
    /// from a newer Pelton, or no checkpoint of Pelton's.
    pub async fn open(files: Arc<dyn FileManager>, opening: Opening) -> Result<Self> {
        if opening.min_batches_to_retain < 2 {
            return Err(Error::invalid("a checkpoint must retain at least 2 micro-batches"));
        }
        let lock =
            files.lock(layout::LOCK).await.map_err(|refused| name_the_way_out(refused, &files.url()))?;
        let (offsets, commits) = (OffsetLog::new(files.clone()), CommitLog::new(files.clone()));
        let metadata = match Metadata::read(files.as_ref()).await? {
            Some(metadata) => metadata,
            None => create(&files, &offsets, &opening).await?,
        };
        metadata.check_name(&opening.query_name, &files.url())?;
        Ok(Self {
            files,
            metadata,
            run_id: opening.run_id,
            retain: opening.min_batches_to_retain,
            offsets,
            commits,
            trimmed_to: AtomicU64::new(0),
            _lock: lock,
        })
    }

    /// The tree it lies in.
    pub fn files(&self) -> &Arc<dyn FileManager> {
        &self.files
    }
    /// Whose it is.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
    /// The run that owns it.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }
    /// The tree for a source's own log.
    pub fn source_files(&self, source: &str) -> Arc<dyn FileManager> {
        self.files.subtree(&format!("{}/{source}", layout::SOURCES))
    }
    /// The dead letters that are fed back to sources.
    pub fn replay_files(&self) -> Arc<dyn FileManager> {
        self.files.subtree(layout::REPLAYS)
    }

    /// The tree for the sink's own log.
    pub fn sink_files(&self) -> Arc<dyn FileManager> {
        self.files.subtree(layout::SINKS)
    }
    /// The tree for the state store.
    pub fn state_files(&self) -> Arc<dyn FileManager> {
        self.files.subtree(layout::STATE)
    }
    /// The tree for dead letters, if the pipeline names no other.
    pub fn dead_letter_files(&self) -> Arc<dyn FileManager> {
        self.files.subtree(layout::DEAD_LETTERS)
    }

    /// Reads the logs and says where to go on.
    pub async fn resume(&self) -> Result<Resume> {
        let (offsets, commits) = (self.offsets.ids().await?, self.commits.ids().await?);
        self.trimmed_to.store(offsets.iter().chain(&commits).min().map_or(0, |id| id.0), Relaxed);
        let point = recovery::resume(&offsets, &commits).map_err(|damage| self.refuse(damage))?;
        match point {
            ResumePoint::Fresh => Ok(Resume::Fresh),
            ResumePoint::Rerun { batch_id, commits_lost } => {
                if commits_lost {
                    tracing::warn!(%batch_id, "records of the commit log before this micro-batch are lost");
                }
                let before = match batch_id.0.checked_sub(1).map(BatchId) {
                    Some(before) if !commits_lost => Some(self.commits.expect(before).await?),
                    _ => None,
                };
                Ok(Resume::Rerun { batch_id, entry: self.newest(batch_id).await?, before, commits_lost })
            }
            ResumePoint::Next { batch_id } => {
                let done = BatchId(batch_id.0 - 1);
                let commit = self.commits.expect(done).await?;
                Ok(Resume::Next { batch_id, last: self.newest(done).await?, commit })
            }
        }
    }

    /// The newest entry of the offset log, checked against the one before it: the two must join.
    async fn newest(&self, batch_id: BatchId) -> Result<OffsetEntry> {
        let entry = self.offsets.expect(batch_id).await?;
        let Some(before) = batch_id.0.checked_sub(1).map(BatchId) else { return Ok(entry) };
        let previous = self.offsets.expect(before).await?;
        let joins =
            |name: &String, start| previous.sources.get(name).is_none_or(|source| source.end == start);
        match entry.sources.iter().find(|(name, source)| !joins(name, source.start.clone())) {
            None => Ok(entry),
            Some((name, _)) => Err(Error::data(format!(
                "the checkpoint {} is damaged: offsets/{batch_id} does not begin where offsets/{before} ends, for \
                 the source '{name}'",
                self.files.url()
            ))
            .hint("restore `offsets/` from one backup; without one, start over with a new checkpoint and a new output")),
        }
    }

    /// Step 2 of a micro-batch: its input is now fixed for ever.
    pub async fn write_offsets(&self, batch_id: BatchId, entry: &OffsetEntry) -> Result<()> {
        self.offsets.append(batch_id, entry).await
    }

    /// Writes down that a micro-batch, which was begun as `ours` says and failed so, runs as `entry` says from here on:
    /// over the same input, with other plugins. Nothing of the first attempt may be visible. `Fenced` if it is not ours any
    /// more.
    pub async fn rewrite_offsets(
        &self,
        batch_id: BatchId,
        ours: &OffsetEntry,
        entry: &OffsetEntry,
    ) -> Result<()> {
        if self.commits.get(batch_id).await?.is_some() {
            return Err(Error::fenced(format!(
                "micro-batch {batch_id} was committed by another run of this query, which owns the checkpoint {} now",
                self.files.url()
            ))
            .hint("stop one of the two; a query may run only once at a time on a checkpoint"));
        }
        self.offsets.replace(batch_id, ours, entry).await
    }

    /// Step 8 of a micro-batch: it is done.
    pub async fn write_commit(&self, batch_id: BatchId, entry: &CommitEntry) -> Result<()> {
        self.commits.append(batch_id, entry).await
    }

    /// The oldest micro-batch that the logs, and so the state, still remember while this one is `running`. At least the
    /// one before is among them: a rerun begins with its state.
    pub fn oldest_retained(&self, running: BatchId) -> BatchId {
        BatchId(running.0.saturating_sub(self.retain))
    }

    /// Forgets, a few at a time, entries older than the retention before the micro-batch that is `running`. Nothing
    /// that a restart asks for is touched, so it may run beside [`Checkpoint::write_commit`].
    pub async fn trim(&self, running: BatchId) -> Result<()> {
        let keep_from = self.oldest_retained(running).0;
        let from = self.trimmed_to.load(Relaxed);
        for id in (from..keep_from.min(from + TRIM_ENTRIES_MAX)).map(BatchId) {
            self.offsets.remove(id).await?;
            self.commits.remove(id).await?;
            self.trimmed_to.store(id.next().0, Relaxed);
        }
        Ok(())
    }

    /// Keeps what the state consists of before the commit log names it.
    pub async fn save_layouts(&self, layouts: &[StateLayout]) -> Result<LayoutId> {
        layouts::save(self.files.as_ref(), layouts).await
    }

    /// What the state consists of that an entry of the commit log names.
    pub async fn load_layouts(&self, id: &LayoutId) -> Result<Vec<StateLayout>> {
        layouts::load(self.files.as_ref(), id).await
    }

    /// Keeps the bytes of a plugin before the offset log names it.
    pub async fn save_plugin(&self, digest: &PluginDigest, bytes: &Bytes) -> Result<()> {
        plugins::save(self.files.as_ref(), digest, bytes).await
    }

    /// The plugins whose bytes are kept.
    pub async fn kept_plugins(&self) -> Result<Vec<PluginDigest>> {
        plugins::kept(self.files.as_ref()).await
    }

    /// Gives up the bytes of a plugin that nothing names any more.
    pub async fn remove_plugin(&self, digest: &PluginDigest) -> Result<()> {
        self.files.delete(&layout::plugin(digest)).await
    }

    /// The bytes of a plugin that the offset log names.
    pub async fn load_plugin(&self, digest: &PluginDigest) -> Result<Bytes> {
        plugins::load(self.files.as_ref(), digest).await
    }

    fn refuse(&self, damage: LogDamage) -> Error {
        Error::data(format!("the checkpoint {} is damaged: {damage}", self.files.url())).hint(
            "restore `offsets/` from a backup; without one, start over with a new checkpoint and a new output, \
             because what the sink already holds cannot be told any more",
        )
    }
}

async fn create(files: &Arc<dyn FileManager>, offsets: &OffsetLog, opening: &Opening) -> Result<Metadata> {
    if !offsets.ids().await?.is_empty() {
        return Err(Error::data(format!(
            "the checkpoint {} is damaged: it has offsets, but `{}` is missing",
            files.url(),
            layout::METADATA
        ))
        .hint(
            "restore the file from a backup; without one, start over with a new checkpoint and a new output",
        ));
    }
    let metadata = Metadata {
        query_id: opening.new_query_id.clone(),
        query_name: opening.query_name.clone(),
        created_ms: opening.now_ms,
        created_by: concat!("pelton ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    metadata.create(files.as_ref()).await
}

/// A file manager knows that the lock is taken, not what it means.
fn name_the_way_out(refused: Error, url: &str) -> Error {
    match refused.kind() {
        pelton_core::ErrorKind::Fenced => {
            Error::fenced(format!("another run owns the checkpoint {url}")).caused_by(refused).hint(
                "stop the other run first (a query may run only once at a time on a checkpoint), or give this query \
                 a checkpoint of its own",
            )
        }
        _ => refused.context(format!("the checkpoint {url} cannot be locked")),
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
