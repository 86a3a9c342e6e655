//! The port to user code that keeps state: functions over groups of rows and the state of these groups.
//! Spark's `mapGroupsWithState`, `flatMapGroupsWithState` and `transformWithState`.
//!
//! The state belongs to the host. A call is given the state of its groups and says what is to become of it; between
//! calls a function keeps nothing. Times are microseconds since the Unix epoch, UTC. `wasm` implements the port and
//! vouches for every index and length in a [`GroupOutput`]; the operator over group state calls it.

use crate::{CallScope, Rejected, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A function over groups, opened for the schemas of their keys and rows.
pub trait StatefulFunction: Send + Sync {
    /// What it is like.
    fn signature(&self) -> &StatefulSignature;
    /// Processes groups, each at most once in a call.
    fn process(&self, scope: &CallScope<'_>, groups: &GroupInput) -> Result<GroupOutput>;
    /// Rewrites stored entries of the variable at this position from an older version, row for row. `entries` are rows
    /// of the schema that the entries had then, the key's fields first; what comes back are rows of
    /// [`StateVariable::entries`] with the same keys.
    fn migrate(&self, variable: usize, from: u32, entries: &RecordBatch) -> Result<RecordBatch>;
}

/// What a stateful function is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatefulSignature {
    /// How it is called and what it may do.
    pub form: GroupForm,
    /// What its timeouts and timers are measured by.
    pub time_mode: TimeMode,
    /// Schema of the rows that come out.
    pub output: SchemaRef,
    /// The columns of its input that it reads, by position, ascending: [`GroupInput::rows`] has these alone.
    pub reads: Vec<usize>,
    /// Its state.
    pub variables: Vec<StateVariable>,
}

/// How a stateful function is called and what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupForm {
    /// Spark's `mapGroupsWithState`: exactly one row a group and call, in their order. One timeout a group, which every
    /// call clears; a group with rows in a micro-batch is not called for its timeout in the same one.
    MapGroups,
    /// Spark's `flatMapGroupsWithState`: any number of rows; otherwise as [`GroupForm::MapGroups`].
    FlatMapGroups,
    /// Spark's `transformWithState`: any number of rows; named timers that stay until they fire or are deleted. A group
    /// with rows and a due timer is called for both, for its rows first.
    Processor,
}

/// What timeouts and timers are measured by. Spark's `GroupStateTimeout` and `TimeMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeMode {
    /// There are none.
    None,
    /// The time of the micro-batch.
    ProcessingTime,
    /// The watermark.
    EventTime,
}

/// A part of the state of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateVariable {
    /// Names it for ever.
    pub name: String,
    /// What it holds.
    pub kind: VariableKind,
    /// Fields of a map's key; none otherwise.
    pub key: SchemaRef,
    /// Fields of the value.
    pub value: SchemaRef,
    /// [`StateVariable::key`]'s and then [`StateVariable::value`]'s fields.
    pub entries: SchemaRef,
    /// Of the value: counts up when stored values must be rewritten.
    pub version: u32,
    /// An entry is gone so long after it was last written, in milliseconds of processing time.
    pub ttl_ms: Option<i64>,
    /// Which entries a call is given.
    pub load: Load,
}

/// What a variable holds for a group. Spark's `ValueState`, `ListState`, `MapState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariableKind {
    /// Nothing or one value.
    Value,
    /// Values in the order in which they were appended.
    List,
    /// Values by key.
    Map,
}

impl fmt::Display for VariableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value => "value",
            Self::List => "list",
            Self::Map => "map",
        })
    }
}

/// Which entries of a variable a call is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Load {
    /// None: the function only writes.
    Nothing,
    /// All entries of the group. A value is always loaded so.
    Everything,
    /// The last so many of a list.
    Last(u32),
    /// The entries of a map whose keys stand in these columns of the group's rows, by position in
    /// [`GroupInput::rows`], one for each field of the key.
    KeyedBy(Vec<usize>),
}

/// Why groups are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupReason {
    /// They have rows, or an initial state alone.
    Data,
    /// Their timeout has passed.
    Timeout,
    /// A timer of theirs has passed.
    Timer,
}

/// The groups of a call.
#[derive(Debug, Clone)]
pub struct GroupInput {
    /// Why they are called.
    pub reason: GroupReason,
    /// A row of key columns for each group.
    pub keys: RecordBatch,
    /// The rows, by group, in the order of the input.
    pub rows: RecordBatch,
    /// Group `i` owns the rows `offsets[i]..offsets[i + 1]`.
    pub offsets: Vec<u32>,
    /// The state, by variable.
    pub state: Vec<StateEntries>,
    /// The timer that each group is called for, in their order, if that is the reason.
    pub fired: Vec<Timer>,
    /// The other timers of the groups: by group, then time, then name.
    pub pending: Vec<Timer>,
}

impl GroupInput {
    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.keys.num_rows()
    }
}

/// What a variable holds for the groups of a call.
#[derive(Debug, Clone)]
pub struct StateEntries {
    /// Rows of [`StateVariable::entries`], by group: at most one of a value, a list's in its order, a map's in the order
    /// of the bytes of their keys.
    pub rows: RecordBatch,
    /// Group `i` owns the entries `offsets[i]..offsets[i + 1]`.
    pub offsets: Vec<u32>,
}

/// A timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// The group's position in the call.
    pub group: u32,
    /// Its name: one timer of a name for each group.
    pub name: String,
    /// When it is due, in microseconds.
    pub at: i64,
}

/// What a stateful function made of a call.
#[derive(Debug, Clone)]
pub struct GroupOutput {
    /// The rows that go on, in the order of the groups. In [`GroupForm::MapGroups`] one a group.
    pub rows: RecordBatch,
    /// Input rows that it refused, ascending, each at most once.
    pub rejected: Vec<Rejected>,
    /// What becomes of the state, by variable.
    pub changes: Vec<StateChanges>,
    /// The timeouts that groups have from now on, in microseconds, ascending by group, each at most once. A group
    /// that is not here has none any more.
    pub timeouts: Vec<(u32, i64)>,
    /// What becomes of the timers, in order.
    pub timers: Vec<TimerChange>,
}

/// Changes of a variable, in order, groups ascending.
#[derive(Debug, Clone)]
pub struct StateChanges {
    /// The group of each change.
    pub groups: Vec<u32>,
    /// What is done.
    pub actions: Vec<StateAction>,
    /// A row of [`StateVariable::entries`] for each [`StateAction::Put`].
    pub put: RecordBatch,
    /// A row of [`StateVariable::key`] for each [`StateAction::Remove`].
    pub remove: RecordBatch,
}

/// A change of a variable's entries for one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateAction {
    /// Sets the value, appends to the list, sets the map's entry of that key.
    Put,
    /// Takes the map's entry of that key away.
    Remove,
    /// Takes all entries of the group away.
    Clear,
}

/// A change of a timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerChange {
    /// The group's position in the call.
    pub group: u32,
    /// The timer's name.
    pub name: String,
    /// When it is due from now on, in microseconds; `None` deletes it.
    pub at: Option<i64>,
}
