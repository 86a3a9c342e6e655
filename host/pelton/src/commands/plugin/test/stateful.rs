//! What a stateful function makes of a case: the groups go in with their state, what the call changes is applied to it.
//! Called by `answer`; compares nothing.

use super::answer::{Returned, rows_of};
use super::cases::{Case, ExpectedGroup, Group, Migration, NamedTime, Reason, Row, Signature};
use super::check::lines;
use crate::json;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::parse_columns;
use pelton_core::{
    CallScope, GroupForm, GroupInput, GroupOutput, GroupReason, Plugin, StateAction, StateChanges,
    StateEntries, StateVariable, StatefulFunction, StatefulSignature, TimeMode, Timer, VariableKind,
    VariableLayout,
};
use pelton_wasm::WasmPlugin;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a group has: entries by variable as lines of JSON, its timeout, and its timers by time and name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) state: BTreeMap<String, Vec<String>>,
    pub(super) timeout: Option<i64>,
    pub(super) timers: Vec<(i64, String)>,
}

/// What only stateful functions give.
#[derive(Debug)]
pub(super) struct Kept {
    /// The groups after the call; none of a migration.
    pub(super) groups: Option<Vec<Held>>,
    pub(super) signature: Signature,
    /// What entries are made of, by variable.
    schemas: Schemas,
}

type Schemas = BTreeMap<String, (SchemaRef, VariableKind)>;

/// Opens the function and calls it. The outer error says why the case itself cannot be run.
pub(super) fn call(
    plugin: &WasmPlugin,
    case: &Case,
    input: &SchemaRef,
    scope: &CallScope<'_>,
) -> Result<pelton_core::Result<Returned>, String> {
    let key = columns("key", &case.key)?;
    let function = match plugin.stateful(&case.function, key.clone(), input.clone()) {
        Ok(function) => function,
        Err(error) => return Ok(Err(error)),
    };
    if let Some(migration) = &case.migrate {
        return migrate(function.as_ref(), migration);
    }
    let groups = groups(case, &key, input, function.signature())?;
    let output = match function.process(scope, &groups) {
        Ok(output) => output,
        Err(error) => return Ok(Err(error)),
    };
    let held = after(&groups, &output, function.signature())?;
    let kept = Kept::new(Some(held), function.signature());
    Ok(Ok(Returned { rows: output.rows, rejected: output.rejected, kept: Some(kept) }))
}

fn migrate(
    function: &dyn StatefulFunction,
    migration: &Migration,
) -> Result<pelton_core::Result<Returned>, String> {
    let variables = &function.signature().variables;
    let position = variables.iter().position(|variable| variable.name == migration.variable);
    let position = position.ok_or_else(|| unknown_variable(&migration.variable, variables))?;
    let entries = rows_of(&migration.entries, &columns("migrate.schema", &migration.schema)?)?;
    let migrated = function.migrate(position, migration.from, &entries);
    let kept = Some(Kept::new(None, function.signature()));
    Ok(migrated.map(|rows| Returned { rows, rejected: Vec::new(), kept }))
}

fn columns(what: &str, ddl: &str) -> Result<SchemaRef, String> {
    if ddl.is_empty() {
        return Ok(Arc::new(Schema::empty()));
    }
    parse_columns(ddl, "UTC")
        .map(|columns| Arc::new(Schema::new(columns)))
        .map_err(|why| format!("{what}: {why}"))
}

fn unknown_variable(name: &str, variables: &[StateVariable]) -> String {
    let near = did_you_mean(name, variables.iter().map(|variable| variable.name.as_str()));
    format!("the function has no variable '{name}'{near}")
}

fn micros(text: &str) -> Result<i64, String> {
    json::timestamp_ms(text).map(|ms| ms.saturating_mul(1000))
}

fn signature(of: &StatefulSignature) -> Signature {
    let form = match of.form {
        GroupForm::MapGroups => "map_groups",
        GroupForm::FlatMapGroups => "flat_map_groups",
        GroupForm::Processor => "processor",
    };
    let time_mode = match of.time_mode {
        TimeMode::None => "none",
        TimeMode::ProcessingTime => "processing_time",
        TimeMode::EventTime => "event_time",
    };
    Signature {
        form: form.to_owned(),
        time_mode: time_mode.to_owned(),
        variables: of.variables.iter().map(|variable| VariableLayout::of(variable).to_string()).collect(),
    }
}

/// The call.
fn groups(
    case: &Case,
    key: &SchemaRef,
    input: &SchemaRef,
    signature: &StatefulSignature,
) -> Result<GroupInput, String> {
    let keys: Vec<Row> = case.groups.iter().map(|group| group.key.clone()).collect();
    let (rows, offsets) = by_group(case, input, |group| &group.rows)?;
    let unknown = case.groups.iter().flat_map(|group| group.state.keys());
    let unknown = unknown.into_iter().find(|name| !signature.variables.iter().any(|v| v.name == **name));
    if let Some(name) = unknown {
        return Err(unknown_variable(name, &signature.variables));
    }
    let none = Vec::new();
    let entries = |variable: &StateVariable| {
        let of_group = |group: &Group| group.state.get(&variable.name).unwrap_or(&none).clone();
        let (rows, offsets) = by_group(case, &variable.entries, of_group)?;
        Ok::<_, String>(StateEntries { rows, offsets })
    };
    let mut pending = Vec::new();
    for (group, given) in (0..).zip(&case.groups) {
        for (at, name) in sorted(&given.timers)? {
            pending.push(Timer { group, name, at });
        }
    }
    let fired = (0..).zip(&case.groups).filter_map(|(group, given)| Some((group, given.fired.as_ref()?)));
    let fired =
        fired.map(|(group, timer)| Ok(Timer { group, name: timer.name.clone(), at: micros(&timer.at)? }));
    Ok(GroupInput {
        reason: match case.reason {
            Reason::Data => GroupReason::Data,
            Reason::Timeout => GroupReason::Timeout,
            Reason::Timer => GroupReason::Timer,
        },
        keys: rows_of(&keys, key)?,
        rows: rows.project(&signature.reads).map_err(|why| why.to_string())?,
        offsets,
        state: signature.variables.iter().map(entries).collect::<Result<_, _>>()?,
        fired: fired.collect::<Result<_, String>>()?,
        pending,
    })
}

/// Rows of all groups one after the other, and where each one's begin.
fn by_group<'c, R: AsRef<[Row]>>(
    case: &'c Case,
    schema: &SchemaRef,
    of: impl Fn(&'c Group) -> R,
) -> Result<(RecordBatch, Vec<u32>), String> {
    let (mut all, mut offsets) = (Vec::new(), vec![0]);
    for group in &case.groups {
        all.extend_from_slice(of(group).as_ref());
        offsets.push(all.len() as u32);
    }
    Ok((rows_of(&all, schema)?, offsets))
}

fn sorted(timers: &[NamedTime]) -> Result<Vec<(i64, String)>, String> {
    let timers = timers.iter().map(|timer| Ok((micros(&timer.at)?, timer.name.clone())));
    let mut timers = timers.collect::<Result<Vec<_>, String>>()?;
    timers.sort();
    Ok(timers)
}

/// What the groups have after the call.
fn after(
    input: &GroupInput,
    output: &GroupOutput,
    signature: &StatefulSignature,
) -> Result<Vec<Held>, String> {
    let mut all = vec![Held::default(); input.groups()];
    for (number, variable) in signature.variables.iter().enumerate() {
        let given = &input.state[number];
        let given_entries = Entries::of(&given.rows, variable)?;
        let changes = output.changes.get(number);
        for (group, held) in all.iter_mut().enumerate() {
            let own = given.offsets[group] as usize..given.offsets[group + 1] as usize;
            let mut entries = given_entries.0[own].to_vec();
            if let Some(changes) = changes {
                change(&mut entries, changes, group as u32, variable)?;
            }
            if !entries.is_empty() {
                held.state.insert(variable.name.clone(), shown(entries, variable.kind));
            }
        }
    }
    output.timeouts.iter().for_each(|(group, at)| all[*group as usize].timeout = Some(*at));
    input
        .pending
        .iter()
        .for_each(|timer| all[timer.group as usize].timers.push((timer.at, timer.name.clone())));
    for timer in &output.timers {
        let timers = &mut all[timer.group as usize].timers;
        timers.retain(|(_, name)| *name != timer.name);
        timers.extend(timer.at.map(|at| (at, timer.name.clone())));
        timers.sort();
    }
    Ok(all)
}

/// Entries as lines: the key's (of a map) and the whole.
struct Entries(Vec<(String, String)>);

impl Entries {
    fn of(rows: &RecordBatch, variable: &StateVariable) -> Result<Self, String> {
        if rows.num_rows() == 0 {
            return Ok(Self(Vec::new()));
        }
        let width = variable.key.fields().len();
        let keys = rows.project(&(0..width).collect::<Vec<_>>()).map_err(|why| why.to_string())?;
        let keys = if width == 0 { vec![String::new(); rows.num_rows()] } else { lines(&keys)? };
        Ok(Self(keys.into_iter().zip(lines(rows)?).collect()))
    }
}

/// Makes the changes of one group.
fn change(
    entries: &mut Vec<(String, String)>,
    changes: &StateChanges,
    group: u32,
    variable: &StateVariable,
) -> Result<(), String> {
    let removed = if changes.remove.num_rows() == 0 { Vec::new() } else { lines(&changes.remove)? };
    let put = Entries::of(&changes.put, variable)?.0;
    let (mut put, mut removed) = (put.into_iter(), removed.into_iter());
    for (of, action) in changes.groups.iter().zip(&changes.actions) {
        let is_own = *of == group;
        match action {
            StateAction::Put => {
                let entry = put.next().ok_or("the function put more entries than it gave rows for")?;
                if is_own {
                    match variable.kind {
                        VariableKind::Value => entries.clear(),
                        VariableKind::Map => entries.retain(|(key, _)| *key != entry.0),
                        VariableKind::List => {}
                    }
                    entries.push(entry);
                }
            }
            StateAction::Remove => {
                let key = removed.next().ok_or("the function removed entries without naming their keys")?;
                entries.retain(|(known, _)| !is_own || *known != key);
            }
            StateAction::Clear if is_own => entries.clear(),
            StateAction::Clear => {}
        }
    }
    Ok(())
}

/// A map has no order.
fn shown(entries: Vec<(String, String)>, kind: VariableKind) -> Vec<String> {
    let mut lines: Vec<String> = entries.into_iter().map(|(_, line)| line).collect();
    if kind == VariableKind::Map {
        lines.sort();
    }
    lines
}

impl Kept {
    fn new(groups: Option<Vec<Held>>, signature: &StatefulSignature) -> Self {
        let of =
            |variable: &StateVariable| (variable.name.clone(), (variable.entries.clone(), variable.kind));
        Self {
            groups,
            schemas: signature.variables.iter().map(of).collect(),
            signature: self::signature(signature),
        }
    }

    /// What a case expects of a group, in the words of what was found.
    pub(super) fn expected(&self, group: &ExpectedGroup) -> Result<Held, String> {
        let mut state = BTreeMap::new();
        for (name, entries) in &group.state {
            let near = || did_you_mean(name, self.schemas.keys().map(String::as_str));
            let (schema, kind) = self
                .schemas
                .get(name)
                .ok_or_else(|| format!("the function has no variable '{name}'{}", near()))?;
            let lines = lines(&rows_of(entries, schema)?)?.into_iter().map(|line| (String::new(), line));
            let lines = shown(lines.collect(), *kind);
            if !lines.is_empty() {
                state.insert(name.clone(), lines);
            }
        }
        let timeout = group.timeout.as_deref().map(micros).transpose()?;
        Ok(Held { state, timeout, timers: sorted(&group.timers)? })
    }
}
