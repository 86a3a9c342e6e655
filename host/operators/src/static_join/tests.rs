//! Joins of a stream with a static table: what real Spark answered to the same rows, and the corners.

use super::StaticJoinRunner;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use pelton_core::BatchId;
use pelton_core::types::parse_columns;
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::stateful::{JoinKey, JoinKind, StaticJoin, StaticRelation, VersionedRows};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Expr = Arc<dyn PhysicalExpr>;

fn schema(columns: &str) -> SchemaRef {
    Arc::new(Schema::new(parse_columns(columns, "UTC").expect("columns")))
}

fn batch(schema: &SchemaRef, rows: &[Value]) -> RecordBatch {
    let mut decoder = arrow_json::ReaderBuilder::new(schema.clone()).build_decoder().expect("a decoder");
    decoder.serialize(rows).expect("rows");
    decoder.flush().expect("decodes").unwrap_or_else(|| RecordBatch::new_empty(schema.clone()))
}

fn stream() -> SchemaRef {
    schema("k string, v long")
}

fn dimension() -> SchemaRef {
    schema("k string, name string, n long")
}

/// The rows of the cases with a static table.
fn dimension_rows() -> Vec<Value> {
    vec![
        json!({"k": "a", "name": "Alpha", "n": 1}),
        json!({"k": "b", "name": "Beta", "n": 2}),
        json!({"k": "b", "name": "Beta2", "n": 3}),
        json!({"k": null, "name": "Null", "n": 4}),
        json!({"k": "e\u{301}", "name": "decomposed", "n": 5}),
    ]
}

fn stream_rows() -> RecordBatch {
    let keys = [Some("a"), Some("b"), Some("x"), None, Some("é"), Some("e\u{301}")];
    let rows: Vec<Value> = keys.iter().zip(1..).map(|(k, v)| json!({"k": k, "v": v})).collect();
    batch(&stream(), &rows)
}

struct Case {
    kind: JoinKind,
    stream_is_left: bool,
    keys: bool,
    null_safe: bool,
    condition: Option<Expr>,
    null_aware: bool,
    rows: Vec<Value>,
}

fn case(kind: JoinKind) -> Case {
    Case {
        kind,
        stream_is_left: true,
        keys: true,
        null_safe: false,
        condition: None,
        null_aware: false,
        rows: dimension_rows(),
    }
}

fn spec(case: &Case, rows: impl Fn() -> VersionedRows + Send + Sync + 'static) -> StaticJoin {
    let (left, right) = if case.stream_is_left { (stream(), dimension()) } else { (dimension(), stream()) };
    let mut fields = left.fields().to_vec();
    if !matches!(case.kind, JoinKind::LeftSemi | JoinKind::LeftAnti) {
        fields.extend(right.fields().iter().cloned());
    }
    let column = || Arc::new(Column::new("k", 0)) as Expr;
    let key = || JoinKey { left: column(), right: column(), null_safe: case.null_safe };
    let table = StaticRelation { name: "d".into(), schema: dimension(), rows: Box::new(move |_| Ok(rows())) };
    StaticJoin {
        operator: "join".into(),
        kind: case.kind,
        stream_is_left: case.stream_is_left,
        keys: if case.keys { vec![key()] } else { Vec::new() },
        condition: case.condition.clone(),
        null_aware: case.null_aware,
        table: Arc::new(table),
        schema: Arc::new(Schema::new(fields)),
    }
}

fn joined(case: &Case, rows: &RecordBatch) -> Vec<(i64, Option<String>)> {
    let table = VersionedRows { version: 1, rows: batch(&dimension(), &case.rows) };
    let runner = StaticJoinRunner::new(&spec(case, move || table.clone()), &stream()).expect("a join");
    let out = runner.process(BatchId(1), rows).expect("joins");
    let rows = out.iter().flat_map(|rows| (0..rows.num_rows()).map(move |row| (rows, row)));
    let rows = rows.map(|(rows, row)| row_json(rows, row, Nulls::Written).expect("JSON"));
    rows.map(|row| (row["v"].as_i64().unwrap_or(-1), row["name"].as_str().map(str::to_owned))).collect()
}

fn pairs(pairs: &[(i64, &str)]) -> Vec<(i64, Option<String>)> {
    pairs.iter().map(|(v, name)| (*v, Some((*name).to_owned()).filter(|name| !name.is_empty()))).collect()
}

const MATCHES: [(i64, &str); 4] = [(1, "Alpha"), (2, "Beta"), (2, "Beta2"), (6, "decomposed")];

#[test]
fn inner_gives_pairs_in_the_order_of_the_stream_then_of_the_table() {
    assert_eq!(joined(&case(JoinKind::Inner), &stream_rows()), pairs(&MATCHES));
    let other_side = Case { stream_is_left: false, ..case(JoinKind::Inner) };
    assert_eq!(joined(&other_side, &stream_rows()), pairs(&MATCHES));
}

#[test]
fn outer_keeps_the_rows_of_the_stream() {
    let wanted = [(1, "Alpha"), (2, "Beta"), (2, "Beta2"), (3, ""), (4, ""), (5, ""), (6, "decomposed")];
    assert_eq!(joined(&case(JoinKind::LeftOuter), &stream_rows()), pairs(&wanted));
    let right = Case { stream_is_left: false, ..case(JoinKind::RightOuter) };
    assert_eq!(joined(&right, &stream_rows()), pairs(&wanted));
    let empty = Case { rows: Vec::new(), ..case(JoinKind::LeftOuter) };
    let nothing: Vec<_> = (1..7).map(|v| (v, "")).collect();
    assert_eq!(joined(&empty, &stream_rows()), pairs(&nothing));
}

#[test]
fn null_matches_null_only_if_asked() {
    let safe = Case { null_safe: true, ..case(JoinKind::Inner) };
    let mut wanted = MATCHES.to_vec();
    wanted.insert(3, (4, "Null"));
    assert_eq!(joined(&safe, &stream_rows()), pairs(&wanted));
}

#[test]
fn a_condition_decides_among_rows_of_the_same_key() {
    // n + v > 4, over left then right: v is 1, n is 4.
    let sum = BinaryExpr::new(Arc::new(Column::new("n", 4)), Operator::Plus, Arc::new(Column::new("v", 1)));
    let four = Arc::new(Literal::new(ScalarValue::Int64(Some(4))));
    let condition: Expr = Arc::new(BinaryExpr::new(Arc::new(sum), Operator::Gt, four));
    let outer = Case { condition: Some(condition.clone()), ..case(JoinKind::LeftOuter) };
    let wanted = [(1, ""), (2, "Beta2"), (3, ""), (4, ""), (5, ""), (6, "decomposed")];
    assert_eq!(joined(&outer, &stream_rows()), pairs(&wanted));
    let semi = Case { condition: Some(condition.clone()), ..case(JoinKind::LeftSemi) };
    assert_eq!(joined(&semi, &stream_rows()), pairs(&[(2, ""), (6, "")]));
    let anti = Case { condition: Some(condition), ..case(JoinKind::LeftAnti) };
    assert_eq!(joined(&anti, &stream_rows()), pairs(&[(1, ""), (3, ""), (4, ""), (5, "")]));
}

#[test]
fn semi_and_anti_give_each_row_once() {
    assert_eq!(joined(&case(JoinKind::LeftSemi), &stream_rows()), pairs(&[(1, ""), (2, ""), (6, "")]));
    assert_eq!(joined(&case(JoinKind::LeftAnti), &stream_rows()), pairs(&[(3, ""), (4, ""), (5, "")]));
}

#[test]
fn not_in_gives_nothing_if_a_null_is_in_the_way() {
    let aware = |rows: Vec<Value>| Case { null_aware: true, rows, ..case(JoinKind::LeftAnti) };
    assert!(joined(&aware(dimension_rows()), &stream_rows()).is_empty());
    let mut without_null = dimension_rows();
    without_null.remove(3);
    assert_eq!(joined(&aware(without_null), &stream_rows()), pairs(&[(3, ""), (5, "")]));
    let all: Vec<_> = (1..7).map(|v| (v, "")).collect();
    assert_eq!(joined(&aware(Vec::new()), &stream_rows()), pairs(&all));
}

#[test]
fn without_keys_every_row_meets_every_row() {
    let cross = Case { keys: false, ..case(JoinKind::Inner) };
    let out = joined(&cross, &stream_rows());
    assert_eq!(out.len(), 6 * 5);
    assert_eq!(
        out[..6],
        pairs(&[(1, "Alpha"), (1, "Beta"), (1, "Beta2"), (1, "Null"), (1, "decomposed"), (2, "Alpha")])
    );
}

#[test]
fn answers_are_whole_where_the_pairs_of_a_row_are_cut() {
    let rows: Vec<Value> = (0..5000).map(|n| json!({"k": "a", "name": "x", "n": n})).collect();
    let stream_rows: Vec<Value> =
        ["a", "b", "a", "a"].iter().zip(1..).map(|(k, v)| json!({"k": k, "v": v})).collect();
    let stream_rows = batch(&stream(), &stream_rows);
    let outer = joined(&Case { rows: rows.clone(), ..case(JoinKind::LeftOuter) }, &stream_rows);
    let count = |v: i64| outer.iter().filter(|row| row.0 == v).count();
    assert_eq!((count(1), count(2), count(3), count(4)), (5000, 1, 5000, 5000));
    assert!(outer.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    let semi = joined(&Case { rows: rows.clone(), ..case(JoinKind::LeftSemi) }, &stream_rows);
    assert_eq!(semi, pairs(&[(1, ""), (3, ""), (4, "")]));
    let anti = joined(&Case { rows, ..case(JoinKind::LeftAnti) }, &stream_rows);
    assert_eq!(anti, pairs(&[(2, "")]));
}

#[test]
fn a_table_is_indexed_again_when_its_version_changes() {
    let version = Arc::new(AtomicU64::new(0));
    let now = version.clone();
    let rows = move || {
        let version = now.load(Ordering::SeqCst);
        let name = format!("version {version}");
        VersionedRows { version, rows: batch(&dimension(), &[json!({"k": "a", "name": name, "n": 1})]) }
    };
    let runner = StaticJoinRunner::new(&spec(&case(JoinKind::Inner), rows), &stream()).expect("a join");
    for at in [0u64, 0, 7] {
        version.store(at, Ordering::SeqCst);
        let out = runner.process(BatchId(at), &stream_rows()).expect("joins");
        let name = row_json(&out[0], 0, Nulls::Written).expect("JSON")["name"].clone();
        assert_eq!(name, json!(format!("version {at}")));
    }
}

#[test]
fn the_side_that_is_kept_must_be_the_stream() {
    for (kind, stream_is_left) in [
        (JoinKind::LeftOuter, false),
        (JoinKind::RightOuter, true),
        (JoinKind::FullOuter, true),
        (JoinKind::LeftSemi, false),
    ] {
        let case = Case { stream_is_left, ..case(kind) };
        let table = VersionedRows { version: 1, rows: batch(&dimension(), &[]) };
        assert!(StaticJoinRunner::new(&spec(&case, move || table.clone()), &stream()).is_err());
    }
}
