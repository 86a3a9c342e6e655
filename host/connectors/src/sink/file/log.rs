//! What is written below `_pelton` in an output directory, and what readers may learn from it.
//!
//! ```text
//! _pelton/query              whose directory it is
//! _pelton/lock               held by the run that writes (local disks)
//! _pelton/log/<batch>        a micro-batch that is done: text, first line the format's version, then JSON
//! _pelton/pending/…          files of micro-batches that are not done, or whose move is under way
//! ```

use bytes::Bytes;
use pelton_core::{BatchId, Created, Error, FileInfo, FileManager, QueryId, Result, create_or_own};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first line of every file of the log.
const VERSION: &str = "v1";
/// Where everything that is not output lies. Readers of Spark, Hive and the like pass over names with `_`.
pub(super) const HIDDEN: &str = "_pelton";
/// Below [`HIDDEN`].
pub(super) const PENDING: &str = "pending";
const QUERY: &str = "query";
const LOG: &str = "log";
/// Entries that are kept; a run that lags further behind than this is still found out, see [`super::commit`].
const ENTRIES_KEPT: usize = 16;

/// A micro-batch that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogEntry {
    pub(super) query_id: QueryId,
    pub(super) batch_id: BatchId,
    /// This micro-batch and all before it.
    pub(super) total: Totals,
    pub(super) files: Vec<LogFile>,
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
        self.files.create(QUERY, self.text(&Owner { query_id: query_id.clone() })?).await
    }

    /// The micro-batches of which there is an entry, ascending.
    pub(super) async fn ids(&self) -> Result<Vec<BatchId>> {
        let files = self.files.list(LOG).await?;
        let name =
            |file: &FileInfo| file.path.strip_prefix(LOG)?.strip_prefix('/')?.parse().ok().map(BatchId);
        let mut ids: Vec<BatchId> = files.iter().filter_map(name).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The entry of a micro-batch.
    pub(super) async fn entry(&self, id: BatchId) -> Result<Option<LogEntry>> {
        self.read(&format!("{LOG}/{id}")).await
    }

    /// The last entry.
    pub(super) async fn last(&self) -> Result<Option<LogEntry>> {
        match self.ids().await?.last() {
            Some(id) => self.entry(*id).await,
            None => Ok(None),
        }
    }

    /// Decides that a micro-batch is done. The names of its pending files make each run's entry another.
    pub(super) async fn append(&self, entry: &LogEntry) -> Result<Created> {
        let path = format!("{LOG}/{}", entry.batch_id);
        create_or_own(self.files.as_ref(), &path, self.text(entry)?).await
    }

    /// Takes back an entry that was written in error.
    pub(super) async fn remove(&self, id: BatchId) -> Result<()> {
        self.files.delete(&format!("{LOG}/{id}")).await
    }

    /// Removes the oldest entries once there are many. Oldest first: what is left has no gap whenever it ends.
    pub(super) async fn prune(&self, ids: &[BatchId]) -> Result<()> {
        if ids.len() < 2 * ENTRIES_KEPT {
            return Ok(());
        }
        for id in &ids[..ids.len() - ENTRIES_KEPT] {
            self.remove(*id).await?;
        }
        Ok(())
    }

    fn text(&self, value: &impl Serialize) -> Result<Bytes> {
        let json = serde_json::to_string_pretty(value)
            .map_err(|e| Error::internal(format!("the output log cannot be written: {e}")).caused_by(e))?;
        Ok(format!("{VERSION}\n{json}\n").into())
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let Some(content) = self.files.read(path).await? else { return Ok(None) };
        let place = format!("{}/{path}", self.files.url());
        let damaged = |why: String| {
            Error::data(format!("{place} is damaged: {why}")).hint(
                "restore it from a copy; without one, give the query another path: what is in this directory stays \
                 readable",
            )
        };
        let text = std::str::from_utf8(&content).map_err(|e| damaged(e.to_string()))?;
        let (version, json) = text.split_once('\n').unwrap_or((text, ""));
        if version != VERSION {
            let newer = version.starts_with('v') && version[1..].parse::<u32>().is_ok();
            return Err(match newer {
                true => Error::data(format!("{place} has format {version}; this release reads {VERSION}"))
                    .hint("use the release that wrote it, or a newer one"),
                false => damaged(format!("its first line is not a version such as {VERSION}")),
            });
        }
        serde_json::from_str(json).map(Some).map_err(|e| damaged(e.to_string()))
    }
}

/// A file that a micro-batch has put into an output directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedFile {
    /// Its place, relative to the directory.
    pub path: String,
    /// The micro-batch that wrote it.
    pub batch_id: BatchId,
    /// In bytes.
    pub size_bytes: u64,
    /// Its rows, as long as the log remembers.
    pub rows: Option<u64>,
    /// Where it still lies, relative to the directory, if the writer died before it could move it to its place.
    pub pending: Option<String>,
}

/// The files in an output directory that are committed, sorted by path: what a careful reader reads. Nothing
/// is changed, and a run may write meanwhile.
pub async fn committed_files(directory: &dyn FileManager) -> Result<Vec<CommittedFile>> {
    let log = Log::of(directory);
    // The entry first: files that it names may move to their places afterwards, but never away from there.
    let last = log.last().await?;
    let entries: BTreeMap<String, LogFile> = match &last {
        Some(entry) => entry.files.iter().map(|file| (file.path.clone(), file.clone())).collect(),
        None => BTreeMap::new(),
    };
    let Some(last) = last else { return Ok(Vec::new()) };
    let mut listed = list(directory).await?;
    let somewhere = |listed: &BTreeMap<String, u64>, file: &LogFile| {
        listed.contains_key(&file.path) || listed.contains_key(&place_of_pending(file))
    };
    if !entries.values().all(|file| somewhere(&listed, file)) {
        // It was moved while the listing went on; if it is missing again, somebody has deleted it.
        listed = list(directory).await?;
    }
    let mut found = BTreeMap::new();
    for (path, size_bytes) in &listed {
        if let Some(batch_id) = batch_of(path).filter(|id| *id <= last.batch_id) {
            let rows = entries.get(path).map(|entry| entry.rows);
            let file =
                CommittedFile { path: path.clone(), batch_id, size_bytes: *size_bytes, rows, pending: None };
            found.insert(path.clone(), file);
        }
    }
    for (path, file) in entries {
        let pending = place_of_pending(&file);
        if listed.contains_key(&pending) {
            let (batch_id, size_bytes, rows) = (last.batch_id, file.size_bytes, Some(file.rows));
            let file =
                CommittedFile { path: path.clone(), batch_id, size_bytes, rows, pending: Some(pending) };
            found.entry(path).or_insert(file);
        }
    }
    Ok(found.into_values().collect())
}

async fn list(directory: &dyn FileManager) -> Result<BTreeMap<String, u64>> {
    Ok(directory.list("").await?.into_iter().map(|file| (file.path, file.size_bytes)).collect())
}

fn place_of_pending(file: &LogFile) -> String {
    format!("{HIDDEN}/{PENDING}/{}", file.pending)
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
