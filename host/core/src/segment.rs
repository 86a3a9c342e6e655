//! The port to a run of stateless operators.

use crate::{BatchInfo, DeadLetter, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

/// A run of stateless operators between two exchanges: filters, projections, SQL, plugins.
/// Called from many threads, each with another part of the micro-batch.
pub trait Segment: Send + Sync {
    /// Schema of the rows that come out.
    fn schema(&self) -> SchemaRef;
    /// Processes one part of a micro-batch. The same part gives the same rows in the same order.
    fn process(&self, batch: &BatchInfo, partition: u64, rows: Vec<RecordBatch>) -> Result<SegmentOutput>;
}

/// What a segment made of a part of a micro-batch.
#[derive(Debug, Default)]
pub struct SegmentOutput {
    /// The rows that go on, in order.
    pub batches: Vec<RecordBatch>,
    /// Rows that a function refused.
    pub dead_letters: Vec<DeadLetter>,
}
