//! LIMIT and ORDER BY.

use super::{Running, batch, node, replay, schema};
use crate::stateful::limit::Limit;
use crate::stateful::sort::Sort;
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::compute::SortOptions;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use pelton_plan::stateful::{self as plan, StatefulOperator};
use serde_json::{Value, json};
use std::sync::Arc;

fn limit(count: u64, over_all_batches: bool) -> Limit {
    let input = schema("b long");
    let spec = || plan::Limit { count, over_all_batches };
    Limit::new(&spec(), &node(StatefulOperator::Limit(spec()), &[&input], &input)).expect("a limit")
}

fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
    batch(&schema("b long"), &values.map(|b| json!({"b": b})).collect::<Vec<_>>())
}

#[test]
fn a_limit_counts_over_all_micro_batches() {
    let case: Value =
        serde_json::from_str(include_str!("../../../../../tests/oracle/01_stateless/limit_append.json"))
            .expect("a case");
    replay(&case, &mut Running::new(limit(5, true)), &[("s", &schema("b long"))], true);
}

#[test]
fn a_limit_that_was_changed_keeps_its_count() {
    let mut running = Running::new(limit(3, true));
    assert_eq!(running.rows(None, &[numbers(0..2)]).rows.len(), 2);
    running.operator = Box::new(limit(1, true));
    assert_eq!(running.rows(None, &[numbers(0..2)]).rows.len(), 0);
    running.operator = Box::new(limit(10, true));
    assert_eq!(running.rows(None, &[numbers(0..20)]).rows.len(), 8);
}

#[test]
fn a_limit_takes_the_first_rows_of_all_parts() {
    let parts = vec![vec![numbers(0..2), numbers(2..3)], vec![numbers(3..10)], vec![numbers(10..11)]];
    let ran = Running::new(limit(5, true)).run(None, std::slice::from_ref(&parts));
    assert_eq!(ran.rows, (0..5).map(|b| json!({"b": b})).collect::<Vec<_>>());
    let mut each = Running::new(limit(5, false));
    for _ in 0..2 {
        let ran = each.run(None, std::slice::from_ref(&parts));
        assert_eq!((ran.rows.len(), ran.state_rows), (5, 0));
    }
    assert!(Running::new(limit(0, true)).run(None, &[parts]).rows.is_empty());
}

#[test]
fn sorting_is_stable_and_takes_every_nan_for_the_same_greatest_number() {
    let input = schema("d double, v long");
    let d =
        [Some(f64::NAN), Some(0.0), None, Some(-0.0), Some(-f64::NAN), Some(1.0), Some(f64::NEG_INFINITY)];
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Float64Array::from(d.to_vec())), Arc::new(Int64Array::from_iter_values(0..7))];
    let rows = RecordBatch::try_new(input.clone(), columns).expect("rows");
    let order = |descending: bool, nulls_first: bool| {
        let options = SortOptions { descending, nulls_first };
        let spec =
            || plan::Sort { by: vec![PhysicalSortExpr { expr: Arc::new(Column::new("d", 0)), options }] };
        let sort =
            Sort::new(&spec(), &node(StatefulOperator::Sort(spec()), &[&input], &input)).expect("a sort");
        let ran = Running::new(sort).run(None, &[vec![vec![rows.slice(0, 4)], vec![rows.slice(4, 3)]]]);
        ran.rows.iter().filter_map(|row| row["v"].as_i64()).collect::<Vec<_>>()
    };
    assert_eq!(order(false, true), [2, 6, 1, 3, 5, 0, 4]);
    assert_eq!(order(true, false), [0, 4, 5, 1, 3, 6, 2]);
}
