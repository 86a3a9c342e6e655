//! Small parts for stream tests: closures as segments, rows of numbers, rows as text.

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pelton_core::{BatchInfo, Result, Segment, SegmentOutput};
use std::sync::Arc;

type Process = dyn Fn(&BatchInfo, u64, Vec<RecordBatch>) -> Result<SegmentOutput> + Send + Sync;

struct FnSegment {
    schema: SchemaRef,
    process: Box<Process>,
}

/// A closure as a [`Segment`]. It gets the micro-batch, the part's number and its rows; what it gives must have
/// `schema`.
pub fn segment(
    schema: SchemaRef,
    process: impl Fn(&BatchInfo, u64, Vec<RecordBatch>) -> Result<SegmentOutput> + Send + Sync + 'static,
) -> Arc<dyn Segment> {
    Arc::new(FnSegment { schema, process: Box::new(process) })
}

impl Segment for FnSegment {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
    fn process(&self, batch: &BatchInfo, partition: u64, rows: Vec<RecordBatch>) -> Result<SegmentOutput> {
        (self.process)(batch, partition, rows)
    }
}

/// A segment that gives what it gets.
pub fn pass_through(schema: SchemaRef) -> Arc<dyn Segment> {
    segment(schema, |_, _, batches| Ok(SegmentOutput { batches, dead_letters: Vec::new() }))
}

/// One column `n` of type long.
pub fn int_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]))
}

/// Rows of [`int_schema`].
pub fn int_rows(values: impl IntoIterator<Item = i64>) -> Vec<RecordBatch> {
    let column = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_new(int_schema(), vec![column]).into_iter().collect()
}

/// Rows as text, one string a row: `a, 1, null`.
pub fn rows_text(batches: &[RecordBatch]) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("null");
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let cell = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>();
        rows.extend((0..batch.num_rows()).map(|row| cell(row).join(", ")));
    }
    Ok(rows)
}
