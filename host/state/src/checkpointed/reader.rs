//! State to look at: that of any micro-batch whose files are still there, without the right to change it. Called by
//! whoever shows state to people; writes nothing to the checkpoint, and may be used while the query runs.

use super::{CheckpointedStateStore, last_file};
use crate::StateOptions;
use bytes::Bytes;
use pelton_core::{BatchId, FileManager, Result, StateCommit, StateShard, shard_of};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// The state as of a commit.
#[derive(Debug)]
pub struct StateReader {
    store: CheckpointedStateStore,
    batch: Option<BatchId>,
}

impl StateReader {
    /// Opens the state of a commit, which the commit log has. `files` is the directory that the store was given. A
    /// micro-batch that is not retained any more is an error of kind `Data`: one of its files is missing.
    pub async fn open(
        files: Arc<dyn FileManager>,
        commit: &StateCommit,
        options: StateOptions,
    ) -> Result<Self> {
        let batch = if commit.0.is_null() { None } else { last_file(commit)?.map(|link| link.batch) };
        let store = CheckpointedStateStore::open_with(files, Some(commit), options).await?;
        Ok(Self { store, batch })
    }

    /// The last micro-batch up to the commit that changed any state; none if the state was always empty.
    pub fn changed_last(&self) -> Option<BatchId> {
        self.batch
    }

    /// The tables and how many entries each has. What is in them say the layouts, which the checkpoint keeps elsewhere.
    pub fn tables(&self) -> BTreeMap<String, u64> {
        let mut tables = BTreeMap::new();
        for (name, table) in self.store.tables.shards.iter().flat_map(|shard| &shard.tables) {
            *tables.entry(name.clone()).or_default() += table.len();
        }
        tables
    }

    /// The values of keys of a key group, in the order asked.
    pub fn get_many(&self, table: &str, key_group: u8, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let shard = self.store.tables.shards.get(shard_of(key_group));
        shard.map_or_else(|| Ok(vec![None; keys.len()]), |shard| shard.get_many(table, keys))
    }

    /// The entries of a key range in key order over all shards, at most `limit`.
    pub fn scan(&self, table: &str, keys: Range<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let mut all = Vec::new();
        for shard in &self.store.tables.shards {
            all.extend(shard.scan(table, keys.clone(), limit)?);
            all.sort_unstable();
            all.truncate(limit);
        }
        Ok(all)
    }

    /// Shows all entries of a table, shard by shard, each in key order, until `each` has seen enough.
    pub fn for_each(&self, table: &str, mut each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut go_on = true;
        for table in self.store.tables.shards.iter().filter_map(|shard| shard.tables.get(table)) {
            table.walk(Bound::Unbounded, None, |key, value| {
                go_on = each(key, value);
                go_on
            })?;
            if !go_on {
                break;
            }
        }
        Ok(())
    }
}
