//! The port to static tables: the side of a join that does not stream.

use crate::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

/// A table that a query joins with.
pub trait Table: Send + Sync {
    /// Its columns.
    fn schema(&self) -> SchemaRef;
    /// All its rows; blocks. What it gives within a micro-batch does not change.
    fn rows(&self) -> Result<TableRows>;
}

/// The rows of a table at some moment.
#[derive(Debug, Clone)]
pub struct TableRows {
    /// Another number when the rows are others.
    pub version: u64,
    /// One batch, perhaps without rows.
    pub rows: RecordBatch,
}
