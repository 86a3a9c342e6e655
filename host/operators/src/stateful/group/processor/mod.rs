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

/// The bytes of state that a call is given, unless one group alone has more. (Less in tests, which then need less to have
/// more.)
const STATE_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 8 << 20 };

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
            let mut with_more: Vec<usize> = (0..keys.len()).collect();
            for round in 0.. {
                with_more.retain(|key| snapshots[*key].len() > round);
                if with_more.is_empty() {
                    break;
                }
                let (mut at, mut fired) = (Vec::new(), Vec::new());
                for key in &with_more {
                    let timer = &snapshots[*key][round];
                    if sets[*key].take(timer) {
                        at.push(*key);
                        fired.push(timer.clone());
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
    fn call(&self, shard: &mut Shard<'_, '_>, mut called: Called<'_>) -> Result<()> {
        let mut at_once = called.keys.len();
        while !called.keys.is_empty() {
            let groups = at_once.min(called.keys.len());
            let mut input = self.input(&called, groups)?;
            let (loaded, bytes) = self.load(shard, &called.keys[..groups], &mut input)?;
            if loaded < groups {
                at_once = loaded.max(1);
                continue;
            }
            let (own, rest) = called.split_at(groups);
            self.call_once(shard, own, input)?;
            called = rest;
            at_once = if bytes < STATE_BYTES_MAX / 2 { at_once.saturating_mul(2) } else { at_once };
        }
        Ok(())
    }

    /// What the first groups of a call are given, all but the state.
    fn input(&self, called: &Called<'_>, groups: usize) -> Result<GroupInput> {
        match &called.rows {
            Some((all, range)) => self.caller.data(all, &(range.start..range.start + groups)),
            None => self.caller.without_rows(called.reason, &called.keys[..groups]),
        }
    }

    /// Reads the state of groups, until it comes to more than a call is given. Gives of how many groups it is there (of
    /// one alone it always is), and how many bytes it has.
    fn load(
        &self,
        shard: &mut Shard<'_, '_>,
        keys: &[Bytes],
        input: &mut GroupInput,
    ) -> Result<(usize, usize)> {
        let mut bytes = 0;
        for variable in &self.variables {
            let left = match keys.len() {
                1 => usize::MAX,
                _ => STATE_BYTES_MAX.saturating_sub(bytes),
            };
            let (entries, more) = variable.load(shard, keys, input, left)?;
            let groups = entries.offsets.len() - 1;
            if groups < keys.len() {
                return Ok((groups, bytes + more));
            }
            bytes += more;
            input.state.push(entries);
        }
        Ok((keys.len(), bytes))
    }

    fn call_once(&self, shard: &mut Shard<'_, '_>, called: Called<'_>, mut input: GroupInput) -> Result<()> {
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
        for (group, changes) in timers::by_group(&output.timers) {
            called.sets[group].change(&changes);
        }
        Ok(())
    }

    /// That it sets no timeouts, and not too many timers.
    fn check_timers(&self, sets: &[TimerSet], output: &GroupOutput) -> Result<()> {
        if !output.timeouts.is_empty() {
            return Err(self.caller.wrong("set a timeout, but a processor has timers".to_owned()));
        }
        let changes = timers::by_group(&output.timers);
        match changes.iter().any(|(group, changes)| sets[*group].would_be_too_large(changes)) {
            true => {
                Err(self.caller.wrong(format!("sets more than {TIMERS_MAX} timers of one group at a time")))
            }
            false => Ok(()),
        }
    }
}

impl<'g> Called<'g> {
    /// The first groups, and the others.
    fn split_at(self, groups: usize) -> (Self, Self) {
        let (keys, other_keys) = self.keys.split_at(groups);
        let (sets, other_sets) = self.sets.split_at_mut(groups);
        let (fired, other_fired) = self.fired.split_at(groups.min(self.fired.len()));
        let (rows, other_rows) = match self.rows {
            Some((all, range)) => {
                let middle = range.start + groups;
                (Some((all, range.start..middle)), Some((all, middle..range.end)))
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
