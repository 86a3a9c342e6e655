//! Which state files may go. Called by the store after a commit; deletes nothing that a retained commit needs, nor what
//! would take its place if a piece of a sweep were damaged.

use super::file::{DIRECTORY, Header, Link, batch_of};
use pelton_core::{BatchId, FileManager, Result};
use std::collections::{BTreeMap, BTreeSet};

/// No micro-batch pays for more deletions.
const DELETIONS_MAX: usize = 64;

/// The files that are there, by micro-batch and path, and their bytes.
pub(super) type StoredFiles = BTreeMap<(BatchId, String), u64>;

/// What is needed of the files that are there.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// For each file that may be asked for, by its number, from where on files are kept for it; none: from the first.
    since: BTreeMap<BatchId, Option<BatchId>>,
    /// The files that are there, once it is known, but for the left ones.
    stored: Option<BTreeSet<(BatchId, String)>>,
    /// Files of runs that never committed them.
    left: Vec<String>,
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

    /// These files are there, and of the time from the first of a chain to its last no others count than its own.
    pub(super) fn stored(&mut self, stored: StoredFiles, chain: &[Link]) {
        let own: BTreeSet<(BatchId, String)> = chain.iter().map(|link| (link.batch, link.path())).collect();
        let (first, last) = (own.first().map(|(batch, _)| *batch), own.last().map(|(batch, _)| *batch));
        let is_left =
            |file: &(BatchId, String)| Some(file.0) >= first && Some(file.0) <= last && !own.contains(file);
        let (left, stored): (BTreeSet<_>, BTreeSet<_>) = stored.into_keys().partition(is_left);
        self.left.extend(left.into_iter().map(|(_, path)| path));
        self.stored = Some(stored);
    }

    /// Whether it is known which files are there.
    pub(super) fn knows_files(&self) -> bool {
        self.stored.is_some()
    }

    /// A file was written. Others of its micro-batch are what dead runs have left.
    pub(super) fn written(&mut self, header: &Header, link: Link) {
        self.found(header);
        let Some(stored) = &mut self.stored else { return };
        let file = (header.batch, link.path());
        let of_batch = stored.range((file.0, String::new())..).take_while(|(batch, _)| *batch == file.0);
        let others: Vec<_> = of_batch.filter(|other| **other != file).cloned().collect();
        for other in others {
            stored.remove(&other);
            self.left.push(other.1);
        }
        stored.insert(file);
    }

    /// Deletes files that nobody needs who asks for the state of `oldest` or later. Called when what was written is
    /// committed.
    pub(super) async fn retain(&mut self, files: &dyn FileManager, oldest: BatchId) -> Result<()> {
        let mut deletions = DELETIONS_MAX;
        while let Some(path) = self.left.last().filter(|_| deletions > 0) {
            files.delete(path).await?;
            self.left.pop();
            deletions -= 1;
        }
        // The file that holds the state of `oldest`: the last one up to it.
        let Some(first) = self.since.range(..=oldest).next_back().map(|(file, _)| *file) else {
            return Ok(());
        };
        self.since = self.since.split_off(&first);
        // None, the beginning, is the least.
        let Some(Some(needed)) = self.since.values().min().copied() else { return Ok(()) };
        let Some(stored) = &mut self.stored else { return Ok(()) };
        while deletions > 0 {
            let Some(file) = stored.first().filter(|(batch, _)| *batch < needed) else { break };
            files.delete(&file.1).await?;
            stored.pop_first();
            deletions -= 1;
        }
        Ok(())
    }
}

/// The files that are there.
pub(super) async fn stored(files: &dyn FileManager) -> Result<StoredFiles> {
    let files = files.list(DIRECTORY).await?;
    Ok(files
        .into_iter()
        .filter_map(|info| Some(((batch_of(&info.path)?, info.path), info.size_bytes)))
        .collect())
}
