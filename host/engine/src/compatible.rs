//! Whether the state in a checkpoint is the state that the query goes on with. Pure.
//!
//! | from the checkpoint to the pipeline | answer |
//! |---|---|
//! | nothing, or only names of columns | allowed |
//! | settings: the kind of an outer join, a LIMIT's count, a delay | allowed, with a note |
//! | another meaning of the same types: keys, functions, windows, conditions | refused, unless the file accepts it |
//! | types of keys or values, their number or order; the form of the entries | refused |
//! | a variable of a plugin's function: a new version, nullable fields more, the whole variable more or fewer | allowed, with a note |
//! | a variable of a plugin's function: other types of the same version, no NULL any more, another kind or map key | refused |
//! | a variable that was dropped is back | refused, until its state is dropped, too |
//! | an operator more, fewer, or of another kind | refused |
//!
//! Spark compares types alone, so the third row is silent there. Called by the builder before anything runs.

mod variables;

use pelton_core::{Error, Result, StateColumn, StateFact, StateLayout};
use std::collections::BTreeSet;
use std::fmt::Write;

const UNDO: &str = "undo the change, or give the changed query a new checkpoint (and a new output)";

/// Checks that operators that keep their state as in `now` may go on with what was kept as in `then`. `accepted`: the
/// operators whose state may mean something else. Gives what a person should know, a sentence each.
pub(crate) fn goes_on(
    then: &[StateLayout],
    now: &[StateLayout],
    accepted: &BTreeSet<String>,
) -> Result<Vec<String>> {
    same_operators(then, now)?;
    let mut notes = Vec::new();
    for now in now {
        let Some(then) = then.iter().find(|then| then.name == now.name) else { continue };
        same_form(then, now)?;
        same_columns(then, now, "keys", &then.keys, &now.keys)?;
        same_columns(then, now, "values", &then.values, &now.values)?;
        notes.extend(variables::go_on(then, now)?);
        notes.extend(same_meaning(then, now, accepted.contains(&now.name))?);
        let settings = differences(&then.settings, &now.settings);
        notes.extend(settings.map(|(what, then, now_is)| {
            format!("operator '{}': {what} was {then} and is {now_is} from here on", now.name)
        }));
    }
    Ok(notes)
}

/// Operators are known by name.
fn same_operators(then: &[StateLayout], now: &[StateLayout]) -> Result<()> {
    let in_checkpoint = |name: &str| then.iter().any(|layout| layout.name == name);
    let in_pipeline = |name: &str| now.iter().any(|layout| layout.name == name);
    let gone: Vec<&StateLayout> = then.iter().filter(|layout| !in_pipeline(&layout.name)).collect();
    let new: Vec<&StateLayout> = now.iter().filter(|layout| !in_checkpoint(&layout.name)).collect();
    if gone.is_empty() && new.is_empty() {
        return Ok(());
    }
    let mut message = String::new();
    if !gone.is_empty() {
        let (keep, are) = if gone.len() == 1 { ("keeps", "") } else { ("keep", "s") };
        let _ = write!(
            message,
            "the checkpoint holds the state of the operator{are} {}, which the pipeline no longer {}",
            named(&gone),
            if keep == "keeps" { "has" } else { "has by these names" }
        );
    }
    if !new.is_empty() {
        let joined = if gone.is_empty() { "" } else { "; " };
        let _ = write!(
            message,
            "{joined}{} new in the pipeline: what earlier rows would have left there is unknown",
            match new.len() {
                1 => format!("the operator {} is", named(&new)),
                _ => format!("the operators {} are", named(&new)),
            }
        );
    }
    let schemas = gone.iter().map(|layout| format!("\n  checkpoint: {}: {layout}", layout.name));
    let schemas = schemas.chain(new.iter().map(|layout| format!("\n  pipeline: {}: {layout}", layout.name)));
    message.extend(schemas);
    Err(Error::invalid(message).hint(match renamed(&gone, &new) {
        Some((then, now)) => format!(
            "if '{now}' is only another name of '{then}', give it that name again (a step's `name:` is the first part \
             of its operators' names); else {UNDO}"
        ),
        None => UNDO.to_owned(),
    }))
}

fn named(layouts: &[&StateLayout]) -> String {
    let name = |layout: &&StateLayout| format!("'{}' ({})", layout.name, layout.kind);
    layouts.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// A new operator that differs from a lost one by its name alone.
fn renamed<'a>(gone: &[&'a StateLayout], new: &[&'a StateLayout]) -> Option<(&'a str, &'a str)> {
    gone.iter().find_map(|gone| {
        let same = |new: &&&StateLayout| StateLayout { name: gone.name.clone(), ..(**new).clone() } == **gone;
        new.iter().find(same).map(|new| (gone.name.as_str(), new.name.as_str()))
    })
}

fn same_form(then: &StateLayout, now: &StateLayout) -> Result<()> {
    if then.kind != now.kind {
        return Err(refused(then, now, &format!("it was of kind {} and is of kind {}", then.kind, now.kind)));
    }
    if then.form != now.form {
        let what = format!("its entries are laid out as '{}' and would now be as '{}'", then.form, now.form);
        return Err(refused(then, now, &what).hint(format!(
            "the event time decides it: undo what was changed of watermarks or of the times among the keys, or {}",
            UNDO.trim_start_matches("undo the change, or ")
        )));
    }
    Ok(())
}

fn same_columns(
    then: &StateLayout,
    now: &StateLayout,
    what: &str,
    old: &[StateColumn],
    new: &[StateColumn],
) -> Result<()> {
    let one = what.trim_end_matches('s');
    if old.len() != new.len() {
        let (old, new) = (old.len(), new.len());
        return Err(refused(
            then,
            now,
            &format!("the number of its {what} was {old} and would now be {new}"),
        ));
    }
    let differs = old.iter().zip(new).enumerate().find(|(_, (old, new))| old.data_type != new.data_type);
    let Some((at, (old, new))) = differs else { return Ok(()) };
    let what = format!(
        "its {one} {} was `{}: {}` and would now be `{}: {}`",
        at + 1,
        old.name,
        old.data_type,
        new.name,
        new.data_type
    );
    Err(refused(then, now, &what))
}

fn same_meaning(then: &StateLayout, now: &StateLayout, accepted: bool) -> Result<Vec<String>> {
    let name = &now.name;
    if then.words != now.words {
        return Ok(vec![format!(
            "operator '{name}': another version of Pelton wrote its state; of the definition only types were compared"
        )]);
    }
    let changes: Vec<String> = differences(&then.definition, &now.definition)
        .map(|(what, then, now)| format!("{what} was {then} and is {now}"))
        .collect();
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let changes = changes.join("; ");
    if accepted {
        return Ok(vec![format!(
            "operator '{name}' goes on with state that meant something else, as accept_changed_state says: {changes}"
        )]);
    }
    Err(Error::invalid(format!(
        "the operator '{name}' ({}) would go on with state that means something else: {changes}\n  the types are the \
         same: {now}",
        now.kind
    ))
    .hint(format!("{UNDO}; if it is meant, add `accept_changed_state: ['{name}']` to the pipeline file")))
}

fn refused(then: &StateLayout, now: &StateLayout, what: &str) -> Error {
    Error::invalid(format!(
        "the operator '{}' cannot go on with the state in the checkpoint: {what}\n  checkpoint: {then}\n  pipeline: \
         {now}",
        now.name
    ))
    .hint(UNDO)
}

/// What two lists of facts say differently: about what, then, now.
fn differences<'a>(
    then: &'a [StateFact],
    now: &'a [StateFact],
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    let is = |facts: &'a [StateFact], what: &str| {
        facts.iter().find(|fact| fact.what == what).map_or("nothing", |fact| fact.is.as_str())
    };
    let gone = then.iter().filter(|fact| !now.iter().any(|other| other.what == fact.what));
    let all = now.iter().chain(gone).map(|fact| fact.what.as_str());
    all.map(move |what| (what, is(then, what), is(now, what))).filter(|(_, then, now)| then != now)
}

#[cfg(test)]
#[path = "compatible_tests.rs"]
mod tests;
