//! What is written below `_pelton` in an output directory, and what readers may learn from it.
//!
//! ```text
//! _pelton/query              whose directory it is
//! _pelton/lock               held by the run that writes (local disks)
//! _pelton/log/<n>            the n-th commit: text, first line the format's version, then JSON
//! _pelton/layouts/<batch>    how files are written from this micro-batch on
//! _pelton/pending/…          files of micro-batches that are not done, whose move is under way, or that wait for their rollover
//! _pelton/compactions/<n>    the n-th compaction: which files it replaces by which
//! _pelton/compacted/…        its files, until those that they replace are deleted
//! ```
//!
//! A commit says that a micro-batch is done, or that files which waited have rolled over since. Commits are numbered one after
//! the other, so two that stand on the same commit contend for one name.

use bytes::Bytes;
use pelton_core::{BatchId, Created, Error, FileInfo, FileManager, QueryId, Result, create_or_own};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The first line of every file of the log.
pub(super) const VERSION: &str = "v1";
/// The first line of a commit after which files wait for their rollover: who does not know of those must not go on.
const VERSION_STAGED: &str = "v2";
/// Where everything that is not output lies. Readers of Spark, Hive and the like pass over names with `_`.
pub(super) const HIDDEN: &str = "_pelton";
/// Below [`HIDDEN`].
pub(super) const PENDING: &str = "pending";
const QUERY: &str = "query";
const LOG: &str = "log";
const LAYOUTS: &str = "layouts";
/// Entries that are kept; a run that lags further behind than this is still found out, see [`super::commit`].
const ENTRIES_KEPT: usize = 16;

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogEntry {
    pub(super) query_id: QueryId,
    /// The last micro-batch that is done.
    pub(super) batch_id: BatchId,
    /// This commit and all before it.
    pub(super) total: Totals,
    /// The files that it makes visible.
    pub(super) files: Vec<LogFile>,
    /// All files that wait for their rollover after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) staged: Vec<StagedFile>,
    /// Files of this micro-batch's name so far.
    #[serde(default)]
    pub(super) numbered: usize,
    /// What the micro-batch gave, where that is not what is in `files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<Taken>,
}

/// What the sink took of a micro-batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// A file that is committed and waits to become a part of a larger one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagedFile {
    /// The directory of its partition, empty for the top.
    pub(super) directory: String,
    /// Where it lies, relative to `_pelton/pending`.
    pub(super) pending: String,
    pub(super) size_bytes: u64,
    pub(super) rows: u64,
    /// The time of the micro-batch that its first rows come from.
    pub(super) time_ms: i64,
    /// Made of many that waited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) merged: bool,
}

/// How files are written: those with the same layout can be put together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    pub(super) format: String,
    pub(super) options: serde_json::Value,
    pub(super) partition_by: Vec<String>,
    /// The files' columns, names and types.
    pub(super) columns: Vec<(String, String)>,
    /// What stands at the top of a file takes so many bytes.
    pub(super) head_bytes: u64,
}

/// What a directory holds of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    /// Micro-batches with rows.
    pub(super) batches: u64,
    pub(super) files: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// A file of a micro-batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogFile {
    /// Its final place, relative to the directory.
    pub(super) path: String,
    /// Where it waits for its move, relative to `_pelton/pending`.
    pub(super) pending: String,
    pub(super) size_bytes: u64,
    pub(super) rows: u64,
}

#[derive(Serialize, Deserialize)]
struct Owner {
    query_id: QueryId,
}

/// The log of an output directory.
#[derive(Debug, Clone)]
pub(super) struct Log {
    /// The tree below [`HIDDEN`].
    pub(super) files: Arc<dyn FileManager>,
}

impl Log {
    pub(super) fn of(directory: &dyn FileManager) -> Self {
        Self { files: directory.subtree(HIDDEN) }
    }

    /// The query that the directory belongs to, if it belongs to any.
    pub(super) async fn owner(&self) -> Result<Option<QueryId>> {
        Ok(self.read::<Owner>(QUERY).await?.map(|owner| owner.query_id))
    }

    /// Takes a directory that belongs to none. `Exists`: somebody else was quicker.
    pub(super) async fn claim(&self, query_id: &QueryId) -> Result<Created> {
        self.files.create(QUERY, self.text(VERSION, &Owner { query_id: query_id.clone() })?).await
    }

    /// The numbers of the commits that are there, ascending.
    pub(super) async fn numbers(&self) -> Result<Vec<u64>> {
        self.numbered(LOG).await
    }

    /// The numbers in the names of the files of a directory, ascending.
    pub(super) async fn numbered(&self, directory: &str) -> Result<Vec<u64>> {
        let files = self.files.list(directory).await?;
        let number = |file: &FileInfo| file.path.strip_prefix(directory)?.strip_prefix('/')?.parse().ok();
        let mut numbers: Vec<u64> = files.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The last commit and its number.
    pub(super) async fn last(&self) -> Result<Option<(u64, LogEntry)>> {
        let Some(number) = self.numbers().await?.pop() else { return Ok(None) };
        Ok(self.read(&format!("{LOG}/{number}")).await?.map(|entry| (number, entry)))
    }

    /// Commits. The names of its pending files make each run's entry another.
    pub(super) async fn append(&self, number: u64, entry: &LogEntry) -> Result<Created> {
        let version = if entry.staged.is_empty() { VERSION } else { VERSION_STAGED };
        let text = self.text(version, entry)?;
        create_or_own(self.files.as_ref(), &format!("{LOG}/{number}"), text).await
    }

    /// Takes back a commit that was written in error.
    pub(super) async fn remove(&self, number: u64) -> Result<()> {
        self.files.delete(&format!("{LOG}/{number}")).await
    }

    /// Removes the oldest entries once there are many. Oldest first: what is left has no gap whenever it ends.
    pub(super) async fn prune(&self, numbers: &[u64]) -> Result<()> {
        if numbers.len() < 2 * ENTRIES_KEPT {
            return Ok(());
        }
        for number in &numbers[..numbers.len() - ENTRIES_KEPT] {
            self.remove(*number).await?;
        }
        Ok(())
    }

    /// The layouts, each with the first micro-batch that was written so, ascending.
    pub(super) async fn layouts(&self) -> Result<Vec<(BatchId, Layout)>> {
        let mut layouts = Vec::new();
        for number in self.numbered(LAYOUTS).await? {
            if let Some(layout) = self.read(&format!("{LAYOUTS}/{number}")).await? {
                layouts.push((BatchId(number), layout));
            }
        }
        Ok(layouts)
    }

    /// From this micro-batch on files are written so. (A run that died before it wrote any may have said otherwise.)
    pub(super) async fn set_layout(&self, from: BatchId, layout: &Layout) -> Result<()> {
        self.files.replace(&format!("{LAYOUTS}/{from}"), self.text(VERSION, layout)?).await
    }

    pub(super) fn text(&self, version: &str, value: &impl Serialize) -> Result<Bytes> {
        let json = serde_json::to_string_pretty(value)
            .map_err(|e| Error::internal(format!("the output log cannot be written: {e}")).caused_by(e))?;
        Ok(format!("{version}\n{json}\n").into())
    }

    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let Some(content) = self.files.read(path).await? else { return Ok(None) };
        parse(&format!("{}/{path}", self.files.url()), &content).map(Some)
    }
}

/// The content of a file below `_pelton`; `place` is for messages.
pub(super) fn parse<T: DeserializeOwned>(place: &str, content: &[u8]) -> Result<T> {
    let damaged = |why: String| {
        Error::data(format!("{place} is damaged: {why}")).hint(
            "restore it from a copy; without one, give the query another path: what is in this directory stays \
             readable",
        )
    };
    let text = std::str::from_utf8(content).map_err(|e| damaged(e.to_string()))?;
    let (version, json) = text.split_once('\n').unwrap_or((text, ""));
    if ![VERSION, VERSION_STAGED].contains(&version) {
        let newer = version.starts_with('v') && version[1..].parse::<u32>().is_ok();
        return Err(match newer {
            true => Error::data(format!(
                "{place} has format {version}; this release reads {VERSION} and {VERSION_STAGED}"
            ))
            .hint("use the release that wrote it, or a newer one"),
            false => damaged(format!("its first line is not a version such as {VERSION}")),
        });
    }
    serde_json::from_str(json).map_err(|e| damaged(e.to_string()))
}

/// The name of a file of a micro-batch; `number` counts from 0.
pub(super) fn file_name(batch_id: BatchId, number: usize, extension: &str) -> String {
    format!("part-{:05}-{number:05}{extension}", batch_id.0)
}

/// The micro-batch that a file in an output directory belongs to; `None` for other files.
pub(super) fn batch_of(path: &str) -> Option<BatchId> {
    if path.starts_with(HIDDEN) {
        return None;
    }
    let name = path.rsplit('/').next()?;
    let (batch, rest) = name.strip_prefix("part-")?.split_once('-')?;
    let number = rest.split('.').next()?;
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(batch) && is_number(number)).then(|| batch.parse().ok().map(BatchId))?
}
