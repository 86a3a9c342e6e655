//! Steps over rows: the values that come out, the rows that are refused, and that both stay the same in a rerun.

use crate::{QueryDataflow, explain};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef};
use pelton_core::function::PluginMetrics;
use pelton_core::function::ScalarOutput;
use pelton_core::types::parse_columns;
use pelton_core::{
    BatchId, BatchInfo, CallScope, Encoding, Error, FunctionInfo, FunctionKind, Manifest, OutputMode, Part,
    Plugin, PluginDigest, QueryId, Rejected, Result, ScalarFunction, SinkFunction, StatefulFunction,
    TransformFunction, TransformOutput,
};
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

mod event_time;
mod functions;
mod groups;
mod layouts;
mod micro_batches;
mod oracle;
mod poison;
mod window_model;

const ZONE: &str = "UTC";

fn info(batch_id: u64) -> BatchInfo {
    BatchInfo {
        query_id: QueryId("q".into()),
        batch_id: BatchId(batch_id),
        time_ms: 1_767_225_600_123,
        watermark_ms: None,
        late_watermark_ms: None,
    }
}

fn schema(columns: &str) -> SchemaRef {
    Arc::new(Schema::new(parse_columns(columns, ZONE).expect("columns")))
}

fn batch(schema: &SchemaRef, rows: &[Value]) -> RecordBatch {
    let mut decoder = arrow_json::ReaderBuilder::new(schema.clone()).build_decoder().expect("a decoder");
    decoder.serialize(rows).expect("rows");
    decoder.flush().expect("decodes").unwrap_or_else(|| RecordBatch::new_empty(schema.clone()))
}

fn plan(steps: &str, schema: &SchemaRef) -> Result<PhysicalPlan> {
    let text =
        format!("name: q\nsources: {{s: {{connector: rate}}}}\nsink: {{connector: memory}}\nsteps:\n{steps}");
    let file = PipelineFile::read(&text, "p.yaml", &[])?;
    let mut plugins: BTreeMap<String, Arc<dyn Plugin>> = BTreeMap::new();
    plugins.insert("p".into(), Arc::new(TestPlugin::new()));
    let sources = BTreeMap::from([("s".to_owned(), schema.clone())]);
    let inputs = PlanInputs { sources, plugins, ..PlanInputs::default() };
    PhysicalPlan::build(&LogicalPlan::resolve(&file, &inputs)?)
}

fn run_batch(steps: &str, schema: &SchemaRef, rows: &[Value]) -> Result<Part> {
    let plan = plan(steps, schema)?;
    let read = schema.project(
        &plan.inputs[0]
            .required_columns
            .iter()
            .map(|c| schema.index_of(c).expect("a column"))
            .collect::<Vec<_>>(),
    )?;
    let read = Arc::new(read);
    let segment = QueryDataflow::bind(&plan, std::slice::from_ref(&read))?;
    assert_eq!(segment.schema(), plan.schema);
    let output = segment.part(&info(3), 0, 0, vec![batch(&read, rows)])?;
    for rows in &output.rows {
        assert_eq!(rows.schema(), plan.schema);
    }
    Ok(output)
}

fn rows_of(output: &Part) -> Vec<Value> {
    let rows = output.rows.iter().flat_map(|rows| (0..rows.num_rows()).map(move |row| (rows, row)));
    rows.map(|(rows, row)| row_json(rows, row, Nulls::Written).expect("JSON")).collect()
}

fn run(steps: &str, columns: &str, rows: &[Value]) -> Result<Vec<Value>> {
    run_batch(steps, &schema(columns), rows).map(|output| rows_of(&output))
}

/// `is_short(text)`: true for up to three characters, refuses empty text. `twice(rows)`: every row twice, refuses
/// negative numbers. `length(text)`: its length plus the seed's parity is left out; it shows the call's number.
struct TestPlugin {
    manifest: Manifest,
    digest: PluginDigest,
}

impl TestPlugin {
    fn new() -> Self {
        let function = |name: &str, kind| FunctionInfo { name: name.into(), kind, doc: String::new() };
        let manifest = Manifest {
            name: "p".into(),
            version: "1".into(),
            encoding: Encoding::Arrow,
            functions: vec![
                function("is_short", FunctionKind::Scalar),
                function("call", FunctionKind::Scalar),
                function("is_small", FunctionKind::Scalar),
                function("tenfold", FunctionKind::Scalar),
                function("twice", FunctionKind::Transform),
                function("brittle", FunctionKind::Transform),
                function("flat", FunctionKind::Stateful),
                function("flat_event_time", FunctionKind::Stateful),
                function("map", FunctionKind::Stateful),
                function("lists", FunctionKind::Stateful),
            ],
        };
        Self { manifest, digest: PluginDigest("d".repeat(64)) }
    }
}

impl Plugin for TestPlugin {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }
    fn digest(&self) -> &PluginDigest {
        &self.digest
    }
    fn scalar(&self, function: &str, _: SchemaRef) -> Result<Arc<dyn ScalarFunction>> {
        Ok(match function {
            "call" => Arc::new(CallNumber),
            "is_small" => Arc::new(poison::IsSmall),
            "tenfold" => Arc::new(poison::Tenfold),
            _ => Arc::new(IsShort),
        })
    }
    fn transform(&self, function: &str, input: SchemaRef) -> Result<Arc<dyn TransformFunction>> {
        Ok(match function {
            "brittle" => Arc::new(poison::Brittle(input)),
            _ => Arc::new(Twice(input)),
        })
    }
    fn stateful(&self, function: &str, _: SchemaRef, input: SchemaRef) -> Result<Arc<dyn StatefulFunction>> {
        groups::function(function, &input).map(|function| Arc::new(function) as _)
    }
    fn sink(&self, function: &str, _: SchemaRef, _: OutputMode) -> Result<Arc<dyn SinkFunction>> {
        Err(Error::invalid(format!("there is no sink function '{function}'")))
    }
    fn metrics(&self) -> PluginMetrics {
        PluginMetrics::default()
    }
}

struct IsShort;

impl ScalarFunction for IsShort {
    fn field(&self) -> FieldRef {
        Arc::new(Field::new("is_short", DataType::Boolean, true))
    }
    fn evaluate(&self, _: &CallScope<'_>, arguments: &RecordBatch) -> Result<ScalarOutput> {
        let texts = arguments.column(0).as_string::<i32>();
        let column: BooleanArray = texts.iter().map(|text| text.map(|text| text.len() <= 3)).collect();
        let empty = (0..texts.len()).filter(|row| texts.is_valid(*row) && texts.value(*row).is_empty());
        let rejected = empty.map(|row| Rejected { row: row as u32, reason: "it is empty".into() }).collect();
        Ok(ScalarOutput { column: Arc::new(column), rejected })
    }
}

struct CallNumber;

impl ScalarFunction for CallNumber {
    fn field(&self) -> FieldRef {
        Arc::new(Field::new("call", DataType::Utf8, false))
    }
    fn evaluate(&self, scope: &CallScope<'_>, arguments: &RecordBatch) -> Result<ScalarOutput> {
        let text = format!("{}/{}/{}", scope.operator, scope.partition, scope.call);
        let column: ArrayRef = Arc::new(StringArray::from(vec![text; arguments.num_rows()]));
        Ok(ScalarOutput { column, rejected: Vec::new() })
    }
}

struct Twice(SchemaRef);

impl TransformFunction for Twice {
    fn output_schema(&self) -> SchemaRef {
        self.0.clone()
    }
    fn process(&self, _: &CallScope<'_>, rows: &RecordBatch) -> Result<TransformOutput> {
        let numbers = rows.column(0).as_primitive::<Int64Type>();
        let good: Vec<bool> = numbers.iter().map(|n| n.is_none_or(|n| n >= 0)).collect();
        let bad = good.iter().enumerate().filter(|(_, good)| !**good);
        let rejected =
            bad.map(|(row, _)| Rejected { row: row as u32, reason: "it is negative".into() }).collect();
        let kept = arrow::compute::filter_record_batch(rows, &BooleanArray::from(good))?;
        let rows = arrow::compute::concat_batches(&self.0, [&kept, &kept])?;
        Ok(TransformOutput { rows, rejected })
    }
}

#[test]
fn a_plugin_filter_keeps_drops_and_refuses() {
    let rows = [
        json!({"t": "ab", "n": 1}),
        json!({"t": "abcd", "n": 2}),
        json!({"t": "", "n": 3}),
        json!({"t": null, "n": 4}),
    ];
    let output =
        run_batch("- filter: p.is_short(lower(t))\n- select: [n]\n", &schema("t string, n long"), &rows)
            .expect("runs");
    assert_eq!(rows_of(&output), [json!({"n": 1})]);
    let [letter] = output.dead_letters.as_slice() else {
        panic!("one dead letter: {:?}", output.dead_letters)
    };
    assert_eq!((letter.origin.as_str(), letter.reason.as_str()), ("filter", "it is empty"));
    assert_eq!(letter.payload.as_ref(), br#"{"t":"","n":3}"#);
    assert_eq!(letter.plugin, Some(PluginDigest("d".repeat(64))));
}

#[test]
fn a_refused_row_inside_sql_fails_the_batch_with_its_reason() {
    let rows = [json!({"t": "ab"}), json!({"t": ""})];
    let run = |steps: &str| run(steps, "t string", &rows);
    let error = run("- filter: p.is_short(t) OR false IS NULL\n").expect_err("fails");
    assert!(error.message().contains("p.is_short() refused a row: it is empty"), "{error}");
    assert!(error.message().starts_with("operator 'filter'"), "{error}");
    assert_eq!(
        run("- sql: SELECT p.is_short(t) AS s FROM input WHERE t <> ''\n").expect("runs"),
        [json!({"s": true})]
    );
}

#[test]
fn a_transform_sees_the_rows_of_the_step_before() {
    let rows = [json!({"n": 1, "t": "x"}), json!({"n": 5, "t": "y"})];
    let steps = "- select: [\"n - 3 AS m\"]\n- plugin: p.twice\n- select: {k: m * 10}\n";
    let output = run_batch(steps, &schema("n long, t string"), &rows).expect("runs");
    assert_eq!(rows_of(&output), [json!({"k": 20}), json!({"k": 20})]);
    let [letter] = output.dead_letters.as_slice() else { panic!("one dead letter") };
    assert_eq!((letter.origin.as_str(), letter.payload.as_ref()), ("p.twice", br#"{"m":-2}"#.as_slice()));
}

#[test]
fn batches_never_grow_past_the_limit_and_keep_their_order() {
    let rows: Vec<Value> = (0..5000).map(|n| json!({"n": n})).collect();
    let output = run_batch(
        "- plugin: p.twice\n- sql: SELECT n, explode(array(1, 2)) AS k FROM input\n",
        &schema("n long"),
        &rows,
    )
    .expect("runs");
    assert!(output.rows.iter().all(|rows| rows.num_rows() <= 8192), "a batch is too large");
    let rows = rows_of(&output);
    assert_eq!(rows.len(), 20_000);
    assert_eq!(rows[..3], [json!({"n": 0, "k": 1}), json!({"n": 0, "k": 2}), json!({"n": 1, "k": 1})]);
}

#[test]
fn calls_are_counted_within_a_part_and_the_same_in_a_rerun() {
    let schema = schema("t string");
    let plan = plan("- select: {c: p.call(t), r: rand(), u: uuid()}\n", &schema).expect("a plan");
    let segment = QueryDataflow::bind(&plan, std::slice::from_ref(&schema)).expect("a segment");
    let rows = || {
        vec![batch(&schema, &[json!({"t": "a"}), json!({"t": "b"})]), batch(&schema, &[json!({"t": "c"})])]
    };
    let first = rows_of(&segment.part(&info(1), 0, 7, rows()).expect("runs"));
    assert_eq!(first, rows_of(&segment.part(&info(1), 0, 7, rows()).expect("runs")));
    assert_ne!(first[0]["r"], first[1]["r"]);
    assert_ne!(first[0]["u"], first[2]["u"]);
    assert_eq!(first[0]["c"], first[1]["c"]);
    assert_ne!(first[0]["c"], first[2]["c"]);
    assert!(first[0]["c"].as_str().is_some_and(|c| c.starts_with("select/7/")), "{}", first[0]["c"]);
    let other_batch = rows_of(&segment.part(&info(2), 0, 7, rows()).expect("runs"));
    assert_ne!(first[0]["r"], other_batch[0]["r"]);
    let other_part = rows_of(&segment.part(&info(1), 0, 8, rows()).expect("runs"));
    assert_ne!(first[0]["u"], other_part[0]["u"]);
}

#[test]
fn one_segment_serves_many_threads() {
    let schema = schema("n long");
    let plan = plan("- sql: SELECT explode(array(n, n + 1)) AS k FROM input\n", &schema).expect("a plan");
    let segment = QueryDataflow::bind(&plan, std::slice::from_ref(&schema)).expect("a segment");
    std::thread::scope(|threads| {
        for thread in 0..4_i64 {
            let (segment, schema) = (&segment, &schema);
            threads.spawn(move || {
                for _ in 0..50 {
                    let rows = vec![batch(schema, &[json!({"n": thread * 10})])];
                    let out = rows_of(&segment.part(&info(1), 0, 0, rows).expect("runs"));
                    assert_eq!(out, [json!({"k": thread * 10}), json!({"k": thread * 10 + 1})]);
                }
            });
        }
    });
}

/// Each condition sees only the rows that those before it let through, whatever the mixture in a batch.
#[test]
fn a_filter_guards_what_comes_after_it() {
    let numbers: Vec<Value> = [0, 1, 2, 50, 0, 3].iter().map(|n| json!({"x": n, "t": "7"})).collect();
    let passed = [json!({"x": 1}), json!({"x": 2}), json!({"x": 3})];
    for steps in [
        "- filter: x <> 0\n- filter: 100 / x > 5\n- select: [x]\n",
        "- filter: x <> 0 AND 100 / x > 5\n- select: [x]\n",
        "- filter: x <> 0\n- select: [x, 100 / x AS y]\n- filter: y > 5\n- select: [x]\n",
    ] {
        assert_eq!(run(steps, "x long, t string", &numbers).expect(steps), passed, "{steps}");
    }
    let texts = [json!({"t": "abc"}), json!({"t": "12"}), json!({"t": "3"})];
    let guarded = "- filter: t RLIKE '^[0-9]+$' AND CAST(t AS INT) > 5\n";
    assert_eq!(run(guarded, "t string", &texts).expect("the cast sees digits alone"), [json!({"t": "12"})]);
}

#[test]
fn a_query_without_steps_passes_rows_through() {
    let text = "name: q\nsources: {s: {connector: rate}}\nsink: {connector: memory}\n";
    let file = PipelineFile::read(text, "p.yaml", &[]).expect("reads");
    let source_schema = schema("n long, t string");
    let sources = BTreeMap::from([("s".to_owned(), source_schema.clone())]);
    let inputs = PlanInputs { sources, ..PlanInputs::default() };
    let plan = PhysicalPlan::build(&LogicalPlan::resolve(&file, &inputs).expect("resolves")).expect("builds");
    let segment = QueryDataflow::bind(&plan, std::slice::from_ref(&source_schema)).expect("a segment");
    let rows = batch(&source_schema, &[json!({"n": 1, "t": "x"})]);
    assert_eq!(segment.part(&info(0), 0, 0, vec![rows.clone()]).expect("runs").rows, [rows]);
}

#[test]
fn explain_shows_the_plan_from_source_to_sink() {
    let plan = plan(
        "- filter: n > 1\n- filter: p.is_short(t)\n- plugin: p.twice\n- select: [n]\n",
        &schema("n long, t string, unused string"),
    )
    .expect("a plan");
    let text = explain(&plan);
    for line in [
        "query q",
        "├─ source s (rate)",
        "reads 3 of 3 columns: n, t, unused",
        "filter: n > 1",
        "├─ filter-2",
        "p.is_short() is true",
        "├─ p.twice",
        "    n: long",
        "├─ sink memory",
        "├─ trigger: as_fast_as_possible",
        "└─ state: none",
    ] {
        assert!(text.contains(line), "'{line}' is missing in\n{text}");
    }
}

#[test]
fn the_session_time_zone_decides_about_days_and_hours() {
    let text = "name: q\nsources: {s: {connector: rate}}\nsink: {connector: memory}\ntime_zone: America/New_York\nsteps:\n- select:\n  \
                - hour(ts) AS h\n  - to_date(ts) AS d\n  - date_trunc('DAY', ts) AS day\n  - year(ts) AS y\n  \
                - CAST(ts AS STRING) AS t\n  - TIMESTAMP '2026-01-01 00:00:00' AS lit\n  - CAST('2026-01-01' AS TIMESTAMP) AS c\n  \
                - current_date() AS today\n  - ts + INTERVAL 1 DAY AS later\n";
    let file = PipelineFile::read(text, "p.yaml", &[]).expect("reads");
    let zone = file.time_zone().to_owned();
    let source_schema: SchemaRef =
        Arc::new(Schema::new(parse_columns("ts timestamp", &zone).expect("columns")));
    let sources = BTreeMap::from([("s".to_owned(), source_schema.clone())]);
    let inputs = PlanInputs { sources, ..PlanInputs::default() };
    let plan = PhysicalPlan::build(&LogicalPlan::resolve(&file, &inputs).expect("resolves")).expect("builds");
    let segment = QueryDataflow::bind(&plan, std::slice::from_ref(&source_schema)).expect("a segment");
    let rows = batch(&source_schema, &[json!({"ts": "2026-01-01T03:30:00Z"})]);
    let out = rows_of(&segment.part(&info(0), 0, 0, vec![rows]).expect("runs"));
    let wanted = json!({
        "h": 22, "d": "2025-12-31", "day": "2025-12-31T00:00:00.000-05:00", "y": 2025, "t": "2025-12-31 22:30:00",
        "lit": "2026-01-01T00:00:00.000-05:00", "c": "2026-01-01T00:00:00.000-05:00", "today": "2025-12-31",
        "later": "2026-01-01T22:30:00.000-05:00"
    });
    assert_eq!(out, [wanted]);
}
