//! Whether the variables of a plugin's function go on with what is stored of them.
//!
//! Names of fields do not count, as in Spark. What is of an older version is migrated by the function when it is read.

use super::{UNDO, refused};
use pelton_core::{Error, KIND_WITH_VARIABLES, Result, StateColumn, StateLayout, VariableLayout};

/// Compares the variables of an operator, by name. Gives what a person should know, a sentence each.
pub(super) fn go_on(then: &StateLayout, now: &StateLayout) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let find = |layout: &'_ StateLayout, name: &str| layout.variables.iter().position(|v| v.name == name);
    for variable in &now.variables {
        match find(then, &variable.name) {
            Some(old) if then.variables[old].set_aside => return Err(is_back(now, &variable.name)),
            Some(old) => notes.extend(variable_goes_on(then, now, &then.variables[old], variable)?),
            None if now.kind != KIND_WITH_VARIABLES => return Err(no_variables(then, now)),
            None => notes.push(format!("operator '{}': the variable '{}' is new", now.name, variable.name)),
        }
    }
    let gone = then.variables.iter().filter(|old| !old.set_aside && find(now, &old.name).is_none());
    let gone: Vec<String> = gone
        .map(|old| {
            format!(
                "operator '{0}': the variable '{1}' is no longer used; its state is set aside until it is dropped with \
                 --reset-state {0}.{1}",
                now.name, old.name
            )
        })
        .collect();
    if !gone.is_empty() && now.kind != KIND_WITH_VARIABLES {
        return Err(no_variables(then, now));
    }
    notes.extend(gone);
    Ok(notes)
}

/// What it holds is of the time before it was dropped.
fn is_back(now: &StateLayout, variable: &str) -> Error {
    Error::invalid(format!(
        "the variable '{variable}' of the operator '{}' is back, but its state was set aside by an earlier change: what \
         came since then is not in it",
        now.name
    ))
    .hint(format!(
        "start once with --reset-state {}.{variable} to let it begin with empty state, or give it another name",
        now.name
    ))
}

/// Where the state is one value a group there is nothing to set aside.
fn no_variables(then: &StateLayout, now: &StateLayout) -> Error {
    refused(then, now, "the value of a group has another name, or is there in one of the two alone")
        .hint(format!("give the function's state the name that it had; or {UNDO}"))
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
    let types = |columns: &[StateColumn]| -> Vec<String> {
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
    let is_elsewhere = |(at, field): (usize, &StateColumn)| {
        new.value.iter().position(|now| now.name == field.name).is_some_and(|now| now != at)
    };
    // Fields of the same types that only have other names are the same fields.
    if types(&old.value) == types(&new.value) && !old.value.iter().enumerate().any(is_elsewhere) {
        let narrowed = (0..new.value.len()).find(|at| is_narrowed(old, *at, new, *at));
        return match narrowed {
            None => Ok(None),
            Some(at) => Err(no_way(then, now, name, &narrowed_field(&new.value[at]))),
        };
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
    new.value.iter().enumerate().find_map(|(at, field)| {
        match old.value.iter().position(|known| known.name == field.name) {
            Some(before) if old.value[before].data_type != field.data_type => {
                let known = &old.value[before];
                Some(format!(
                    "`{}: {}` would now be `{}: {}`",
                    known.name, known.data_type, field.name, field.data_type
                ))
            }
            Some(before) if is_narrowed(old, before, new, at) => Some(narrowed_field(field)),
            Some(_) => None,
            None if may_be_null(new, at) => None,
            None => Some(format!("the new field `{}: {}` cannot be null", field.name, field.data_type)),
        }
    })
}

fn may_be_null(layout: &VariableLayout, field: usize) -> bool {
    layout.nullable.get(field).copied().unwrap_or(true)
}

/// Whether a field that may be null in what is stored may not be any more.
fn is_narrowed(old: &VariableLayout, before: usize, new: &VariableLayout, now: usize) -> bool {
    may_be_null(old, before) && !may_be_null(new, now)
}

fn narrowed_field(field: &StateColumn) -> String {
    format!("`{}: {}` may be null in what is stored and could not be any more", field.name, field.data_type)
}

fn no_way(then: &StateLayout, now: &StateLayout, name: &str, what: &str) -> Error {
    refused(then, now, &format!("its variable '{name}' has other fields: {what}"))
        .hint(format!("count up the variable's version and migrate older values in the plugin; or {UNDO}"))
}
