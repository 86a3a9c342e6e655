//! Deduplication: what real Spark answered, and the corners.

use super::{Running, batch, millis, node, replay, schema, sorted};
use crate::stateful::dedup::Dedup;
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use pelton_plan::stateful::{self as plan, DedupExpiry, EventTimeColumn, StatefulOperator};
use serde_json::{Value, json};
use std::sync::Arc;

const COLUMNS: &str = "k string, v long, ts timestamp";
const WITHIN: DedupExpiry = DedupExpiry::Within { delay_ms: 600_000 };

fn dedup(input: &SchemaRef, keys: &[&str], event_time: Option<usize>, expiry: DedupExpiry) -> Running {
    let keys = keys.iter().map(|key| input.index_of(key).expect("a column")).collect();
    let spec =
        || plan::Dedup { keys, event_time: event_time.map(|column| EventTimeColumn { column }), expiry };
    let spec = spec();
    let node_spec = plan::Dedup { keys: spec.keys.clone(), event_time: spec.event_time, expiry };
    let node = node(StatefulOperator::Dedup(node_spec), &[input], input);
    Running::new(Dedup::new(&spec, &node).expect("a dedup"))
}

fn replay_case(text: &str, columns: &str, keys: &[&str], event_time: Option<usize>, expiry: DedupExpiry) {
    let case: Value = serde_json::from_str(text).expect("a case");
    let input = schema(columns);
    replay(&case, &mut dedup(&input, keys, event_time, expiry), &[("s", &input)], true);
}

#[test]
fn all_columns_without_watermark() {
    let case = include_str!("../../../../../tests/oracle/04_dedup/all_columns_no_watermark.json");
    replay_case(case, "k string, v long", &["k", "v"], None, DedupExpiry::Never);
}

#[test]
fn a_subset_of_columns_keeps_the_first_row() {
    let case = include_str!("../../../../../tests/oracle/04_dedup/subset_no_watermark.json");
    replay_case(case, COLUMNS, &["k"], None, DedupExpiry::Never);
}

#[test]
fn a_key_without_the_event_time_is_never_forgotten_but_late_rows_are_dropped() {
    let case = include_str!("../../../../../tests/oracle/04_dedup/watermark_not_in_keys.json");
    replay_case(case, COLUMNS, &["k"], Some(2), DedupExpiry::Never);
}

#[test]
fn keys_with_the_event_time_are_forgotten_and_those_with_null_are_not() {
    let case = include_str!("../../../../../tests/oracle/04_dedup/event_time_null_in_keys.json");
    replay_case(case, COLUMNS, &["k", "ts"], Some(2), DedupExpiry::EventTime);
}

#[test]
fn a_watermark_that_is_added_finds_what_was_seen_without_it_and_one_that_is_removed_forgets_nothing() {
    let input = schema(COLUMNS);
    let row = |time: &&str| json!({"k": "a", "v": 1, "ts": format!("2026-01-01T00:{time}Z")});
    let at = |times: &[&str]| vec![batch(&input, &times.iter().map(row).collect::<Vec<_>>())];
    let watermark = Some(millis("2026-01-01T00:20:00Z"));
    let without = || dedup(&input, &["k", "ts"], None, DedupExpiry::Never);
    let with = || dedup(&input, &["k", "ts"], Some(2), DedupExpiry::EventTime);
    assert_eq!(without().operator.state_form(), with().operator.state_form());
    let mut running = without();
    assert_eq!(running.rows(None, &at(&["10:00", "30:00"])).updated, 2);
    running.operator = with().operator;
    let ran = running.rows(watermark, &at(&["30:00"]));
    assert_eq!((ran.rows.len(), ran.removed, ran.state_rows), (0, 1, 1));
    running.operator = without().operator;
    let ran = running.rows(None, &at(&["30:00", "10:00"]));
    assert_eq!((ran.rows.len(), ran.removed, ran.state_rows), (1, 0, 2));
}

#[test]
fn within_the_watermark() {
    let case = include_str!("../../../../../tests/oracle/04_dedup/within_watermark_no_keys.json");
    replay_case(case, COLUMNS, &["k", "v", "ts"], Some(2), WITHIN);
}

#[test]
fn within_the_watermark_a_key_comes_again_when_the_first_row_is_behind_by_the_delay() {
    let input = schema(COLUMNS);
    let mut running = dedup(&input, &["k"], Some(2), WITHIN);
    let at = |time: &str, v: i64| {
        batch(&input, &[json!({"k": "a", "v": v, "ts": format!("2026-01-01T00:{time}Z")})])
    };
    let watermark = |time: &str| Some(millis(&format!("2026-01-01T00:{time}Z")));
    assert_eq!(running.rows(watermark("00:00"), &[at("10:00", 1)]).rows.len(), 1);
    // The first row counts, whatever comes after.
    assert_eq!(running.rows(watermark("10:00"), &[at("19:00", 2)]).rows.len(), 0);
    // The key is still there in the micro-batch at whose end it is forgotten.
    let ran = running.rows(watermark("20:00"), &[at("21:00", 3)]);
    assert_eq!((ran.rows.len(), ran.state_rows, ran.removed), (0, 0, 1));
    let ran = running.rows(watermark("20:00"), &[at("21:00", 4)]);
    assert_eq!((ran.rows.len(), ran.state_rows, ran.updated), (1, 1, 1));
}

#[test]
fn within_the_watermark_long_and_short_keys_are_forgotten_whether_few_or_most_are_over() {
    let input = schema(COLUMNS);
    let mut running = dedup(&input, &["k"], Some(2), WITHIN);
    let time = |seconds: i64| {
        format!("2026-01-01T{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
    };
    let watermark = |seconds: i64| Some(millis(&time(seconds)));
    // Every other key is longer than the index holds.
    let rows = |seconds: &dyn Fn(i64) -> i64| {
        let row = |n: i64| {
            let key = format!("{n:0width$}", width = if n % 2 == 0 { 4 } else { 40 });
            json!({"k": key, "v": n, "ts": time(seconds(n))})
        };
        batch(&input, &(0..2000).map(row).collect::<Vec<_>>())
    };
    assert_eq!(running.rows(watermark(0), &[rows(&|n| 1 + n)]).rows.len(), 2000);
    let nothing = [batch(&input, &[])];
    // A key is over 600 s after its row.
    for (at, removed) in [(600, 0), (607, 7), (607, 0), (608, 1), (2400, 1792)] {
        assert_eq!(running.rows(watermark(at), &nothing).removed, removed, "{at}");
    }
    let ran = running.rows(watermark(2400), &[rows(&|_| 2500)]);
    let mut passed: Vec<i64> = ran.rows.iter().filter_map(|row| row["v"].as_i64()).collect();
    passed.sort_unstable();
    assert_eq!((passed, ran.state_rows), ((0..1800).collect(), 2000));
}

#[test]
fn within_the_watermark_rows_without_a_time_pass_once_in_each_micro_batch() {
    let input = schema(COLUMNS);
    let mut running = dedup(&input, &["k"], Some(2), WITHIN);
    let rows = batch(&input, &[json!({"k": "a", "v": 1}), json!({"k": "a", "v": 2})]);
    // The epoch is not behind yet.
    let ran = running.rows(Some(0), std::slice::from_ref(&rows));
    assert_eq!((ran.rows.len(), ran.state_rows), (1, 1));
    let ran = running.rows(Some(600_000), std::slice::from_ref(&rows));
    assert_eq!((ran.rows.len(), ran.state_rows), (0, 0));
    for _ in 0..2 {
        let ran = running.rows(Some(700_000), std::slice::from_ref(&rows));
        assert_eq!((ran.rows.len(), ran.state_rows, ran.late_rows), (1, 0, 0));
    }
}

#[test]
fn the_first_row_wins_whatever_the_parts_and_rows_pass_unchanged() {
    let input = schema("d double, v long");
    let rows = |values: &[(f64, i64)]| {
        let d: ArrayRef = Arc::new(Float64Array::from_iter_values(values.iter().map(|value| value.0)));
        let v: ArrayRef = Arc::new(Int64Array::from_iter_values(values.iter().map(|value| value.1)));
        RecordBatch::try_new(input.clone(), vec![d, v]).expect("rows")
    };
    let mut running = dedup(&input, &["d"], None, DedupExpiry::Never);
    let other_nan = f64::from_bits(f64::NAN.to_bits() | 1);
    let parts = vec![
        vec![rows(&[(f64::NAN, 1)]), rows(&[(-0.0, 2), (other_nan, 3)])],
        vec![rows(&[(0.0, 4), (7.5, 5), (-f64::NAN, 6)])],
        vec![rows(&[(7.5, 7)])],
    ];
    let ran = running.run(None, &[parts]);
    let mut values: Vec<i64> = ran.rows.iter().filter_map(|row| row["v"].as_i64()).collect();
    values.sort_unstable();
    assert_eq!(values, [1, 2, 5]);
    assert_eq!(ran.state_rows, 3);
    let zero = ran.rows.iter().find(|row| row["v"] == 2).and_then(|row| row["d"].as_f64());
    assert!(zero.is_some_and(f64::is_sign_negative));
}

#[test]
fn without_key_columns_one_row_passes() {
    let input = schema(COLUMNS);
    let mut running = dedup(&input, &[], None, DedupExpiry::Never);
    let rows = batch(&input, &[json!({"k": "a", "v": 1}), json!({"k": "b", "v": 2})]);
    assert_eq!(running.rows(None, std::slice::from_ref(&rows)).rows[0]["v"], 1);
    assert!(running.rows(None, &[rows]).rows.is_empty());
}

#[test]
fn late_rows_become_dead_letters_that_say_how_late() {
    let input = schema(COLUMNS);
    let mut running = dedup(&input, &["k"], Some(2), DedupExpiry::Never);
    let rows = [
        json!({"k": "a", "v": 1, "ts": "1970-01-01T00:00:01Z"}),
        json!({"k": "b", "v": 1, "ts": "1970-01-01T00:00:03Z"}),
        json!({"k": "c", "v": 1}),
    ];
    let ran = running.rows(Some(1500), &[batch(&input, &rows)]);
    assert_eq!((ran.late_rows, ran.rows.len()), (1, 2));
    assert_eq!(ran.letters[0].reason, "500 ms behind the watermark");
    assert!(String::from_utf8_lossy(&ran.letters[0].payload).contains("\"k\":\"a\""));
}

#[test]
fn rows_of_a_shard_stay_in_order() {
    let input = schema("v long");
    let mut running = dedup(&input, &["v"], None, DedupExpiry::Never);
    let values: Vec<Value> = (0..1000).map(|v| json!({"v": v})).collect();
    let halves = vec![vec![batch(&input, &values[..300])], vec![batch(&input, &values[300..])]];
    let ran = running.run(None, &[halves]);
    let order: Vec<i64> = ran.rows.iter().filter_map(|row| row["v"].as_i64()).collect();
    assert_eq!(order.len(), 1000);
    assert!(order.windows(2).filter(|pair| pair[0] > pair[1]).count() < pelton_core::SHARDS);
    assert_eq!(sorted(&ran.rows), sorted(&values));
}
