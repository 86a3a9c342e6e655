//! The port to static tables: the side of a join that does not stream.

use crate::{BatchId, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

/// A table that a query joins with.
pub trait Table: Send + Sync {
    /// Its columns.
    fn schema(&self) -> SchemaRef;
    /// All its rows as this micro-batch sees them; may block. Asked again within the micro-batch it gives the same.
    fn rows(&self, batch_id: BatchId) -> Result<TableRows>;
}

/// The rows of a table at some moment.
#[derive(Debug, Clone)]
pub struct TableRows {
    /// Another number when the rows are others.
    pub version: u64,
    /// One batch, perhaps without rows.
    pub rows: RecordBatch,
}
