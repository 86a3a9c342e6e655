//! Rows on which functions fail: found in steps and in SQL, whatever stands around them.

use super::{TestPlugin, batch, info, rows_of, schema};
use crate::QueryDataflow;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, SchemaRef};
use pelton_core::function::ScalarOutput;
use pelton_core::{
    CallFailure, CallScope, Error, LossKind, Part, Plugin, PluginDigest, Rejected, Result, ScalarFunction,
    TransformFunction, TransformOutput,
};
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fails on numbers that end in 13.
fn numbers(rows: &RecordBatch) -> Result<Vec<i64>> {
    let numbers = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    match numbers.iter().find(|n| *n % 100 == 13) {
        Some(bad) => {
            let reason = format!("{bad} is bad luck");
            Err(Error::plugin(format!("the call: {reason}")).caused_by(CallFailure { reason }))
        }
        None => Ok(numbers),
    }
}

/// Whether a number is below 1000.
pub(super) struct IsSmall;

impl ScalarFunction for IsSmall {
    fn field(&self) -> FieldRef {
        Arc::new(Field::new("is_small", DataType::Boolean, false))
    }
    fn evaluate(&self, _: &CallScope<'_>, arguments: &RecordBatch) -> Result<ScalarOutput> {
        let column: BooleanArray = numbers(arguments)?.into_iter().map(|n| Some(n < 1000)).collect();
        Ok(ScalarOutput { column: Arc::new(column), rejected: Vec::new() })
    }
}

/// Ten times a number.
pub(super) struct Tenfold;

impl ScalarFunction for Tenfold {
    fn field(&self) -> FieldRef {
        Arc::new(Field::new("tenfold", DataType::Int64, false))
    }
    fn evaluate(&self, _: &CallScope<'_>, arguments: &RecordBatch) -> Result<ScalarOutput> {
        let column: ArrayRef =
            Arc::new(Int64Array::from_iter_values(numbers(arguments)?.iter().map(|n| n * 10)));
        Ok(ScalarOutput { column, rejected: Vec::new() })
    }
}

/// Gives back its rows but for negative numbers, which it refuses.
pub(super) struct Brittle(pub(super) SchemaRef);

impl TransformFunction for Brittle {
    fn output_schema(&self) -> SchemaRef {
        self.0.clone()
    }
    fn process(&self, _: &CallScope<'_>, rows: &RecordBatch) -> Result<TransformOutput> {
        let numbers = numbers(rows)?;
        let bad = numbers.iter().enumerate().filter(|(_, n)| **n < 0);
        let rejected = bad.map(|(row, _)| Rejected { row: row as u32, reason: "negative".into() }).collect();
        let good = BooleanArray::from(numbers.iter().map(|n| *n >= 0).collect::<Vec<_>>());
        Ok(TransformOutput { rows: arrow::compute::filter_record_batch(rows, &good)?, rejected })
    }
}

fn plan(policy: &str, steps: &str) -> Result<PhysicalPlan> {
    let text = format!(
        "name: q\nplugins: {{p: {{path: p.wasm, on_plugin_failure: {policy}}}}}\nsources: {{s: {{connector: rate}}}}\n\
         sink: {{connector: memory}}\nsteps:\n{steps}"
    );
    let file = PipelineFile::read(&text, "p.yaml", &[])?;
    let plugins = BTreeMap::from([("p".to_owned(), Arc::new(TestPlugin::new()) as Arc<dyn Plugin>)]);
    let sources = BTreeMap::from([("s".to_owned(), schema("n long, t string"))]);
    PhysicalPlan::build(&LogicalPlan::resolve(
        &file,
        &PlanInputs { sources, plugins, ..PlanInputs::default() },
    )?)
}

fn run(policy: &str, steps: &str, numbers: impl IntoIterator<Item = i64>) -> Result<Part> {
    let plan = plan(policy, steps)?;
    let full = schema("n long, t string");
    let columns = &plan.inputs[0].required_columns;
    let read =
        full.project(&columns.iter().map(|c| full.index_of(c).expect("a column")).collect::<Vec<_>>())?;
    let read = Arc::new(read);
    let rows: Vec<Value> = numbers.into_iter().map(|n| json!({"n": n, "t": format!("t{n}")})).collect();
    QueryDataflow::bind(&plan, std::slice::from_ref(&read))?.part(&info(3), 0, 0, vec![batch(&read, &rows)])
}

fn column(part: &Part, name: &str) -> Vec<i64> {
    rows_of(part).iter().map(|row| row[name].as_i64().expect("a number")).collect()
}

/// Numbers whose rows are dead letters, by kind.
fn letters(part: &Part, kind: LossKind) -> Vec<i64> {
    let letters = part.dead_letters.iter().filter(|letter| letter.kind == kind);
    let payload = |letter: &pelton_core::DeadLetter| {
        serde_json::from_slice::<Value>(&letter.payload).expect("JSON")["n"].as_i64().expect("a number")
    };
    letters.map(payload).collect()
}

const STEPS: [(&str, &str, i64); 5] = [
    ("a transform", "- plugin: p.brittle\n- select: [n]\n", 1),
    ("a filter", "- filter: p.is_small(n)\n- select: [n]\n", 1),
    ("an expression", "- select: {n: 'p.tenfold(n)'}\n", 10),
    ("SQL", "- sql: SELECT p.tenfold(n) AS n FROM input WHERE t <> 'x' AND p.is_small(n)\n", 10),
    ("an argument", "- filter: p.is_small(p.tenfold(n) div 10)\n- select: [n]\n", 1),
];

#[test]
fn guilty_rows_are_found_wherever_a_function_is_called() {
    for (what, steps, times) in STEPS {
        let part = run("dead_letter", steps, 0..500).unwrap_or_else(|e| panic!("{what}: {e}"));
        let good: Vec<i64> = (0..500).filter(|n| n % 100 != 13).map(|n| n * times).collect();
        assert_eq!(column(&part, "n"), good, "{what}");
        assert_eq!(letters(&part, LossKind::Poison), [13, 113, 213, 313, 413], "{what}");
        let [report] = part.poison.as_slice() else { panic!("{what}: one report: {:?}", part.poison) };
        assert_eq!((report.found, report.unit), (5, "rows"), "{what}");
        assert!(report.calls > 40 && report.calls < 100, "{what}: {report:?}");
    }
}

#[test]
fn a_dead_letter_has_the_whole_row_and_says_which_function_failed_why() {
    let part = run("dead_letter", "- plugin: p.brittle\n  name: work\n", [12, 13, -1]).expect("runs");
    assert_eq!(letters(&part, LossKind::Refused), [-1]);
    let [poison, _] = part.dead_letters.as_slice() else { panic!("two letters: {:?}", part.dead_letters) };
    assert_eq!((poison.kind, poison.origin.as_str()), (LossKind::Poison, "work"));
    assert_eq!(poison.reason, "p.brittle: 13 is bad luck");
    assert_eq!(poison.plugin, Some(PluginDigest("d".repeat(64))));
    assert_eq!(poison.payload.as_ref(), br#"{"n":13,"t":"t13"}"#);
}

#[test]
fn unless_it_is_asked_for_a_failure_fails_the_batch() {
    for (what, steps, _) in STEPS {
        for policy in ["fail", "retry 2"] {
            let failed = run(policy, steps, 0..20).map(|_| ()).expect_err(what);
            assert!(failed.message().contains("13 is bad luck"), "{what}: {failed}");
            assert!(failed.message().starts_with("operator '"), "{what}: {failed}");
            assert_eq!(failed.message().contains("after 2 retries"), policy != "fail", "{what}: {failed}");
        }
    }
}

#[test]
fn a_step_may_say_otherwise_than_the_plugin() {
    let steps = "- plugin: p.brittle\n  on_plugin_failure: dead_letter\n";
    assert_eq!(letters(&run("fail", steps, 0..20).expect("runs"), LossKind::Poison), [13]);
    run("dead_letter", "- plugin: p.brittle\n  on_plugin_failure: fail\n", 0..20)
        .map(|_| ())
        .expect_err("fails");
    let steps = "- filter: p.is_small(n)\n  on_plugin_failure: dead_letter\n";
    assert_eq!(letters(&run("fail", steps, 0..20).expect("runs"), LossKind::Poison), [13]);
    let refused = run("fail", "- filter: p.is_small(n) AND n > 1\n  on_plugin_failure: dead_letter\n", 0..2);
    let refused = refused.map(|_| ()).expect_err("which call is meant?");
    assert!(
        refused.message().starts_with(
            "p.yaml:7:22: `on_plugin_failure` in a filter is about a plugin's function that is the whole expression"
        ),
        "{refused}"
    );
}

#[test]
fn explain_tells_what_follows() {
    let plan = plan(
        "{dead_letter: {rows_max: 7}}",
        "- plugin: p.brittle\n- plugin: p.twice\n  on_plugin_failure: fail\n",
    );
    let text = crate::explain(&plan.expect("a plan"));
    let told: Vec<&str> = text.lines().filter(|line| line.contains("on_plugin_failure")).collect();
    assert_eq!(
        told,
        ["│    on_plugin_failure: dead_letter, at most 7 and 3000 calls in a micro-batch"],
        "{text}"
    );
}

#[test]
fn a_budget_stops_a_function_that_fails_on_everything() {
    let policy = "{dead_letter: {rows_max: 4}}";
    for (what, steps, _) in STEPS {
        let failed = run(policy, steps, (0..500).map(|n| n * 100 + 13)).map(|_| ()).expect_err(what);
        assert!(
            failed.message().contains("fails on too many rows of the micro-batch: 5 are found"),
            "{what}: {failed}"
        );
        assert!(failed.message().contains("(rows_max: 4)"), "{what}: {failed}");
        run(policy, steps, 0..400).unwrap_or_else(|e| panic!("{what}: as many as are allowed: {e}"));
    }
}

/// The rows that go on are those of a run without the guilty ones, and a rerun gives the same bytes.
#[test]
fn neighbours_of_guilty_rows_see_nothing_of_them() {
    let steps = "- plugin: p.brittle\n- select: {n: n, c: 'p.call(t)'}\n";
    let with = run("dead_letter", steps, 0..300).expect("runs");
    assert_eq!(rows_of(&with), rows_of(&run("dead_letter", steps, 0..300).expect("runs again")));
    let without = run("dead_letter", steps, (0..300).filter(|n| n % 100 != 13)).expect("runs");
    assert_eq!(column(&with, "n"), column(&without, "n"));
    assert_eq!(with.dead_letters, run("dead_letter", steps, 0..300).expect("runs again").dead_letters);
}
