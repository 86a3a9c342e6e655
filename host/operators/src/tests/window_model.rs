//! Aggregations over windows and sessions against a naive model, for random rows, micro-batches, parts and threads.

use super::micro_batches::{Query, physical};
use super::{batch, schema};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const SECOND: i64 = 1_000_000;

/// A row: key, value, time in seconds.
type Row = (Option<i64>, i64, Option<i64>);

/// A group of the result: key, start and end of the window in seconds, count, sum.
type Group = (Option<i64>, i64, i64, i64, i64);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (prop::option::weighted(0.9, 0..3_i64), -5..50_i64, prop::option::weighted(0.95, -40..400_i64));
    prop::collection::vec(row, 0..30)
}

/// Micro-batches of parts.
fn micro_batches() -> impl Strategy<Value = Vec<Vec<Vec<Row>>>> {
    prop::collection::vec(prop::collection::vec(rows(), 0..4), 1..5)
}

fn query(window: &str, mode: &str, threads: usize) -> Query {
    let schemas = BTreeMap::from([("s".to_owned(), schema("k long, v long, ts timestamp"))]);
    let text = json!({
        "name": "q",
        "sources": {"s": {"connector": "rate", "watermark": {"column": "ts", "delay": "20 seconds"}}},
        "steps": [{"sql": format!(
            "SELECT k, w.start AS ws, w.end AS we, n, total FROM \
             (SELECT k, {window} AS w, count(*) AS n, sum(v) AS total FROM s GROUP BY k, {window})"
        )}],
        "on_late": "dead_letter",
        "output_mode": mode,
        "sink": {"connector": "memory"},
    });
    let plan = physical(&text.to_string(), &schemas).expect("a plan");
    let mut query = Query::new(&plan).expect("a query");
    query.threads = threads;
    query
}

fn part(rows: &[Row]) -> RecordBatch {
    let time = |seconds: i64| {
        let time = chrono(seconds);
        json!(time)
    };
    let row = |(k, v, ts): &Row| json!({"k": k, "v": v, "ts": ts.map(time)});
    batch(&schema("k long, v long, ts timestamp"), &rows.iter().map(row).collect::<Vec<_>>())
}

/// Seconds since the epoch as text.
fn chrono(seconds: i64) -> String {
    let array = arrow::array::TimestampMicrosecondArray::from(vec![seconds * SECOND]);
    let text = arrow::compute::cast(&array, &arrow::datatypes::DataType::Utf8).expect("text");
    format!("{}Z", text.as_string::<i32>().value(0))
}

fn groups(rows: &[RecordBatch]) -> Vec<Group> {
    let mut groups = Vec::new();
    for rows in rows {
        let long = |column: usize, row: usize| {
            let column = rows.column(column).as_primitive::<Int64Type>();
            column.is_valid(row).then(|| column.value(row))
        };
        let time = |column: usize, row: usize| {
            rows.column(column).as_primitive::<TimestampMicrosecondType>().value(row)
        };
        for row in 0..rows.num_rows() {
            let (n, total) = (long(3, row).expect("a count"), long(4, row).expect("a sum"));
            groups.push((long(0, row), time(1, row) / SECOND, time(2, row) / SECOND, n, total));
        }
    }
    groups
}

/// The meaning of windows, one row at a time. Times in seconds; `late` and `watermark` in milliseconds.
#[derive(Default)]
struct Model {
    groups: BTreeMap<(Option<i64>, i64, i64), (i64, i64)>,
}

struct Expected {
    groups: Vec<Group>,
    late_rows: u64,
    state_rows: u64,
}

impl Model {
    fn add(&mut self, key: Option<i64>, start: i64, end: i64, value: i64) {
        let group = self.groups.entry((key, start, end)).or_default();
        *group = (group.0 + 1, group.1 + value);
    }

    fn windows(
        &mut self,
        rows: &[Row],
        size: i64,
        slide: i64,
        late: i64,
        watermark: i64,
        append: bool,
    ) -> Expected {
        let mut touched = BTreeSet::new();
        let mut late_rows = 0;
        for (key, value, time) in rows {
            let Some(time) = time else { continue };
            let windows = (time - size + 1..=*time).filter(|start| start.rem_euclid(slide) == 0);
            let mut is_late = false;
            for start in windows {
                if (start + size) * 1000 <= late {
                    is_late = true;
                    continue;
                }
                self.add(*key, start, start + size, *value);
                touched.insert((*key, start, start + size));
            }
            late_rows += u64::from(is_late);
        }
        let touched = (!append).then_some(&touched);
        self.over(watermark, late_rows, touched)
    }

    fn sessions(&mut self, rows: &[Row], gap: i64, late: i64, watermark: i64) -> Expected {
        let mut late_rows = 0;
        for (key, value, time) in rows {
            let Some(time) = time else { continue };
            if (time + gap) * 1000 <= late {
                late_rows += 1;
                continue;
            }
            self.add(*key, *time, time + gap, *value);
            // Those of the key that touch become one, until none does.
            while let Some((a, b)) = self.touching(*key) {
                let (x, y) = (self.groups.remove(&a).expect("there"), self.groups.remove(&b).expect("there"));
                self.groups.insert((*key, a.1.min(b.1), a.2.max(b.2)), (x.0 + y.0, x.1 + y.1));
            }
        }
        self.over(watermark, late_rows, None)
    }

    #[allow(clippy::type_complexity, reason = "two keys")]
    fn touching(&self, key: Option<i64>) -> Option<((Option<i64>, i64, i64), (Option<i64>, i64, i64))> {
        let of_key: Vec<_> = self.groups.keys().filter(|group| group.0 == key).copied().collect();
        of_key.windows(2).find(|pair| pair[1].1 <= pair[0].2).map(|pair| (pair[0], pair[1]))
    }

    /// What comes out: what was touched, or what is over.
    fn over(
        &mut self,
        watermark: i64,
        late_rows: u64,
        touched: Option<&BTreeSet<(Option<i64>, i64, i64)>>,
    ) -> Expected {
        let is_over = |end: i64| end * 1000 <= watermark;
        let wanted = |group: &(Option<i64>, i64, i64)| match touched {
            Some(touched) => touched.contains(group),
            None => is_over(group.2),
        };
        let groups = self.groups.iter().filter(|(group, _)| wanted(group));
        let groups = groups.map(|((k, start, end), (n, total))| (*k, *start, *end, *n, *total)).collect();
        self.groups.retain(|group, _| !is_over(group.2));
        Expected { groups, late_rows, state_rows: self.groups.len() as u64 }
    }
}

/// Runs the micro-batches, and batches without data between them where they are due.
fn check(
    mut query: Query,
    batches: &[Vec<Vec<Row>>],
    mut model: impl FnMut(&[Row], i64, i64) -> Expected,
) -> Result<(), TestCaseError> {
    let mut last = 0;
    for parts in batches {
        let mut runs = vec![parts.as_slice()];
        while let Some(parts) = runs.pop() {
            let (late, watermark) = (query.ran_with.unwrap_or(0), query.next_watermark().unwrap_or(0));
            prop_assert!(watermark >= last, "the watermark fell");
            last = watermark;
            let ran = query.run(&[parts.iter().map(|rows| part(rows)).collect()]).expect("runs");
            let expected = model(&parts.concat(), late, watermark);
            let mut got = groups(&ran.rows);
            got.sort_unstable();
            let mut wanted = expected.groups;
            wanted.sort_unstable();
            prop_assert_eq!(got, wanted);
            prop_assert_eq!(ran.late_rows, expected.late_rows);
            prop_assert_eq!(ran.letters.len() as u64, expected.late_rows);
            prop_assert_eq!(ran.state_rows, expected.state_rows);
            if query.wants_more() {
                runs.push(&[]);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn windows_are_those_of_the_model(
        batches in micro_batches(),
        (size, slide) in prop::sample::select(vec![(10, 10), (30, 10), (10, 3), (7, 7), (60, 25)]),
        append in any::<bool>(),
        threads in 1..4_usize,
    ) {
        let window = format!("window(ts, '{size} seconds', '{slide} seconds')");
        let query = query(&window, if append { "append" } else { "update" }, threads);
        let mut model = Model::default();
        check(query, &batches, |rows, late, watermark| model.windows(rows, size, slide, late, watermark, append))?;
    }

    #[test]
    fn sessions_are_those_of_the_model(batches in micro_batches(), gap in 1..40_i64, threads in 1..4_usize) {
        let query = query(&format!("session_window(ts, '{gap} seconds')"), "append", threads);
        let mut model = Model::default();
        check(query, &batches, |rows, late, watermark| model.sessions(rows, gap, late, watermark))?;
    }

    #[test]
    fn neither_parts_nor_the_order_of_rows_nor_threads_show_in_the_result(
        rows in rows(),
        cut in 0..30_usize,
        turn in 0..30_usize,
        session in any::<bool>(),
    ) {
        let window = if session { "session_window(ts, '9 seconds')" } else { "window(ts, '20 seconds', '5 seconds')" };
        let run = |parts: &[Vec<Row>], threads: usize| {
            let mut query = query(window, "append", threads);
            let mut out = Vec::new();
            for parts in [parts, &[]] {
                let ran = query.run(&[parts.iter().map(|rows| part(rows)).collect()]).expect("runs");
                out.push((groups(&ran.rows), ran.late_rows, ran.state_rows));
            }
            out
        };
        let whole = run(std::slice::from_ref(&rows), 1);
        let (head, tail) = rows.split_at(cut.min(rows.len()));
        prop_assert_eq!(&run(&[head.to_vec(), tail.to_vec()], 3), &whole);
        let mut turned = rows.clone();
        turned.rotate_left(turn.min(rows.len()));
        turned.reverse();
        prop_assert_eq!(&run(&[turned], 2), &whole);
    }
}
