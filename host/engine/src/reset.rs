//! Which operators begin anew with a start, and what becomes of state that the query no longer uses. Pure.
//!
//! The state of an operator that is no longer in the pipeline is *set aside*: it stays in the store, and the record of
//! what the state consists of says so. Called by the builder before anything runs.

use crate::query::Logic;
use pelton_checkpoint::Resume;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result, StateLayout, StateOp, StateShard, StateStore};
use std::collections::BTreeSet;

/// Entries that are looked at in one go.
const ENTRIES: usize = 8192;
/// After all keys of a table: key groups are less.
const AFTER_ALL: [u8; 9] = [u8::MAX; 9];

/// The operators that forget their state when the query starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ResetState {
    /// None.
    #[default]
    Nothing,
    /// These, by name. One that the pipeline no longer has is let go: its state is set aside, and dropped when it is named
    /// again.
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
    /// All that the reset is about, by name: a rerun resets the same.
    pub(crate) named: Vec<String>,
}

/// Sorts the operators. `then` is what the checkpoint holds, set aside or not.
pub(crate) fn carried(then: &[StateLayout], logic: &Logic, reset: &ResetState) -> Result<Carried> {
    let now = crate::query::layouts(logic);
    if let ResetState::Operators(names) = reset {
        let known: BTreeSet<&str> = then.iter().chain(&now).map(|layout| layout.name.as_str()).collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
            let near = did_you_mean(unknown, known.iter().copied());
            return Err(Error::invalid(format!("no operator '{unknown}' keeps state{near}"))
                .hint("`pelton state ls` lists them"));
        }
    }
    let all = then.iter().chain(&now).map(|layout| layout.name.clone()).filter(|name| reset.names(name));
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
            false => carried.then.push(layout.clone()),
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

/// Empties the tables of an operator. Counts once the next micro-batch is committed.
pub(crate) fn clear(state: &mut dyn StateStore, operator: &str) -> Result<()> {
    let prefix = format!("{operator}/");
    let tables: Vec<String> = state.tables().into_iter().filter(|table| table.starts_with(&prefix)).collect();
    for shard in state.shards() {
        tables.iter().try_for_each(|table| empty(shard, table))?;
    }
    Ok(())
}

fn empty(shard: &mut dyn StateShard, table: &str) -> Result<()> {
    loop {
        let entries = shard.scan(table, &[]..&AFTER_ALL, ENTRIES)?;
        if entries.is_empty() {
            return Ok(());
        }
        shard.apply(table, entries.into_iter().map(|(key, _)| StateOp::Remove(key)).collect())?;
    }
}
