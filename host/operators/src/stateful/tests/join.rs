//! Joins of two streams: what real Spark answered, and the corners.

use super::{Running, batch, node, replay, schema};
use crate::stateful::join::StreamJoin;
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use pelton_plan::stateful::{
    self as plan, EventTimeColumn, JoinExpiry, JoinKey, JoinKind, JoinSide, StatefulOperator,
};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) type Expr = Arc<dyn PhysicalExpr>;

const MINUTE_MS: i64 = 60_000;

pub(super) fn column(name: &str, index: usize) -> Expr {
    Arc::new(Column::new(name, index))
}

pub(super) fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Arc::new(BinaryExpr::new(left, operator, right))
}

/// `time + ms`.
fn later(time: Expr, ms: i64) -> Expr {
    let interval = ScalarValue::new_interval_mdn(0, 0, ms * 1_000_000);
    binary(time, Operator::Plus, Arc::new(Literal::new(interval)))
}

/// `rt >= lt AND rt <= lt + ms`, or both strictly. The times are columns 2 of each side of three columns.
pub(super) fn within(ms: i64, is_strict: bool) -> Expr {
    let (lt, rt) = (column("lt", 2), column("rt", 5));
    let (from, to) = if is_strict { (Operator::Gt, Operator::Lt) } else { (Operator::GtEq, Operator::LtEq) };
    binary(binary(rt.clone(), from, lt.clone()), Operator::And, binary(rt, to, later(lt, ms)))
}

pub(super) fn left_schema() -> SchemaRef {
    schema("k string, v long, lt timestamp")
}

pub(super) fn right_schema() -> SchemaRef {
    schema("k string, w long, rt timestamp")
}

/// The result's columns are named as in the cases: `lk, v, lt, rk, w, rt`.
fn result_schema(kind: JoinKind) -> SchemaRef {
    let named = |schema: SchemaRef, k: &str| {
        let name = |field: &Arc<Field>| if field.name() == "k" { k.to_owned() } else { field.name().clone() };
        let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_name(name(field)));
        fields.collect::<Vec<_>>()
    };
    let mut fields = named(left_schema(), "lk");
    if kind != JoinKind::LeftSemi {
        fields.extend(named(right_schema(), "rk"));
    }
    Arc::new(Schema::new(fields))
}

/// What a test says of a join of the two schemas above.
#[derive(Clone)]
pub(super) struct Spec {
    pub(super) kind: JoinKind,
    pub(super) null_safe: bool,
    pub(super) joins_times: bool,
    pub(super) condition: Option<Expr>,
    pub(super) has_event_time: [bool; 2],
    pub(super) conditions: [Option<Expr>; 2],
    pub(super) expiry: [JoinExpiry; 2],
}

pub(super) fn value(offset_ms: i64) -> JoinExpiry {
    JoinExpiry::Value { column: EventTimeColumn { column: 2 }, offset_ms }
}

/// Right rows up to `ms` after the left row.
pub(super) fn ranged(kind: JoinKind, ms: i64) -> Spec {
    Spec {
        kind,
        null_safe: false,
        joins_times: false,
        condition: Some(within(ms, false)),
        has_event_time: [true, true],
        conditions: [None, None],
        expiry: [value(-ms - 1), value(-1)],
    }
}

pub(super) fn running(spec: &Spec) -> Running {
    Running::new(operator(spec))
}

pub(super) fn operator(spec: &Spec) -> StreamJoin {
    let mut keys = vec![JoinKey { left: column("k", 0), right: column("k", 0), null_safe: spec.null_safe }];
    if spec.joins_times {
        keys.push(JoinKey { left: column("lt", 2), right: column("rt", 2), null_safe: spec.null_safe });
    }
    let side = |side: usize| JoinSide {
        condition: spec.conditions[side].clone(),
        event_time: spec.has_event_time[side].then_some(EventTimeColumn { column: 2 }),
        expiry: spec.expiry[side],
    };
    let join = plan::StreamJoin {
        kind: spec.kind,
        keys,
        condition: spec.condition.clone(),
        sides: [side(0), side(1)],
    };
    let (left, right) = (left_schema(), right_schema());
    let node = node(
        StatefulOperator::Sort(plan::Sort { by: Vec::new() }),
        &[&left, &right],
        &result_schema(spec.kind),
    );
    StreamJoin::new(&join, &node).expect("a join")
}

fn case(text: &str, spec: &Spec, with_state: bool) {
    let case: Value = serde_json::from_str(text).expect("a case");
    replay(&case, &mut running(spec), &[("a", &left_schema()), ("b", &right_schema())], with_state);
}

macro_rules! case {
    ($name:literal) => {
        include_str!(concat!("../../../../../tests/oracle/06_stream_stream_join/", $name, ".json"))
    };
}

fn unbounded(kind: JoinKind) -> Spec {
    Spec {
        condition: None,
        has_event_time: [false, false],
        expiry: [JoinExpiry::Never, JoinExpiry::Never],
        ..ranged(kind, 0)
    }
}

#[test]
fn inner_without_watermark_keeps_everything() {
    case(case!("inner_no_watermark"), &unbounded(JoinKind::Inner), true);
    let spec = Spec { has_event_time: [true, true], ..unbounded(JoinKind::Inner) };
    case(case!("inner_watermark_no_time_condition"), &spec, true);
}

#[test]
fn inner_by_the_event_time_itself() {
    let expiry = [JoinExpiry::Key(1), JoinExpiry::Key(1)];
    let spec = Spec { joins_times: true, condition: None, expiry, ..ranged(JoinKind::Inner, 0) };
    case(case!("inner_event_time_equality"), &spec, true);
}

#[test]
fn inner_drops_late_rows() {
    case(case!("inner_late_rows"), &ranged(JoinKind::Inner, 5 * MINUTE_MS), true);
}

#[test]
fn left_outer_gives_what_is_certain() {
    let spec = ranged(JoinKind::LeftOuter, 5 * MINUTE_MS);
    case(case!("left_outer_time_range"), &spec, true);
    case(case!("different_delays_max"), &spec, true);
    case(case!("stalled_side_holds_outer_results"), &spec, true);
    // Spark's planner takes the right row without a time out before the join.
    case(case!("left_outer_null_event_time"), &spec, false);
    let spec = Spec {
        condition: Some(within(5 * MINUTE_MS, true)),
        expiry: [value(-5 * MINUTE_MS), value(0)],
        ..spec
    };
    case(case!("left_outer_strict_bounds"), &spec, true);
}

#[test]
fn left_outer_with_the_right_side_first() {
    let (lt, rt) = (column("lt", 2), column("rt", 5));
    let condition = binary(
        binary(lt.clone(), Operator::GtEq, rt.clone()),
        Operator::And,
        binary(lt, Operator::LtEq, later(rt, 10 * MINUTE_MS)),
    );
    let expiry = [value(-1), value(-10 * MINUTE_MS - 1)];
    let spec = Spec { condition: Some(condition), expiry, ..ranged(JoinKind::LeftOuter, 0) };
    case(case!("reverse_range_left_after_right"), &spec, true);
}

#[test]
fn a_condition_on_the_outer_side_alone_gives_its_rows_at_once() {
    let two = Arc::new(Literal::new(ScalarValue::Int64(Some(1))));
    let conditions = [Some(binary(column("v", 1), Operator::Gt, two)), None];
    let spec = Spec { conditions, ..ranged(JoinKind::LeftOuter, 5 * MINUTE_MS) };
    case(case!("left_outer_left_filter_in_on"), &spec, false);
}

#[test]
fn outer_with_a_watermark_on_one_side_never_gives_unmatched_rows() {
    let spec = Spec {
        has_event_time: [false, true],
        expiry: [JoinExpiry::Never, JoinExpiry::Never],
        ..ranged(JoinKind::LeftOuter, 5 * MINUTE_MS)
    };
    case(case!("left_outer_right_watermark_only"), &spec, false);
}

#[test]
fn right_outer_gives_what_is_certain() {
    case(case!("right_outer_time_range"), &ranged(JoinKind::RightOuter, 5 * MINUTE_MS), true);
    case(case!("null_keys_right_outer"), &ranged(JoinKind::RightOuter, 5 * MINUTE_MS), true);
}

#[test]
fn left_semi_gives_a_left_row_once_and_forgets_it() {
    case(case!("left_semi_time_range"), &ranged(JoinKind::LeftSemi, 5 * MINUTE_MS), true);
}

#[test]
fn full_outer_with_null_safe_keys_matches_nulls() {
    let spec = Spec { null_safe: true, ..ranged(JoinKind::FullOuter, 5 * MINUTE_MS) };
    case(case!("null_keys_full_outer_null_safe"), &spec, true);
}

/// Spark matches NULL keys in full outer joins, which must be a mistake: here they never match.
#[test]
fn full_outer_does_not_match_null_keys_unlike_spark() {
    let case: Value = serde_json::from_str(case!("null_keys_full_outer")).expect("a case");
    let mut running = running(&ranged(JoinKind::FullOuter, 5 * MINUTE_MS));
    let mut given = Vec::new();
    for step in case["batches"].as_array().expect("steps") {
        let rows = |side: &str, schema: &SchemaRef| super::added(step, side, schema);
        let ports = [rows("a", &left_schema()), rows("b", &right_schema())];
        given.extend(running.run(Some(0), &ports).rows);
    }
    assert!(given.iter().all(|row| row["lk"] == row["rk"] && !row["lk"].is_null()));
    let ran = running.run(Some(super::millis("2027-01-01T00:00:00Z")), &[Vec::new(), Vec::new()]);
    let numbers = |side: &str| {
        let mut numbers: Vec<_> = ran.rows.iter().filter_map(|row| row[side].as_i64()).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!((numbers("v"), numbers("w"), ran.state_rows), (vec![1, 3], vec![10, 30], 0));
}

#[test]
fn nan_matches_nan_and_zero_minus_zero() {
    let (left, right) = (schema("d double, v long"), schema("d double, w long"));
    let fields = left.fields().iter().chain(right.fields()).cloned().collect::<Vec<_>>();
    let all = Arc::new(Schema::new(fields));
    let side = || JoinSide { condition: None, event_time: None, expiry: JoinExpiry::Never };
    let keys = vec![JoinKey { left: column("d", 0), right: column("d", 0), null_safe: false }];
    let spec = plan::StreamJoin { kind: JoinKind::Inner, keys, condition: None, sides: [side(), side()] };
    let node = node(StatefulOperator::Sort(plan::Sort { by: Vec::new() }), &[&left, &right], &all);
    let mut running = Running::new(StreamJoin::new(&spec, &node).expect("a join"));
    let rows = |schema: &SchemaRef| {
        let d: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, 0.0, -0.0]));
        let n: ArrayRef = Arc::new(Int64Array::from_iter_values(1..4));
        RecordBatch::try_new(schema.clone(), vec![d, n]).expect("rows")
    };
    assert!(running.rows(None, &[rows(&left), RecordBatch::new_empty(right.clone())]).rows.is_empty());
    let ran = running.rows(None, &[RecordBatch::new_empty(left), rows(&right)]);
    let mut pairs: Vec<_> = ran.rows.iter().map(|row| (row["v"].as_i64(), row["w"].as_i64())).collect();
    pairs.sort_unstable();
    let pair = |v, w| (Some(v), Some(w));
    assert_eq!(pairs, [pair(1, 1), pair(2, 2), pair(2, 3), pair(3, 2), pair(3, 3)]);
}

#[test]
fn null_safe_times_match_and_are_never_over() {
    let spec = Spec {
        joins_times: true,
        null_safe: true,
        condition: None,
        expiry: [JoinExpiry::Key(1), JoinExpiry::Key(1)],
        ..ranged(JoinKind::FullOuter, 0)
    };
    let mut running = running(&spec);
    let left = [
        json!({"k": null, "v": 1}),
        json!({"k": "x", "v": 2}),
        json!({"k": "x", "v": 3, "lt": "2026-01-01T00:10:00Z"}),
    ];
    let right = [
        json!({"k": null, "w": 1}),
        json!({"k": "x", "w": 2}),
        json!({"k": "x", "w": 3, "rt": "2026-01-01T00:10:00Z"}),
    ];
    let ran = running.rows(Some(0), &[batch(&left_schema(), &left), batch(&right_schema(), &[])]);
    assert_eq!((ran.rows.len(), ran.state_rows), (0, 3));
    let ran = running.rows(Some(0), &[batch(&left_schema(), &[]), batch(&right_schema(), &right)]);
    assert!(ran.rows.iter().all(|row| row["v"] == row["w"]));
    assert_eq!((ran.rows.len(), ran.state_rows), (3, 6));
    let ran = running.run(Some(super::millis("2027-01-01T00:00:00Z")), &[Vec::new(), Vec::new()]);
    assert_eq!((ran.rows.len(), ran.state_rows, ran.removed), (0, 4, 2));
}

/// A row that is over already when it comes is not stored, but it meets the rows of its micro-batch.
#[test]
fn a_row_that_is_over_when_it_comes_meets_its_micro_batch() {
    let mut running = running(&ranged(JoinKind::LeftOuter, 5 * MINUTE_MS));
    let left = |k: &str| json!({"k": k, "v": 1, "lt": "2026-01-01T00:10:00Z"});
    let right = |k: &str| json!({"k": k, "w": 2, "rt": "2026-01-01T00:11:00Z"});
    running.run(Some(0), &[Vec::new(), Vec::new()]);
    let rows = [batch(&left_schema(), &[left("x"), left("y")]), batch(&right_schema(), &[right("x")])];
    let ran = running.rows(Some(super::millis("2026-01-01T09:00:00Z")), &rows);
    assert_eq!((ran.rows.len(), ran.state_rows, ran.updated, ran.late_rows), (2, 0, 0, 0));
    assert_eq!(ran.rows.iter().filter(|row| row["rk"].is_null()).count(), 1);
}

/// The flag is kept for every kind of join: a row that matched in an inner join is not given as unmatched when the
/// query comes back as an outer one.
#[test]
fn an_inner_join_can_become_an_outer_one() {
    let mut running = running(&ranged(JoinKind::Inner, 5 * MINUTE_MS));
    let left = |k: &str| json!({"k": k, "v": 1, "lt": "2026-01-01T00:10:00Z"});
    let right = |k: &str| json!({"k": k, "w": 2, "rt": "2026-01-01T00:11:00Z"});
    running.rows(Some(0), &[batch(&left_schema(), &[left("x"), left("y")]), batch(&right_schema(), &[])]);
    let ran = running.rows(Some(0), &[batch(&left_schema(), &[]), batch(&right_schema(), &[right("x")])]);
    assert_eq!(ran.rows.len(), 1);
    running.operator = Box::new(operator(&ranged(JoinKind::FullOuter, 5 * MINUTE_MS)));
    let ran = running.run(Some(super::millis("2026-01-01T09:00:00Z")), &[Vec::new(), Vec::new()]);
    assert_eq!(ran.rows.len(), 1);
    assert_eq!((&ran.rows[0]["lk"], ran.state_rows), (&json!("y"), 0));
}

/// More pairs of one key than are decided at a time.
#[test]
fn a_hot_key_gives_all_pairs() {
    let mut running = running(&unbounded(JoinKind::Inner));
    let left: Vec<Value> = (0..150).map(|v| json!({"k": "x", "v": v})).collect();
    let right: Vec<Value> = (0..150).map(|w| json!({"k": "x", "w": w})).collect();
    let ran = running.rows(None, &[batch(&left_schema(), &left), batch(&right_schema(), &right)]);
    assert_eq!((ran.rows.len(), ran.state_rows), (150 * 150, 300));
    let ran = running.rows(None, &[batch(&left_schema(), &left), batch(&right_schema(), &right)]);
    assert_eq!((ran.rows.len(), ran.state_rows), (150 * 150 * 3, 600));
}
