//! Which state files may go. Called by the store after a commit; deletes nothing that a retained commit needs, nor what
//! would take its place if a piece of a sweep were damaged.

use super::file::{self, DIRECTORY, Header};
use pelton_core::{BatchId, FileManager, Result};
use std::collections::{BTreeMap, BTreeSet};

/// No micro-batch pays for more deletions.
const DELETIONS_MAX: usize = 64;

/// What is needed of the files that are there.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// For each file that may be asked for, by its number, from where on files are kept for it; none: from the first.
    since: BTreeMap<BatchId, Option<BatchId>>,
    /// The files that are there, once it is known.
    stored: Option<BTreeSet<BatchId>>,
}

impl Needs {
    /// A file was found in the checkpoint.
    pub(super) fn found(&mut self, header: &Header) {
        self.since.insert(header.batch, header.spare());
    }

    /// Nothing may go for a file's sake.
    pub(super) fn keep_all(&mut self, file: BatchId) {
        self.since.insert(file, None);
    }

    /// A file was written.
    pub(super) fn written(&mut self, header: &Header) {
        self.found(header);
        if let Some(stored) = &mut self.stored {
            stored.insert(header.batch);
        }
    }

    /// Deletes files that nobody needs who asks for the state of `oldest` or later.
    pub(super) async fn retain(&mut self, files: &dyn FileManager, oldest: BatchId) -> Result<()> {
        // The file that holds the state of `oldest`: the last one up to it.
        let Some(first) = self.since.range(..=oldest).next_back().map(|(file, _)| *file) else {
            return Ok(());
        };
        self.since = self.since.split_off(&first);
        // None, the beginning, is the least.
        let Some(Some(needed)) = self.since.values().min().copied() else { return Ok(()) };
        if self.stored.is_none() {
            self.stored = Some(stored(files).await?.into_keys().collect());
        }
        let Some(stored) = &mut self.stored else { return Ok(()) };
        for _ in 0..DELETIONS_MAX {
            let Some(file) = stored.first().copied().filter(|file| *file < needed) else { break };
            files.delete(&file::path(file)).await?;
            stored.remove(&file);
        }
        Ok(())
    }
}

/// The numbers of the files that are there, and their bytes.
pub(super) async fn stored(files: &dyn FileManager) -> Result<BTreeMap<BatchId, u64>> {
    let files = files.list(DIRECTORY).await?;
    let number = |path: &str| path.strip_prefix(DIRECTORY)?.strip_prefix('/')?.parse().ok().map(BatchId);
    Ok(files.iter().filter_map(|info| Some((number(&info.path)?, info.size_bytes))).collect())
}
