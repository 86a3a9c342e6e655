//! Lists in the store: entries under ascending positions, and for each key where its list begins and ends.
//!
//! A list grows at its end and expires at its beginning, so its first entry is the next to expire: that is in the index.

use super::Shard;
use super::entries::Entries;
use super::variable::Loaded;
use crate::stateful::group::entry::{Entry, damaged, read_within};
use crate::stateful::group::index::IndexChanges;
use crate::stateful::layout::Arena;
use bytes::Bytes;
use pelton_core::{Load, Result, StateAction, StateChanges, StateOp};
use std::ops::Range;

/// How many entries are looked at in one go.
const SCAN_ENTRIES: usize = 1024;

/// See the module.
pub(super) struct Lists {
    /// Where each list begins and ends.
    heads: Entries,
    items: String,
    /// How many of the last entries a call is given.
    last: u64,
}

/// A list.
#[derive(Clone)]
struct List {
    entry: Entry,
    positions: Range<u64>,
}

impl Lists {
    pub(super) fn new(heads: Entries, load: &Load) -> Self {
        let last = match load {
            Load::Nothing => 0,
            Load::Last(count) => u64::from(*count),
            Load::Everything | Load::KeyedBy(_) => u64::MAX,
        };
        Self { items: heads.items.clone(), heads, last }
    }

    /// The table of their elements.
    pub(super) fn items(&self) -> &str {
        &self.items
    }

    pub(super) fn table(&self) -> &str {
        &self.heads.table
    }

    fn read(&self, shard: &Shard<'_, '_>, keys: &[Bytes]) -> Result<Vec<List>> {
        let list = |entry: Entry| {
            let positions = match &entry.value {
                None => 0..0,
                Some(value) => {
                    let number = |at: usize| value.get(at..).and_then(|rest| rest.first_chunk::<8>());
                    let (Some(first), Some(next)) = (number(0), number(8)) else {
                        return Err(damaged(&self.heads.table));
                    };
                    u64::from_be_bytes(*first)..u64::from_be_bytes(*next)
                }
            };
            Ok(List { entry, positions })
        };
        self.heads.read(shard, keys, usize::MAX)?.into_iter().map(list).collect()
    }

    /// The entries of the first keys, as many as come to so many bytes.
    pub(super) fn load(&self, shard: &Shard<'_, '_>, keys: &[Bytes], bytes_max: usize) -> Result<Loaded> {
        if self.last == 0 || shard.state.len(&self.heads.table) == 0 {
            return Ok(Loaded { counts: vec![0; keys.len()], ..Loaded::default() });
        }
        let (mut counts, mut asked, mut bytes) = (Vec::with_capacity(keys.len()), Vec::new(), 0);
        for (key, list) in keys.iter().zip(self.read(shard, keys)?) {
            let Range { start, end } = list.positions;
            let start = start.max(end.saturating_sub(self.last));
            // Their keys alone are too much.
            bytes += (end - start) as usize * (key.len() + size_of::<u64>());
            if bytes > bytes_max && !counts.is_empty() {
                break;
            }
            asked.extend((start..end).map(|position| item(key, position)));
            counts.push((end - start) as u32);
        }
        let mut values = Vec::new();
        for entry in read_within(&*shard.state, &self.items, &asked, bytes_max)? {
            values.push(entry.value.ok_or_else(|| damaged(&self.items))?);
        }
        Ok(Loaded { keys: Vec::new(), values, counts }.whole_groups())
    }

    pub(super) fn change(
        &self,
        shard: &mut Shard<'_, '_>,
        keys: &[Bytes],
        changes: &StateChanges,
        values: &[Bytes],
    ) -> Result<()> {
        let mut groups = changes.groups.clone();
        groups.dedup();
        let own: Vec<Bytes> = groups.iter().map(|group| keys[*group as usize].clone()).collect();
        let old = self.read(shard, &own)?;
        let mut lists = old.clone();
        let expiry = self.heads.expiry(shard.now);
        let (mut ops, mut puts, mut at) = (Vec::new(), values.iter(), 0);
        for (group, action) in changes.groups.iter().zip(&changes.actions) {
            while groups[at] != *group {
                at += 1;
            }
            let (key, list) = (&own[at], &mut lists[at]);
            match action {
                StateAction::Put => {
                    if list.positions.is_empty() {
                        list.entry.time = expiry;
                    }
                    let mut arena = Arena::default();
                    let value = puts.next().cloned();
                    Entry { is_stored: true, time: expiry, indexed: expiry, value }.write(&mut arena);
                    let put = |value| StateOp::Put(item(key, list.positions.end), value);
                    ops.extend(arena.finish().into_iter().map(put));
                    list.positions.end += 1;
                }
                StateAction::Remove | StateAction::Clear => {
                    ops.extend(list.positions.clone().map(|position| StateOp::Remove(item(key, position))));
                    (list.positions, list.entry.time) = (0..0, None);
                }
            }
        }
        shard.state.apply(&self.items, ops)?;
        self.keep(shard, own, &old, lists)
    }

    /// Writes down where lists begin and end.
    fn keep(
        &self,
        shard: &mut Shard<'_, '_>,
        keys: Vec<Bytes>,
        old: &[List],
        lists: Vec<List>,
    ) -> Result<()> {
        let (mut ops, mut index) = (Vec::new(), IndexChanges::default());
        for ((key, old), mut list) in keys.into_iter().zip(old).zip(lists) {
            let is_gone = list.positions.is_empty();
            list.entry.indexed = index.set(&key, list.entry.indexed, list.entry.time, is_gone);
            if is_gone {
                shard.calls.output.removed += u64::from(old.entry.is_stored);
                ops.push(StateOp::Remove(key));
                continue;
            }
            let Range { start, end } = list.positions;
            list.entry.value = Some([start.to_be_bytes(), end.to_be_bytes()].concat().into());
            let mut arena = Arena::default();
            list.entry.write(&mut arena);
            shard.calls.output.updated += 1;
            ops.extend(arena.finish().into_iter().map(|entry| StateOp::Put(key.clone(), entry)));
        }
        shard.state.apply(&self.heads.table, ops)?;
        self.heads.index.apply(index, shard.state)
    }

    /// Takes expired entries off the beginnings of lists.
    pub(super) fn expire(&self, shard: &mut Shard<'_, '_>) -> Result<()> {
        let mut from = Vec::new();
        loop {
            let found = self.heads.index.due(shard.state, &mut from, shard.now)?;
            if found.is_empty() {
                return Ok(());
            }
            let keys: Vec<Bytes> = found.iter().map(|(_, key)| key.clone()).collect();
            let lists = self.read(shard, &keys)?;
            let mut index = IndexChanges::default();
            let (mut own, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
            for ((indexed, key), mut list) in found.into_iter().zip(lists) {
                index.remove(indexed, &key);
                if list.entry.indexed == Some(indexed) {
                    old.push(list.clone());
                    list.entry.indexed = None;
                    self.take_expired(shard, &key, &mut list)?;
                    new.push(list);
                    own.push(key);
                }
            }
            self.heads.index.apply(index, shard.state)?;
            self.keep(shard, own, &old, new)?;
        }
    }

    fn take_expired(&self, shard: &mut Shard<'_, '_>, key: &Bytes, list: &mut List) -> Result<()> {
        list.entry.time = None;
        while !list.positions.is_empty() {
            let (from, to) = (item(key, list.positions.start), item(key, list.positions.end));
            let found = shard.state.scan(&self.items, &from[..]..&to[..], SCAN_ENTRIES)?;
            let mut expired = Vec::new();
            for (item, stored) in &found {
                let expiry = Entry::read(Some(stored), &self.items)?.time;
                if expiry.is_none_or(|expiry| expiry > shard.now) {
                    list.entry.time = expiry;
                    break;
                }
                expired.push(StateOp::Remove(item.clone()));
            }
            let is_done = expired.len() < found.len() || found.is_empty();
            list.positions.start += expired.len() as u64;
            shard.state.apply(&self.items, expired)?;
            if is_done {
                break;
            }
        }
        Ok(())
    }
}

fn item(key: &[u8], position: u64) -> Bytes {
    [key, &position.to_be_bytes()].concat().into()
}
