//! Which operators begin anew with a start, and what becomes of state that the query no longer uses. Pure.
//!
//! The state of an operator that is no longer in the pipeline is *set aside*: it stays in the store, and the record of
//! what the state consists of says so. Called by the builder before anything runs.

use crate::query::Logic;
use pelton_checkpoint::Resume;
use pelton_core::suggest::did_you_mean;
use pelton_core::{
    AFTER_ALL_KEYS, Error, KIND_WITH_VARIABLES, OperatorInfo, Result, StateLayout, StateOp, StateShard,
    StateStore, VariableLayout, VariableTables,
};
use std::collections::BTreeSet;

/// Entries that are looked at in one go.
const ENTRIES: usize = 8192;

/// The operators that forget their state when the query starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ResetState {
    /// None.
    #[default]
    Nothing,
    /// These, by name. One that the pipeline no longer has is let go: its state is set aside, and dropped when it is named
    /// again. `OPERATOR.VARIABLE` is one variable of a processor, in use or set aside.
    Operators(BTreeSet<String>),
    /// All: the query goes on from its offsets as if it had kept nothing. The state need not be opened.
    Everything,
}

impl ResetState {
    /// What a start resets: in a micro-batch that runs again, what it was begun with.
    pub(crate) fn at(self, resume: &Resume) -> Result<Self> {
        let Resume::Rerun { batch_id, entry, .. } = resume else { return Ok(self) };
        let begun = match entry.reset.is_empty() {
            true => Self::Nothing,
            false => Self::Operators(entry.reset.iter().cloned().collect()),
        };
        // The same command again is no other wish.
        if self == Self::Nothing || begun != Self::Nothing {
            return Ok(begun);
        }
        Err(Error::invalid(format!(
            "micro-batch {batch_id} must first be finished with the state it was begun with; then state can be reset"
        ))
        .hint("start the pipeline once as it was (`--trigger once` finishes that micro-batch), then reset"))
    }

    /// Whether an operator begins anew.
    fn names(&self, operator: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Operators(names) => names.contains(operator),
            Self::Everything => true,
        }
    }
}

/// What a start does with the operators of the checkpoint and of the pipeline.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// Those of the checkpoint with whose state the pipeline goes on.
    pub(crate) then: Vec<StateLayout>,
    /// Those of the pipeline that go on with state.
    pub(crate) now: Vec<StateLayout>,
    /// Those whose state stays aside.
    pub(crate) aside: Vec<StateLayout>,
    /// Those whose tables are emptied: of the pipeline those that begin with empty state, and what was set aside and
    /// goes.
    pub(crate) anew: Vec<String>,
    /// Variables that are emptied: of which operator, and its name.
    pub(crate) anew_variables: Vec<(String, String)>,
    /// All that the reset is about, by name: a rerun resets the same.
    pub(crate) named: Vec<String>,
}

/// Sorts the operators. `then` is what the checkpoint holds, set aside or not.
pub(crate) fn carried(then: &[StateLayout], logic: &Logic, reset: &ResetState) -> Result<Carried> {
    let now = crate::query::layouts(logic);
    if let ResetState::Operators(names) = reset {
        let known: BTreeSet<String> = then.iter().chain(&now).flat_map(names_in).collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
            let near = did_you_mean(unknown, known.iter().map(String::as_str));
            return Err(Error::invalid(format!("no operator '{unknown}' keeps state{near}"))
                .hint("`pelton state ls` lists them"));
        }
    }
    let all = then.iter().chain(&now).flat_map(|layout| match reset {
        ResetState::Everything => vec![layout.name.clone()],
        _ => names_in(layout),
    });
    let all = all.filter(|name| reset.names(name));
    let named: BTreeSet<String> = all.collect();
    if !named.is_empty() {
        let names = named.iter().cloned().collect::<Vec<_>>().join(", ");
        tracing::warn!("state is forgotten with the first micro-batch that is committed: {names}");
    }
    let mut carried = Carried { named: named.into_iter().collect(), ..Carried::default() };
    for layout in then {
        let stays = now.iter().any(|now| now.name == layout.name);
        match reset.names(&layout.name) {
            // Named once it is set aside, named again it goes; all go if all is to begin anew.
            true if !stays && (layout.set_aside || *reset == ResetState::Everything) => {
                carried.anew.push(layout.name.clone())
            }
            _ if !stays && (layout.set_aside || reset.names(&layout.name)) => {
                carried.aside.push(StateLayout { set_aside: true, ..layout.clone() });
            }
            true => {}
            false if layout.set_aside => {
                return Err(Error::invalid(format!(
                    "the operator '{}' is back in the pipeline, but its state was set aside by an earlier change: what \
                     came since then is not in it",
                    layout.name
                ))
                .hint(format!("start once with --reset-state {} to begin with empty state", layout.name)));
            }
            false => {
                let kept = carried.variables(layout, &now, reset);
                carried.then.push(kept);
            }
        }
    }
    for layout in now {
        match reset.names(&layout.name) {
            true => carried.anew.push(layout.name),
            false => carried.now.push(layout),
        }
    }
    Ok(carried)
}

/// What a reset can name in an operator: itself, and its variables.
fn names_in(layout: &StateLayout) -> Vec<String> {
    let has_variables = layout.kind == KIND_WITH_VARIABLES;
    let variables = layout.variables.iter().filter(|_| has_variables);
    let variables = variables.map(|variable| variable_name(layout, &variable.name));
    std::iter::once(layout.name.clone()).chain(variables).collect()
}

fn variable_name(layout: &StateLayout, variable: &str) -> String {
    format!("{}.{variable}", layout.name)
}

impl Carried {
    /// What an operator goes on with: all but the variables that begin anew.
    fn variables(&mut self, then: &StateLayout, now: &[StateLayout], reset: &ResetState) -> StateLayout {
        let mut kept = then.clone();
        let declared = now.iter().filter(|now| now.name == then.name).flat_map(|now| &now.variables);
        let declared = declared.map(|variable| &variable.name);
        let mut all: BTreeSet<&String> = then.variables.iter().map(|variable| &variable.name).collect();
        all.extend(declared);
        for name in all.into_iter().filter(|name| reset.names(&variable_name(then, name))) {
            self.anew_variables.push((then.name.clone(), name.clone()));
            kept.variables.retain(|variable| variable.name != *name);
        }
        kept
    }

    /// What the checkpoint says from now on of the state of operators as they are described `now`: of those that they had
    /// `before`, too, as far as state of them is kept.
    pub(crate) fn recorded(&self, mut now: Vec<StateLayout>, before: &[StateLayout]) -> Vec<StateLayout> {
        for layout in &mut now {
            let known: BTreeSet<String> =
                layout.variables.iter().map(|variable| variable.name.clone()).collect();
            let before = before.iter().filter(|before| before.name == layout.name);
            let gone = before.flat_map(|before| &before.variables).filter(|old| !known.contains(&old.name));
            let gone = gone.map(|old| VariableLayout { set_aside: true, ..old.clone() });
            layout.variables.extend(gone);
        }
        now.extend(self.aside.iter().cloned());
        now
    }

    /// Empties what begins anew. Counts once the next micro-batch is committed.
    pub(crate) fn clear(&self, state: &mut dyn StateStore) -> Result<()> {
        self.anew.iter().try_for_each(|operator| clear(state, operator))?;
        self.anew_variables
            .iter()
            .try_for_each(|(operator, variable)| clear_variable(state, operator, variable))
    }
}

/// Empties what a reset that was recorded names: an operator, or a variable of one.
pub(crate) fn clear_recorded(
    state: &mut dyn StateStore,
    named: &str,
    operators: &[OperatorInfo],
) -> Result<()> {
    let variable = operators.iter().find_map(|operator| {
        let name = operator.name.as_str();
        Some((name, named.strip_prefix(name)?.strip_prefix('.')?))
    });
    match variable {
        Some((operator, variable)) => clear_variable(state, operator, variable),
        None => clear(state, named),
    }
}

fn clear_variable(state: &mut dyn StateStore, operator: &str, variable: &str) -> Result<()> {
    let tables = VariableTables::new(operator, variable);
    for shard in state.shards() {
        [&tables.entries, &tables.items, &tables.expiry].iter().try_for_each(|table| empty(shard, table))?;
    }
    Ok(())
}

/// Empties the tables of an operator. Counts once the next micro-batch is committed.
fn clear(state: &mut dyn StateStore, operator: &str) -> Result<()> {
    let prefix = format!("{operator}/");
    let tables: Vec<String> = state.tables().into_iter().filter(|table| table.starts_with(&prefix)).collect();
    for shard in state.shards() {
        tables.iter().try_for_each(|table| empty(shard, table))?;
    }
    Ok(())
}

fn empty(shard: &mut dyn StateShard, table: &str) -> Result<()> {
    loop {
        let entries = shard.scan(table, &[]..&AFTER_ALL_KEYS, ENTRIES)?;
        if entries.is_empty() {
            return Ok(());
        }
        shard.apply(table, entries.into_iter().map(|(key, _)| StateOp::Remove(key)).collect())?;
    }
}
