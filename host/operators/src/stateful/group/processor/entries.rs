//! A table of entries that expire: those of values and of maps.
//!
//! `[key]` → an [`Entry`] with its expiry, and a [`LazyIndex`] of the expiries, if there is a time to live.

use super::{STATE_BYTES_MAX, Shard};
use crate::stateful::group::entry::{Entry, read_within};
use crate::stateful::group::index::{IndexChanges, LazyIndex};
use crate::stateful::layout::Arena;
use bytes::Bytes;
use pelton_core::{Result, StateOp, VariableTables};
use std::collections::BTreeMap;

/// See the module.
pub(super) struct Entries {
    pub(super) table: String,
    /// Of a list: its elements.
    pub(super) items: String,
    pub(super) index: LazyIndex,
    /// In microseconds.
    ttl: Option<i64>,
}

/// What becomes of keys: a value, or nothing.
pub(super) type Changes = BTreeMap<Bytes, Option<Bytes>>;

impl Entries {
    pub(super) fn new(operator: &str, variable: &str, ttl_ms: Option<i64>) -> Self {
        let tables = VariableTables::new(operator, variable);
        Self {
            table: tables.entries,
            items: tables.items,
            index: LazyIndex::new(tables.expiry),
            ttl: ttl_ms.map(|ttl_ms| ttl_ms.saturating_mul(1000)),
        }
    }

    /// When what is written now expires.
    pub(super) fn expiry(&self, now: i64) -> Option<i64> {
        self.ttl.map(|ttl| now.saturating_add(ttl))
    }

    /// What is stored under keys, of the first at least: see [`read_within`].
    pub(super) fn read(&self, shard: &Shard<'_, '_>, keys: &[Bytes], bytes_max: usize) -> Result<Vec<Entry>> {
        read_within(&*shard.state, &self.table, keys, bytes_max)
    }

    /// Where the index has keys.
    fn indexed(&self, shard: &Shard<'_, '_>, keys: &[Bytes]) -> Result<Vec<Option<i64>>> {
        let mut indexed = Vec::with_capacity(keys.len());
        while indexed.len() < keys.len() {
            let entries = self.read(shard, &keys[indexed.len()..], STATE_BYTES_MAX)?;
            indexed.extend(entries.into_iter().map(|entry| entry.indexed));
        }
        Ok(indexed)
    }

    /// Takes what has expired away.
    pub(super) fn expire(&self, shard: &mut Shard<'_, '_>) -> Result<()> {
        let mut from = Vec::new();
        loop {
            let found = self.index.due(shard.state, &mut from, shard.now)?;
            if found.is_empty() {
                return Ok(());
            }
            let mut found = &found[..];
            while !found.is_empty() {
                found = &found[self.expire_some(shard, found)?..];
            }
        }
    }

    /// Gives how many entries of the index were dealt with.
    fn expire_some(&self, shard: &mut Shard<'_, '_>, found: &[(i64, Bytes)]) -> Result<usize> {
        let keys: Vec<Bytes> = found.iter().map(|(_, key)| key.clone()).collect();
        let entries = self.read(shard, &keys, STATE_BYTES_MAX)?;
        let (mut ops, mut kept, mut index) = (Vec::new(), Vec::new(), IndexChanges::default());
        let mut values = Arena::default();
        let dealt_with = entries.len();
        for ((indexed, key), mut entry) in found.iter().zip(entries) {
            index.remove(*indexed, key);
            if entry.indexed != Some(*indexed) {
                continue;
            }
            if entry.time.is_some_and(|expiry| expiry <= shard.now) {
                ops.push(StateOp::Remove(key.clone()));
                continue;
            }
            entry.indexed = index.set(key, None, entry.time, false);
            entry.write(&mut values);
            kept.push(key.clone());
        }
        shard.calls.output.removed += ops.len() as u64;
        ops.extend(kept.into_iter().zip(values.finish()).map(|(key, entry)| StateOp::Put(key, entry)));
        self.index.apply(index, shard.state)?;
        shard.state.apply(&self.table, ops)?;
        Ok(dealt_with)
    }

    /// Sets and removes entries.
    pub(super) fn write(&self, shard: &mut Shard<'_, '_>, changes: Changes) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let expiry = self.expiry(shard.now);
        let keys: Vec<Bytes> = changes.keys().cloned().collect();
        // Without a time to live nothing need be known of what was there before.
        let old = match self.ttl {
            Some(_) => self.indexed(shard, &keys)?,
            None => vec![None; keys.len()],
        };
        let (mut put, mut ops, mut index) = (Vec::new(), Vec::new(), IndexChanges::default());
        let mut values = Arena::with_capacity(keys.len(), 24);
        for ((key, value), old_indexed) in changes.into_iter().zip(old) {
            match value {
                Some(value) => {
                    let indexed = index.set(&key, old_indexed, expiry, false);
                    Entry { is_stored: true, time: expiry, indexed, value: Some(value) }.write(&mut values);
                    put.push(key);
                }
                None => {
                    index.set(&key, old_indexed, None, true);
                    ops.push(StateOp::Remove(key));
                }
            }
        }
        shard.calls.output.updated += put.len() as u64;
        let before = shard.state.len(&self.table);
        shard.state.apply(&self.table, ops)?;
        shard.calls.output.removed += before.saturating_sub(shard.state.len(&self.table));
        let puts = put.into_iter().zip(values.finish()).map(|(key, value)| StateOp::Put(key, value));
        shard.state.apply(&self.table, puts.collect())?;
        self.index.apply(index, shard.state)
    }
}
