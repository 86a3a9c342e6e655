//! The form with variables and named timers: Spark's `transformWithState`.
//!
//! What has outlived its time to live goes first, so that it is never seen. Then groups with rows are called, then the
//! due timers (`<= watermark`, or `<= now` in processing time), also those that the calls before have just set. Of
//! several due timers of a key each has a call of its own, by time and name, and sees the state that the one before
//! left; a timer that a timer's call sets waits for the next micro-batch, however early it is.
//!
//! Tables: those of the variables (see [`variable`]) and of the timers (see [`timers`]). Of a variable a call is given
//! the entries that the function has asked for, and no others are read.

mod entries;
mod lists;
mod maps;
mod timers;
mod variable;

use super::Moment;
use super::call::{self, Caller, Calls, GROUPS_MAX, Made};
use super::chunks::Grouped;
use super::initial::OfShard;
use super::schemas::Known;
use super::show::GroupKeys;
use crate::stateful::{ShardOutput, Shown};
use bytes::Bytes;
use pelton_core::{GroupInput, GroupOutput, GroupReason, Result, StateShard, TimeMode};
use std::ops::Range;
use timers::{TIMERS_MAX, TimerSet, Timers};
use variable::Stored;

/// The bytes of state that a call is given, unless one group alone has more.
const STATE_BYTES_MAX: usize = 8 << 20;

/// See the module.
pub(super) struct Processor {
    caller: Caller,
    variables: Vec<Stored>,
    timers: Timers,
}

/// The shard that is worked on.
pub(super) struct Shard<'a, 's> {
    calls: Calls<'a>,
    state: &'s mut dyn StateShard,
    /// By variable.
    known: Vec<Known>,
    now: i64,
}

/// The groups of a call.
struct Called<'g> {
    reason: GroupReason,
    keys: &'g [Bytes],
    /// The timers of each, without those that fire.
    sets: &'g mut [TimerSet],
    /// The timer that each is called for.
    fired: &'g [(i64, String)],
    /// Where the rows are: the groups, and which of them.
    rows: Option<(&'g Grouped<'g>, Range<usize>)>,
}

impl Processor {
    pub(super) fn new(caller: Caller, operator: &str) -> Result<Self> {
        let variables = caller.signature().variables.iter().enumerate();
        let variables =
            variables.map(|(position, declared)| Stored::new(position, declared, operator, &caller));
        Ok(Self { variables: variables.collect::<Result<_>>()?, timers: Timers::new(operator), caller })
    }

    pub(super) fn counted_tables(&self) -> Vec<String> {
        self.variables.iter().map(|variable| variable.counted_table().to_owned()).collect()
    }

    /// The entries of each variable, and the timers.
    pub(super) fn show(
        &self,
        keys: &GroupKeys<'_>,
        state: &mut dyn StateShard,
        each: &mut Shown<'_>,
    ) -> Result<()> {
        for variable in &self.variables {
            variable.show(keys, state, each)?;
        }
        self.timers.show(keys, state, &mut |rows| each("timers", rows))
    }

    pub(super) fn run(
        &self,
        at: &Moment<'_>,
        groups: &Grouped<'_>,
        begins_with: &OfShard,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let known = self.variables.iter().map(|variable| variable.known(state)).collect::<Result<_>>()?;
        let mut shard = Shard { calls: Calls::new(&self.caller, at), state, known, now: at.now };
        for variable in &self.variables {
            variable.expire(&mut shard)?;
        }
        self.begin(&mut shard, begins_with)?;
        let row_bytes = call::row_bytes(groups);
        let size = |group: usize| {
            let rows = groups.rows_before(group + 1) - groups.rows_before(group);
            (rows, rows * row_bytes + groups.keys[group].len())
        };
        for range in call::cut(0..groups.len(), size) {
            let keys = &groups.keys[range.clone()];
            let mut sets = self.timers.read(&shard, keys)?;
            let rows = Some((groups, range));
            self.call(
                &mut shard,
                Called { reason: GroupReason::Data, keys, sets: &mut sets, fired: &[], rows },
            )?;
            self.timers.keep(&mut shard, keys, sets)?;
        }
        if let Some(time) = at.time {
            self.fire(&mut shard, time)?;
        }
        let mut output = shard.calls.finish();
        if self.caller.signature().time_mode == TimeMode::ProcessingTime {
            output.next_due_ms = self.timers.next_due_ms(shard.state)?;
        }
        Ok(output)
    }

    /// Values that groups begin with.
    fn begin(&self, shard: &mut Shard<'_, '_>, begins_with: &OfShard) -> Result<()> {
        match self.variables.as_slice() {
            [variable] if !begins_with.keys.is_empty() => variable.begin(shard, begins_with),
            _ => Ok(()),
        }
    }

    /// Calls the keys whose timers are due, one timer of a key at a time.
    fn fire(&self, shard: &mut Shard<'_, '_>, time: i64) -> Result<()> {
        let due = self.timers.due(shard, time)?;
        for keys in due.chunks(GROUPS_MAX) {
            let mut sets = self.timers.read(shard, keys)?;
            // Where the index had them they are no more.
            sets.iter_mut().for_each(TimerSet::is_nowhere);
            let snapshots: Vec<Vec<(i64, String)>> = sets.iter().map(|set| set.due(time)).collect();
            let rounds = snapshots.iter().map(Vec::len).max().unwrap_or(0);
            for round in 0..rounds {
                let fires = |key: usize, sets: &[TimerSet]| {
                    let timer = snapshots[key].get(round)?;
                    sets[key].has(timer).then(|| timer.clone())
                };
                let (mut at, mut fired) = (Vec::new(), Vec::new());
                for key in 0..keys.len() {
                    if let Some(timer) = fires(key, &sets) {
                        sets[key].remove(&timer.1);
                        at.push(key);
                        fired.push(timer);
                    }
                }
                let called: Vec<Bytes> = at.iter().map(|key| keys[*key].clone()).collect();
                let mut own: Vec<TimerSet> = at.iter().map(|key| std::mem::take(&mut sets[*key])).collect();
                let reason = GroupReason::Timer;
                self.call(
                    shard,
                    Called { reason, keys: &called, sets: &mut own, fired: &fired, rows: None },
                )?;
                at.into_iter().zip(own).for_each(|(key, set)| sets[key] = set);
            }
            self.timers.keep(shard, keys, sets)?;
        }
        Ok(())
    }

    /// Makes a call, or, if its state is too large, several.
    fn call(&self, shard: &mut Shard<'_, '_>, called: Called<'_>) -> Result<()> {
        if called.keys.is_empty() {
            return Ok(());
        }
        let mut input = match &called.rows {
            Some((groups, range)) => self.caller.data(groups, range)?,
            None => self.caller.without_rows(called.reason, called.keys)?,
        };
        let mut bytes = 0;
        for variable in &self.variables {
            let entries = variable.load(shard, called.keys, &input)?;
            bytes += entries.rows.get_array_memory_size();
            input.state.push(entries);
        }
        if bytes > STATE_BYTES_MAX && called.keys.len() > 1 {
            let (first, second) = called.halves();
            self.call(shard, first)?;
            return self.call(shard, second);
        }
        timers::describe(&mut input, called.sets, called.fired);
        let place = called.rows.as_ref().map(|(groups, range)| (*groups, groups.rows_before(range.start)));
        let sets = &*called.sets;
        let check = |first: usize, input: &GroupInput, output: &GroupOutput| {
            self.check_timers(&sets[first..first + input.groups()], output)
        };
        let Made { output, .. } = shard.calls.make(&input, place, &check)?;
        for (variable, changes) in self.variables.iter().zip(&output.changes) {
            variable.change(shard, called.keys, changes)?;
        }
        output.timers.into_iter().for_each(|change| called.sets[change.group as usize].change(change));
        Ok(())
    }

    /// That it sets no timeouts, and not too many timers.
    fn check_timers(&self, sets: &[TimerSet], output: &GroupOutput) -> Result<()> {
        if !output.timeouts.is_empty() {
            return Err(self.caller.wrong("set a timeout, but a processor has timers".to_owned()));
        }
        let mut changes = vec![0; sets.len()];
        output.timers.iter().for_each(|timer| changes[timer.group as usize] += 1);
        if !sets.iter().zip(changes).any(|(set, changes)| set.would_be_too_large(changes)) {
            return Ok(());
        }
        let mut sets = sets.to_vec();
        for change in &output.timers {
            let set = &mut sets[change.group as usize];
            set.change(change.clone());
            if set.would_be_too_large(0) {
                let what = format!("sets more than {TIMERS_MAX} timers of one group at a time");
                return Err(self.caller.wrong(what));
            }
        }
        Ok(())
    }
}

impl<'g> Called<'g> {
    fn halves(self) -> (Self, Self) {
        let middle = self.keys.len() / 2;
        let (keys, other_keys) = self.keys.split_at(middle);
        let (sets, other_sets) = self.sets.split_at_mut(middle);
        let (fired, other_fired) = self.fired.split_at(middle.min(self.fired.len()));
        let (rows, other_rows) = match self.rows {
            Some((groups, range)) => {
                let middle = range.start + middle;
                (Some((groups, range.start..middle)), Some((groups, middle..range.end)))
            }
            None => (None, None),
        };
        let reason = self.reason;
        (
            Self { reason, keys, sets, fired, rows },
            Self { reason, keys: other_keys, sets: other_sets, fired: other_fired, rows: other_rows },
        )
    }
}
