//! The two logs that make a micro-batch happen once: what it reads (`offsets/N`, written before it runs) and
//! that it is done (`commits/N`). Spark's `OffsetSeqLog` and `CommitLog`.
//!
//! Called by [`crate::Checkpoint`] and by the commands that show a checkpoint. An entry is written once and never
//! changed; what to do on a restart is decided in [`crate::recovery`], not here.

use crate::entry::{self, Damage};
use crate::layout;
use crate::layouts::LayoutId;
use pelton_core::{
    BatchId, Created, Error, FileManager, Offset, PluginDigest, Result, RunId, StateCommit, TableVersion,
    WatermarkPolicy, create_or_own,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

/// What micro-batch N is: written before it runs, so that every rerun is the same. Spark's `OffsetSeq`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffsetEntry {
    /// Its processing time: milliseconds since the Unix epoch.
    pub batch_time_ms: i64,
    /// The watermark it runs with: milliseconds since the Unix epoch; null if the query has none.
    #[serde(default)]
    pub watermark_ms: Option<i64>,
    /// The watermark that judges its late rows, that of the micro-batch before: milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_watermark_ms: Option<i64>,
    /// How the query's watermark follows from several. It is the checkpoint's for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark_policy: Option<WatermarkPolicy>,
    /// The watermarks that are kept by partition, by name, as they were when it was planned: which partitions are idle.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<String, PartitionMarks>,
    /// What it reads, by the source's name.
    pub sources: BTreeMap<String, SourceOffsets>,
    /// What its static tables are read from, by their name in the pipeline file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<String, TableVersion>,
    /// The plugins it runs with, by their name in the pipeline file.
    #[serde(default)]
    pub plugins: BTreeMap<String, PluginDigest>,
    /// Those of them that were swapped while the query ran.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub swaps: BTreeMap<String, SwappedPlugin>,
    /// The swaps that it failed with and that were undone, in their order: it was begun with other plugins than it runs
    /// with now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rolled_back: Vec<RolledBack>,
    /// The operators that begin with empty state in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reset: Vec<String>,
    /// The kind of sink it goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// The run that wrote the entry: two runs never write the same one.
    pub run_id: RunId,
}

/// A plugin that was swapped while the query ran: which versions a start, a failure and a rollback ask for. Every entry
/// has it from the swap on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwappedPlugin {
    /// What the pipeline file named then: as long as it does, a start goes on with what was swapped in.
    pub instead_of: PluginDigest,
    /// The versions before, oldest first: a rollback goes to the last of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<PluginDigest>,
    /// The version is new: if it fails, the swap is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probation: Option<Probation>,
}

/// The first micro-batches of a new version of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probation {
    /// The version that comes back if the new one fails.
    pub from: PluginDigest,
    /// The first micro-batch with the new version.
    pub since: BatchId,
    /// The first micro-batch after the probation.
    pub until: BatchId,
    /// What the state of the query with the version before consists of. None: it has no state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutId>,
}

impl Probation {
    /// Whether a micro-batch is one of them.
    pub fn holds(&self, batch_id: BatchId) -> bool {
        self.since <= batch_id && batch_id < self.until
    }
}

/// A swap that was undone because a micro-batch failed with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolledBack {
    /// The plugin.
    pub plugin: String,
    /// The version that failed.
    pub from: PluginDigest,
    /// The version that it ran with before and runs with again.
    pub to: PluginDigest,
    /// What the failure said.
    pub why: String,
}

/// How far each partition of a watermark is, by name: `source/partition`, or the source's if it is not divided.
pub type PartitionMarks = BTreeMap<String, PartitionMark>;

/// How far a partition of a watermark is. Times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionMark {
    /// Its latest event time; null if it has delivered nothing.
    pub latest_ms: Option<i64>,
    /// The time of the last micro-batch that read something of it, or left something unread.
    pub active_ms: i64,
    /// It had nothing to read beyond the micro-batch when that was planned.
    pub caught_up: bool,
    /// It has been caught up for so long that it holds the watermark back no longer.
    pub idle: bool,
}

/// What a micro-batch reads of one source: after `start`, up to and including `end`.
/// If the two are equal it reads nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceOffsets {
    /// Where the micro-batch before ended; null if nothing was ever read.
    pub start: Option<Offset>,
    /// Where this one ends; null if there is still nothing.
    pub end: Option<Offset>,
}

/// That a micro-batch is done. Spark's `CommitMetadata`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitEntry {
    /// The watermark of the next micro-batch: milliseconds since the Unix epoch; null if the query has none.
    #[serde(default)]
    pub next_watermark_ms: Option<i64>,
    /// How far each of the query's watermarks is, by name: milliseconds since the Unix epoch. Spark keeps only the
    /// query's own, so that after a restart every source begins anew to hold it back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub watermarks: BTreeMap<String, i64>,
    /// How far the partitions of those watermarks are that are kept by partition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<String, PartitionMarks>,
    /// Where the state after this micro-batch is found; only the state store reads it. None: the query has no state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateCommit>,
    /// What that state consists of. None: there is none, or an earlier version of Pelton wrote the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutId>,
    /// What the sink said.
    pub sink: SinkCommit,
    /// The run that wrote the entry.
    pub run_id: RunId,
}

/// What the sink did with the micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkCommit {
    /// Rows it took.
    pub rows: u64,
    /// Bytes it wrote, if it writes bytes.
    pub bytes: u64,
    /// Files it made visible, if it writes files.
    pub files: u64,
    /// It had the micro-batch already, so the other numbers may be 0 although it has rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub already_committed: bool,
}

/// Something that a log is made of.
pub trait Entry: Serialize + DeserializeOwned + Send + Sync {
    /// The log's directory.
    const LOG: &'static str;
    /// What to do about a damaged entry.
    const WAY_OUT: &'static str;
}

impl Entry for OffsetEntry {
    const LOG: &'static str = layout::OFFSETS;
    const WAY_OUT: &'static str = "restore the file from a backup; without one, start over with a new checkpoint \
                                   and a new output, because what the sink already holds cannot be told any more";
}

impl Entry for CommitEntry {
    const LOG: &'static str = layout::COMMITS;
    const WAY_OUT: &'static str = "restore the file from a backup or, if it is the newest entry, delete it: the \
                                   micro-batch then runs again with the same input, and the sink recognises it";
}

/// A log of one entry a micro-batch.
#[derive(Debug)]
pub struct Log<T> {
    files: Arc<dyn FileManager>,
    entries: PhantomData<fn() -> T>,
}

/// `offsets/`.
pub type OffsetLog = Log<OffsetEntry>;
/// `commits/`.
pub type CommitLog = Log<CommitEntry>;

impl<T: Entry> Log<T> {
    /// The log of the checkpoint that lies in `files`. Opening it needs no ownership; appending does.
    pub fn new(files: Arc<dyn FileManager>) -> Self {
        Self { files, entries: PhantomData }
    }

    /// The micro-batches that have an entry, ascending.
    pub async fn ids(&self) -> Result<Vec<BatchId>> {
        let listed = self.files.list(T::LOG).await?;
        let mut ids: Vec<_> = listed.iter().filter_map(|file| layout::batch_of(T::LOG, &file.path)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// An entry, checked, or `None` if there is none. A damaged one is an error of kind `Data`.
    pub async fn get(&self, batch_id: BatchId) -> Result<Option<T>> {
        let path = layout::log_entry(T::LOG, batch_id);
        let Some(content) = self.files.read(&path).await? else { return Ok(None) };
        match entry::decode(&content) {
            Ok(entry) => Ok(Some(entry)),
            Err(damage) => Err(self.damaged(&path, damage)),
        }
    }

    /// An entry that must be there.
    pub async fn expect(&self, batch_id: BatchId) -> Result<T> {
        self.get(batch_id).await?.ok_or_else(|| {
            let path = layout::log_entry(T::LOG, batch_id);
            Error::data(format!("{}/{path} is missing", self.files.url())).hint(T::WAY_OUT)
        })
    }

    /// Writes an entry, durably. An entry that another run has written is an error of kind `Fenced`; one that is
    /// ours to the byte is ours (a store may repeat a request whose answer was lost).
    pub async fn append(&self, batch_id: BatchId, entry: &T) -> Result<()> {
        let path = layout::log_entry(T::LOG, batch_id);
        let content = entry::encode(entry)?;
        match create_or_own(self.files.as_ref(), &path, content).await? {
            Created::New => Ok(()),
            Created::Exists => Err(self.overtaken(&path)),
        }
    }

    fn overtaken(&self, path: &str) -> Error {
        Error::fenced(format!(
            "{}/{path} was written by another run of this query, which owns the checkpoint now",
            self.files.url()
        ))
        .hint("stop one of the two; a query may run only once at a time on a checkpoint")
    }

    /// Removes an entry that is no longer needed.
    pub(crate) async fn remove(&self, batch_id: BatchId) -> Result<()> {
        self.files.delete(&layout::log_entry(T::LOG, batch_id)).await
    }

    fn damaged(&self, path: &str, damage: Damage) -> Error {
        damage_error(&format!("{}/{path}", self.files.url()), damage, T::WAY_OUT)
    }
}

impl OffsetLog {
    /// Puts an entry in the place of one that is ours, durably. (On a storage without locks another run may do something
    /// else with it in the same moment; one of the two is then fenced at its next entry.)
    pub(crate) async fn replace(
        &self,
        batch_id: BatchId,
        ours: &OffsetEntry,
        entry: &OffsetEntry,
    ) -> Result<()> {
        let path = layout::log_entry(layout::OFFSETS, batch_id);
        match self.get(batch_id).await?.is_some_and(|found| found == *ours) {
            true => self.files.replace(&path, entry::encode(entry)?).await,
            false => Err(self.overtaken(&path)),
        }
    }
}

/// The message for a file of a checkpoint that does not read.
pub(crate) fn damage_error(file: &str, damage: Damage, way_out: &str) -> Error {
    match damage {
        Damage::Newer(version) => Error::data(format!(
            "{file} has format {version}; this Pelton reads up to v{}",
            entry::FORMAT_VERSION
        ))
        .hint("a newer Pelton wrote this checkpoint: run the query with that version or a later one"),
        Damage::Foreign => {
            Error::data(format!("{file} was not written by Pelton: its first line is no format version"))
                .hint(
                    "choose a directory of its own for the checkpoint; those of Apache Spark cannot be read",
                )
        }
        Damage::Broken(why) => Error::data(format!("{file} is damaged: {why}")).hint(way_out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::executor::block_on;
    use pelton_core::{ErrorKind, MemoryFiles};
    use serde_json::json;

    fn entry(run: &str) -> OffsetEntry {
        let offsets = SourceOffsets { start: None, end: Some(Offset(json!({"log": 4}))) };
        OffsetEntry {
            batch_time_ms: 1_796_019_617_281,
            watermark_ms: None,
            late_watermark_ms: None,
            watermark_policy: None,
            partitions: BTreeMap::new(),
            tables: BTreeMap::new(),
            sources: BTreeMap::from([("flights".to_owned(), offsets)]),
            plugins: BTreeMap::from([("p".to_owned(), PluginDigest("ab".repeat(32)))]),
            swaps: BTreeMap::new(),
            rolled_back: Vec::new(),
            reset: Vec::new(),
            sink: None,
            run_id: RunId(run.into()),
        }
    }

    fn log() -> (MemoryFiles, OffsetLog) {
        let files = MemoryFiles::new();
        (files.clone(), Log::new(Arc::new(files)))
    }

    #[test]
    fn entries_come_back_and_are_listed_by_number() {
        let (_, log) = log();
        block_on(async {
            for id in [0, 2, 10] {
                log.append(BatchId(id), &entry("r")).await.unwrap();
            }
            assert_eq!(log.ids().await.unwrap(), [BatchId(0), BatchId(2), BatchId(10)]);
            assert_eq!(log.get(BatchId(2)).await.unwrap(), Some(entry("r")));
            assert_eq!(log.get(BatchId(3)).await.unwrap(), None);
        });
    }

    #[test]
    fn an_entry_of_another_run_fences_and_ones_own_does_not() {
        let (_, log) = log();
        block_on(async {
            log.append(BatchId(0), &entry("a")).await.unwrap();
            log.append(BatchId(0), &entry("a")).await.unwrap();
            let refused = log.append(BatchId(0), &entry("b")).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Fenced);
            assert_eq!(log.get(BatchId(0)).await.unwrap(), Some(entry("a")));
        });
    }

    #[test]
    fn damage_names_the_file_and_the_way_out() {
        let (files, log) = log();
        block_on(async {
            let content = entry::encode(&entry("a")).unwrap();
            let edited = String::from_utf8(content.to_vec()).unwrap().replace("\"log\":4", "\"log\":5");
            files.replace("offsets/0", Bytes::from(edited)).await.unwrap();
            let refused = log.get(BatchId(0)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Data);
            assert!(refused.message().starts_with("memory:////offsets/0 is damaged"), "{refused}");
            assert!(refused.hint_text().unwrap().contains("backup"), "{refused}");

            files.replace("offsets/1", Bytes::from("v7\n{}\n")).await.unwrap();
            let refused = log.get(BatchId(1)).await.unwrap_err();
            assert!(refused.message().contains("has format v7; this Pelton reads up to v1"), "{refused}");
        });
    }
}
