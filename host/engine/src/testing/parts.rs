//! Small parts for stream tests: closures as dataflows, rows of numbers, rows as text.

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pelton_core::{
    BatchInfo, Dataflow, Error, Gather, Gathered, OperatorInfo, Part, Result, StateStore, WatermarkInfo,
};
use std::sync::Arc;

type Process = dyn Fn(&BatchInfo, usize, u64, Vec<RecordBatch>) -> Result<Part> + Send + Sync;

struct Stateless {
    schema: SchemaRef,
    process: Box<Process>,
}

/// A closure as a [`Dataflow`] without state. It gets the micro-batch, the input, the part's number and its rows; what
/// it gives must have `schema`.
pub fn stateless(
    schema: SchemaRef,
    process: impl Fn(&BatchInfo, usize, u64, Vec<RecordBatch>) -> Result<Part> + Send + Sync + 'static,
) -> Arc<dyn Dataflow> {
    Arc::new(Stateless { schema, process: Box::new(process) })
}

impl Dataflow for Stateless {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
    fn watermarks(&self) -> &[WatermarkInfo] {
        &[]
    }
    fn operators(&self) -> &[OperatorInfo] {
        &[]
    }
    fn part(&self, batch: &BatchInfo, input: usize, partition: u64, rows: Vec<RecordBatch>) -> Result<Part> {
        (self.process)(batch, input, partition, rows)
    }
    fn gather(self: Arc<Self>, _: Arc<BatchInfo>) -> Box<dyn Gather> {
        Box::new(Nothing)
    }
    fn wants_batch_without_data(&self, _: Option<i64>, _: Option<i64>) -> bool {
        false
    }
}

/// The second stage of a dataflow that has none.
struct Nothing;

impl Gather for Nothing {
    fn add(&mut self, _: Part) -> Result<()> {
        Err(Error::internal("a dataflow without stateful operators was asked to gather"))
    }
    fn finish(self: Box<Self>, _: &mut dyn StateStore, _: usize) -> Result<Gathered> {
        Ok(Gathered::default())
    }
}

/// Rows as a [`Part`] that has nothing else.
pub fn rows_part(rows: Vec<RecordBatch>) -> Part {
    Part { rows, ..Part::default() }
}

/// A dataflow that gives what it gets.
pub fn pass_through(schema: SchemaRef) -> Arc<dyn Dataflow> {
    stateless(schema, |_, _, _, rows| Ok(rows_part(rows)))
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
