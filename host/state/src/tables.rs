//! The working copy of the state: ordered entries in memory, with the changes since the last commit, over those on
//! disk for which there was no room.
//!
//! A change is applied at once and what it replaced is remembered until the commit, so a rollback costs what changed.
//! Keys and values are copied: the buffers of a micro-batch are free after its commit. How many entries there are is
//! known without looking, because what a change replaced is known.
//! Called by the stores; never touches the checkpoint.

mod evict;
mod table;

use crate::StateOptions;
use crate::changes::Undo;
use crate::spill::Spill;
use crate::threads::in_order;
use bytes::Bytes;
use pelton_core::{Result, SHARDS, StateOp, StateShard, StateUsage};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;
pub(crate) use table::Table;

/// Fewer changes are not worth a thread.
pub(crate) const CHANGES_PER_THREAD_MIN: usize = 2048;

/// All shards.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) shards: Vec<Shard>,
    limit: Option<Limit>,
    /// What the entries took when room was last made.
    settled: u64,
}

/// How much memory there is.
#[derive(Debug)]
struct Limit {
    options: StateOptions,
    /// Tells queries apart.
    query: String,
    /// Made when it is needed.
    spill: Option<Arc<Spill>>,
    /// The shard that is looked at next if there is too little.
    next: usize,
    /// How tables are called on disk.
    numbers: evict::Numbers,
}

/// The part of all tables that belongs to a shard.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) tables: BTreeMap<String, Table>,
}

impl Default for Tables {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect(), limit: None, settled: 0 }
    }
}

impl Tables {
    /// Tables that take no more memory than is allowed. `query` tells queries apart on the local disk.
    pub(crate) fn within(options: StateOptions, query: String) -> Self {
        Self {
            limit: Some(Limit { options, query, spill: None, next: 0, numbers: BTreeMap::new() }),
            ..Self::default()
        }
    }

    pub(crate) fn shards(&mut self) -> Vec<&mut dyn StateShard> {
        self.shards.iter_mut().map(|shard| shard as &mut dyn StateShard).collect()
    }
    /// Entries of a table.
    pub(crate) fn len(&self, table: &str) -> u64 {
        self.shards.iter().map(|shard| shard.len(table)).sum()
    }
    /// The names of the tables that have entries.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let tables = self.shards.iter().flat_map(|shard| &shard.tables);
        tables.filter(|(_, table)| table.len() > 0).map(|(name, _)| name.clone()).collect()
    }
    /// The bytes of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables().map(Table::bytes).sum()
    }
    /// The bytes of memory that the entries in memory take.
    pub(crate) fn memory(&self) -> u64 {
        self.tables().map(Table::memory).sum()
    }
    /// What the tables take whose names begin with this.
    pub(crate) fn usage(&self, prefix: &str) -> StateUsage {
        let tables = self.shards.iter().flat_map(|shard| &shard.tables);
        let named = tables.filter(|(name, _)| name.starts_with(prefix)).map(|(_, table)| table);
        named.fold(StateUsage::default(), |all, table| StateUsage {
            bytes: all.bytes + table.bytes(),
            memory_bytes: all.memory_bytes + table.memory(),
        })
    }
    /// How many they may take.
    pub(crate) fn memory_max(&self) -> u64 {
        self.limit.as_ref().map_or(u64::MAX, |limit| limit.options.memory_bytes_max)
    }
    /// How many changes there were since the last commit.
    pub(crate) fn touched(&self) -> usize {
        self.tables().map(Table::touched).sum()
    }
    /// The changes stand.
    pub(crate) fn keep(&mut self) {
        let threads = self.touched() / CHANGES_PER_THREAD_MIN;
        let undo = self.tables_mut().map(Table::keep).collect();
        in_order(undo, threads, drop::<Vec<Undo>>);
    }
    /// Counts the entries that were loaded.
    pub(crate) fn count(&mut self) -> Result<()> {
        let counted = in_order(self.tables_mut().collect(), SHARDS, Table::count);
        counted.into_iter().collect()
    }
    /// The changes never were.
    pub(crate) fn rollback(&mut self) {
        self.tables_mut().for_each(Table::rollback);
    }
    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.shards.iter().flat_map(|shard| shard.tables.values())
    }
    fn tables_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.shards.iter_mut().flat_map(|shard| shard.tables.values_mut())
    }
}

impl Shard {
    /// A table, made if there is none.
    pub(crate) fn table(&mut self, name: &str) -> &mut Table {
        self.tables.entry(name.to_owned()).or_default()
    }
}

/// Bytes that become pieces of one buffer.
#[derive(Default)]
struct Copies {
    buffer: Vec<u8>,
    ends: Vec<usize>,
}

impl Copies {
    fn add(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.ends.push(self.buffer.len());
    }

    fn finish(self) -> impl Iterator<Item = Bytes> {
        let buffer = Bytes::from(self.buffer);
        let mut start = 0;
        self.ends.into_iter().map(move |end| buffer.slice(std::mem::replace(&mut start, end)..end))
    }
}

impl StateShard for Shard {
    fn get_many(&self, table: &str, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        self.tables.get(table).map_or_else(|| Ok(vec![None; keys.len()]), |table| table.get_many(keys))
    }

    fn apply(&mut self, table: &str, changes: Vec<StateOp>) -> Result<()> {
        self.table(table).apply(changes)
    }

    fn scan(&self, table: &str, keys: Range<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let Some(table) = self.tables.get(table).filter(|_| keys.start < keys.end && limit > 0) else {
            return Ok(Vec::new());
        };
        let mut copies = Copies::default();
        table.walk(Bound::Included(keys.start), Some(keys.end), |key, value| {
            copies.add(key);
            copies.add(value);
            copies.ends.len() < limit.saturating_mul(2)
        })?;
        let mut copies = copies.finish();
        Ok(std::iter::from_fn(|| Some((copies.next()?, copies.next()?))).collect())
    }

    fn len(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(0, Table::len)
    }
}
