//! A case of the oracle as a script for `pelton test`: the same pipeline, the same rows in the same micro-batches.

use super::case::Case;
use super::{groups, plan};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// What is done to a query besides what its case says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// Nothing.
    None,
    /// Every row is a block of its own, on whatever thread is free.
    Scattered,
    /// It is stopped and started between all steps.
    Restarts,
    /// The sink fails in every micro-batch, before it has the rows; each time the query is started again.
    CrashBefore,
    /// The sink fails in every micro-batch, after it has the rows.
    CrashAfter,
    /// After every step the query dies, and the commit of its last micro-batch is lost.
    LostCommits,
}

/// The script of a case.
pub(super) fn script(case: &Case, disturbance: Disturbance) -> Result<Value> {
    let pipeline = pipeline(&case.value, &case.value["query"], case.text("name"))?;
    let mut sources = pipeline["sources"].clone();
    let mut steps = Vec::new();
    // What the clock alone makes due waits, after a start, for the first data: there a restart is to be seen, as in Spark.
    let restarts = disturbance == Disturbance::Restarts && case.value["clock"].is_null();
    for (at, step) in case.steps().enumerate() {
        if restarts && at > 0 && step["restart"].is_null() && !is_down(case, at) {
            steps.push(json!({"restart": true}));
        }
        if step["pipeline"].is_object() {
            sources = step["pipeline"]["sources"].clone();
        }
        let of_step = actions(step, &sources)?;
        match disturbance {
            Disturbance::None | Disturbance::Scattered | Disturbance::Restarts => steps.extend(of_step),
            Disturbance::LostCommits => {
                steps.extend(of_step);
                steps.extend(lost_commit(step));
            }
            Disturbance::CrashBefore => steps.extend(crashing(step, of_step, "before")),
            Disturbance::CrashAfter => steps.extend(crashing(step, of_step, "after")),
        }
    }
    let clock = case.value["clock"]["start_ms"].as_i64().map(|ms| json!({"start": time(ms)}));
    let mut script = json!({"pipeline": pipeline, "steps": steps});
    if let Some(clock) = clock {
        script["clock"] = clock;
    }
    if disturbance == Disturbance::Scattered {
        script["rows_per_block"] = json!(1);
    }
    Ok(script)
}

/// A step before has stopped the query.
fn is_down(case: &Case, at: usize) -> bool {
    case.steps().nth(at - 1).is_some_and(|before| before["stop"] == true || before["expect_failure"] == true)
}

fn time(ms: i64) -> String {
    let seconds = ms / 1000;
    // The cases' clocks start at full hours of the first of January 2026.
    let since = seconds - 1_767_225_600;
    format!("2026-01-01T{:02}:{:02}:{:02}Z", since / 3600, since / 60 % 60, since % 60)
}

/// A pipeline file: `streams` and `conf` of a case (or of an entry of a matrix), and its query.
pub(super) fn pipeline(case: &Value, query: &Value, name: &str) -> Result<Value> {
    let input = if case["input"].is_object() { &case["input"] } else { case };
    let streams = input["streams"].as_object().context("no streams")?;
    let used = streams.iter().filter(|(name, _)| plan::reads(query, name));
    let sources = used.map(|(name, stream)| Ok((name.clone(), source(stream)?)));
    let mut pipeline = json!({
        "name": name,
        "sources": sources.collect::<Result<Map<_, _>>>()?,
        "steps": plan::steps(query)?,
        "output_mode": query["output_mode"],
    });
    if let Some(tables) = input["static"].as_object().filter(|tables| !tables.is_empty()) {
        let table = |table: &Value| anyhow::Ok(json!({"schema": schema(table)?, "rows": table["rows"]}));
        let tables = tables.iter().map(|(name, value)| Ok((name.clone(), table(value)?)));
        pipeline["tables"] = Value::Object(tables.collect::<Result<_>>()?);
    }
    if let Some(plugins) = groups::plugins(&query["plan"])? {
        pipeline["plugins"] = plugins;
    }
    if query["sql"].is_null() {
        for (source, watermark) in plan::watermarks(&query["plan"]) {
            pipeline["sources"][source]["watermark"] = watermark;
        }
    }
    conf(&case["conf"], &mut pipeline)?;
    if case["trigger"] == "available_now" {
        pipeline["trigger"] = json!("available_now");
    }
    if let Some(ms) = case["clock"]["trigger_ms"].as_i64() {
        pipeline["trigger"] = json!({"processing_time": format!("{ms} ms")});
    }
    Ok(pipeline)
}

fn source(stream: &Value) -> Result<Value> {
    let mut source = json!({
        "connector": "file", "path": "none", "format": "json", "on_malformed": "null", "schema": schema(stream)?,
    });
    if let (Some(column), Some(delay)) = (stream["event_time"].as_str(), stream["watermark"].as_str()) {
        source["watermark"] = json!({"column": column, "delay": delay});
    }
    Ok(source)
}

fn schema(table: &Value) -> Result<Map<String, Value>> {
    let columns = table["schema"].as_array().context("no schema")?;
    let column = |column: &Value| Some((column["name"].as_str()?.to_owned(), column["type"].clone()));
    columns.iter().map(column).collect::<Option<_>>().context("a column without a name")
}

/// Spark's settings that a pipeline has as keys of its own. Those of the state's storage mean nothing here.
fn conf(conf: &Value, pipeline: &mut Value) -> Result<()> {
    for (key, value) in conf.as_object().into_iter().flatten() {
        let (key, value) = match (key.as_str(), value.as_str().unwrap_or_default()) {
            ("spark.sql.streaming.multipleWatermarkPolicy", policy) => ("watermark_policy", json!(policy)),
            ("spark.sql.streaming.noDataMicroBatches.enabled", on) => {
                ("no_data_batches", json!(on == "true"))
            }
            ("spark.sql.streaming.statefulOperator.allowMultiple", _)
            | ("spark.sql.streaming.stateStore.providerClass", _)
            | ("spark.sql.streaming.stateStore.stateSchemaCheck", _)
            | ("spark.sql.shuffle.partitions", _) => continue,
            (other, _) => bail!("the setting {other} is not translated"),
        };
        pipeline[key] = value;
    }
    Ok(())
}

/// A step of a case as steps of a script. Rows for streams that the query does not read are left out.
fn actions(step: &Value, sources: &Value) -> Result<Vec<Value>> {
    let mut actions = Vec::new();
    for (key, when) in [("fail_sink_on_batch", "before"), ("fail_sink_after_batch", "after")] {
        if let Some(id) = step[key].as_u64() {
            actions.push(json!({"fail_sink": {"batch_id": id, "when": when}}));
        }
    }
    if step["before_start"] == true {
        actions.push(json!("stop"));
    }
    if step["restart"] == true {
        if let Some(id) = step["delete_commit"].as_u64() {
            actions.extend([json!("stop"), json!({"delete_commit": id})]);
        }
        let mut change = json!({"add_offline": lists(&step["add_offline"], sources)?});
        let mut set = json!({});
        conf(&step["set_conf"], &mut set)?;
        change["set"] = set;
        if step["pipeline"].is_object() {
            change["pipeline"] = step["pipeline"].clone();
        }
        actions.push(json!({"restart": change}));
    }
    let added = match step["add_backlog"].is_object() {
        true => lists(&step["add_backlog"], sources)?,
        false => one_list_each(&step["add"], sources)?,
    };
    if added.as_object().is_some_and(|added| !added.is_empty()) {
        actions.push(json!({"add": added}));
    }
    if let Some(ms) = step["advance_ms"].as_i64() {
        actions.push(json!({"advance_clock": format!("{ms} ms")}));
    }
    if step["before_start"] == true {
        actions.push(json!("start"));
    }
    if step["stop"] == true {
        actions.push(json!("stop"));
    }
    if step["expect_failure"] == true {
        actions.push(json!({"expect": {"error": {}}}));
    }
    Ok(actions)
}

/// Rows as raw JSON text, so that nothing in between reads their numbers.
fn rows(rows: &Value) -> Result<Value> {
    let text = |row: &Value| Value::from(row.as_str().map_or_else(|| row.to_string(), str::to_owned));
    Ok(rows.as_array().context("rows are a list")?.iter().map(text).collect())
}

fn read<'a>(added: &'a Value, sources: &'a Value) -> impl Iterator<Item = (&'a String, &'a Value)> {
    added.as_object().into_iter().flatten().filter(|(name, _)| sources[name.as_str()].is_object())
}

fn one_list_each(added: &Value, sources: &Value) -> Result<Value> {
    let pairs = read(added, sources).map(|(name, list)| Ok((name.clone(), json!([rows(list)?]))));
    Ok(Value::Object(pairs.collect::<Result<_>>()?))
}

fn lists(added: &Value, sources: &Value) -> Result<Value> {
    let lists = |lists: &Value| lists.as_array().into_iter().flatten().map(rows).collect::<Result<Value>>();
    let pairs = read(added, sources).map(|(name, value)| Ok((name.clone(), lists(value)?)));
    Ok(Value::Object(pairs.collect::<Result<_>>()?))
}

/// The step's actions with a sink that fails in each of its micro-batches, and a restart after each failure.
fn crashing(step: &Value, actions: Vec<Value>, when: &str) -> Vec<Value> {
    let batches: Vec<u64> = step["expect"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|batch| batch["batch_id"].as_u64())
        .collect();
    let own = !step["fail_sink_on_batch"].is_null() || !step["fail_sink_after_batch"].is_null();
    // A case that ends in a failure of its own is disturbed enough.
    if own || step["error"].is_object() {
        return actions;
    }
    let fault = |id: &u64| json!({"fail_sink": {"batch_id": id, "when": when}});
    let mut steps: Vec<Value> = batches.first().map(fault).into_iter().collect();
    steps.extend(actions);
    for (at, _) in batches.iter().enumerate() {
        steps.push(json!({"expect": [{"error": {"message": "the script makes the sink fail"}}]}));
        steps.extend(batches.get(at + 1).map(fault));
        steps.push(json!({"restart": true}));
    }
    steps
}

/// The last micro-batch of the step is to run again, if the step leaves a query that runs.
fn lost_commit(step: &Value) -> Vec<Value> {
    let last = step["expect"].as_array().and_then(|batches| batches.last());
    let down = step["stop"] == true || step["error"].is_object();
    match last.and_then(|batch| batch["batch_id"].as_u64()).filter(|_| !down) {
        Some(id) => vec![json!("stop"), json!({"delete_commit": id}), json!("start")],
        None => Vec::new(),
    }
}
