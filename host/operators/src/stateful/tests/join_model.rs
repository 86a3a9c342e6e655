//! Joins of two streams against a naive model, over random rows, cuts and watermarks.

use super::join::{Spec, left_schema, ranged, right_schema, running};
use super::{batch, sorted};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_plan::stateful::{JoinExpiry, JoinKind};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

const RANGE_S: i64 = 4;

/// A row: a key (0 is NULL), a time in seconds after the watermark (`None`: no time).
type Row = (u8, Option<i64>);

/// A micro-batch: rows of both sides, how far the watermark has moved, and into how many parts the rows are cut.
type Batch = ([Vec<Row>; 2], i64, usize);

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let row = || (0u8..3, prop_oneof![9 => (-3i64..8).prop_map(Some), 1 => Just(None)]);
    let batch = (vec(row(), 0..8), vec(row(), 0..8), 0i64..5, 1usize..4);
    vec(batch.prop_map(|(left, right, moved, cut)| ([left, right], moved, cut)), 1..7)
}

fn kinds() -> impl Strategy<Value = JoinKind> {
    prop_oneof![
        Just(JoinKind::Inner),
        Just(JoinKind::LeftOuter),
        Just(JoinKind::RightOuter),
        Just(JoinKind::FullOuter),
        Just(JoinKind::LeftSemi)
    ]
}

/// A row with its number, by which it is known.
#[derive(Clone, Copy)]
struct Known {
    key: u8,
    time: Option<i64>,
    number: i64,
}

fn json_row(row: &Known, side: usize) -> Value {
    let key = (row.key > 0).then(|| format!("k{}", row.key));
    let time = row.time.map(|s| format!("1970-01-01T00:00:{s:02}.000Z"));
    if side == 0 {
        json!({"k": key, "v": row.number, "lt": time})
    } else {
        json!({"k": key, "w": row.number, "rt": time})
    }
}

fn cut(schema: &SchemaRef, rows: &[Value], parts: usize) -> Vec<Vec<RecordBatch>> {
    let size = rows.len().div_ceil(parts).max(1);
    rows.chunks(size).map(|rows| rows.chunks(2).map(|rows| batch(schema, rows)).collect()).collect()
}

/// What a join of all rows gives. Rows without a time match nothing and are never certain to.
fn model(kind: JoinKind, by_time: bool, rows: &[Vec<Known>; 2]) -> Vec<(Option<i64>, Option<i64>)> {
    let matches = |left: &Known, right: &Known| {
        let is_in_time = matches!((left.time, right.time), (Some(left), Some(right))
            if if by_time { left == right } else { right >= left && right <= left + RANGE_S });
        left.key > 0 && left.key == right.key && is_in_time
    };
    let mut pairs = Vec::new();
    for left in &rows[0] {
        let mut found = rows[1].iter().filter(|right| matches(left, right)).peekable();
        match kind {
            JoinKind::LeftSemi if found.peek().is_some() => pairs.push((Some(left.number), None)),
            JoinKind::LeftSemi => {}
            _ => pairs.extend(found.map(|right| (Some(left.number), Some(right.number)))),
        }
    }
    let has_end = |row: &&Known| row.time.is_some();
    if matches!(kind, JoinKind::LeftOuter | JoinKind::FullOuter) {
        let alone = rows[0].iter().filter(|left| !rows[1].iter().any(|right| matches(left, right)));
        pairs.extend(alone.filter(has_end).map(|left| (Some(left.number), None)));
    }
    if matches!(kind, JoinKind::RightOuter | JoinKind::FullOuter) {
        let alone = rows[1].iter().filter(|right| !rows[0].iter().any(|left| matches(left, right)));
        pairs.extend(alone.filter(has_end).map(|right| (None, Some(right.number))));
    }
    pairs.sort_unstable();
    pairs
}

fn spec(kind: JoinKind, by_time: bool) -> Spec {
    let ranged = ranged(kind, RANGE_S * 1000);
    match by_time {
        true => Spec {
            joins_times: true,
            condition: None,
            expiry: [JoinExpiry::Key(1), JoinExpiry::Key(1)],
            ..ranged
        },
        false => ranged,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Over a whole run every pair comes once, and every row of an outer side either matched or once with NULLs;
    /// nothing that has a time is left in the state.
    #[test]
    fn a_run_gives_what_a_join_of_all_its_rows_gives(batches in batches(), kind in kinds(), by_time: bool) {
        let spec = spec(kind, by_time);
        let (mut cut_up, mut whole) = (running(&spec), running(&spec));
        let mut accepted: [Vec<Known>; 2] = Default::default();
        let (mut watermark, mut late, mut number) = (10_000, 10_000, 0);
        let mut given = Vec::new();
        for (rows, moved, parts) in &batches {
            watermark += moved * 1000;
            let mut input: [Vec<Value>; 2] = Default::default();
            for (side, rows) in rows.iter().enumerate() {
                for (key, time) in rows {
                    number += 1;
                    let time = time.map(|time| watermark / 1000 + time);
                    let row = Known { key: *key, time, number };
                    input[side].push(json_row(&row, side));
                    if time.is_none_or(|time| time * 1000 > late) {
                        accepted[side].push(row);
                    }
                }
            }
            let schemas = [left_schema(), right_schema()];
            let ports = |parts| [cut(&schemas[0], &input[0], parts), cut(&schemas[1], &input[1], parts)];
            cut_up.late_ms = Some(late);
            whole.late_ms = Some(late);
            let ran = cut_up.run(Some(watermark), &ports(*parts));
            let other = whole.run(Some(watermark), &ports(1));
            prop_assert_eq!(sorted(&ran.rows), sorted(&other.rows));
            prop_assert_eq!((ran.state_rows, ran.late_rows), (other.state_rows, other.late_rows));
            late = watermark;
            given.extend(ran.rows);
        }
        let last = cut_up.run(Some(1_000_000_000), &[Vec::new(), Vec::new()]);
        given.extend(last.rows);
        let mut pairs: Vec<_> = given.iter().map(|row| (row["v"].as_i64(), row["w"].as_i64())).collect();
        pairs.sort_unstable();
        prop_assert_eq!(pairs, model(kind, by_time, &accepted));
        let timeless = accepted.iter().flatten().filter(|row| row.time.is_none()).count() as u64;
        prop_assert!(last.state_rows <= timeless);
    }
}
