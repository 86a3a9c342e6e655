//! The stateful operators of a physical plan, and the lanes of rows between sources, operators and sink.
//!
//! Made by the planner, run by `operators`. Expressions are DataFusion's, bound to the schema of the port that they
//! read. Times are microseconds where they are data (timestamps are) and milliseconds where they are watermarks.

use crate::logical::FunctionRef;
use crate::physical::PhysicalStep;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
pub use pelton_core::TableRows as VersionedRows;
use pelton_core::{BatchId, GroupForm, OutputMode, StateLayout, StatefulFunction};
use std::sync::Arc;

/// What the names of columns begin with that the planner has added for an operator: no columns of the user's.
pub const COMPUTED: &str = "__";

/// A way of rows through stateless steps.
pub struct Lane {
    /// Where the rows come from.
    pub origin: Origin,
    /// What happens to them on the way.
    pub steps: Vec<PhysicalStep>,
    /// Where they go.
    pub target: Target,
    /// Schema at the end of the lane.
    pub schema: SchemaRef,
}

/// Where a lane begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A source, by its position in the plan's inputs. A source can have several lanes (a self-join).
    Source(usize),
    /// A stateful operator, by its position in the plan's nodes.
    Node(usize),
}

/// Where a lane ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An input of a stateful operator. Several lanes can share one: their rows are united in the order of the lanes.
    Port {
        /// The operator, by its position in the plan's nodes.
        node: usize,
        /// Which of its inputs: a join has 0 (left) and 1 (right), all others 0.
        port: usize,
    },
    /// The sink.
    Sink,
}

/// A stateful operator with its surroundings. Nodes stand in the plan upstream first.
pub struct StatefulNode {
    /// Its stable name.
    pub name: String,
    /// What it does.
    pub operator: StatefulOperator,
    /// Schema of each input.
    pub inputs: Vec<SchemaRef>,
    /// Schema of the rows that it gives.
    pub schema: SchemaRef,
    /// How far its watermark is from the query's, in milliseconds, never more than 0: a join by time range upstream
    /// holds it back. `None`: no watermark reaches it.
    pub watermark_offset_ms: Option<i64>,
    /// Late rows become dead letters instead of being counted only.
    pub keep_late_rows: bool,
    /// What its state consists of and what it means, all but the form of the entries, which the operator adds. `None`:
    /// it keeps nothing from one micro-batch to the next.
    pub layout: Option<StateLayout>,
}

/// What a stateful operator does.
pub enum StatefulOperator {
    /// GROUP BY, with or without a time window.
    Aggregate(Aggregate),
    /// Keeps the first row of each key.
    Dedup(Dedup),
    /// Joins two streams.
    Join(StreamJoin),
    /// The first rows of the whole query (append mode) or of each result (complete mode).
    Limit(Limit),
    /// Sorts the result of a micro-batch (complete mode). Keeps no state.
    Sort(Sort),
    /// A plugin's stateful function.
    Groups(Groups),
}

impl StatefulOperator {
    /// What it is, in Spark's word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Aggregate(Aggregate { window: Some(TimeWindow::Session { .. }), .. }) => "session_window",
            Self::Aggregate(_) => "aggregate",
            Self::Dedup(_) => "dedup",
            Self::Join(_) => "join",
            Self::Limit(_) => "limit",
            Self::Sort(_) => "sort",
            Self::Groups(groups) => match groups.stateful.signature().form {
                GroupForm::MapGroups | GroupForm::FlatMapGroups => "flatMapGroupsWithState",
                GroupForm::Processor => pelton_core::KIND_WITH_VARIABLES,
            },
        }
    }
}

/// GROUP BY.
pub struct Aggregate {
    /// The keys, in the order of the result's first columns. At most one is [`GroupKey::Window`].
    pub keys: Vec<GroupKey>,
    /// The aggregate functions, in the order of the result's further columns.
    pub aggregates: Vec<AggregateCall>,
    /// The time window among the keys.
    pub window: Option<TimeWindow>,
    /// What says when a group is over and when a row is late. `None`: never.
    pub event_time: Option<EventTimeKey>,
    /// What it gives in each micro-batch. Append: groups that are over. Update: groups that were touched. Complete:
    /// all groups, and the watermark means nothing.
    pub output_mode: OutputMode,
}

/// A key of a GROUP BY.
pub enum GroupKey {
    /// An expression over the input.
    Expr(Arc<dyn PhysicalExpr>),
    /// The time window, as `struct<start: timestamp, end: timestamp>`.
    Window,
}

/// A time window.
pub enum TimeWindow {
    /// Spark's `window(time, size, slide, start)`: windows `[n · slide + start, … + size)`, aligned to the epoch
    /// whatever the session time zone. Rows without a time belong to none and are dropped (not late).
    Sliding {
        /// The time, a timestamp.
        time: Arc<dyn PhysicalExpr>,
        /// Length in microseconds, at least `slide_us`.
        size_us: i64,
        /// From one window's start to the next one's, in microseconds, more than 0. Need not divide the size.
        slide_us: i64,
        /// Offset from the epoch in microseconds; its absolute value is less than the slide.
        start_us: i64,
    },
    /// Spark's `session_window(time, gap)`: `[first, last + gap)`. Sessions that touch are one: a row exactly at the end
    /// of a session prolongs it, as in Spark.
    Session {
        /// The time, a timestamp.
        time: Arc<dyn PhysicalExpr>,
        /// The gap in microseconds as a `long`, evaluated for each row. Rows with NULL, 0 or less are dropped.
        gap_us: Arc<dyn PhysicalExpr>,
    },
}

/// The key that carries the event time of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTimeKey {
    /// The aggregate's own window. A row is late for a window with `end <= watermark`, and the window is over then. A
    /// session's row is judged by its own `[time, time + gap)`.
    Window,
    /// A key that is the event-time column itself (late and over when `time <= watermark`; NULL never) or the window
    /// of an earlier aggregation (`end <= watermark`): its type says which.
    Key(usize),
}

/// An aggregate function over the input's rows.
pub struct AggregateCall {
    /// DataFusion's function, bound to the input's schema; its state can be merged.
    pub function: Arc<AggregateFunctionExpr>,
    /// FILTER (WHERE …).
    pub filter: Option<Arc<dyn PhysicalExpr>>,
}

/// An event-time column of an input: a timestamp, or a window struct whose end counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTimeColumn {
    /// Its position.
    pub column: usize,
}

/// Keeps the first row of each key. Spark's `dropDuplicates` and `dropDuplicatesWithinWatermark`.
pub struct Dedup {
    /// The columns that make a duplicate, by position. Empty: the whole input is one key.
    pub keys: Vec<usize>,
    /// The input's event-time column: rows with `time <= watermark` are late; NULL never is.
    pub event_time: Option<EventTimeColumn>,
    /// When a key is forgotten.
    pub expiry: DedupExpiry,
}

/// When a deduplicated key is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DedupExpiry {
    /// Never.
    Never,
    /// The event time is among the keys: when it is `<= watermark`. NULL never is.
    EventTime,
    /// `dropDuplicatesWithinWatermark`: when the first row's time `+ delay_ms <= watermark`. NULL counts as the epoch.
    Within {
        /// The watermark's delay.
        delay_ms: i64,
    },
}

/// How two inputs are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs that match.
    Inner,
    /// And left rows that match nothing.
    LeftOuter,
    /// And right rows that match nothing.
    RightOuter,
    /// And both.
    FullOuter,
    /// Left rows that match something, once.
    LeftSemi,
    /// Left rows that match nothing (stream with static only).
    LeftAnti,
}

/// An equality between two inputs of a join.
pub struct JoinKey {
    /// Over the left input.
    pub left: Arc<dyn PhysicalExpr>,
    /// Over the right input; of the same type.
    pub right: Arc<dyn PhysicalExpr>,
    /// `<=>`: NULL matches NULL. Otherwise NULL matches nothing, in any kind of join.
    pub null_safe: bool,
}

/// Joins two streams. Spark's symmetric hash join.
pub struct StreamJoin {
    /// Inner, outer or semi; never anti.
    pub kind: JoinKind,
    /// At least one equality.
    pub keys: Vec<JoinKey>,
    /// What else must hold, over the columns of left then right.
    pub condition: Option<Arc<dyn PhysicalExpr>>,
    /// The two sides.
    pub sides: [JoinSide; 2],
}

/// One input of a stream–stream join.
pub struct JoinSide {
    /// Conditions of ON that concern this side alone. A row that fails them matches nothing: on a side whose
    /// unmatched rows are kept it is given at once, on another it is dropped. It never reaches the state.
    pub condition: Option<Arc<dyn PhysicalExpr>>,
    /// The input's event-time column: rows with `time <= watermark` are late. NULL never is.
    pub event_time: Option<EventTimeColumn>,
    /// When a buffered row can match nothing more.
    pub expiry: JoinExpiry,
}

/// When a row that a join buffers is forgotten (and given, if it is of an outer side and matched nothing).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinExpiry {
    /// Never.
    Never,
    /// The join is by event time: when the key of this position (a timestamp, or a window whose end counts) is
    /// `<= watermark`.
    Key(usize),
    /// A range condition bounds it: when this column is `<= watermark + offset_ms`.
    Value {
        /// The event-time column.
        column: EventTimeColumn,
        /// Added to the operator's watermark.
        offset_ms: i64,
    },
}

/// LIMIT.
pub struct Limit {
    /// How many rows.
    pub count: u64,
    /// Over all micro-batches (append mode), or in each (complete mode, which gives the whole result each time).
    pub over_all_batches: bool,
}

/// ORDER BY, in complete mode.
pub struct Sort {
    /// By what.
    pub by: Vec<PhysicalSortExpr>,
}

/// Calls a plugin's stateful function. Spark's `mapGroupsWithState`, `flatMapGroupsWithState`, `transformWithState`.
pub struct Groups {
    /// Which function it is.
    pub function: FunctionRef,
    /// The function, opened.
    pub stateful: Arc<dyn StatefulFunction>,
    /// The columns that make groups, by position.
    pub keys: Vec<usize>,
    /// The columns that the function reads, by position.
    pub reads: Vec<usize>,
    /// The input's event-time column, if timeouts or timers are by event time: rows with `time <= watermark` are late,
    /// NULL never is.
    pub event_time: Option<EventTimeColumn>,
    /// The state that groups have before the operator's first micro-batch: the key's columns, then the value's fields.
    pub initial: Option<Arc<StaticRelation>>,
}

/// Joins the rows of a lane with a static table. Stateless.
pub struct StaticJoin {
    /// The operator's name.
    pub operator: String,
    /// Left and right are those of the SQL: see `stream_is_left`.
    pub kind: JoinKind,
    /// Whether the stream is the left side. The static side is never the one whose unmatched rows are kept.
    pub stream_is_left: bool,
    /// Equalities; none makes it a nested loop.
    pub keys: Vec<JoinKey>,
    /// What else must hold, over the columns of left then right.
    pub condition: Option<Arc<dyn PhysicalExpr>>,
    /// `NOT IN`: a NULL on either side makes an anti join give nothing.
    pub null_aware: bool,
    /// The static side.
    pub table: Arc<StaticRelation>,
    /// Schema of the result: left then right columns (semi and anti: the left ones).
    pub schema: SchemaRef,
}

/// A static table, or what a query makes of some.
pub struct StaticRelation {
    /// For messages: the names of the tables in it.
    pub name: String,
    /// Its schema.
    pub schema: SchemaRef,
    /// Its rows as a micro-batch sees them. The version changes when the tables have; the rows of a version never do.
    pub rows: Box<dyn Fn(BatchId) -> pelton_core::Result<VersionedRows> + Send + Sync>,
}

/// Takes note of event times. Spark's `EventTimeWatermarkExec`; changes no row.
pub struct WatermarkStep {
    /// Which of the plan's watermarks.
    pub index: usize,
    /// The event-time column's name: a timestamp.
    pub column: String,
}
