//! Aggregations over event time: the cases that real Spark answered.

use super::micro_batches::{Query, Ran, physical};
use super::oracle::{input_row, row};
use super::{ZONE, batch};
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use pelton_core::types::parse_type;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn schema_of(stream: &Value) -> SchemaRef {
    let columns = stream["schema"].as_array().expect("a schema");
    let field = |column: &Value| {
        let data_type = parse_type(column["type"].as_str().expect("a type"), ZONE).expect("a type");
        Field::new(column["name"].as_str().expect("a name"), data_type, true)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn pipeline(case: &Value, streams: &serde_json::Map<String, Value>) -> String {
    let mut sources = serde_json::Map::new();
    for (name, stream) in streams {
        let mut source = json!({"connector": "rate"});
        if let (Some(column), Some(delay)) = (stream["event_time"].as_str(), stream["watermark"].as_str()) {
            source["watermark"] = json!({"column": column, "delay": delay});
        }
        sources.insert(name.clone(), source);
    }
    json!({
        "name": "q",
        "sources": sources,
        "steps": [{"sql": case["query"]["sql"]}],
        "output_mode": case["query"]["output_mode"],
        "sink": {"connector": "memory"},
    })
    .to_string()
}

/// The rows that a step adds: for each micro-batch and stream one part, if there is any.
fn added(step: &Value, schemas: &BTreeMap<String, SchemaRef>) -> Vec<BTreeMap<String, RecordBatch>> {
    let rows = |name: &str, rows: &Value| {
        let schema = &schemas[name];
        let rows: Vec<Value> =
            rows.as_array().expect("rows").iter().map(|row| input_row(row, schema)).collect();
        batch(schema, &rows)
    };
    let mut batches: Vec<BTreeMap<String, RecordBatch>> = Vec::new();
    for (name, files) in step["add"].as_object().into_iter().flatten() {
        batches.resize(1, BTreeMap::new());
        batches[0].insert(name.clone(), rows(name, files));
    }
    for (name, files) in step["add_backlog"].as_object().into_iter().flatten() {
        for (at, file) in files.as_array().expect("files").iter().enumerate() {
            batches.resize(batches.len().max(at + 1), BTreeMap::new());
            batches[at].insert(name.clone(), rows(name, file));
        }
    }
    batches
}

fn text_of(rows: &[RecordBatch]) -> Vec<String> {
    let rows = rows.iter().flat_map(|rows| (0..rows.num_rows()).map(move |at| row(rows, at)));
    rows.map(|row| sorted_text(&row)).collect()
}

fn sorted_text(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.iter().map(|(k, v)| (k, sorted_text(v))).collect();
            format!("{members:?}")
        }
        other => other.to_string(),
    }
}

fn check(name: &str, ran: &Ran, expected: &Value) {
    let at = format!("{name}, micro-batch {}", ran.batch_id);
    assert_eq!(json!(ran.batch_id), expected["batch_id"], "{at}");
    let watermark = expected["watermark"].as_str().map(|text| {
        let nanos = arrow::compute::kernels::cast_utils::string_to_timestamp_nanos(text).expect("a time");
        nanos.div_euclid(1_000_000)
    });
    assert_eq!(ran.watermark_ms, watermark, "{at}: watermark");
    let (mut rows, mut wanted) = (text_of(&ran.rows), Vec::new());
    wanted.extend(expected["rows"].as_array().expect("rows").iter().map(sorted_text));
    rows.sort();
    wanted.sort();
    assert_eq!(rows, wanted, "{at}");
    assert_eq!(json!(ran.state_rows), expected["state_rows"], "{at}: rows of state");
}

/// Replays a case; whether it ran into the error that it ends with.
fn replay(name: &str, text: &str) -> bool {
    let case: Value = serde_json::from_str(text).expect("JSON");
    let streams = case["input"]["streams"].as_object().expect("streams");
    let schemas: BTreeMap<String, SchemaRef> =
        streams.iter().map(|(name, stream)| (name.clone(), schema_of(stream))).collect();
    let plan = physical(&pipeline(&case, streams), &schemas).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut query = Query::new(&plan).expect("a query");
    query.threads = 2;
    for step in case["batches"].as_array().expect("steps") {
        let mut expected = step["expect"].as_array().into_iter().flatten();
        for parts in added(step, &schemas) {
            let parts: Vec<Vec<RecordBatch>> =
                query.inputs.iter().map(|(name, _)| parts.get(name).cloned().into_iter().collect()).collect();
            let Some(expected) = expected.next() else {
                return query.run(&parts).is_err();
            };
            let ran = query.run(&parts).unwrap_or_else(|e| panic!("{name}: {e}"));
            check(name, &ran, expected);
        }
        for expected in expected {
            assert_eq!(expected["no_data"], json!(true), "{name}");
            assert!(
                query.wants_more(),
                "{name}: no micro-batch without data before {}",
                expected["batch_id"]
            );
            let ran = query.run(&vec![Vec::new(); query.inputs.len()]).expect("runs");
            check(name, &ran, expected);
        }
        let disabled = case["conf"]["spark.sql.streaming.noDataMicroBatches.enabled"] == json!("false");
        assert!(disabled || !query.wants_more(), "{name}: one micro-batch too many");
    }
    false
}

/// Cases of these groups that are not for this test.
const LEFT_OUT: [(&str, &str); 8] = [
    ("approx_count_distinct", "DataFusion's function counts in another type"),
    ("aggregates_stddev_var", "doubles to a tolerance: the end-to-end tests compare so"),
    ("multi_watermark_policy_max", "these micro-batches know the policy min only"),
    ("complete_sort_desc_nulls", "Spark counts the state of a sorted result twice"),
    ("complete_sort_nulls", "Spark counts the state of a sorted result twice"),
    ("complete_sort_limit", "Spark counts the state of a sorted result twice"),
    ("sum_decimal_overflow", "has raw text for numbers: the end-to-end tests read it"),
    ("two_aggregations_allow_multiple_false", "a setting of Spark's that makes it lose rows"),
];

/// Replays the cases of a group that have a query in SQL and neither restarts nor refusals.
fn replay_group(group: &str) {
    let directory = format!("{}/../../tests/oracle/{group}", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<_> =
        std::fs::read_dir(directory).expect("cases").map(|e| e.expect("a case").path()).collect();
    names.sort();
    let mut replayed = 0;
    for path in names {
        let text = std::fs::read_to_string(&path).expect("a case");
        let case: Value = serde_json::from_str(&text).expect("JSON");
        let name = case["name"].as_str().expect("a name");
        let is_refused = case["error"].is_object()
            && (case["error"]["phase"] != json!("runtime") || name.ends_with("_refused"));
        let steps = case["batches"].as_array().expect("steps");
        let only_adds = steps.iter().all(|step| step.get("restart").is_none() && step.get("stop").is_none());
        if is_refused
            || !only_adds
            || case["query"]["sql"].is_null()
            || LEFT_OUT.iter().any(|(left, _)| *left == name)
        {
            continue;
        }
        assert_eq!(replay(name, &text), case["error"].is_object(), "{name}: whether it fails");
        replayed += 1;
    }
    assert!(replayed >= 5, "{replayed} cases");
}

#[test]
fn aggregations_over_windows_are_sparks() {
    replay_group("02_window_agg");
}

#[test]
fn aggregations_without_windows_are_sparks() {
    replay_group("03_groupby_agg");
}

#[test]
fn chains_of_operators_are_sparks() {
    replay_group("08_chained");
}

#[test]
fn explain_shows_sources_operators_and_what_they_wait_for() {
    let schemas = BTreeMap::from([("s".to_owned(), super::schema("k string, v long, ts timestamp"))]);
    let watermark = json!({"column": "ts", "delay": "1 minute"});
    let sql =
        "SELECT k, window(ts, '10 minutes') AS w, count(*) AS n FROM s GROUP BY k, window(ts, '10 minutes')";
    let text = json!({
        "name": "q",
        "sources": {"s": {"connector": "rate", "watermark": watermark}},
        "output_mode": "append",
        "steps": [{"sql": sql, "name": "counts"}],
        "sink": {"connector": "memory"},
    });
    let plan = physical(&text.to_string(), &schemas).expect("a plan");
    let text = crate::explain(&plan);
    for line in [
        "├─ from s to counts",
        "watermark: 60000 ms behind the latest ts",
        "aggregate by k, window",
        "windows of 600000 ms, one every 600000 ms",
        "waits for the watermark to pass the end of a window",
        "to the sink",
        "/groups)",
    ] {
        assert!(text.contains(line), "'{line}' is missing in\n{text}");
    }
}
