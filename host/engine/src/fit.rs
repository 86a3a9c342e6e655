//! Whether the parts of a query fit each other and the checkpoint. Pure; each check is one refusal.
//!
//! Called by the builder before anything runs.

use crate::compatible;
use crate::query::{Input, Logic, layouts};
use crate::recover::Recovered;
use crate::reset::Carried;
use pelton_checkpoint::OffsetEntry;
use pelton_core::{BatchId, Dataflow, Error, OutputMode, Result, Sink, StateLayout, suggest};
use std::collections::BTreeSet;

pub(crate) fn check_inputs(inputs: &[Input]) -> Result<()> {
    let names: BTreeSet<_> = inputs.iter().map(|input| &input.name).collect();
    if inputs.is_empty() || names.len() != inputs.len() {
        return Err(Error::internal(format!(
            "the query was assembled with {} sources of {} names",
            inputs.len(),
            names.len()
        )));
    }
    Ok(())
}

/// An `Invalid` error unless the sink takes the output mode. The builder asks it; whoever wants to know before the
/// checkpoint is taken asks it, too.
pub fn check_output_mode(sink: &dyn Sink, mode: OutputMode) -> Result<()> {
    if sink.output_modes().contains(&mode) {
        return Ok(());
    }
    let takes: Vec<String> = sink.output_modes().iter().map(ToString::to_string).collect();
    Err(Error::invalid(format!("the sink `{}` cannot take output mode {mode}", sink.description()))
        .hint(format!("it takes {}; set `output_mode:` to that or choose another sink", takes.join(" and "))))
}

/// Offsets mean something only to the source that made them, so the sources must be those of the checkpoint.
/// (Spark matches them by position and refuses another number.)
pub(crate) fn check_sources(inputs: &[Input], entry: &OffsetEntry) -> Result<()> {
    let way_out = "set the sources as they were, or give the changed query a checkpoint of its own";
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    if let Some(gone) = entry.sources.keys().find(|known| !names.contains(&known.as_str())) {
        let near = suggest::nearest(gone, names.iter().copied())
            .map_or_else(String::new, |near| format!(" (is '{near}' its new name?)"));
        return Err(Error::invalid(format!(
            "the checkpoint knows how far the source '{gone}' was read, but the pipeline has no such source{near}"
        ))
        .hint(way_out));
    }
    if let Some(new) = names.iter().find(|name| !entry.sources.contains_key(**name)) {
        return Err(Error::invalid(format!(
            "the source '{new}' is new: the checkpoint was made by a query without it"
        ))
        .hint(way_out));
    }
    Ok(())
}

/// Stateful operators need a store, and the checkpoint's past must be one that they can go on from. (Which operators
/// they were, and what their state consists of, is checked by [`check_layouts`].)
pub(crate) fn check_state(
    recovered: &Recovered,
    logic: &Logic,
    carried: &Carried,
    has_store: bool,
) -> Result<()> {
    let operators = logic.dataflow.operators();
    let has_state = recovered.resume.last_commit().is_some_and(|commit| commit.state.is_some());
    if (operators.is_empty() && !has_state) == has_store {
        return Err(Error::internal(format!(
            "the query was assembled with {} stateful operators and {} state store",
            operators.len(),
            if has_store { "a" } else { "no" }
        )));
    }
    let way_out = "set the steps as they were, or give the changed query a checkpoint of its own";
    if let Some(first) = operators.first() {
        let state = recovered.state_commit()?;
        if recovered.last_committed().is_some() && state.is_none() && !carried.now.is_empty() {
            return Err(Error::invalid(format!(
                "the operator '{}' keeps state, but the checkpoint was made by a query without any: what the rows of \
                 earlier micro-batches would have left there is unknown",
                first.name
            ))
            .hint(way_out));
        }
    } else if has_state && (recovered.layouts.is_none() || !carried.then.is_empty()) {
        return Err(Error::invalid(
            "the checkpoint holds the state of operators, but the pipeline has no stateful operator any more",
        )
        .hint(way_out));
    }
    Ok(())
}

/// The state must be the one that the operators would have kept. Differences that do no harm are told.
pub(crate) fn check_layouts(
    recovered: &Recovered,
    carried: &Carried,
    accepted: &BTreeSet<String>,
) -> Result<()> {
    let notes = match &recovered.layouts {
        Some(_) => compatible::goes_on(&carried.then, &carried.now, accepted)?,
        None if recovered.resume.last_commit().is_some_and(|commit| commit.state.is_some()) => {
            vec![
                "the checkpoint does not say what its state consists of, for an earlier version of Pelton wrote it; it \
                 is taken to be the state of this very pipeline"
                    .to_owned(),
            ]
        }
        None => Vec::new(),
    };
    notes.iter().for_each(|note| tracing::warn!("{note}"));
    Ok(())
}

/// A micro-batch that runs again may already be in the sink of its first run: only that one knows.
pub(crate) fn check_sink_of_rerun(batch_id: BatchId, entry: &OffsetEntry, sink: &dyn Sink) -> Result<()> {
    let now = sink.kind();
    match &entry.sink {
        Some(then) if *then != now => Err(Error::invalid(format!(
            "micro-batch {batch_id} must first be finished with a {then} sink, which it was begun with and which may \
             have its rows already; the pipeline now has a {now} sink"
        ))
        .hint(
            "start the query once with the sink as it was (`--trigger once` finishes that micro-batch), then with \
             the new one",
        )),
        _ => Ok(()),
    }
}

/// A micro-batch that runs again must run the code that it ran the first time. `rerun`: that, and the state that it
/// leaves.
pub(crate) fn check_rerun(
    batch_id: BatchId,
    entry: &OffsetEntry,
    (rerun, leaves): (&Logic, &[StateLayout]),
    logic: &Logic,
    accepted: &BTreeSet<String>,
) -> Result<()> {
    for (name, plugin) in &rerun.plugins {
        if entry.plugins.get(name).is_some_and(|recorded| *recorded != plugin.digest) {
            return Err(Error::internal(format!(
                "micro-batch {batch_id} was to run again with other bytes of the plugin '{name}' than the first time"
            )));
        }
    }
    let differs = match (rerun.dataflow.as_ref(), logic.dataflow.as_ref()) {
        (then, now) if then.schema() != now.schema() => "gives the sink other columns",
        (then, now) if names(then) != names(now) => "has other stateful operators or watermarks",
        // What comes after it goes on with its state.
        _ => return compatible::goes_on(leaves, &layouts(logic), accepted).map(|_| ()),
    };
    Err(Error::invalid(format!(
        "micro-batch {batch_id} must first be finished with the plugins it was begun with, but the changed pipeline \
         {differs}"
    ))
    .hint(
        "start the query once with the plugins as they were (`--trigger once` finishes that micro-batch), then with \
         the new ones",
    ))
}

/// By what the checkpoint knows the parts of a dataflow.
fn names(dataflow: &dyn Dataflow) -> Vec<&str> {
    let operators = dataflow.operators().iter().map(|operator| operator.name.as_str());
    operators.chain(dataflow.watermarks().iter().map(|watermark| watermark.name.as_str())).collect()
}
