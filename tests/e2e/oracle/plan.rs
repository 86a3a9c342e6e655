//! A query of the oracle as steps of a pipeline: its SQL if it has one, else its plan, as a chain of steps as far as it
//! is one, and below a join or a union as SQL.

use super::groups;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// The steps of `query` (`sql` or `plan`).
pub(super) fn steps(query: &Value) -> Result<Vec<Value>> {
    match query["sql"].as_str() {
        Some(sql) => Ok(vec![json!({"sql": sql})]),
        None => {
            let mut steps = Vec::new();
            chain(&query["plan"], &mut steps)?;
            Ok(steps)
        }
    }
}

fn chain(plan: &Value, steps: &mut Vec<Value>) -> Result<()> {
    let op = plan["op"].as_str().context("a plan without an operator")?;
    let is_tree = matches!(op, "join" | "union" | "sql" | "table");
    if op == "project" && groups::is_group_operator(text(&plan["input"]["left"], "op")) {
        return join_of_function(plan, steps);
    }
    // The columns of a join are named above it.
    if is_tree || (op == "project" && plan["input"]["op"] == "join") {
        steps.push(json!({"sql": sql(plan)?}));
        return Ok(());
    }
    if op == "source" {
        return Ok(());
    }
    chain(&plan["input"], steps)?;
    steps.push(match op {
        "project" => {
            let named = list(plan, "exprs").map(|e| json!({text(e, "as"): e["expr"]}));
            json!({"select": named.collect::<Vec<_>>()})
        }
        "filter" => json!({"filter": plan["condition"]}),
        "with_watermark" => json!({"watermark": {"column": plan["column"], "delay": plan["delay"]}}),
        "distinct" => json!({"dedup": "all"}),
        op if groups::is_group_operator(op) => groups::step(plan, steps)?,
        "drop_duplicates" => match (plan["columns"].is_null(), plan["within_watermark"] == true) {
            (true, false) => json!({"dedup": "all"}),
            (true, true) => json!({"dedup": {"within_watermark": true}}),
            (false, within) => json!({"dedup": {"columns": plan["columns"], "within_watermark": within}}),
        },
        _ => json!({"sql": over(plan, "input")?}),
    });
    Ok(())
}

/// A join whose left side is a stateful function over a source: that is a step of its own, and the join reads it.
fn join_of_function(plan: &Value, steps: &mut Vec<Value>) -> Result<()> {
    let left = &plan["input"]["left"];
    steps.push(json!({"sql": sql(&left["input"])?}));
    steps.push(groups::step(left, steps)?);
    let mut join = plan.clone();
    join["input"]["left"] = json!({"op": "source", "stream": "input"});
    steps.push(json!({"sql": sql(&join)?}));
    Ok(())
}

fn list<'a>(plan: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    plan[key].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A whole plan as a SELECT.
fn sql(plan: &Value) -> Result<String> {
    Ok(match text(plan, "op") {
        "source" => format!("SELECT * FROM {}", text(plan, "stream")),
        "table" => format!("SELECT * FROM {}", text(plan, "table")),
        "sql" => text(plan, "text").to_owned(),
        "union" => {
            let sides = list(plan, "inputs").map(sql).collect::<Result<Vec<_>>>()?;
            sides.join(" UNION ALL ")
        }
        "project" if plan["input"]["op"] == "join" => {
            format!("SELECT {} FROM {}", projection(plan), join(&plan["input"])?)
        }
        "join" => bail!("a join without a projection"),
        _ => over(plan, &side(&plan["input"])?)?,
    })
}

/// Whether a query reads a stream.
pub(super) fn reads(query: &Value, stream: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let names = |sql: &str| sql.split(|c| !is_word(c)).any(|word| word == stream);
    let plan = &query["plan"];
    query["sql"].as_str().is_some_and(names)
        || plan["text"].as_str().is_some_and(names)
        || plan.to_string().contains(&format!("\"stream\":\"{stream}\""))
}

/// The watermarks that a plan declares below a join or a union, where no step can: they belong to the sources.
pub(super) fn watermarks(plan: &Value) -> Vec<(String, Value)> {
    match text(plan, "op") {
        "join" => ["left", "right"].into_iter().flat_map(|side| declared(&plan[side])).collect(),
        "union" => list(plan, "inputs").flat_map(declared).collect(),
        _ if plan["input"].is_object() => watermarks(&plan["input"]),
        _ => Vec::new(),
    }
}

fn declared(plan: &Value) -> Vec<(String, Value)> {
    match (text(plan, "op"), text(&plan["input"], "op")) {
        ("with_watermark", "source") => {
            let watermark = json!({"column": plan["column"], "delay": plan["delay"]});
            vec![(text(&plan["input"], "stream").to_owned(), watermark)]
        }
        ("join" | "union", _) => watermarks(plan),
        _ if plan["input"].is_object() => declared(&plan["input"]),
        _ => Vec::new(),
    }
}

/// A plan behind FROM.
fn side(plan: &Value) -> Result<String> {
    Ok(match text(plan, "op") {
        "with_watermark" => side(&plan["input"])?,
        "source" => text(plan, "stream").to_owned(),
        "table" => text(plan, "table").to_owned(),
        _ => format!("({})", sql(plan)?),
    })
}

fn join(plan: &Value) -> Result<String> {
    let named = |which: &str, alias: &str| -> Result<String> {
        let alias = plan[alias].as_str().context("a join without aliases")?;
        Ok(format!("{} AS {alias}", side(&plan[which])?))
    };
    let (left, right) = (named("left", "left_alias")?, named("right", "right_alias")?);
    let kind = text(plan, "type").replace('_', " ").to_uppercase();
    Ok(format!("{left} {kind} JOIN {right} ON {}", text(plan, "on")))
}

fn projection(plan: &Value) -> String {
    let exprs = list(plan, "exprs").map(|e| format!("{} AS {}", text(e, "expr"), text(e, "as")));
    exprs.collect::<Vec<_>>().join(", ")
}

/// One operator as a SELECT over what is below it.
fn over(plan: &Value, input: &str) -> Result<String> {
    Ok(match text(plan, "op") {
        "project" => format!("SELECT {} FROM {input}", projection(plan)),
        "filter" => format!("SELECT * FROM {input} WHERE {}", text(plan, "condition")),
        "limit" => format!("SELECT * FROM {input} LIMIT {}", plan["n"]),
        "sort" => format!("SELECT * FROM {input} ORDER BY {}", sort_keys(plan)),
        "drop_duplicates" if plan["columns"].is_array() => {
            let columns: Vec<&str> = list(plan, "columns").filter_map(Value::as_str).collect();
            format!("SELECT DISTINCT ON ({}) * FROM {input}", columns.join(", "))
        }
        "aggregate" => aggregate(plan, input)?,
        other => bail!("the operator {other} is not translated"),
    })
}

fn sort_keys(plan: &Value) -> String {
    let keys = list(plan, "by").map(|key| format!("{} {}", text(key, "expr"), text(key, "dir")));
    keys.collect::<Vec<_>>().join(", ")
}

fn aggregate(plan: &Value, input: &str) -> Result<String> {
    let keys = list(plan, "keys").map(|key| Ok((key_sql(key)?, text(key, "as"))));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let aggregates = list(plan, "aggs").map(|a| {
        let arguments: Vec<String> =
            list(a, "args").map(|arg| arg.as_str().map_or_else(|| arg.to_string(), str::to_owned)).collect();
        let distinct = if a["distinct"] == true { "DISTINCT " } else { "" };
        format!("{}({distinct}{}) AS {}", text(a, "fn"), arguments.join(", "), text(a, "as"))
    });
    let columns: Vec<String> =
        keys.iter().map(|(key, name)| format!("{key} AS {name}")).chain(aggregates).collect();
    let group: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
    let group = if group.is_empty() { String::new() } else { format!(" GROUP BY {}", group.join(", ")) };
    Ok(format!("SELECT {} FROM {input}{group}", columns.join(", ")))
}

fn key_sql(key: &Value) -> Result<String> {
    let window = &key["window"];
    if window.is_null() {
        return Ok(text(key, "expr").to_owned());
    }
    let (time, size) = (text(window, "time"), text(window, "size"));
    Ok(match text(window, "kind") {
        "session" => match window["gap_expr"].as_str() {
            Some(gap) => format!("session_window({time}, {gap})"),
            None => format!("session_window({time}, '{}')", text(window, "gap")),
        },
        "tumbling" | "sliding" => {
            let slide = window["slide"].as_str().unwrap_or(size);
            match window["start"].as_str() {
                Some(start) => format!("window({time}, '{size}', '{slide}', '{start}')"),
                None if slide == size => format!("window({time}, '{size}')"),
                None => format!("window({time}, '{size}', '{slide}')"),
            }
        }
        other => bail!("the window {other} is not translated"),
    })
}
