//! Whether a version of a plugin may take over from the one that runs. Pure; each check is one refusal.

use super::short;
use crate::compatible;
use crate::query::{Logic, layouts};
use crate::reset::Carried;
use arrow::datatypes::{Field, Schema};
use pelton_checkpoint::SwappedPlugin;
use pelton_core::suggest::did_you_mean;
use pelton_core::types::type_name;
use pelton_core::{Error, PluginDigest, Result, StateLayout};
use std::collections::BTreeSet;

const GOES_ON: &str =
    "the version that runs goes on; build one that fits, or stop the query and change it as a whole";

/// Checks all of it; gives the version that runs and the one that would.
pub(super) fn check(
    running: &Logic,
    candidate: &Logic,
    plugin: &str,
) -> Result<(PluginDigest, PluginDigest)> {
    let names = running.plugins.keys().map(String::as_str);
    let Some(from) = running.plugins.get(plugin) else {
        let near = did_you_mean(plugin, names);
        return Err(Error::invalid(format!("the query has no plugin '{plugin}'{near}")));
    };
    let refused = |what: String| refused(plugin, &what);
    let to = candidate.plugins.get(plugin);
    let to = to.ok_or_else(|| Error::internal(format!("a candidate without the plugin '{plugin}'")))?;
    if to.digest == from.digest {
        return Err(refused(format!("it runs in this version already ({})", short(&to.digest))));
    }
    let others = |logic: &Logic| -> Vec<(String, PluginDigest)> {
        let others = logic.plugins.iter().filter(|(name, _)| *name != plugin);
        others.map(|(name, code)| (name.clone(), code.digest.clone())).collect()
    };
    if others(running) != others(candidate) {
        return Err(refused("another plugin was swapped in between".to_owned()).hint("ask again"));
    }
    let (now, next) = (running.dataflow.schema(), candidate.dataflow.schema());
    if now != next {
        let what = format!(
            "the rows for the sink would have other columns\n  running: {}\n  new:     {}",
            columns(&now),
            columns(&next)
        );
        return Err(refused(what).hint(GOES_ON));
    }
    if running.dataflow.watermarks() != candidate.dataflow.watermarks() {
        return Err(refused("the query would have other watermarks".to_owned()).hint(GOES_ON));
    }
    let fits = notes(running, candidate);
    fits.map_err(|e| refused(e.message().to_owned()).hint(GOES_ON))?;
    Ok((from.digest.clone(), to.digest.clone()))
}

/// A rollback goes to the version before.
pub(super) fn is_before(plugin: &str, to: &PluginDigest, known: Option<&SwappedPlugin>) -> Result<()> {
    match known.and_then(|known| known.before.last()) == Some(to) {
        true => Ok(()),
        false => Err(refused(plugin, &format!("{} is not the version before any more", short(to)))
            .hint("another swap came in between: ask again")),
    }
}

fn refused(plugin: &str, what: &str) -> Error {
    Error::invalid(format!("plugin '{plugin}' is not swapped: {what}"))
}

/// Whether the new steps may go on with the state of those that run, and what a person should know of it.
pub(super) fn notes(running: &Logic, candidate: &Logic) -> Result<Vec<String>> {
    let kinds = |logic: &Logic| -> Vec<(String, &'static str)> {
        logic.dataflow.operators().iter().map(|operator| (operator.name.clone(), operator.kind)).collect()
    };
    let notes = compatible::goes_on(&layouts(running), &layouts(candidate), &BTreeSet::new())?;
    match kinds(running) == kinds(candidate) {
        true => Ok(notes),
        false => Err(Error::invalid("the query would have other stateful operators")),
    }
}

/// What the checkpoint says of the state from the takeover on, given what it says until then, which holds what is set aside,
/// too. State that was set aside does not come back by a swap.
pub(super) fn recorded(plugin: &str, then: &[StateLayout], candidate: &Logic) -> Result<Vec<StateLayout>> {
    let (aside, alive): (Vec<_>, Vec<_>) = then.iter().cloned().partition(|layout| layout.set_aside);
    let fits = compatible::goes_on(&alive, &layouts(candidate), &BTreeSet::new());
    fits.map_err(|e| refused(plugin, e.message()).hint(GOES_ON))?;
    Ok(Carried { aside, ..Carried::default() }.recorded(layouts(candidate), then))
}

fn columns(schema: &Schema) -> String {
    let column = |field: &std::sync::Arc<Field>| {
        let null = if field.is_nullable() { "" } else { " not null" };
        format!("{}: {}{null}", field.name(), type_name(field.data_type()))
    };
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}
