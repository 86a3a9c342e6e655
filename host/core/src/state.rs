//! The port to the state of stateful operators. Spark's `StateStore`.
//!
//! A query has one store. It is divided in two ways that have nothing to do with each other: into named *tables* (an
//! operator has one or several) and into [`SHARDS`] *shards*, which can be worked on at the same time. Which shard a
//! key belongs to follows from its *key group*, a hash of the columns by which rows are brought together; so neither
//! the number of threads nor the machine has any influence on where a key is.

use crate::{BatchId, Result};
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// Keys are hashed into this many groups, for ever: state can be divided anew without being read.
pub const KEY_GROUPS: u8 = 128;

/// How many parts of the state can be worked on at a time.
pub const SHARDS: usize = 16;

/// The shard of a key group: consecutive groups stand together.
pub fn shard_of(key_group: u8) -> usize {
    usize::from(key_group % KEY_GROUPS) * SHARDS / usize::from(KEY_GROUPS)
}

/// The state of one query.
#[async_trait]
pub trait StateStore: Send {
    /// The [`SHARDS`] parts.
    fn shards(&mut self) -> Vec<&mut dyn StateShard>;
    /// Entries of a table over all shards.
    fn len(&self, table: &str) -> u64;
    /// The tables that have entries, by name.
    fn tables(&self) -> BTreeSet<String>;
    /// What the tables take whose names begin with this. A store that does not know says nothing.
    fn usage(&self, prefix: &str) -> StateUsage {
        let _ = prefix;
        StateUsage::default()
    }
    /// Makes the changes since the last commit durable. They count once the commit log holds what this returns. If the
    /// process dies before, the same micro-batch is committed again later, by a store that was opened at the one before:
    /// what the first attempt left must not be in the way.
    async fn commit(&mut self, batch_id: BatchId) -> Result<StateCommit>;
    /// Forgets the changes since the last commit.
    fn rollback(&mut self) -> Result<()>;
    /// Nobody will ask for the state of a micro-batch before `oldest` any more: what serves only them may go. A store
    /// need not do it at once.
    async fn retain(&mut self, oldest: BatchId) -> Result<()> {
        let _ = oldest;
        Ok(())
    }
}

/// The end (excluded) of a range of all keys of a table: they begin with a key group or a time, which is less.
pub const AFTER_ALL_KEYS: [u8; 9] = [u8::MAX; 9];

/// A part of the state. Keys are ordered by their bytes, so an operator that lays out its keys by time finds what
/// expires with [`StateShard::scan`]. A change is seen at once and becomes part of the query's state when the
/// micro-batch that made it is committed.
pub trait StateShard: Send {
    /// The values of many keys, in the order asked.
    fn get_many(&self, table: &str, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>>;
    /// Applies changes, in order.
    fn apply(&mut self, table: &str, changes: Vec<StateOp>) -> Result<()>;
    /// The entries of a key range in key order, at most `limit`.
    fn scan(&self, table: &str, keys: Range<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>>;
    /// Entries of a table.
    fn len(&self, table: &str) -> u64;
}

/// What entries take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateUsage {
    /// The bytes of all keys and values.
    pub bytes: u64,
    /// The bytes of memory that they take; those on local disk take none.
    pub memory_bytes: u64,
}

/// One change of state. The key group is that of the shard in which it is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateOp {
    /// Sets a key's value.
    Put(Bytes, Bytes),
    /// Removes a key; none is no error.
    Remove(Bytes),
}

/// What the commit log must hold for the state of a micro-batch to be found again. Only the store reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCommit(pub serde_json::Value);
