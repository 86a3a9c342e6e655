//! The state of a commit, from the files of the checkpoint. Called once, on opening; writes nothing.
//!
//! Back along the chain from the file that the commit names to where a replay begins, checking everything; then
//! forth again, applying it.

use super::file::{self, DIRECTORY, Link};
use super::{CheckpointedStateStore, Sweep};
use bytes::Bytes;
use pelton_core::{BatchId, Error, FileManager, Result};
use std::collections::BTreeSet;

/// Files up to so many bytes together are kept between the two ways; the others are read twice.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// A file of the chain, checked.
struct Checked {
    link: Link,
    content: Option<Bytes>,
}

/// Fills an empty store with the state that ends with the file `last`.
pub(super) async fn restore(store: &mut CheckpointedStateStore, last: Link) -> Result<()> {
    let chain = check(store, last).await?;
    for checked in chain.into_iter().rev() {
        let content = match checked.content {
            Some(content) => content,
            None => read(&*store.files, last, checked.link).await?,
        };
        let damaged = |what: &str| damaged(&*store.files, last, checked.link, what);
        let file = file::read(&content, checked.link).map_err(|what| damaged(&what))?;
        file::replay(file.changes, &mut store.tables).ok_or_else(|| damaged("holds unreadable changes"))?;
        if let Some(sweep) = file.sweep {
            file::replay(sweep, &mut store.tables).ok_or_else(|| damaged("holds an unreadable sweep"))?;
        }
    }
    Ok(())
}

/// Finds the files to be replayed, the last first, and where the sweep goes on.
async fn check(store: &mut CheckpointedStateStore, last: Link) -> Result<Vec<Checked>> {
    let mut chain = Vec::new();
    let mut kept = 0;
    let mut base = None;
    let mut next = Some(last);
    let mut sweep_is_whole = true;
    while let Some(link) = next {
        let content = read(&*store.files, last, link).await?;
        let file = file::read(&content, link).map_err(|what| damaged(&*store.files, last, link, &what))?;
        let header = &file.header;
        if link == last {
            store.sweep = Sweep::after(header);
            base = header.base();
        }
        if file.sweep.is_none() {
            let (url, path) = (store.files.url(), link.path());
            tracing::warn!("{url}/{path} is damaged; trying older files of state instead of it");
            base = base.min(header.sweep_before);
            sweep_is_whole = false;
        }
        store.bases.insert(link.batch, header.base());
        let complete = base.is_some_and(|base| link.batch <= base);
        next = header.previous.filter(|_| !complete);
        if next.is_some_and(|next| next.batch >= link.batch)
            || (next.is_none() && base.is_some() && !complete)
        {
            return Err(damaged(&*store.files, last, link, "names another file before it than there can be"));
        }
        kept += content.len();
        chain.push(Checked { link, content: (kept <= KEPT_BYTES_MAX).then_some(content) });
    }
    if !sweep_is_whole {
        store.sweep = Sweep { began: None, before: base, at: None };
        store.bases.insert(last.batch, base);
    }
    Ok(chain)
}

async fn read(files: &dyn FileManager, last: Link, link: Link) -> Result<Bytes> {
    files.read(&link.path()).await?.ok_or_else(|| damaged(files, last, link, "is missing"))
}

/// The numbers of the files that are there.
pub(super) async fn stored(files: &dyn FileManager) -> Result<BTreeSet<BatchId>> {
    let files = files.list(DIRECTORY).await?;
    let number = |path: &str| path.strip_prefix(DIRECTORY)?.strip_prefix('/')?.parse().ok().map(BatchId);
    Ok(files.iter().filter_map(|info| number(&info.path)).collect())
}

fn damaged(files: &dyn FileManager, last: Link, link: Link, what: &str) -> Error {
    Error::data(format!(
        "the state after micro-batch {} cannot be restored: {}/{} {what}",
        last.batch,
        files.url(),
        link.path()
    ))
    .hint("put the file back from a copy of the checkpoint, or start with a new checkpoint")
}
