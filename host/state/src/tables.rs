//! The working copy of the state: ordered maps in memory, with the changes since the last commit.
//!
//! A change is applied at once and what it replaced is remembered until the commit, so a rollback costs what changed.
//! Keys and values are held as their own pieces of memory: the buffers of a micro-batch are free after its commit.
//! Called by the stores; never does I/O.

use crate::blob::{Blob, Owned};
use crate::changes::{Changes, Entries, Undo};
use crate::threads::in_order;
use bytes::Bytes;
use pelton_core::{Result, SHARDS, StateOp, StateShard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

/// Fewer changes are not worth a thread.
pub(crate) const CHANGES_PER_THREAD_MIN: usize = 2048;

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
    entries: Entries<'static>,
    /// What the changes since the last commit replaced, oldest first.
    undo: Vec<Undo>,
    /// Of all keys and values.
    bytes: u64,
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
    /// The names of the tables that have entries.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let tables = self.shards.iter().flat_map(|shard| &shard.tables);
        tables.filter(|(_, table)| table.len() > 0).map(|(name, _)| name.clone()).collect()
    }
    /// The bytes of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().flat_map(|shard| shard.tables.values()).map(|table| table.bytes).sum()
    }
    /// How many changes there were since the last commit.
    pub(crate) fn touched(&self) -> usize {
        self.shards.iter().flat_map(|shard| shard.tables.values()).map(|table| table.undo.len()).sum()
    }
    /// The changes stand.
    pub(crate) fn keep(&mut self) {
        let threads = self.touched() / CHANGES_PER_THREAD_MIN;
        let undo = self.all().map(|table| std::mem::take(&mut table.undo)).collect();
        in_order(undo, threads, drop::<Vec<Undo>>);
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
    pub(crate) fn set(&mut self, key: &[u8], value: Option<Owned>) -> Option<Owned> {
        let added = value.as_ref().map_or(0, |value| key.len() + value.as_slice().len());
        let before = match value {
            None => self.entries.remove(&Blob::from(key)),
            Some(value) => self.entries.insert(key.into(), value),
        };
        let removed = before.as_ref().map_or(0, |before| key.len() + before.as_slice().len());
        self.bytes = (self.bytes + added as u64).saturating_sub(removed as u64);
        before
    }

    /// Removes the entries of a range of keys for good. The end is excluded; an empty one is the end of the table.
    pub(crate) fn clear(&mut self, from: &[u8], to: &[u8]) {
        let end = match to.is_empty() {
            true => Bound::Unbounded,
            false if from >= to => return,
            false => Bound::Excluded(Blob::borrowed(to)),
        };
        let range = (Bound::Included(Blob::borrowed(from)), end);
        let keys: Vec<Owned> = in_range(&self.entries, range).map(|(key, _)| key.as_slice().into()).collect();
        keys.iter().for_each(|key| drop(self.set(key.as_slice(), None)));
    }

    fn get<'a>(&'a self, key: &'a [u8]) -> Option<&'a [u8]> {
        let entries: &Entries<'a> = &self.entries;
        entries.get(&Blob::borrowed(key)).map(Blob::as_slice)
    }

    /// The entries behind a key, in key order.
    pub(crate) fn after<'a>(&'a self, key: Option<&'a [u8]>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let start = key.map_or(Bound::Unbounded, |key| Bound::Excluded(Blob::borrowed(key)));
        in_range(&self.entries, (start, Bound::Unbounded)).map(slices)
    }

    /// Of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What changed since the last commit.
    pub(crate) fn changes(&self) -> Changes<'_> {
        Changes::find(&self.entries, &self.undo)
    }
}

fn in_range<'a>(
    entries: &'a Entries<'a>,
    range: (Bound<Blob<'a>>, Bound<Blob<'a>>),
) -> impl Iterator<Item = (&'a Blob<'a>, &'a Owned)> {
    entries.range(range)
}

fn slices<'a>((key, value): (&'a Blob<'_>, &'a Owned)) -> (&'a [u8], &'a [u8]) {
    (key.as_slice(), value.as_slice())
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
        let Some(table) = self.tables.get(table) else { return Ok(vec![None; keys.len()]) };
        let found: Vec<Option<&[u8]>> = keys.iter().map(|key| table.get(key)).collect();
        let mut values = Copies::default();
        found.iter().flatten().for_each(|value| values.add(value));
        let mut values = values.finish();
        Ok(found.iter().map(|found| found.and_then(|_| values.next())).collect())
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
        let Some(table) = self.tables.get(table) else { return Ok(Vec::new()) };
        let [start, end] = [keys.start, keys.end].map(Blob::borrowed);
        let found = in_range(&table.entries, (Bound::Included(start), Bound::Excluded(end)));
        let mut copies = Copies::default();
        for (key, value) in found.take(limit).map(slices) {
            copies.add(key);
            copies.add(value);
        }
        let mut copies = copies.finish();
        Ok(std::iter::from_fn(|| Some((copies.next()?, copies.next()?))).collect())
    }

    fn len(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(0, |table| table.len() as u64)
    }
}
