//! Whether the variables of a plugin's function go on with what is stored of them.
//!
//! Names of fields do not count, as in Spark. What is of an older version is migrated by the function when it is read.

use super::{UNDO, refused};
use pelton_core::{Error, Result, StateLayout, VariableLayout};

/// Compares the variables of an operator, by name. Gives what a person should know, a sentence each.
pub(super) fn go_on(then: &StateLayout, now: &StateLayout) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let find = |layout: &'_ StateLayout, name: &str| layout.variables.iter().position(|v| v.name == name);
    for variable in &now.variables {
        match find(then, &variable.name) {
            Some(old) => notes.extend(variable_goes_on(then, now, &then.variables[old], variable)?),
            None => notes.push(format!("operator '{}': the variable '{}' is new", now.name, variable.name)),
        }
    }
    let gone = then.variables.iter().filter(|old| find(now, &old.name).is_none());
    let gone = gone.map(|old| {
        format!(
            "operator '{}': the variable '{}' is no longer used; its state is kept aside",
            now.name, old.name
        )
    });
    notes.extend(gone);
    Ok(notes)
}

fn variable_goes_on(
    then: &StateLayout,
    now: &StateLayout,
    old: &VariableLayout,
    new: &VariableLayout,
) -> Result<Option<String>> {
    let name = &new.name;
    if old.kind != new.kind {
        let what = format!("its variable '{name}' was a {} and would now be a {}", old.kind, new.kind);
        return Err(refused(then, now, &what));
    }
    let types = |columns: &[pelton_core::StateColumn]| -> Vec<String> {
        columns.iter().map(|column| column.data_type.clone()).collect()
    };
    if types(&old.key) != types(&new.key) {
        return Err(refused(then, now, &format!("the key of its map '{name}' has other types")));
    }
    if new.version < old.version {
        let what = format!(
            "its variable '{name}' is stored in version {}, but the function has version {}",
            old.version, new.version
        );
        return Err(
            refused(then, now, &what).hint("run the version of the plugin that wrote it, or a later one")
        );
    }
    if new.version > old.version {
        return Ok(Some(format!(
            "operator '{}': the variable '{name}' goes from version {} to {}; stored values are migrated when they are \
             read",
            now.name, old.version, new.version
        )));
    }
    let is_elsewhere = |(at, field): (usize, &pelton_core::StateColumn)| {
        new.value.iter().position(|now| now.name == field.name).is_some_and(|now| now != at)
    };
    // Fields of the same types that only have other names are the same fields.
    if types(&old.value) == types(&new.value) && !old.value.iter().enumerate().any(is_elsewhere) {
        return Ok(None);
    }
    match misfit(old, new) {
        None => {
            Ok(Some(format!("operator '{}': the variable '{name}' has other fields from here on", now.name)))
        }
        Some(what) => Err(no_way(then, now, name, &what)),
    }
}

/// The first field that does not follow from what is stored.
fn misfit(old: &VariableLayout, new: &VariableLayout) -> Option<String> {
    let fields = new.value.iter().zip(&new.nullable);
    fields.clone().find_map(|(field, nullable)| {
        match old.value.iter().find(|known| known.name == field.name) {
            Some(known) if known.data_type == field.data_type => None,
            Some(known) => Some(format!(
                "`{}: {}` would now be `{}: {}`",
                known.name, known.data_type, field.name, field.data_type
            )),
            None if *nullable => None,
            None => Some(format!("the new field `{}: {}` cannot be null", field.name, field.data_type)),
        }
    })
}

fn no_way(then: &StateLayout, now: &StateLayout, name: &str, what: &str) -> Error {
    refused(then, now, &format!("its variable '{name}' has other fields: {what}"))
        .hint(format!("count up the variable's version and migrate older values in the plugin; or {UNDO}"))
}
