//! What a stateful function answers to a call, checked: lengths, orders, indexes, counts and limits. `groups` uses it.
//! It calls no guest and believes nothing.

use super::rejected_rows;
use crate::codec::Decoder;
use crate::contract::stateful::{GroupAnswer, GuestChanges, GuestTimeout, GuestTimerChange};
use crate::limits::Limits;
use arrow::array::RecordBatch;
use pelton_core::{
    Encoding, GroupForm, GroupInput, GroupOutput, StateAction, StateChanges, StateVariable,
    StatefulSignature, TimeMode, TimerChange, VariableKind,
};

/// The longest name of a timer.
const TIMER_NAME_BYTES: usize = 256;

/// Reads answers of a function with one signature.
pub(super) struct Answers {
    rows: Decoder,
    variables: Vec<VariableAnswers>,
}

/// Reads changes of one variable.
struct VariableAnswers {
    put: Decoder,
    remove: Decoder,
}

impl Answers {
    pub(super) fn new(encoding: Encoding, signature: &StatefulSignature) -> Self {
        let of = |variable: &StateVariable| VariableAnswers {
            put: Decoder::of(encoding, variable.entries.clone()),
            remove: Decoder::of(encoding, variable.key.clone()),
        };
        Self {
            rows: Decoder::of(encoding, signature.output.clone()),
            variables: signature.variables.iter().map(of).collect(),
        }
    }

    /// What a call answered, if everything in it is right.
    pub(super) fn output(
        &self,
        signature: &StatefulSignature,
        input: &GroupInput,
        answer: GroupAnswer,
        limits: &Limits,
    ) -> Result<GroupOutput, String> {
        let groups = input.groups();
        let rows = self.rows.decode_any(answer.rows, limits)?;
        if signature.form == GroupForm::MapGroups && rows.num_rows() != groups {
            let rows = rows.num_rows();
            return Err(format!("{rows} rows for {groups} groups; a map-groups function gives one for each"));
        }
        let rejected = rejected_rows(answer.rejected, input.rows.num_rows(), limits.reason_bytes)?;
        let changes = self.changes(signature, answer.changes, groups, limits)?;
        let timeouts = timeouts(signature, answer.timeouts, groups)?;
        let timers = timers(signature, answer.timers, groups, limits)?;
        Ok(GroupOutput { rows, rejected, changes, timeouts, timers })
    }

    fn changes(
        &self,
        signature: &StatefulSignature,
        changes: Vec<GuestChanges>,
        groups: usize,
        limits: &Limits,
    ) -> Result<Vec<StateChanges>, String> {
        let variables = &signature.variables;
        if changes.is_empty() {
            return Ok(variables.iter().map(unchanged).collect());
        }
        if changes.len() != variables.len() {
            let (answered, wanted) = (changes.len(), variables.len());
            return Err(format!("changes of {answered} variables, it has {wanted}"));
        }
        let read = variables.iter().zip(&self.variables).zip(changes);
        read.map(|((variable, answers), changes)| {
            answers
                .changes(variable.kind, changes, groups, limits)
                .map_err(|lie| format!("changes of the variable '{}': {lie}", variable.name))
        })
        .collect()
    }

    /// Rewritten entries: as many as there were.
    pub(super) fn migrated(
        &self,
        variable: usize,
        message: Vec<u8>,
        entries: usize,
        limits: &Limits,
    ) -> Result<RecordBatch, String> {
        let rows = self.variables[variable].put.decode_any(message, limits)?;
        match rows.num_rows() == entries {
            true => Ok(rows),
            false => Err(format!("{} entries for {entries}", rows.num_rows())),
        }
    }
}

impl VariableAnswers {
    fn changes(
        &self,
        kind: VariableKind,
        changes: GuestChanges,
        groups: usize,
        limits: &Limits,
    ) -> Result<StateChanges, String> {
        let GuestChanges { groups: of, actions, put, remove } = changes;
        if of.len() != actions.len() {
            return Err(format!("{} groups for {} actions", of.len(), actions.len()));
        }
        if of.len() as u64 > limits.output_rows {
            let limit = limits.output_rows;
            return Err(format!("{} changes (limit output_rows: {limit})", of.len()));
        }
        if let Some(pair) = of.windows(2).find(|pair| pair[0] > pair[1]) {
            return Err(format!("groups must ascend, group {} comes after group {}", pair[1], pair[0]));
        }
        if let Some(last) = of.last().filter(|last| **last as usize >= groups) {
            return Err(format!("group {last}, there are {groups}"));
        }
        let actions: Vec<StateAction> = actions.into_iter().map(StateAction::from).collect();
        let count = |action| actions.iter().filter(|a| **a == action).count();
        let (puts, removes) = (count(StateAction::Put), count(StateAction::Remove));
        if removes > 0 && kind != VariableKind::Map {
            return Err("'remove' is for maps alone; 'clear' takes all entries away".to_owned());
        }
        let read = |decoder: &Decoder, message, actions: usize, what: &str| {
            let rows = decoder.decode_any(message, limits).map_err(|lie| format!("({what}) {lie}"))?;
            match rows.num_rows() == actions {
                true => Ok(rows),
                false => Err(format!("{} rows to {what} for {actions} actions", rows.num_rows())),
            }
        };
        let put = read(&self.put, put, puts, "put")?;
        let remove = read(&self.remove, remove, removes, "remove")?;
        Ok(StateChanges { groups: of, actions, put, remove })
    }
}

fn unchanged(variable: &StateVariable) -> StateChanges {
    StateChanges {
        groups: Vec::new(),
        actions: Vec::new(),
        put: RecordBatch::new_empty(variable.entries.clone()),
        remove: RecordBatch::new_empty(variable.key.clone()),
    }
}

fn timeouts(
    signature: &StatefulSignature,
    timeouts: Vec<GuestTimeout>,
    groups: usize,
) -> Result<Vec<(u32, i64)>, String> {
    if timeouts.is_empty() {
        return Ok(Vec::new());
    }
    if signature.form == GroupForm::Processor {
        return Err("timeouts; a processor has timers instead".to_owned());
    }
    if signature.time_mode == TimeMode::None {
        return Err("timeouts, but its time mode is 'none'".to_owned());
    }
    if let Some(pair) = timeouts.windows(2).find(|pair| pair[0].group >= pair[1].group) {
        let (first, second) = (pair[0].group, pair[1].group);
        return Err(format!("timeouts must ascend by group, group {second} comes after group {first}"));
    }
    if let Some(last) = timeouts.last().filter(|last| last.group as usize >= groups) {
        return Err(format!("a timeout for group {}, there are {groups}", last.group));
    }
    Ok(timeouts.into_iter().map(|timeout| (timeout.group, timeout.at)).collect())
}

fn timers(
    signature: &StatefulSignature,
    timers: Vec<GuestTimerChange>,
    groups: usize,
    limits: &Limits,
) -> Result<Vec<TimerChange>, String> {
    if timers.is_empty() {
        return Ok(Vec::new());
    }
    if signature.form != GroupForm::Processor {
        return Err("timers; only a processor has timers".to_owned());
    }
    if signature.time_mode == TimeMode::None {
        return Err("timers, but its time mode is 'none'".to_owned());
    }
    if timers.len() > limits.timers {
        return Err(format!("{} changes of timers (limit timers: {})", timers.len(), limits.timers));
    }
    let checked = |timer: GuestTimerChange| match (timer.group, timer.name.len()) {
        (group, _) if group as usize >= groups => {
            Err(format!("a timer for group {group}, there are {groups}"))
        }
        (_, bytes) if bytes > TIMER_NAME_BYTES => {
            Err(format!("a timer with a name of {bytes} bytes (at most {TIMER_NAME_BYTES})"))
        }
        (group, _) => Ok(TimerChange { group, name: timer.name, at: timer.at }),
    };
    timers.into_iter().map(checked).collect()
}
