//! The port to user code. A *plugin* is a Wasm file, a *function* one of its exports.
//!
//! Functions are called by the batch, from many threads; the implementation keeps a pool of instances.

use crate::{CallScope, OutputMode, PluginDigest, Result, StatefulFunction};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{FieldRef, SchemaRef};
use serde::Serialize;
use std::sync::Arc;

/// A loaded plugin: its bytes are compiled, its manifest read and checked.
pub trait Plugin: Send + Sync {
    /// What it says of itself.
    fn manifest(&self) -> &Manifest;
    /// Identity of its bytes.
    fn digest(&self) -> &PluginDigest;
    /// Binds a scalar function to the types of its arguments.
    fn scalar(&self, function: &str, arguments: SchemaRef) -> Result<Arc<dyn ScalarFunction>>;
    /// Opens a transform function for rows of this schema.
    fn transform(&self, function: &str, input: SchemaRef) -> Result<Arc<dyn TransformFunction>>;
    /// Opens a stateful function for groups with these key columns, which are among those of their rows.
    fn stateful(&self, function: &str, key: SchemaRef, input: SchemaRef)
    -> Result<Arc<dyn StatefulFunction>>;
    /// Opens a sink function for rows of this schema.
    fn sink(&self, function: &str, input: SchemaRef, mode: OutputMode) -> Result<Arc<dyn SinkFunction>>;
    /// What its functions have cost so far.
    fn metrics(&self) -> PluginMetrics;
}

/// What a plugin has cost since it was loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PluginMetrics {
    /// Calls of its functions.
    pub calls: u64,
    /// Time inside calls, crossing included, summed over threads.
    pub busy_nanos: u64,
    /// Rows that its functions were called with.
    pub rows: u64,
    /// Of all that, what the migration of state from an older version took.
    pub migrating: MigrationMetrics,
    /// Rows that its functions refused.
    pub refused_rows: u64,
    /// Calls that trapped or overran a limit.
    pub traps: u64,
    /// Calls that gave no answer: those that trapped, those in which the function failed, those with a wrong answer.
    pub errors: u64,
    /// Instances made.
    pub instances: u64,
    /// Instances that had served long enough and were replaced.
    pub recycled: u64,
    /// Guest memory of all instances that there are now, in bytes.
    pub memory_bytes: u64,
    /// The largest guest memory seen, in bytes.
    pub memory_bytes_max: u64,
    /// Counters that the guest added to, by name.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// What migrations of state have cost. A state is migrated once, so it says nothing of what a function costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MigrationMetrics {
    /// Calls of `migrate`.
    pub calls: u64,
    /// Time inside them.
    pub busy_nanos: u64,
    /// Entries of state that they were called with.
    pub rows: u64,
}

/// Columns in, one column of the same length out.
pub trait ScalarFunction: Send + Sync {
    /// The result's type and nullability.
    fn field(&self) -> FieldRef;
    /// Evaluates it over a batch whose schema is that of the binding.
    fn evaluate(&self, scope: &CallScope<'_>, arguments: &RecordBatch) -> Result<ScalarOutput>;
}

/// What a scalar function made of a batch.
#[derive(Debug)]
pub struct ScalarOutput {
    /// As long as the arguments. At a rejected row its value means nothing.
    pub column: ArrayRef,
    /// Input rows that the function refused, ascending, each at most once. In a `filter` step they go to the
    /// dead letters; inside an SQL expression a refused row fails the micro-batch, as an exception in a Spark UDF.
    pub rejected: Vec<Rejected>,
}

/// Rows in, any number of rows out: map, filter and flatMap.
pub trait TransformFunction: Send + Sync {
    /// Schema of the rows that come out.
    fn output_schema(&self) -> SchemaRef;
    /// Processes one batch.
    fn process(&self, scope: &CallScope<'_>, rows: &RecordBatch) -> Result<TransformOutput>;
}

/// What a transform function made of a batch.
#[derive(Debug)]
pub struct TransformOutput {
    /// The rows that go on.
    pub rows: RecordBatch,
    /// Input rows that the function refused, ascending, each at most once.
    pub rejected: Vec<Rejected>,
}

/// Rows in, nothing out. Spark's `foreachBatch`.
pub trait SinkFunction: Send + Sync {
    /// Writes a part of a micro-batch away. The parts come one after the other; after a failure all of them come again,
    /// the same ones.
    fn write(&self, scope: &CallScope<'_>, part: BatchPart, rows: &RecordBatch) -> Result<()>;
}

/// Where rows stand among those that a micro-batch brings to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPart {
    /// From 0.
    pub number: u32,
    /// No further part follows.
    pub is_last: bool,
}

/// An input row that a function refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Index in the input batch.
    pub row: u32,
    /// Why, for a person.
    pub reason: String,
}

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// The plugin's own name.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// How it wants schemas and rows.
    pub encoding: Encoding,
    /// What it exports.
    pub functions: Vec<FunctionInfo>,
}

/// One function of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FunctionInfo {
    /// Name, unique within the plugin.
    pub name: String,
    /// What it can be used as.
    pub kind: FunctionKind,
    /// One line for a person.
    pub doc: String,
}

/// What a function can be used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    /// [`ScalarFunction`].
    Scalar,
    /// [`TransformFunction`].
    Transform,
    /// Grouped rows and their state in, rows and new state out.
    Stateful,
    /// A user-defined aggregate function.
    Aggregate,
    /// Rows in, nothing out.
    Sink,
}

/// How a plugin wants schemas and rows encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Arrow IPC messages.
    Arrow,
    /// JSON text.
    Json,
}
