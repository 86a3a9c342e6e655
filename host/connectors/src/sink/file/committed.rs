//! What an output directory holds, for those who read it with care. Nothing is changed here, and a run or a compaction may work
//! on the directory meanwhile.

use super::compaction::{COMPACTED, Entry, entries};
use super::log::{HIDDEN, Log, LogEntry, LogFile, PENDING, batch_of};
use pelton_core::{BatchId, FileManager, Result};
use std::collections::BTreeMap;

/// A file with committed rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedFile {
    /// Its place, relative to the directory.
    pub path: String,
    /// The micro-batch that its last rows come from.
    pub batch_id: BatchId,
    /// In bytes.
    pub size_bytes: u64,
    /// Its rows, as long as the log remembers.
    pub rows: Option<u64>,
    /// Where it still lies, relative to the directory: its writer died before it could move it to its place, or those that it
    /// replaces are still there.
    pub pending: Option<String>,
}

/// A file whose rows are committed and become visible with their rollover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingFile {
    /// Where it lies, relative to the directory.
    pub path: String,
    /// The directory of its partition, empty for the top.
    pub directory: String,
    /// In bytes.
    pub size_bytes: u64,
    /// Its rows.
    pub rows: u64,
    /// The time of the micro-batch that its first rows come from.
    pub time_ms: i64,
}

/// A file whose rows are in a compacted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedFile {
    /// Its place, relative to the directory.
    pub path: String,
    /// In bytes.
    pub size_bytes: u64,
    /// From when on it may be deleted.
    pub delete_at_ms: i64,
}

/// Everything in an output directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputFiles {
    /// What a reader reads, sorted by path.
    pub live: Vec<CommittedFile>,
    /// What will be in files to come.
    pub waiting: Vec<WaitingFile>,
    /// What is still there for readers that began before the compaction.
    pub replaced: Vec<ReplacedFile>,
}

/// The files in an output directory that a careful reader reads, sorted by path.
pub async fn committed_files(directory: &dyn FileManager) -> Result<Vec<CommittedFile>> {
    Ok(output_files(directory).await?.live)
}

/// All committed files in an output directory.
pub async fn output_files(directory: &dyn FileManager) -> Result<OutputFiles> {
    let log = Log::of(directory);
    // First what the logs say: files that they name may move to their places afterwards, but never away from there.
    let compactions = entries(&log).await?;
    let Some((_, last)) = log.last().await? else { return Ok(OutputFiles::default()) };
    let mut listed = list(directory).await?;
    if !last.files.iter().all(|file| is_somewhere(&listed, file)) {
        // It was moved while the listing went on; if it is missing again, somebody has deleted it.
        listed = list(directory).await?;
    }
    let mut live = written(&listed, &last);
    let mut replaced = Vec::new();
    for (_, entry) in &compactions {
        replace(&mut live, &mut replaced, entry, &listed);
    }
    let waiting = last.staged.iter().map(|part| WaitingFile {
        path: format!("{HIDDEN}/{PENDING}/{}", part.pending),
        directory: part.directory.clone(),
        size_bytes: part.size_bytes,
        rows: part.rows,
        time_ms: part.time_ms,
    });
    Ok(OutputFiles { live: live.into_values().collect(), waiting: waiting.collect(), replaced })
}

/// Files by their place, with their sizes.
pub(super) type Listed = BTreeMap<String, u64>;

pub(super) async fn list(directory: &dyn FileManager) -> Result<Listed> {
    Ok(directory.list("").await?.into_iter().map(|file| (file.path, file.size_bytes)).collect())
}

/// What micro-batches and rollovers have made.
fn written(listed: &Listed, last: &LogEntry) -> BTreeMap<String, CommittedFile> {
    let mut found = BTreeMap::new();
    for (path, size_bytes) in listed {
        if let Some(batch_id) = batch_of(path).filter(|id| *id <= last.batch_id) {
            let rows = last.files.iter().find(|file| file.path == *path).map(|file| file.rows);
            let file =
                CommittedFile { path: path.clone(), batch_id, size_bytes: *size_bytes, rows, pending: None };
            found.insert(path.clone(), file);
        }
    }
    for file in &last.files {
        let pending = place_of_pending(file);
        if listed.contains_key(&pending) {
            let (path, batch_id, size_bytes) = (file.path.clone(), last.batch_id, file.size_bytes);
            let file =
                CommittedFile { path, batch_id, size_bytes, rows: Some(file.rows), pending: Some(pending) };
            found.entry(file.path.clone()).or_insert(file);
        }
    }
    found
}

/// Puts what a compaction made in the place of what it was made of.
fn replace(
    live: &mut BTreeMap<String, CommittedFile>,
    replaced: &mut Vec<ReplacedFile>,
    entry: &Entry,
    listed: &Listed,
) {
    for file in &entry.files {
        for old in &file.replaces {
            live.remove(&old.path);
            if let Some(size_bytes) = listed.get(&old.path).copied() {
                let delete_at_ms = entry.delete_at_ms();
                replaced.push(ReplacedFile { path: old.path.clone(), size_bytes, delete_at_ms });
            }
        }
        let path = file.path.clone();
        let pending = (!listed.contains_key(&path)).then(|| format!("{HIDDEN}/{COMPACTED}/{path}"));
        let (batch_id, size_bytes) = (file.batch_id, file.size_bytes);
        live.insert(path.clone(), CommittedFile { path, batch_id, size_bytes, rows: None, pending });
    }
}

fn is_somewhere(listed: &Listed, file: &LogFile) -> bool {
    listed.contains_key(&file.path) || listed.contains_key(&place_of_pending(file))
}

fn place_of_pending(file: &LogFile) -> String {
    format!("{HIDDEN}/{PENDING}/{}", file.pending)
}
