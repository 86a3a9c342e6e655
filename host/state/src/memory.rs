//! State in memory, with the meaning of commit and rollback that every store has.
//!
//! A change is applied at once and what it replaced is remembered until the commit, so a rollback costs what
//! changed and a commit almost nothing. Called by the engine's operators through the port.

use async_trait::async_trait;
use bytes::Bytes;
use pelton_core::{BatchId, Error, Result, SHARDS, StateCommit, StateOp, StateShard, StateStore};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

type Table = BTreeMap<Bytes, Bytes>;

/// A [`StateStore`] over ordered maps. Nothing of it outlives the process.
#[derive(Debug)]
pub struct MemoryStateStore {
    shards: Vec<MemoryShard>,
    committed: Option<BatchId>,
}

/// A part of it.
#[derive(Debug, Default)]
struct MemoryShard {
    tables: BTreeMap<String, Table>,
    /// What the changes since the last commit replaced, oldest first.
    undo: Vec<(String, Bytes, Option<Bytes>)>,
}

impl Default for MemoryStateStore {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| MemoryShard::default()).collect(), committed: None }
    }
}

impl MemoryStateStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The last micro-batch whose changes count.
    pub fn committed(&self) -> Option<BatchId> {
        self.committed
    }
}

impl MemoryShard {
    fn set(&mut self, table: &str, key: Bytes, value: Option<Bytes>) -> Option<Bytes> {
        if !self.tables.contains_key(table) {
            self.tables.insert(table.to_owned(), Table::new());
        }
        let entries = self.tables.get_mut(table)?;
        match value {
            Some(value) => entries.insert(key, value),
            None => entries.remove(&key),
        }
    }
}

impl StateShard for MemoryShard {
    fn get_many(&self, table: &str, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let table = self.tables.get(table);
        Ok(keys.iter().map(|key| table.and_then(|entries| entries.get(*key).cloned())).collect())
    }

    fn apply(&mut self, table: &str, changes: Vec<StateOp>) -> Result<()> {
        for change in changes {
            let (key, value) = match change {
                StateOp::Put(key, value) => (key, Some(value)),
                StateOp::Remove(key) => (key, None),
            };
            let before = self.set(table, key.clone(), value);
            self.undo.push((table.to_owned(), key, before));
        }
        Ok(())
    }

    fn scan(&self, table: &str, keys: Range<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        if keys.start >= keys.end {
            return Ok(Vec::new());
        }
        let range = (Bound::Included(keys.start), Bound::Excluded(keys.end));
        let found = self.tables.get(table).into_iter().flat_map(|entries| entries.range::<[u8], _>(range));
        Ok(found.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn len(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(0, |entries| entries.len() as u64)
    }
}

#[async_trait]
impl StateStore for MemoryStateStore {
    fn shards(&mut self) -> Vec<&mut dyn StateShard> {
        self.shards.iter_mut().map(|shard| shard as &mut dyn StateShard).collect()
    }

    fn len(&self, table: &str) -> u64 {
        self.shards.iter().map(|shard| shard.len(table)).sum()
    }

    async fn commit(&mut self, batch_id: BatchId) -> Result<StateCommit> {
        if self.committed.is_some_and(|last| last >= batch_id) {
            return Err(Error::internal(format!("the state of micro-batch {batch_id} is committed already")));
        }
        self.shards.iter_mut().for_each(|shard| shard.undo.clear());
        self.committed = Some(batch_id);
        Ok(StateCommit::default())
    }

    fn rollback(&mut self) -> Result<()> {
        for shard in &mut self.shards {
            while let Some((table, key, before)) = shard.undo.pop() {
                shard.set(&table, key, before);
            }
        }
        Ok(())
    }
}
