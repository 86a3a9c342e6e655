//! Calls of a stateful function that fail, cut by groups.
//!
//! A part of a call is a call: the groups of a range with their rows, state and timers. What the parts give is put together
//! as if it had come from the whole. A guilty group changes nothing: its state stays as it was before the call, its rows go
//! to the dead letters. One that was called without rows is told by a letter with its key.

use super::chunks::Grouped;
use crate::poison::{Blame, poisoned};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use pelton_core::{
    DeadLetter, GroupInput, GroupOutput, GroupReason, Result, StateChanges, StateEntries, StateVariable,
    Timer,
};
use std::ops::Range;

/// The call of some of a call's groups.
pub(super) fn part_of(input: &GroupInput, groups: &Range<usize>) -> GroupInput {
    let (offsets, rows) = part_of_offsets(&input.offsets, groups);
    let state = input.state.iter().map(|entries| {
        let (offsets, of_groups) = part_of_offsets(&entries.offsets, groups);
        StateEntries { rows: entries.rows.slice(of_groups.start, of_groups.len()), offsets }
    });
    GroupInput {
        reason: input.reason,
        keys: input.keys.slice(groups.start, groups.len()),
        rows: input.rows.slice(rows.start, rows.len()),
        offsets,
        state: state.collect(),
        fired: part_of_timers(&input.fired, groups),
        pending: part_of_timers(&input.pending, groups),
    }
}

/// The offsets of some groups, and what they own.
fn part_of_offsets(offsets: &[u32], groups: &Range<usize>) -> (Vec<u32>, Range<usize>) {
    let of_groups = &offsets[groups.start..=groups.end];
    let (start, end) = (offsets[groups.start], offsets[groups.end]);
    (of_groups.iter().map(|at| at - start).collect(), start as usize..end as usize)
}

fn part_of_timers(timers: &[Timer], groups: &Range<usize>) -> Vec<Timer> {
    let of_groups = timers.iter().filter(|timer| groups.contains(&(timer.group as usize)));
    of_groups.map(|timer| Timer { group: timer.group - groups.start as u32, ..timer.clone() }).collect()
}

/// What the parts of a call have given; rows and refused rows are taken from it already.
pub(super) struct Together {
    output: GroupOutput,
    /// By variable.
    put: Vec<Vec<RecordBatch>>,
    remove: Vec<Vec<RecordBatch>>,
}

impl Together {
    pub(super) fn new(variables: &[StateVariable], no_rows: RecordBatch) -> Self {
        let unchanged = |variable: &StateVariable| StateChanges {
            groups: Vec::new(),
            actions: Vec::new(),
            put: RecordBatch::new_empty(variable.entries.clone()),
            remove: RecordBatch::new_empty(variable.key.clone()),
        };
        let output = GroupOutput {
            rows: no_rows,
            rejected: Vec::new(),
            changes: variables.iter().map(unchanged).collect(),
            timeouts: Vec::new(),
            timers: Vec::new(),
        };
        let batches = || variables.iter().map(|_| Vec::new()).collect();
        Self { output, put: batches(), remove: batches() }
    }

    /// Adds what came of the groups from `first` on.
    pub(super) fn add(&mut self, first: usize, part: GroupOutput) {
        let first = first as u32;
        for (variable, changes) in part.changes.into_iter().enumerate() {
            let Some(all) = self.output.changes.get_mut(variable) else { continue };
            all.groups.extend(changes.groups.iter().map(|group| group + first));
            all.actions.extend(changes.actions);
            self.put[variable].extend((changes.put.num_rows() > 0).then_some(changes.put));
            self.remove[variable].extend((changes.remove.num_rows() > 0).then_some(changes.remove));
        }
        self.output.timeouts.extend(part.timeouts.into_iter().map(|(group, at)| (group + first, at)));
        let timers = part.timers.into_iter();
        self.output.timers.extend(timers.map(|mut timer| {
            timer.group += first;
            timer
        }));
    }

    pub(super) fn finish(mut self) -> Result<GroupOutput> {
        for ((changes, put), remove) in self.output.changes.iter_mut().zip(self.put).zip(self.remove) {
            for (all, batches) in [(&mut changes.put, put), (&mut changes.remove, remove)] {
                if let Some(first) = batches.first() {
                    *all = concat_batches(&first.schema(), &batches)?;
                }
            }
        }
        Ok(self.output)
    }
}

/// The dead letters of a guilty group. `groups` says where its rows are: the groups, and the first row of the call.
pub(super) fn letters_of(
    operator: &str,
    blame: &Blame,
    input: &GroupInput,
    group: usize,
    groups: Option<(&Grouped<'_>, usize)>,
) -> Result<Vec<DeadLetter>> {
    let rows = input.offsets[group] as usize..input.offsets[group + 1] as usize;
    match groups.filter(|_| !rows.is_empty()) {
        Some((groups, first)) => {
            let places = &groups.at[first + rows.start..first + rows.end];
            places
                .iter()
                .map(|(source, row)| poisoned(operator, blame, groups.sources[*source], *row))
                .collect()
        }
        None => {
            let reason = match input.reason {
                GroupReason::Data => blame.reason.clone(),
                GroupReason::Timeout => format!("called for its timeout, which is cleared: {}", blame.reason),
                GroupReason::Timer => {
                    let timer = input.fired.iter().find(|timer| timer.group as usize == group);
                    let name = timer.map_or("", |timer| timer.name.as_str());
                    format!("called for its timer '{name}', which is gone: {}", blame.reason)
                }
            };
            let blame = Blame { function: blame.function.clone(), reason };
            Ok(vec![poisoned(operator, &blame, &input.keys, group)?])
        }
    }
}
