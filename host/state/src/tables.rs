//! The working copy of the state: ordered maps in memory, with the changes since the last commit.
//!
//! A change is applied at once and what it replaced is remembered until the commit, so a rollback costs what changed.
//! Keys and values are held as their own pieces of memory: the buffers of a micro-batch are free after its commit.
//! Called by the stores; never does I/O.

use crate::blob::Blob;
use bytes::Bytes;
use pelton_core::{Result, SHARDS, StateOp, StateShard};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};

/// All shards.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) shards: Vec<Shard>,
}

/// The part of all tables that belongs to a shard.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) tables: BTreeMap<String, Table>,
}

/// A table's part in a shard.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<Blob, Blob>,
    /// What the changes since the last commit replaced, oldest first.
    undo: Vec<(Bytes, Option<Blob>)>,
    /// Of all keys and values.
    bytes: u64,
}

/// The changes of a table since the last commit: each key once, with its value now, in the order of first change.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    pub(crate) records: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// All keys that were touched, and whether they are among the records.
    touched: HashMap<&'a [u8], bool>,
}

impl Default for Tables {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Tables {
    pub(crate) fn shards(&mut self) -> Vec<&mut dyn StateShard> {
        self.shards.iter_mut().map(|shard| shard as &mut dyn StateShard).collect()
    }
    /// Entries of a table.
    pub(crate) fn len(&self, table: &str) -> u64 {
        self.shards.iter().map(|shard| shard.len(table)).sum()
    }
    /// The bytes of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().flat_map(|shard| shard.tables.values()).map(|table| table.bytes).sum()
    }
    /// The changes stand.
    pub(crate) fn keep(&mut self) {
        self.all().for_each(|table| table.undo = Vec::new());
    }
    /// The changes never were.
    pub(crate) fn rollback(&mut self) {
        for table in self.all() {
            for (key, before) in std::mem::take(&mut table.undo).into_iter().rev() {
                table.set(&key, before);
            }
        }
    }
    fn all(&mut self) -> impl Iterator<Item = &mut Table> {
        self.shards.iter_mut().flat_map(|shard| shard.tables.values_mut())
    }
}

impl Shard {
    /// A table, made if there is none.
    pub(crate) fn table(&mut self, name: &str) -> &mut Table {
        self.tables.entry(name.to_owned()).or_default()
    }
}

impl Table {
    /// Sets or removes an entry, for good; gives what was there.
    pub(crate) fn set(&mut self, key: &[u8], value: Option<Blob>) -> Option<Blob> {
        let added = value.as_ref().map_or(0, |value| key.len() + value.as_slice().len());
        let before = match value {
            None if Blob::is_cheap(key) => self.entries.remove(&Blob::from(key)),
            None => self.entries.remove(key),
            Some(value) => self.entries.insert(key.into(), value),
        };
        let removed = before.as_ref().map_or(0, |before| key.len() + before.as_slice().len());
        self.bytes = (self.bytes + added as u64).saturating_sub(removed as u64);
        before
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let found = match Blob::is_cheap(key) {
            true => self.entries.get(&Blob::from(key)),
            false => self.entries.get(key),
        };
        found.map(Blob::as_slice)
    }

    /// The entries behind a key, in key order.
    pub(crate) fn after(&self, key: Option<&[u8]>) -> impl Iterator<Item = (&[u8], &[u8])> {
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.entries.range::<[u8], _>((start, Bound::Unbounded));
        found.map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    /// What changed. A key that has again the value that it had does not count.
    pub(crate) fn changes(&self) -> Changes<'_> {
        let mut changes = Changes::default();
        changes.touched.reserve(self.undo.len());
        for (key, before) in &self.undo {
            if let Entry::Vacant(first) = changes.touched.entry(key) {
                let now = self.get(key);
                first.insert(now != before.as_ref().map(Blob::as_slice));
                if now != before.as_ref().map(Blob::as_slice) {
                    changes.records.push((key, now));
                }
            }
        }
        changes
    }
}

impl Changes<'_> {
    /// Whether the records have this key.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.touched.get(key).is_some_and(|changed| *changed)
    }
}

impl StateShard for Shard {
    fn get_many(&self, table: &str, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let Some(table) = self.tables.get(table) else { return Ok(vec![None; keys.len()]) };
        let value_of = |key: &&[u8]| table.get(key).map(Bytes::copy_from_slice);
        Ok(keys.iter().map(value_of).collect())
    }

    fn apply(&mut self, table: &str, changes: Vec<StateOp>) -> Result<()> {
        let table = self.table(table);
        table.undo.reserve(changes.len());
        for change in changes {
            let (key, value) = match change {
                StateOp::Put(key, value) => (key, Some(Blob::from(&*value))),
                StateOp::Remove(key) => (key, None),
            };
            let before = table.set(&key, value);
            table.undo.push((key, before));
        }
        Ok(())
    }

    fn scan(&self, table: &str, keys: Range<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        if keys.start >= keys.end {
            return Ok(Vec::new());
        }
        let range = (Bound::Included(keys.start), Bound::Excluded(keys.end));
        let found =
            self.tables.get(table).into_iter().flat_map(|table| table.entries.range::<[u8], _>(range));
        let copy = |(key, value): (&Blob, &Blob)| {
            (Bytes::copy_from_slice(key.as_slice()), Bytes::copy_from_slice(value.as_slice()))
        };
        Ok(found.take(limit).map(copy).collect())
    }

    fn len(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(0, |table| table.entries.len() as u64)
    }
}
