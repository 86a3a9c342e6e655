//! Named timers, by key and by time.
//!
//! Tables: `timers` is `[key group][key]` → an [`Entry`] with the first timer's time, whose value is all timers of the
//! key: `[time: 8 bytes][length of the name: 4 bytes][name]` each, by time and name; `timers/due` is a [`LazyIndex`] of
//! the first ones. So the timers of many keys are read in one go, and what is due is a scan of what is due.

use super::Shard;
use crate::stateful::event_time::{utc_field, utc_times};
use crate::stateful::group::entry::{Entry, damaged};
use crate::stateful::group::index::{IndexChanges, LazyIndex};
use crate::stateful::group::show::GroupKeys;
use crate::stateful::layout::{Arena, entries_while};
use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use pelton_core::{GroupInput, Result, StateOp, StateShard, Timer, TimerChange};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The timers of a group at a time: each call of the group is given all of them.
pub(super) const TIMERS_MAX: usize = 4096;

/// See the module.
pub(super) struct Timers {
    table: String,
    index: LazyIndex,
}

/// The timers of a key.
#[derive(Clone, Default)]
pub(super) struct TimerSet {
    /// By time, then name.
    timers: Vec<(i64, String)>,
    indexed: Option<i64>,
    is_stored: bool,
    is_changed: bool,
}

/// What becomes of timers, by name: the time at which each is set; none: it is deleted.
pub(super) type Changes<'a> = BTreeMap<&'a str, Option<i64>>;

/// The changes of each group. Of several changes of a timer the last counts.
pub(super) fn by_group(changes: &[TimerChange]) -> BTreeMap<usize, Changes<'_>> {
    let mut by_group: BTreeMap<usize, Changes<'_>> = BTreeMap::new();
    for change in changes {
        by_group.entry(change.group as usize).or_default().insert(&change.name, change.at);
    }
    by_group
}

impl TimerSet {
    /// The index has it no more.
    pub(super) fn is_nowhere(&mut self) {
        self.indexed = None;
        self.is_changed = true;
    }

    /// Those at a time or before.
    pub(super) fn due(&self, time: i64) -> Vec<(i64, String)> {
        self.timers.iter().take_while(|(at, _)| *at <= time).cloned().collect()
    }

    /// Takes a timer out that fires; whether it was still there.
    pub(super) fn take(&mut self, timer: &(i64, String)) -> bool {
        let Ok(place) = self.timers.binary_search(timer) else { return false };
        self.timers.remove(place);
        self.is_changed = true;
        true
    }

    /// Whether there would be more than a group may have after changes.
    pub(super) fn would_be_too_large(&self, changes: &Changes<'_>) -> bool {
        if self.timers.len() + changes.len() <= TIMERS_MAX {
            return false;
        }
        let mut changed = self.clone();
        changed.change(changes);
        changed.timers.len() > TIMERS_MAX
    }

    pub(super) fn change(&mut self, changes: &Changes<'_>) {
        self.timers.retain(|(_, name)| !changes.contains_key(name.as_str()));
        let set = changes.iter().filter_map(|(name, at)| Some(((*at)?, (*name).to_owned())));
        self.timers.extend(set);
        self.timers.sort_unstable();
        self.is_changed = true;
    }

    fn write(&self, arena: &mut Arena) {
        let mut value = Vec::with_capacity(self.timers.iter().map(|(_, name)| 12 + name.len()).sum());
        for (at, name) in &self.timers {
            value.extend_from_slice(&at.to_be_bytes());
            value.extend_from_slice(&(name.len() as u32).to_be_bytes());
            value.extend_from_slice(name.as_bytes());
        }
        let time = self.timers.first().map(|(at, _)| *at);
        Entry { is_stored: true, time, indexed: self.indexed, value: Some(value.into()) }.write(arena);
    }

    fn read(stored: Option<&Bytes>, table: &str) -> Result<Self> {
        let entry = Entry::read(stored, table)?;
        let mut set = Self { indexed: entry.indexed, is_stored: entry.is_stored, ..Self::default() };
        let mut rest = entry.value.as_deref().unwrap_or_default();
        while !rest.is_empty() {
            let timer = (|| {
                let (at, after) = rest.split_first_chunk::<8>()?;
                let (length, after) = after.split_first_chunk::<4>()?;
                let (name, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
                rest = after;
                Some((i64::from_be_bytes(*at), String::from_utf8(name.to_vec()).ok()?))
            })();
            set.timers.push(timer.ok_or_else(|| damaged(table))?);
        }
        Ok(set)
    }
}

impl Timers {
    pub(super) fn new(operator: &str) -> Self {
        Self { table: format!("{operator}/timers"), index: LazyIndex::new(format!("{operator}/timers/due")) }
    }

    /// All timers with their keys.
    pub(super) fn show(
        &self,
        keys: &GroupKeys<'_>,
        state: &mut dyn StateShard,
        each: &mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        entries_while(state, &self.table, |_, entries| {
            let (mut of, mut names, mut times) = (Vec::new(), Vec::new(), Vec::new());
            for (key, stored) in &entries {
                for (at, name) in TimerSet::read(Some(stored), &self.table)?.timers {
                    of.push(key.as_ref());
                    names.push(name);
                    times.push(at);
                }
            }
            let mut fields = keys.fields.to_vec();
            fields.extend([Arc::new(Field::new("timer", DataType::Utf8, false)), Arc::new(utc_field("at"))]);
            let mut columns = keys.columns(&of)?;
            columns.push(Arc::new(StringArray::from(names)));
            columns.push(Arc::new(utc_times(times)));
            each(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
        })
    }

    /// The timers of keys.
    pub(super) fn read(&self, shard: &Shard<'_, '_>, keys: &[Bytes]) -> Result<Vec<TimerSet>> {
        if shard.state.len(&self.table) == 0 {
            return Ok(vec![TimerSet::default(); keys.len()]);
        }
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_ref()).collect();
        let found = shard.state.get_many(&self.table, &keys)?;
        found.iter().map(|found| TimerSet::read(found.as_ref(), &self.table)).collect()
    }

    /// Writes those down that have changed.
    pub(super) fn keep(&self, shard: &mut Shard<'_, '_>, keys: &[Bytes], sets: Vec<TimerSet>) -> Result<()> {
        let (mut ops, mut put, mut index) = (Vec::new(), Vec::new(), IndexChanges::default());
        let mut values = Arena::default();
        for (key, mut set) in keys.iter().zip(sets).filter(|(_, set)| set.is_changed) {
            let first = set.timers.first().map(|(at, _)| *at);
            set.indexed = index.set(key, set.indexed, first, first.is_none());
            if first.is_some() {
                set.write(&mut values);
                put.push(key.clone());
            } else if set.is_stored {
                ops.push(StateOp::Remove(key.clone()));
            }
        }
        ops.extend(put.into_iter().zip(values.finish()).map(|(key, value)| StateOp::Put(key, value)));
        if !ops.is_empty() {
            shard.state.apply(&self.table, ops)?;
        }
        self.index.apply(index, shard.state)
    }

    /// The keys with timers at a time or before, ascending. Their entries are taken out of the index.
    pub(super) fn due(&self, shard: &mut Shard<'_, '_>, time: i64) -> Result<Vec<Bytes>> {
        let (mut from, mut due) = (Vec::new(), Vec::new());
        loop {
            let found = self.index.due(shard.state, &mut from, time)?;
            if found.is_empty() {
                due.sort_unstable();
                return Ok(due);
            }
            let keys: Vec<Bytes> = found.iter().map(|(_, key)| key.clone()).collect();
            let sets = self.read(shard, &keys)?;
            let mut index = IndexChanges::default();
            let mut put_off = (Vec::new(), Vec::new());
            for ((indexed, key), mut set) in found.into_iter().zip(sets) {
                index.remove(indexed, &key);
                if set.indexed != Some(indexed) {
                    continue;
                }
                if set.timers.first().is_some_and(|(at, _)| *at <= time) {
                    due.push(key);
                } else {
                    set.is_nowhere();
                    put_off.0.push(key);
                    put_off.1.push(set);
                }
            }
            self.index.apply(index, shard.state)?;
            self.keep(shard, &put_off.0, put_off.1)?;
        }
    }

    /// The first millisecond at which a timer may be due.
    pub(super) fn next_due_ms(&self, state: &dyn StateShard) -> Result<Option<i64>> {
        Ok(self.index.first(state)?.map(|at| at.div_euclid(1000) + i64::from(at.rem_euclid(1000) > 0)))
    }
}

/// Tells a call which timers fire and which others wait.
pub(super) fn describe(input: &mut GroupInput, sets: &[TimerSet], fired: &[(i64, String)]) {
    let timer = |(group, (at, name)): (usize, &(i64, String))| Timer {
        group: group as u32,
        name: name.clone(),
        at: *at,
    };
    input.fired = fired.iter().enumerate().map(timer).collect();
    let pending = sets.iter().enumerate();
    let pending = pending.flat_map(|(group, set)| set.timers.iter().map(move |timer| (group, timer)));
    input.pending = pending.map(timer).collect();
}
