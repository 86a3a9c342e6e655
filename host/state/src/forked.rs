//! State that leaves its checkpoint: opened at a commit, it goes its own way and is gone with its process. For whoever runs
//! micro-batches beside a query: a version of a plugin that is tried.
//!
//! Reads the checkpoint when it is opened, and never again; writes nothing there, ever.

use crate::{CheckpointedStateStore, StateOptions};
use async_trait::async_trait;
use bytes::Bytes;
use pelton_core::{BatchId, FileManager, Result, SHARDS, StateCommit, StateShard, StateStore, StateUsage};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Entries that are compared at a time.
const ENTRIES_AT_ONCE: usize = 1024;
/// Behind all keys: none begins so.
const AFTER_ALL: [u8; 64] = [u8::MAX; 64];

/// A [`StateStore`] that begins where a commit stands.
#[derive(Debug)]
pub struct ForkedStateStore(CheckpointedStateStore);

impl ForkedStateStore {
    /// Opens the state of a commit as [`CheckpointedStateStore::open_with`] does.
    pub async fn open(
        files: Arc<dyn FileManager>,
        commit: Option<&StateCommit>,
        options: StateOptions,
    ) -> Result<Self> {
        CheckpointedStateStore::open_with(files, commit, options).await.map(Self)
    }
}

#[async_trait]
impl StateStore for ForkedStateStore {
    fn shards(&mut self) -> Vec<&mut dyn StateShard> {
        self.0.shards()
    }

    fn len(&self, table: &str) -> u64 {
        self.0.len(table)
    }

    fn tables(&self) -> BTreeSet<String> {
        self.0.tables()
    }

    fn usage(&self, prefix: &str) -> StateUsage {
        self.0.usage(prefix)
    }

    /// The changes stand, here alone: nobody finds them again by what this returns.
    async fn commit(&mut self, _: BatchId) -> Result<StateCommit> {
        self.0.keep()?;
        Ok(StateCommit::default())
    }

    fn rollback(&mut self) -> Result<()> {
        self.0.rollback()
    }
}

/// How many entries two states do not have in common: keys that only one has, and keys with another value.
pub fn differing_entries(one: &mut dyn StateStore, other: &mut dyn StateStore) -> Result<u64> {
    let mut differing = 0;
    let tables: BTreeSet<String> = one.tables().union(&other.tables()).cloned().collect();
    for table in &tables {
        for shard in 0..SHARDS {
            let (mut ones, mut others) = (one.shards(), other.shards());
            let one = Entries::of(ones.swap_remove(shard), table);
            let other = Entries::of(others.swap_remove(shard), table);
            differing += differing_in(one, other)?;
        }
    }
    Ok(differing)
}

fn differing_in(mut one: Entries<'_>, mut other: Entries<'_>) -> Result<u64> {
    let mut differing = 0;
    loop {
        let order = match (one.first()?, other.first()?) {
            (None, None) => return Ok(differing),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((key, _)), Some((other_key, _))) => key.cmp(other_key),
        };
        let is_equal = order == Ordering::Equal && one.first()? == other.first()?;
        differing += u64::from(!is_equal);
        one.taken += usize::from(order.is_le());
        other.taken += usize::from(order.is_ge());
    }
}

/// The entries of a table of a shard, in the order of their keys.
struct Entries<'a> {
    shard: &'a dyn StateShard,
    table: &'a str,
    read: Vec<(Bytes, Bytes)>,
    taken: usize,
    is_at_end: bool,
}

impl<'a> Entries<'a> {
    fn of(shard: &'a mut dyn StateShard, table: &'a str) -> Self {
        Self { shard, table, read: Vec::new(), taken: 0, is_at_end: false }
    }

    /// The first that is not taken.
    fn first(&mut self) -> Result<Option<&(Bytes, Bytes)>> {
        if self.taken == self.read.len() && !self.is_at_end {
            let after = self.read.last().map_or_else(Vec::new, |(key, _)| [key.as_ref(), &[0]].concat());
            self.read = self.shard.scan(self.table, &after[..]..&AFTER_ALL[..], ENTRIES_AT_ONCE)?;
            self.is_at_end = self.read.len() < ENTRIES_AT_ONCE;
            self.taken = 0;
        }
        Ok(self.read.get(self.taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use pelton_core::{MemoryFiles, StateOp};

    fn put(store: &mut dyn StateStore, table: &str, entries: impl IntoIterator<Item = (u32, u32)>) {
        let bytes = |n: u32| Bytes::copy_from_slice(&n.to_be_bytes());
        let puts = entries.into_iter().map(|(key, value)| StateOp::Put(bytes(key), bytes(value)));
        store.shards()[3].apply(table, puts.collect()).unwrap();
    }

    #[test]
    fn a_fork_goes_its_own_way_and_leaves_the_checkpoint_alone() {
        block_on(async {
            let files: Arc<dyn FileManager> = Arc::new(MemoryFiles::new());
            let mut store = CheckpointedStateStore::open(Arc::clone(&files), None).await.unwrap();
            put(&mut store, "t", (0..3000).map(|n| (n, n)));
            let commit = store.commit(BatchId(0)).await.unwrap();
            let before = files.list("").await.unwrap();
            let fork = || ForkedStateStore::open(Arc::clone(&files), Some(&commit), StateOptions::default());
            let (mut one, mut other) = (fork().await.unwrap(), fork().await.unwrap());
            for batch in 1..=3 {
                for fork in [&mut one, &mut other] {
                    put(fork, "t", [(2999, batch)]);
                    fork.commit(BatchId(u64::from(batch))).await.unwrap();
                }
            }
            assert_eq!(differing_entries(&mut one, &mut other).unwrap(), 0);
            // Of 3003 entries: two with other values, one that is missing, two and one of another table that are new.
            put(&mut other, "t", [(0, 7), (1024, 7), (5000, 1), (5001, 1)]);
            other.shards()[3].apply("t", vec![StateOp::Remove(Bytes::from_static(&[0, 0, 0, 9]))]).unwrap();
            put(&mut other, "u", [(1, 1)]);
            assert_eq!(differing_entries(&mut one, &mut other).unwrap(), 6);
            assert_eq!(differing_entries(&mut other, &mut one).unwrap(), 6);
            other.rollback().unwrap();
            assert_eq!(differing_entries(&mut one, &mut other).unwrap(), 0, "as after the last commit");
            assert_eq!(files.list("").await.unwrap(), before, "a fork writes nothing");
        });
    }
}
