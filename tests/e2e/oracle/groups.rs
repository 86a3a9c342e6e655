//! Operators over arbitrary state as `plugin` steps that call the guest `tests/guests/groups`, which has the functions of
//! the cases under their names.

use anyhow::{Context, Result};
use pelton_tests::plugin;
use serde_json::{Value, json};

/// The operators, in the oracle's words.
const OPERATORS: [&str; 4] =
    ["group_state", "map_groups_with_state", "flat_map_groups_with_state", "transform_with_state"];

/// Whether it is one of them.
pub(super) fn is_group_operator(op: &str) -> bool {
    OPERATORS.contains(&op)
}

/// Such an operator as a step. The steps before say how many there are already: each needs a name that stays when its
/// function is exchanged.
pub(super) fn step(plan: &Value, before: &[Value]) -> Result<Value> {
    let op = plan["op"].as_str().unwrap_or_default();
    let others = before.iter().filter(|step| step["plugin"].is_string()).count();
    let name = if others == 0 { "groups".to_owned() } else { format!("groups-{}", others + 1) };
    let mut step =
        json!({"plugin": format!("groups.{}", function(plan)?), "key": plan["keys"], "name": name});
    // Complete mode is none that a function can have: the query's own refusal counts.
    let has_mode = matches!(op, "group_state" | "flat_map_groups_with_state");
    if has_mode && plan["output_mode"] != "complete" {
        step["output_mode"] = plan["output_mode"].clone();
    }
    if plan["initial_state"].is_string() {
        step["initial_state"] = plan["initial_state"].clone();
    }
    Ok(step)
}

/// A function of the guest. Those of Scala are there in both forms.
fn function(plan: &Value) -> Result<String> {
    let function = plan["function"].as_str().context("a group operator without a function")?;
    let flat = if plan["op"] == "flat_map_groups_with_state" { "_flat" } else { "" };
    Ok(format!("{function}{flat}"))
}

/// The plugin of a query with such operators, with the parameters of its functions.
pub(super) fn plugins(plan: &Value) -> Result<Option<Value>> {
    let mut found = None;
    find(plan, &mut found);
    let Some(params) = found else { return Ok(None) };
    let path = plugin("groups.wasm")?;
    Ok(Some(json!({"groups": {"path": path, "config": params}})))
}

/// The guest takes the timeout beside the parameters.
fn config(plan: &Value) -> Value {
    let mut config = plan["params"].clone();
    if plan["timeout"].is_string() {
        config["timeout"] = plan["timeout"].clone();
    }
    config
}

/// The parameters of the topmost one.
fn find(plan: &Value, found: &mut Option<Value>) {
    match plan {
        Value::Object(members)
            if members.get("op").and_then(Value::as_str).is_some_and(is_group_operator) =>
        {
            found.get_or_insert_with(|| config(plan));
        }
        Value::Object(members) => members.values().for_each(|part| find(part, found)),
        Value::Array(parts) => parts.iter().for_each(|part| find(part, found)),
        _ => {}
    }
}
