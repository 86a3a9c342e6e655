//! A state store for stream tests: ordered maps, written whole to a file at every commit.
//!
//! It is durable, so a test can let the process die at any of its operations, and simple enough to be believed.

use async_trait::async_trait;
use bytes::Bytes;
use pelton_core::{
    BatchId, Error, FileManager, Result, SHARDS, StateCommit, StateOp, StateShard, StateStore,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

type Tables = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// One file a micro-batch, `N.json`, with the whole state in it. A [`StateCommit`] names it.
pub struct FileState {
    files: Arc<dyn FileManager>,
    shards: Vec<Shard>,
}

#[derive(Debug, Default)]
struct Shard(Tables);

/// JSON has no bytes as keys: each table as a list of pairs.
type Snapshot = Vec<BTreeMap<String, Vec<(Vec<u8>, Vec<u8>)>>>;

impl FileState {
    /// The state that a commit names; none is an empty one, whatever files are there.
    pub async fn open(files: Arc<dyn FileManager>, commit: Option<&StateCommit>) -> Result<Self> {
        let mut shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
        if let Some(commit) = commit {
            let name = commit.0["file"].as_str().unwrap_or_default();
            let content = files.read(name).await?;
            let content = content.ok_or_else(|| Error::data(format!("the state '{name}' is missing")))?;
            let snapshot: Snapshot =
                serde_json::from_slice(&content).map_err(|why| Error::data(why.to_string()))?;
            for (shard, tables) in shards.iter_mut().zip(snapshot) {
                shard.0 =
                    tables.into_iter().map(|(name, pairs)| (name, pairs.into_iter().collect())).collect();
            }
        }
        Ok(Self { files, shards })
    }
}

#[async_trait]
impl StateStore for FileState {
    fn shards(&mut self) -> Vec<&mut dyn StateShard> {
        self.shards.iter_mut().map(|shard| shard as &mut dyn StateShard).collect()
    }

    fn len(&self, table: &str) -> u64 {
        self.shards.iter().map(|shard| shard.len(table)).sum()
    }

    fn tables(&self) -> BTreeSet<String> {
        let tables = self.shards.iter().flat_map(|shard| &shard.0);
        tables.filter(|(_, entries)| !entries.is_empty()).map(|(name, _)| name.clone()).collect()
    }

    async fn commit(&mut self, batch_id: BatchId) -> Result<StateCommit> {
        let tables = self.shards.iter().map(|Shard(tables)| {
            let pairs = |entries: &BTreeMap<Vec<u8>, Vec<u8>>| entries.clone().into_iter().collect();
            tables.iter().map(|(name, entries)| (name.clone(), pairs(entries))).collect()
        });
        let snapshot: Snapshot = tables.collect();
        let content = serde_json::to_vec(&snapshot).map_err(|why| Error::internal(why.to_string()))?;
        let name = format!("{batch_id}.json");
        self.files.replace(&name, Bytes::from(content)).await?;
        Ok(StateCommit(json!({ "file": name })))
    }

    fn rollback(&mut self) -> Result<()> {
        Err(Error::internal("a query that has failed opens its state anew"))
    }

    async fn retain(&mut self, oldest: BatchId) -> Result<()> {
        match oldest.0.checked_sub(1) {
            Some(gone) => self.files.delete(&format!("{gone}.json")).await,
            None => Ok(()),
        }
    }
}

impl StateShard for Shard {
    fn get_many(&self, table: &str, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let entries = self.0.get(table);
        let get = |key: &&[u8]| entries.and_then(|entries| entries.get(*key)).cloned().map(Bytes::from);
        Ok(keys.iter().map(get).collect())
    }

    fn apply(&mut self, table: &str, changes: Vec<StateOp>) -> Result<()> {
        let entries = self.0.entry(table.to_owned()).or_default();
        for change in changes {
            match change {
                StateOp::Put(key, value) => entries.insert(key.to_vec(), value.to_vec()),
                StateOp::Remove(key) => entries.remove(key.as_ref()),
            };
        }
        Ok(())
    }

    fn scan(&self, table: &str, keys: Range<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let within = |key: &[u8]| keys.start <= key && key < keys.end;
        let entries = self.0.get(table).into_iter().flatten().filter(|(key, _)| within(key));
        let copied =
            |(key, value): (&Vec<u8>, &Vec<u8>)| (Bytes::from(key.clone()), Bytes::from(value.clone()));
        Ok(entries.take(limit).map(copied).collect())
    }

    fn len(&self, table: &str) -> u64 {
        self.0.get(table).map_or(0, |entries| entries.len() as u64)
    }
}
