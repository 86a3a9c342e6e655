//! The forms with one value and one timeout a group: Spark's `mapGroupsWithState` and `flatMapGroupsWithState`.
//!
//! Groups with rows are called first, then those whose timeout has passed: `timeout < watermark`, or `timeout < now` in
//! processing time. A call clears its group's timeout; one that is set cannot be in the past, so no group is called
//! twice in a micro-batch. A group with neither value nor timeout is forgotten.
//!
//! Tables:
//! * `groups`: `[key group][key]` → an [`Entry`] with the timeout and the value: `[schema number: 2 bytes][row]`;
//! * `timeouts`: a [`LazyIndex`] of the groups.

use super::Moment;
use super::call::{self, Caller, Calls, GROUPS_MAX, millis};
use super::chunks::Grouped;
use super::entry::{Entry, read_within};
use super::index::{IndexChanges, LazyIndex};
use super::initial::OfShard;
use super::schemas::{Known, Variable};
use super::show::{Entries, GroupKeys, show};
use crate::stateful::layout::Arena;
use crate::stateful::{ShardOutput, Shown};
use bytes::Bytes;
use pelton_core::{
    GroupInput, GroupOutput, GroupReason, Result, StateAction, StateChanges, StateEntries, StateOp,
    StateShard, TimeMode,
};

/// The bytes of state that are read before groups are called, unless one group alone has more.
const STATE_BYTES_MAX: usize = 8 << 20;

/// See the module.
pub(super) struct Timeouts {
    caller: Caller,
    variable: Option<Variable>,
    table: String,
    index: LazyIndex,
}

/// The shard that is worked on.
struct Shard<'a, 's> {
    calls: Calls<'a>,
    state: &'s mut dyn StateShard,
    known: Option<Known>,
    at: &'a Moment<'a>,
}

impl Timeouts {
    pub(super) fn new(caller: Caller, operator: &str) -> Result<Self> {
        let declared = caller.signature().variables.first();
        Ok(Self {
            variable: declared.map(|declared| Variable::new(0, declared, operator)).transpose()?,
            caller,
            table: format!("{operator}/groups"),
            index: LazyIndex::new(format!("{operator}/timeouts")),
        })
    }

    pub(super) fn counted_tables(&self) -> Vec<String> {
        vec![self.table.clone()]
    }

    /// The groups with their values and timeouts.
    pub(super) fn show(
        &self,
        keys: &GroupKeys<'_>,
        state: &mut dyn StateShard,
        each: &mut Shown<'_>,
    ) -> Result<()> {
        let has_timeouts = self.caller.signature().time_mode != TimeMode::None;
        let of = Entries {
            table: &self.table,
            variable: self.variable.as_ref(),
            function: self.caller.stateful().as_ref(),
            time: has_timeouts.then_some("timeout"),
        };
        show(keys, &of, state, &mut |rows| each("", rows))
    }

    pub(super) fn run(
        &self,
        at: &Moment<'_>,
        groups: &Grouped<'_>,
        begins_with: &OfShard,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let known = self.variable.as_ref().map(|variable| variable.known(state)).transpose()?;
        let mut shard = Shard { calls: Calls::new(&self.caller, at), state, known, at };
        let mut initial = self.initial(&mut shard, begins_with)?;
        let row_bytes = call::row_bytes(groups);
        let mut start = 0;
        while start < groups.len() {
            let end = groups.len().min(start + GROUPS_MAX);
            let mut entries = self.read(&mut shard, &groups.keys[start..end])?;
            let window = start..start + entries.len();
            for (key, entry) in groups.keys[window.clone()].iter().zip(&mut entries) {
                if let Some((_, value)) = initial.next_if(|(initial, _)| initial == key) {
                    entry.value = Some(value);
                }
            }
            let size = |group: usize| {
                let rows = groups.rows_before(group + 1) - groups.rows_before(group);
                let value = entries[group - window.start].value.as_ref().map_or(0, Bytes::len);
                (rows, rows * row_bytes + value + groups.keys[group].len())
            };
            let cuts = call::cut(window.clone(), size);
            start = window.end;
            let mut left = entries.into_iter();
            for range in cuts {
                let input = self.caller.data(groups, &range)?;
                let entries = left.by_ref().take(range.len()).collect();
                let place = Some((groups, groups.rows_before(range.start)));
                self.call(&mut shard, input, &groups.keys[range.clone()], entries, place)?;
            }
        }
        if let Some(time) = at.time {
            self.time_out(&mut shard, time)?;
        }
        let mut output = shard.calls.output;
        if self.caller.signature().time_mode == TimeMode::ProcessingTime {
            let first = self.index.first(shard.state)?;
            output.next_due_ms = first.map(|timeout| millis(timeout).saturating_add(1));
        }
        Ok(output)
    }

    /// The groups that begin with a value, in the order of their keys.
    fn initial(
        &self,
        shard: &mut Shard<'_, '_>,
        begins_with: &OfShard,
    ) -> Result<std::iter::Peekable<std::vec::IntoIter<(Bytes, Bytes)>>> {
        let (Some(variable), Some(known)) = (&self.variable, &mut shard.known) else {
            return Ok(Vec::new().into_iter().peekable());
        };
        if begins_with.keys.is_empty() {
            return Ok(Vec::new().into_iter().peekable());
        }
        let number = variable.number(known, shard.state)?;
        let rows = variable.encode(&begins_with.values)?;
        let values = rows.iter().map(|row| [&number[..], row].concat().into());
        Ok(begins_with.keys.iter().cloned().zip(values).collect::<Vec<_>>().into_iter().peekable())
    }

    /// What is kept of groups, whose keys ascend: of the first, as many as have room. Values of older schemas are made
    /// to fit.
    fn read(&self, shard: &mut Shard<'_, '_>, keys: &[Bytes]) -> Result<Vec<Entry>> {
        let mut entries = read_within(&*shard.state, &self.table, keys, STATE_BYTES_MAX)?;
        if let (Some(variable), Some(known)) = (&self.variable, &mut shard.known)
            && !Variable::are_current(known, entries.iter().filter_map(|entry| entry.value.as_ref()))
        {
            let mut values: Vec<Bytes> = entries.iter().filter_map(|entry| entry.value.clone()).collect();
            let function = self.caller.stateful().as_ref();
            variable.upgrade(known, function, &[], &mut values, shard.state)?;
            let mut values = values.into_iter();
            entries.iter_mut().filter(|e| e.value.is_some()).for_each(|entry| entry.value = values.next());
        }
        Ok(entries)
    }

    /// Calls groups with what is kept of them, and keeps what comes back.
    fn call(
        &self,
        shard: &mut Shard<'_, '_>,
        mut input: GroupInput,
        keys: &[Bytes],
        mut entries: Vec<Entry>,
        place: Option<(&Grouped<'_>, usize)>,
    ) -> Result<()> {
        if let Some(variable) = &self.variable {
            input.state = vec![state_of(variable, &entries)?];
        }
        let output = shard.calls.make(&input, place)?;
        self.check_timeouts(shard, &input, &output)?;
        let changed = self.changed_values(shard, &output, &mut entries)?;
        let mut timeouts = vec![None; entries.len()];
        output.timeouts.iter().for_each(|(group, at)| timeouts[*group as usize] = Some(*at));
        self.keep(shard, keys, entries, &timeouts, &changed)
    }

    fn check_timeouts(&self, shard: &Shard<'_, '_>, input: &GroupInput, output: &GroupOutput) -> Result<()> {
        let past = match self.caller.signature().time_mode {
            TimeMode::EventTime if input.reason == GroupReason::Data && shard.at.scope.batch.is_final() => {
                None
            }
            TimeMode::EventTime => shard.at.time.map(|time| (time, "watermark")),
            _ => Some((shard.at.now, "processing time")),
        };
        let Some((time, name)) = past else { return Ok(()) };
        let Some((_, early)) = output.timeouts.iter().find(|(_, at)| *at < time) else { return Ok(()) };
        let (early, time) = (millis(*early), millis(time));
        Err(shard
            .calls
            .wrong(format!("set a timeout at {early} ms, which is before the current {name} ({time} ms)"))
            .hint("set timeouts that are not in the past: compare with the current watermark or processing time"))
    }

    /// Sets the values that groups have from now on. Gives which of them have another one.
    fn changed_values(
        &self,
        shard: &mut Shard<'_, '_>,
        output: &GroupOutput,
        entries: &mut [Entry],
    ) -> Result<Vec<bool>> {
        let mut changed = vec![false; entries.len()];
        let (Some(variable), [changes]) = (&self.variable, output.changes.as_slice()) else {
            return Ok(changed);
        };
        let Some(known) = &mut shard.known else { return Ok(changed) };
        let values = last_values(changes, entries.len());
        let mut puts = Vec::new();
        if changes.put.num_rows() > 0 {
            let number = variable.number(known, shard.state)?;
            let rows = variable.encode(changes.put.columns())?;
            let mut arena = Arena::with_capacity(rows.len(), 18);
            rows.iter().for_each(|row| arena.push(&[&number, row]));
            puts = arena.finish();
        }
        for (group, value) in values.into_iter().enumerate() {
            let Some(value) = value else { continue };
            changed[group] = true;
            entries[group].value = match value {
                None => None,
                Some(put) => Some(puts.get(put).cloned().ok_or_else(|| {
                    shard.calls.wrong(format!("put {} values, but gave {} rows", put + 1, puts.len()))
                })?),
            };
        }
        Ok(changed)
    }

    /// Writes down what groups have now: the values of the entries, and these timeouts.
    fn keep(
        &self,
        shard: &mut Shard<'_, '_>,
        keys: &[Bytes],
        entries: Vec<Entry>,
        timeouts: &[Option<i64>],
        changed: &[bool],
    ) -> Result<()> {
        let (mut put, mut removed) = (Vec::with_capacity(keys.len()), Vec::new());
        let mut index = IndexChanges::default();
        let mut values = Arena::with_capacity(entries.len(), 40);
        for (group, mut entry) in entries.into_iter().enumerate() {
            let (key, timeout) = (&keys[group], timeouts[group]);
            let is_gone = entry.value.is_none() && timeout.is_none();
            let indexed = index.set(key, entry.indexed, timeout, is_gone);
            if is_gone {
                if entry.is_stored {
                    removed.push(StateOp::Remove(key.clone()));
                }
                continue;
            }
            let is_same = entry.is_stored && entry.time == timeout && entry.indexed == indexed;
            if !is_same || changed[group] {
                (entry.time, entry.indexed) = (timeout, indexed);
                entry.write(&mut values);
                put.push(key.clone());
            }
        }
        shard.calls.output.updated += put.len() as u64;
        shard.calls.output.removed += removed.len() as u64;
        removed.extend(put.into_iter().zip(values.finish()).map(|(key, value)| StateOp::Put(key, value)));
        if !removed.is_empty() {
            shard.state.apply(&self.table, removed)?;
        }
        self.index.apply(index, shard.state)
    }

    /// Calls the groups whose timeout is before a time, and moves entries of the index that were put off.
    fn time_out(&self, shard: &mut Shard<'_, '_>, time: i64) -> Result<()> {
        let mut from = Vec::new();
        loop {
            let found = self.index.due(shard.state, &mut from, time.saturating_sub(1))?;
            if found.is_empty() {
                return Ok(());
            }
            self.time_out_some(shard, found, time)?;
        }
    }

    fn time_out_some(
        &self,
        shard: &mut Shard<'_, '_>,
        mut found: Vec<(i64, Bytes)>,
        time: i64,
    ) -> Result<()> {
        found.sort_unstable_by(|(_, a), (_, b)| a.cmp(b));
        let keys: Vec<Bytes> = found.iter().map(|(_, key)| key.clone()).collect();
        let mut start = 0;
        while start < keys.len() {
            let entries = self.read(shard, &keys[start..])?;
            let end = start + entries.len();
            self.time_out_read(shard, &found[start..end], entries, time)?;
            start = end;
        }
        Ok(())
    }

    fn time_out_read(
        &self,
        shard: &mut Shard<'_, '_>,
        found: &[(i64, Bytes)],
        entries: Vec<Entry>,
        time: i64,
    ) -> Result<()> {
        let (mut due, mut index) = ((Vec::new(), Vec::new()), IndexChanges::default());
        let mut moved = (Vec::new(), Arena::default());
        for ((indexed, key), mut entry) in found.iter().zip(entries) {
            index.remove(*indexed, key);
            if entry.indexed != Some(*indexed) {
                continue;
            }
            entry.indexed = None;
            match entry.time {
                Some(timeout) if timeout < time => {
                    due.0.push(key.clone());
                    due.1.push(entry);
                }
                put_off => {
                    entry.indexed = index.set(key, None, put_off, false);
                    entry.write(&mut moved.1);
                    moved.0.push(key.clone());
                }
            }
        }
        self.index.apply(index, shard.state)?;
        let moved = moved.0.into_iter().zip(moved.1.finish()).map(|(key, entry)| StateOp::Put(key, entry));
        let moved: Vec<StateOp> = moved.collect();
        if !moved.is_empty() {
            shard.state.apply(&self.table, moved)?;
        }
        let (keys, entries) = due;
        let size =
            |group: usize| (0, keys[group].len() + entries[group].value.as_ref().map_or(0, Bytes::len));
        let cuts = call::cut(0..keys.len(), size);
        let mut left = entries.into_iter();
        for range in cuts {
            let input = self.caller.without_rows(GroupReason::Timeout, &keys[range.clone()])?;
            let entries = left.by_ref().take(range.len()).collect();
            self.call(shard, input, &keys[range], entries, None)?;
        }
        Ok(())
    }
}

/// The values of groups, those that have one.
fn state_of(variable: &Variable, entries: &[Entry]) -> Result<StateEntries> {
    let mut offsets = Vec::with_capacity(entries.len() + 1);
    let mut count = 0u32;
    offsets.push(count);
    for entry in entries {
        count += u32::from(entry.value.is_some());
        offsets.push(count);
    }
    let columns = variable.decode(entries.iter().filter_map(|entry| entry.value.as_deref()))?;
    Ok(StateEntries { rows: call::batch(&variable.declared.entries, columns, count as usize)?, offsets })
}

/// What groups have after changes of a value: for each that was changed nothing, or the row of `put` that was put last.
fn last_values(changes: &StateChanges, groups: usize) -> Vec<Option<Option<usize>>> {
    let mut values = vec![None; groups];
    let mut puts = 0;
    for (group, action) in changes.groups.iter().zip(&changes.actions) {
        values[*group as usize] = Some(match action {
            StateAction::Put => {
                puts += 1;
                Some(puts - 1)
            }
            StateAction::Remove | StateAction::Clear => None,
        });
    }
    values
}
