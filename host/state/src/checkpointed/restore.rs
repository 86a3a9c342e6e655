//! The state of a commit, from the files of the checkpoint. Called once, on opening; writes nothing.
//!
//! Back along the chain from the file that the commit names to where a replay begins, checking everything; then
//! forth again, applying it: some files at a time, all shards side by side. Files are read ahead in both directions.

use super::file::{self, Damage, Link};
use super::prefetch::Prefetch;
use super::retain::{StoredFiles, stored};
use super::section::{ReadGroup, groups};
use super::{CheckpointedStateStore, Sweep};
use crate::tables::Shard;
use crate::threads::in_order;
use bytes::Bytes;
use pelton_core::{BatchId, Error, FileManager, Result};

/// Files up to so many bytes together are kept between the two ways; the others are read twice.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Files of about so many bytes are applied at a time.
const APPLIED_BYTES: usize = 32 << 20;

/// Files of so many bytes are read ahead.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// A file of the chain, checked.
struct Checked {
    link: Link,
    content: Option<Bytes>,
}

/// Fills an empty store with the state that ends with the file `last`.
pub(super) async fn restore(store: &mut CheckpointedStateStore, last: Link) -> Result<()> {
    let sizes = stored(&*store.files).await?;
    let mut chain = check(store, last, &sizes).await?;
    chain.reverse();
    let again = chain.iter().filter(|checked| checked.content.is_none()).map(|checked| checked.link);
    let again = again.map(|link| (link.batch, link.path())).collect();
    let mut prefetch = Prefetch::new(&store.files, again, &sizes, ahead_max(store));
    let links: Vec<Link> = chain.iter().map(|checked| checked.link).collect();
    store.needs.stored(sizes, &links);
    let at_once = APPLIED_BYTES.min(store.tables.memory_max() as usize / 8);
    let mut files = Vec::new();
    let mut bytes = 0;
    for Checked { link, content } in chain {
        let content = match content {
            Some(content) => content,
            None => found(&*store.files, last, link, prefetch.read(link).await?)?,
        };
        bytes += content.len();
        files.push((link, content));
        if bytes >= at_once {
            apply(store, last, &std::mem::take(&mut files))?;
            bytes = 0;
        }
    }
    apply(store, last, &files)?;
    store.tables.count()
}

/// How many bytes of files are read ahead: a part of the memory, as all that a start takes beside the entries.
fn ahead_max(store: &CheckpointedStateStore) -> u64 {
    AHEAD_BYTES_MAX.min(store.tables.memory_max() / 8)
}

/// Finds the files to be replayed, the last first, and where the sweep goes on.
async fn check(store: &mut CheckpointedStateStore, last: Link, sizes: &StoredFiles) -> Result<Vec<Checked>> {
    let order = sizes.keys().rev().skip_while(|(batch, _)| *batch > last.batch).cloned().collect();
    let mut prefetch = Prefetch::new(&store.files, order, sizes, ahead_max(store));
    let kept_max = KEPT_BYTES_MAX.min(store.tables.memory_max() / 4);
    let mut chain = Vec::new();
    let mut kept = 0;
    let mut base = None;
    let mut next = Some(last);
    let mut sweep_is_whole = true;
    while let Some(link) = next {
        let content = found(&*store.files, last, link, prefetch.read(link).await?)?;
        let file =
            file::read(&content, link).map_err(|damage| damaged(&*store.files, last, link, &damage))?;
        let header = &file.header;
        if link == last {
            store.sweep = Sweep::after(header);
            base = header.base();
        }
        if file.sweep.is_none() {
            let (url, path) = (store.files.url(), link.path());
            tracing::warn!(
                "{url}/{path} is damaged, but not where the changes of micro-batch {} are: nothing is lost, older files \
                 of state take the place of the rest",
                link.batch
            );
            base = base.min(header.sweep_before);
            sweep_is_whole = false;
        }
        store.needs.found(header);
        let complete = base.is_some_and(|base| link.batch <= base);
        next = header.previous.filter(|_| !complete);
        check_order(store, last, link, next, base)?;
        kept += content.len() as u64;
        chain.push(Checked { link, content: (kept <= kept_max).then_some(content) });
    }
    if !sweep_is_whole {
        store.sweep = Sweep { began: None, before: base, spare: None, at: None };
        store.needs.keep_all(last.batch);
    }
    Ok(chain)
}

/// A chain goes back, and as far as it must.
fn check_order(
    store: &CheckpointedStateStore,
    last: Link,
    link: Link,
    next: Option<Link>,
    base: Option<BatchId>,
) -> Result<()> {
    let complete = base.is_none_or(|base| link.batch <= base);
    if next.is_some_and(|next| next.batch >= link.batch) || (next.is_none() && !complete) {
        let damage = "names another file before it than there can be".into();
        return Err(damaged(&*store.files, last, link, &damage));
    }
    Ok(())
}

/// Applies files in their order, shards side by side, and makes room.
fn apply(store: &mut CheckpointedStateStore, last: Link, files: &[(Link, Bytes)]) -> Result<()> {
    let mut by_shard: Vec<(&mut Shard, Vec<(Link, ReadGroup<'_>)>)> =
        store.tables.shards.iter_mut().map(|shard| (shard, Vec::new())).collect();
    let unreadable = |link, what: &str| damaged(&*store.files, last, link, &what.into());
    let mut bytes = 0;
    for (link, content) in files {
        let file =
            file::read(content, *link).map_err(|damage| damaged(&*store.files, last, *link, &damage))?;
        for section in [Some(file.changes), file.sweep].into_iter().flatten() {
            let groups = groups(section, file.version).ok_or_else(|| unreadable(*link, UNREADABLE))?;
            for ((_, all), groups) in by_shard.iter_mut().zip(groups) {
                all.extend(groups.into_iter().map(|group| (*link, group)));
            }
        }
        bytes += content.len();
    }
    let threads = bytes / BYTES_PER_THREAD_MIN;
    let replayed = in_order(by_shard, threads, |(shard, groups)| {
        groups.into_iter().try_for_each(|(link, group)| match group.replay(shard.table(group.table))? {
            true => Ok(()),
            false => Err(unreadable(link, UNREADABLE)),
        })
    });
    replayed.into_iter().collect::<Result<()>>()?;
    store.tables.make_room(0)
}

/// Less is not worth a thread.
const BYTES_PER_THREAD_MIN: usize = 64 << 10;
const UNREADABLE: &str = "holds entries that cannot be read";

fn found(files: &dyn FileManager, last: Link, link: Link, content: Option<Bytes>) -> Result<Bytes> {
    content.ok_or_else(|| damaged(files, last, link, &"is missing".into()))
}

/// Says what is lost with a file, and what one can do.
fn damaged(files: &dyn FileManager, last: Link, link: Link, damage: &Damage) -> Error {
    let Damage { what, tables } = damage;
    let (url, path, batch) = (files.url(), link.path(), link.batch);
    let of_tables = match tables.as_slice() {
        [] => "in tables that it does not tell any more".to_owned(),
        names => format!("in {}", names.join(", ")),
    };
    let affected = match last.batch == batch {
        true => format!("the state after micro-batch {batch} is"),
        false => format!("the states after the micro-batches {batch} to {} are", last.batch),
    };
    let earlier = match batch.0.checked_sub(1) {
        Some(before) => format!(
            "; or go back to the state after micro-batch {before}, for which {path} is not needed: take the entries \
             from {batch} on out of `offsets` and `commits`, and from the sink what they wrote"
        ),
        None => String::new(),
    };
    Error::data(format!(
        "the state after micro-batch {} cannot be restored: {url}/{path} {what}. It says what micro-batch {batch} \
         changed {of_tables}; {affected} lost without it",
        last.batch
    ))
    .hint(format!("put {path} back from a copy of the checkpoint{earlier}; or start with a new checkpoint"))
}
