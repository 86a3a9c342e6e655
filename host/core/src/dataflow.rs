//! The port to everything that happens to rows between the sources and the sink.
//!
//! The engine drives it in two stages. First every block of input, decoded, goes through [`Dataflow::part`]: many at a
//! time, on worker threads. A query without stateful operators ends there: the rows of the parts, in their order, are
//! the result. Otherwise the parts are handed in their order to a [`Gather`], which at the end runs the stateful
//! operators over them and over the state.

use crate::{BatchInfo, DeadLetter, PoisonReport, Result, StateLayout, StateStore};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::any::Any;
use std::sync::Arc;

/// The operators of a query, bound to each other.
pub trait Dataflow: Send + Sync {
    /// Schema of the rows that go to the sink.
    fn schema(&self) -> SchemaRef;
    /// The query's watermarks; [`Part::event_times`] and [`Gathered::event_times`] are in their order.
    fn watermarks(&self) -> &[WatermarkInfo];
    /// The stateful operators, upstream first. None: the rows of the parts are the result.
    fn operators(&self) -> &[OperatorInfo];
    /// The first stage, over a part of what an input gave. The same part gives the same result.
    fn part(&self, batch: &BatchInfo, input: usize, partition: u64, rows: Vec<RecordBatch>) -> Result<Part>;
    /// Begins the second stage of a micro-batch.
    fn gather(self: Arc<Self>, batch: Arc<BatchInfo>) -> Box<dyn Gather>;
    /// Whether a micro-batch without data is worth running when the watermark has moved: something may now expire or
    /// become final. Spark's `shouldRunAnotherBatch`. `ran_with` is the last micro-batch's watermark, `next` the one
    /// that the next would run with.
    fn wants_batch_without_data(&self, ran_with: Option<i64>, next: Option<i64>) -> bool;
}

/// The second stage of one micro-batch.
pub trait Gather: Send {
    /// Takes a part; called in the order of the parts, input by input.
    fn add(&mut self, part: Part) -> Result<()>;
    /// Runs the stateful operators. Blocks; uses up to `threads` threads. The result does not depend on how many.
    fn finish(self: Box<Self>, state: &mut dyn StateStore, threads: usize) -> Result<Gathered>;
}

/// What the first stage made of a part of the input.
#[derive(Default)]
pub struct Part {
    /// Rows for the sink (of a query without stateful operators).
    pub rows: Vec<RecordBatch>,
    /// Rows that a function refused or failed on, and late rows if they are kept.
    pub dead_letters: Vec<DeadLetter>,
    /// What it took to find the rows that functions failed on; within the budget as far as this part goes.
    pub poison: Vec<PoisonReport>,
    /// The latest event time seen by each watermark, in milliseconds since the Unix epoch.
    pub event_times: Vec<Option<i64>>,
    /// What the stateful operators get; only the dataflow that made it can read it.
    pub exchange: Option<Box<dyn Any + Send>>,
}

/// What the second stage made of a micro-batch.
#[derive(Default)]
pub struct Gathered {
    /// Rows for the sink, in order.
    pub rows: Vec<RecordBatch>,
    /// As [`Part::dead_letters`].
    pub dead_letters: Vec<DeadLetter>,
    /// As [`Part::poison`].
    pub poison: Vec<PoisonReport>,
    /// As [`Part::event_times`]; of watermarks that stand behind a stateful operator.
    pub event_times: Vec<Option<i64>>,
    /// What each stateful operator did, in the order of [`Dataflow::operators`].
    pub operators: Vec<OperatorReport>,
}

/// A watermark of a query. Spark's `withWatermark`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatermarkInfo {
    /// The operator's stable name.
    pub name: String,
    /// The event-time column.
    pub column: String,
    /// How far behind the latest event time it stays, in milliseconds.
    pub delay_ms: i64,
    /// It follows the slowest partition. None, as in Spark: it follows the latest event of all.
    pub per_partition: Option<PerPartition>,
}

/// How a watermark follows the partitions of its sources. Flink's watermark by split, with its idleness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerPartition {
    /// The sources whose rows it sees, by name.
    pub sources: Vec<String>,
    /// For how long a partition must have had nothing to read until it is idle and holds the watermark back no longer,
    /// in milliseconds. None: for ever.
    pub idle_timeout_ms: Option<i64>,
}

/// A stateful operator of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorInfo {
    /// Its stable name: the name of its tables in the state store begins with it.
    pub name: String,
    /// What it is, in Spark's word: `aggregate`, `session_window`, `dedup`, `join`, `limit` ….
    pub kind: &'static str,
    /// What it waits for, for a person.
    pub waits_for: String,
    /// Something can fall due by the time of the micro-batch alone (a timeout or a timer in processing time), so a
    /// micro-batch without data can be worth running at any time.
    pub watches_clock: bool,
    /// What its state consists of; none if it keeps nothing from one micro-batch to the next.
    pub layout: Option<StateLayout>,
}

/// What a stateful operator did in a micro-batch. Spark's `StateOperatorProgress`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorReport {
    /// Rows of state after the micro-batch: one a group, key, session or buffered row.
    pub rows_total: u64,
    /// Rows of state that it wrote.
    pub rows_updated: u64,
    /// Rows of state that it removed.
    pub rows_removed: u64,
    /// Input rows that it gave up as late: rows, before anything is combined.
    pub late_rows: u64,
    /// Of an operator that watches the clock: the first processing time, in milliseconds, at which something may fall
    /// due. `None`: nothing waits.
    pub next_due_ms: Option<i64>,
}
