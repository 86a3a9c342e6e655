//! Rows, streams and contexts for the tests of all sinks.

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use futures::{StreamExt, stream};
use pelton_core::{BatchId, BatchInfo, OutputMode, QueryId, RowStream, SinkContext};
use std::ops::Range;
use std::sync::Arc;

/// Columns `n` and `key`, which has three values.
pub(crate) fn numbers(range: Range<i64>) -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(range.clone()));
    let key: ArrayRef = Arc::new(StringArray::from_iter_values(range.map(|n| format!("k {}", n % 3))));
    RecordBatch::try_from_iter([("n", n), ("key", key)]).unwrap()
}

pub(crate) fn stream(batches: Vec<RecordBatch>) -> RowStream {
    stream::iter(batches.into_iter().map(Ok)).boxed()
}

pub(crate) fn batch_info(batch_id: u64) -> BatchInfo {
    let query_id = QueryId("query".into());
    BatchInfo {
        query_id,
        batch_id: BatchId(batch_id),
        time_ms: batch_id as i64 * 1000,
        watermark_ms: None,
        late_watermark_ms: None,
    }
}

pub(crate) fn context(schema: SchemaRef, last_committed: Option<u64>) -> SinkContext {
    SinkContext {
        query_id: QueryId("query".into()),
        schema,
        output_mode: OutputMode::Append,
        last_committed: last_committed.map(BatchId),
        unfinished: Some(BatchId(last_committed.map_or(0, |last| last + 1))),
    }
}
