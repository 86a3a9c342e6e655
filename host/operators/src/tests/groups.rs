//! Steps that call stateful functions: what the file says of them, which are refused, and that rows get there.

use super::{TestPlugin, batch, info, schema};
use crate::stateful::tests::group_functions::{Native, of_case};
use crate::{QueryDataflow, explain};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::{BatchId, BatchInfo, Error, GroupForm, Plugin, Result, Table, TableRows, TimeMode};
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use pelton_state::MemoryStateStore;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The functions of the test plugin, over rows with `v` and `ts`.
pub(super) fn function(name: &str, input: &Schema) -> Result<Native> {
    let (function, time_mode) = match name {
        "flat_event_time" => ("event_timeout_session", TimeMode::EventTime),
        "lists" => ("tws_list_map", TimeMode::None),
        _ => ("running_count_sum", TimeMode::None),
    };
    let native = of_case(function, time_mode, &json!({"gap_ms": 60_000}));
    let native = if name == "map" { native.with_form(GroupForm::MapGroups) } else { native };
    match (input.index_of("v"), input.index_of("ts")) {
        (Ok(v), Ok(ts)) => Ok(native.reading([v, ts])),
        _ => Err(Error::invalid("it needs the columns v and ts")),
    }
}

struct Given(RecordBatch);

impl Table for Given {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
    fn rows(&self, _: BatchId) -> Result<TableRows> {
        Ok(TableRows { version: 0, rows: self.0.clone() })
    }
}

const COLUMNS: &str = "a string, v long, k string, ts timestamp, b string";

/// A query over [`COLUMNS`].
fn planned(mode: &str, watermark: bool, steps: &str) -> Result<PhysicalPlan> {
    let watermark = if watermark { ", watermark: {column: ts, delay: 10 seconds}" } else { "" };
    let text = format!(
        "name: q\nsources: {{s: {{connector: rate{watermark}}}}}\noutput_mode: {mode}\nsink: {{connector: memory}}\n\
         tables:\n  known: {{schema: {{k: string, cnt: long, sm: int}}, rows: []}}\nsteps:\n{steps}"
    );
    let file = PipelineFile::read(&text, "p.yaml", &[])?;
    let plugins = BTreeMap::from([("p".to_owned(), Arc::new(TestPlugin::new()) as Arc<dyn Plugin>)]);
    let sources = BTreeMap::from([("s".to_owned(), schema(COLUMNS))]);
    let rows = batch(
        &schema("k string, cnt long, sm int"),
        &[json!({"k": "x", "cnt": 10, "sm": 100}), json!({"k": "y", "cnt": 20, "sm": 200})],
    );
    let tables = BTreeMap::from([("known".to_owned(), Arc::new(Given(rows)) as Arc<dyn Table>)]);
    PhysicalPlan::build(&LogicalPlan::resolve(&file, &PlanInputs { sources, plugins, tables })?)
}

fn refusal(mode: &str, watermark: bool, steps: &str) -> String {
    match planned(mode, watermark, steps) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.message().lines().next().unwrap_or_default().to_owned(),
    }
}

#[test]
fn what_is_written_wrongly_is_told_with_its_place() {
    for (step, says) in [
        ("- plugin: p.flat", "p.yaml:8:11: 'p.flat' is a stateful function: it needs the `key`"),
        ("- {plugin: p.flat, key: []}", "p.yaml:8:25: 'p.flat' is a stateful function: it needs the `key`"),
        ("- {plugin: p.twice, key: [k]}", "p.yaml:8:26: 'p.twice' is a transform function: it has no groups"),
        ("- {plugin: p.flat, key: [kk]}", "p.yaml:8:26: there is no column 'kk'; did you mean 'k'?"),
        ("- {plugin: p.flat, key: [k, K]}", "p.yaml:8:29: 'K' is among the key's columns already"),
        (
            "- {plugin: p.map, key: [k], output_mode: update}",
            "p.yaml:8:42: 'p.map' gives rows in one way only",
        ),
        ("- {plugin: p.flat, key: [k], initial_state: knwn}", "p.yaml:8:45: there is no table 'knwn'"),
        (
            "- {plugin: p.lists, key: [k], initial_state: known}",
            "p.yaml:8:46: only the state of a function with exactly one",
        ),
        (
            "- {plugin: p.flt, key: [k]}",
            "p.yaml:8:12: the plugin 'p' has no function 'flt'; did you mean 'flat'?",
        ),
        ("- {plugin: p.flat, key: [k], output_mode: complete}", "p.yaml:8:43: "),
    ] {
        let said = refusal("append", false, step);
        assert!(said.starts_with(says), "{step}: {said}");
    }
}

#[test]
fn output_modes_and_watermarks_are_judged_as_spark_does() {
    let flat = "- {plugin: p.flat, key: [k]}\n";
    let flat_append = "- {plugin: p.flat, key: [k], output_mode: append}\n";
    let flat_update = "- {plugin: p.flat, key: [k], output_mode: update}\n";
    let map = "- {plugin: p.map, key: [k]}\n";
    let event = "- {plugin: p.flat_event_time, key: [k]}\n";
    let lists = "- {plugin: p.lists, key: [k]}\n";
    let again = "- select: {k: k, v: cnt, ts: TIMESTAMP '2026-01-01 00:00:00'}\n";
    let count = "- sql: SELECT k, count(*) AS n FROM input GROUP BY k\n";
    let dedup = "- dedup: [k]\n";
    let ok = "accepted";
    let accepts = |mode: &str, watermark, steps: &[&str], says: &str| {
        let said = refusal(mode, watermark, &steps.concat());
        assert!(said.contains(says), "{mode} {steps:?}: {said}");
    };
    for mode in ["append", "update"] {
        accepts(mode, false, &[flat], ok);
        accepts(mode, false, &[lists], ok);
    }
    for steps in [flat, map, lists, flat_append] {
        accepts("complete", false, &[steps], "complete is not possible without an aggregation");
    }
    accepts(
        "update",
        false,
        &[flat_append],
        "its rows in output_mode append, but the query has output_mode update",
    );
    accepts(
        "append",
        false,
        &[flat_update],
        "its rows in output_mode update, but the query has output_mode append",
    );
    accepts("append", false, &[map], "gives a group again and again");
    accepts("update", false, &[map], ok);
    accepts("append", false, &[event], "timeouts by event time need a watermark");
    accepts("append", true, &[event], ok);
    accepts("update", true, &[event], ok);
    accepts("append", false, &[flat, again, flat], ok);
    accepts("update", false, &[flat, again, flat], "several functions over groups");
    accepts("append", false, &[flat, dedup], ok);
    accepts("update", false, &[flat, dedup], ok);
    accepts("update", false, &[map, dedup], ok);
    for mode in ["update", "complete"] {
        accepts(mode, false, &[flat_append, count], ok);
        accepts(mode, false, &[flat_update, count], "an aggregation are not possible in one query");
    }
    accepts("update", false, &[map, count], ok);
    accepts("append", true, &[flat_append, count], "without an event time");
    let window = "- sql: SELECT k, window(ts, '1 minute') AS w, count(*) AS v FROM input GROUP BY 1, 2\n";
    let named = "- select: {k: k, v: v, ts: w.end}\n";
    accepts("append", true, &[window, named, flat], ok);
    accepts("update", true, &[window, named, flat_append], "above an aggregation");
    accepts("update", true, &[window, named, map], "above an aggregation");
}

#[test]
fn the_way_out_for_several_functions_is_one_that_ends() {
    let update = "- {plugin: p.flat, key: [k], output_mode: update}\n";
    let again = "- select: {k: k, v: cnt, ts: TIMESTAMP '2026-01-01 00:00:00'}\n";
    let hint = |mode: &str, steps: &[&str]| {
        let refused = planned(mode, false, &steps.concat()).err();
        refused.and_then(|error| error.hint_text().map(str::to_owned)).unwrap_or_default()
    };
    let all = "set output_mode: append for the query and in the step of each of these functions";
    for mode in ["append", "update"] {
        let said = hint(mode, &[update, again, update]);
        assert!(said.starts_with(all), "{mode}: {said}");
    }
    let alone = hint("append", &[update]);
    assert_eq!(alone, "use output_mode: update for the query, or output_mode: append in the step");
    let append = update.replace("update", "append");
    assert!(planned("append", false, &[&append, again, &append].concat()).is_ok(), "what it says");
}

#[test]
fn only_the_columns_that_are_needed_are_read() {
    let plan =
        planned("append", true, "- {plugin: p.flat_event_time, key: [k], name: sessions}\n").expect("a plan");
    assert_eq!(plan.inputs[0].required_columns, ["v", "k", "ts"]);
    let text = explain(&plan);
    for line in [
        "flatMapGroupsWithState by k: plugin function p.flat_event_time, which reads v, ts and keeps state: value v1",
        "waits for the watermark to reach a group's timeout",
        "state: sessions (sessions/groups)",
    ] {
        assert!(text.contains(line), "'{line}' is missing in\n{text}");
    }
    let layout = plan.nodes[0].layout.as_ref().expect("a layout");
    assert_eq!(
        layout.to_string(),
        "keys (k: string), values (timeout: event time), state: value v1 (cnt: long, sm: long, last: long)"
    );
}

fn run(plan: &PhysicalPlan, store: &mut MemoryStateStore, batch_id: u64, rows: &[Value]) -> Vec<Value> {
    let columns = plan.inputs[0].required_columns.iter();
    let columns: Vec<usize> = columns.map(|name| schema(COLUMNS).index_of(name).expect("a column")).collect();
    let read: SchemaRef = Arc::new(schema(COLUMNS).project(&columns).expect("columns"));
    let flow = QueryDataflow::bind(plan, std::slice::from_ref(&read)).expect("binds");
    let info = BatchInfo { watermark_ms: None, ..info(batch_id) };
    let part = flow.part(&info, 0, 0, vec![batch(&read, rows)]).expect("runs");
    let mut gather = flow.gather(Arc::new(info));
    gather.add(part).expect("adds");
    let gathered = gather.finish(store, 2).expect("runs");
    let all = |rows: &RecordBatch| -> Vec<Value> {
        (0..rows.num_rows()).map(|row| row_json(rows, row, Nulls::Written).expect("JSON")).collect()
    };
    let mut rows: Vec<Value> = gathered.rows.iter().flat_map(all).collect();
    rows.sort_by_key(|row| row["k"].to_string());
    rows
}

#[test]
fn groups_begin_with_the_state_of_a_table_once() {
    let plan =
        planned("update", false, "- {plugin: p.flat, key: [k], initial_state: known}\n").expect("a plan");
    let mut store = MemoryStateStore::new();
    let row = |k: &str| json!({"k": k, "v": 1, "ts": "2026-01-01T00:00:00Z"});
    let short = |rows: Vec<Value>| -> Vec<String> {
        rows.iter()
            .map(|row| format!("{} {} {}", row["k"].as_str().unwrap_or("?"), row["n_in"], row["cnt"]))
            .collect()
    };
    let first = run(&plan, &mut store, 0, &[row("x"), row("n"), row("x")]);
    assert_eq!(short(first), ["n 1 1", "x 2 12", "y 0 20"]);
    let second = run(&plan, &mut store, 1, &[row("y"), row("x")]);
    assert_eq!(short(second), ["x 1 13", "y 1 21"]);
}
