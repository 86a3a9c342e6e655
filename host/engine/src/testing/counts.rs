//! A stateful dataflow for stream tests: a running count per key and window of time, given when the window is over.
//!
//! It does with the fewest words what every stateful operator does: judge late rows by one watermark, end windows by
//! the other, and keep everything else in the state store.

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use bytes::Bytes;
use pelton_core::{
    BatchInfo, Dataflow, DeadLetter, Error, Gather, Gathered, LossKind, OperatorInfo, OperatorReport, Part,
    PerPartition, Result, StateFact, StateLayout, StateOp, StateShard, StateStore, WatermarkInfo, shard_of,
};
use std::sync::Arc;

const TABLE: &str = "counts/windows";

/// Columns `k` and `t` (milliseconds) of type long.
pub fn event_schema() -> SchemaRef {
    schema(["k", "t"])
}

/// Rows of [`event_schema`].
pub fn event_rows(values: impl IntoIterator<Item = (i64, i64)>) -> Vec<RecordBatch> {
    let (k, t): (Vec<i64>, Vec<i64>) = values.into_iter().unzip();
    batch(event_schema(), [k, t])
}

fn schema<const N: usize>(names: [&str; N]) -> SchemaRef {
    Arc::new(Schema::new(names.map(|name| Field::new(name, DataType::Int64, true)).to_vec()))
}

fn batch<const N: usize>(schema: SchemaRef, columns: [Vec<i64>; N]) -> Vec<RecordBatch> {
    let columns = columns.map(|column| Arc::new(Int64Array::from(column)) as _).to_vec();
    RecordBatch::try_new(schema, columns).into_iter().collect()
}

/// Counts rows of [`event_schema`] per `k` and tumbling window of `t`; gives `k`, the window's end and the count when
/// the watermark has reached the end (append mode). Each input has a watermark of its own, `w0`, `w1`, …
#[derive(Debug, Clone)]
pub struct WindowCounts {
    watermarks: Vec<WatermarkInfo>,
    operators: Vec<OperatorInfo>,
    window_ms: i64,
    keep_late_rows: bool,
}

impl WindowCounts {
    /// Over inputs with these delays. No delay at all: no watermark either, and no window is ever over.
    pub fn new(window_ms: i64, delays_ms: &[i64]) -> Self {
        let watermark = |(input, delay_ms): (usize, &i64)| WatermarkInfo {
            name: format!("w{input}"),
            column: "t".into(),
            delay_ms: *delay_ms,
            per_partition: None,
        };
        let operator = OperatorInfo {
            name: "counts".into(),
            kind: "aggregate",
            waits_for: "the watermark to pass the end of a window".into(),
            watches_clock: false,
            layout: Some(StateLayout {
                name: "counts".into(),
                kind: "aggregate".into(),
                definition: vec![StateFact::new("window", format!("{window_ms} ms"))],
                ..StateLayout::default()
            }),
        };
        Self {
            watermarks: delays_ms.iter().enumerate().map(watermark).collect(),
            operators: vec![operator],
            window_ms,
            keep_late_rows: false,
        }
    }

    /// The first watermark is kept by partition of these sources.
    #[must_use]
    pub fn per_partition(mut self, sources: &[&str], idle_timeout_ms: Option<i64>) -> Self {
        let sources = sources.iter().map(|&name| name.to_owned()).collect();
        if let Some(first) = self.watermarks.first_mut() {
            first.per_partition = Some(PerPartition { sources, idle_timeout_ms });
        }
        self
    }

    /// Late rows become dead letters.
    #[must_use]
    pub fn keep_late_rows(mut self) -> Self {
        self.keep_late_rows = true;
        self
    }

    fn letter(key: i64, time_ms: i64, behind_ms: i64) -> DeadLetter {
        DeadLetter {
            kind: LossKind::Late,
            origin: "counts".into(),
            position: None,
            reason: format!("{behind_ms} ms behind the watermark"),
            plugin: None,
            payload: Bytes::from(format!("{{\"k\":{key},\"t\":{time_ms}}}")),
            message: None,
        }
    }
}

/// Windows (key, end) of the rows of a part that are not late, and how many are.
#[derive(Default)]
struct Windows {
    windows: Vec<(i64, i64)>,
    late_rows: u64,
}

impl Dataflow for WindowCounts {
    fn schema(&self) -> SchemaRef {
        schema(["k", "end", "n"])
    }
    fn watermarks(&self) -> &[WatermarkInfo] {
        &self.watermarks
    }
    fn operators(&self) -> &[OperatorInfo] {
        &self.operators
    }

    fn part(&self, info: &BatchInfo, input: usize, _: u64, rows: Vec<RecordBatch>) -> Result<Part> {
        let mut part = Part { event_times: vec![None; self.watermarks.len()], ..Part::default() };
        let mut seen = Windows::default();
        for rows in rows {
            let (keys, times) =
                (rows.column(0).as_primitive::<Int64Type>(), rows.column(1).as_primitive::<Int64Type>());
            for (key, time_ms) in keys.values().iter().copied().zip(times.values().iter().copied()) {
                if let Some(latest) = part.event_times.get_mut(input) {
                    *latest = (*latest).max(Some(time_ms));
                }
                let end = (time_ms.div_euclid(self.window_ms) + 1) * self.window_ms;
                match info.late_watermark_ms {
                    Some(late_ms) if end <= late_ms => {
                        seen.late_rows += 1;
                        if self.keep_late_rows {
                            part.dead_letters.push(Self::letter(key, time_ms, late_ms - time_ms));
                        }
                    }
                    _ => seen.windows.push((key, end)),
                }
            }
        }
        part.exchange = Some(Box::new(seen));
        Ok(part)
    }

    fn gather(self: Arc<Self>, batch: Arc<BatchInfo>) -> Box<dyn Gather> {
        Box::new(Counting { schema: self.schema(), batch, seen: Windows::default() })
    }

    fn wants_batch_without_data(&self, ran_with: Option<i64>, next: Option<i64>) -> bool {
        next > ran_with
    }
}

struct Counting {
    schema: SchemaRef,
    batch: Arc<BatchInfo>,
    seen: Windows,
}

impl Gather for Counting {
    fn add(&mut self, part: Part) -> Result<()> {
        let windows = part.exchange.and_then(|exchange| exchange.downcast::<Windows>().ok());
        let windows = windows.ok_or_else(|| Error::internal("a part of another dataflow"))?;
        self.seen.windows.extend(windows.windows);
        self.seen.late_rows += windows.late_rows;
        Ok(())
    }

    fn finish(self: Box<Self>, state: &mut dyn StateStore, _threads: usize) -> Result<Gathered> {
        let mut report = OperatorReport { late_rows: self.seen.late_rows, ..OperatorReport::default() };
        let mut over = [Vec::new(), Vec::new(), Vec::new()];
        for (number, shard) in state.shards().into_iter().enumerate() {
            for (key, end) in self.seen.windows.iter().filter(|(key, _)| shard_of(*key as u8) == number) {
                count(shard, *key, *end)?;
                report.rows_updated += 1;
            }
            let Some(watermark_ms) = self.batch.watermark_ms else { continue };
            for (key, value) in shard.scan(TABLE, &[][..]..&ordered(watermark_ms + 1)[..], usize::MAX)? {
                over[0].push(number_at(&key, 8));
                over[1].push(number_at(&key, 0));
                over[2].push(number_at(&value, 0));
                shard.apply(TABLE, vec![StateOp::Remove(key)])?;
                report.rows_removed += 1;
            }
        }
        report.rows_total = state.len(TABLE);
        Ok(Gathered { rows: batch(self.schema, over), operators: vec![report], ..Gathered::default() })
    }
}

/// Adds one to the count of a window.
fn count(shard: &mut dyn StateShard, key: i64, end: i64) -> Result<()> {
    let name = Bytes::from([ordered(end), ordered(key)].concat());
    let before = shard.get_many(TABLE, &[&name])?.into_iter().flatten().next();
    let before = before.map_or(0, |value| number_at(&value, 0));
    shard.apply(TABLE, vec![StateOp::Put(name, Bytes::from(ordered(before + 1).to_vec()))])
}

/// Eight bytes that are ordered as the numbers are.
fn ordered(number: i64) -> [u8; 8] {
    (number ^ i64::MIN).to_be_bytes()
}

fn number_at(bytes: &[u8], at: usize) -> i64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(eight) ^ i64::MIN
}
