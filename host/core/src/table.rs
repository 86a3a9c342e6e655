//! The port to static tables: the side of a join that does not stream.

use crate::{BatchId, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the rows of a table are read from, as JSON that a person can read in the offset log. Only the table that made it
/// knows what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableVersion(pub Value);

/// A table that a query joins with.
#[async_trait]
pub trait Table: Send + Sync {
    /// Its columns.
    fn schema(&self) -> SchemaRef;
    /// What a micro-batch that is planned now is to see of it. None: its rows stand in the pipeline file.
    async fn latest(&self) -> Result<Option<TableVersion>> {
        Ok(None)
    }
    /// From now on [`Table::rows`] gives the rows of this version. An error of kind `Data` if they are no longer there.
    async fn pin(&self, _version: &TableVersion) -> Result<()> {
        Ok(())
    }
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
