//! Runs a native run over a batch: filters and projections directly, everything else through DataFusion's streams.

use arrow::array::{Array, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, filter_record_batch, prep_null_mask_filter};
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::physical_plan::ExecutionPlanProperties;
use futures::StreamExt;
use pelton_core::{Error, Result};
use pelton_plan::{NativeRun, RowOperation, evaluation_error, input};
use std::sync::Arc;

/// A native run that knows where its columns are in the batches that it gets.
pub(crate) struct NativeRunner {
    run: NativeRun,
    /// For the leaf: the columns of the incoming batch, by position, and their schema.
    columns: Vec<usize>,
    leaf: SchemaRef,
}

impl NativeRunner {
    /// Finds the leaf's columns in batches of schema `incoming`, by name.
    pub(crate) fn new(run: &NativeRun, incoming: &SchemaRef) -> Result<Self> {
        let leaves = pelton_plan::physical::leaf_schemas(&run.plan);
        let Some(leaf) = leaves.first().cloned() else {
            return Err(Error::internal("a plan without a leaf"));
        };
        // A plan may read its input twice (UNION ALL); then every leaf is given the columns that any of them needs.
        if leaves.iter().any(|other| *other != leaf) {
            return Self::with_several_leaves(run, incoming, &leaves);
        }
        let columns = positions(&leaf, incoming)?;
        Ok(Self { run: run.clone(), columns, leaf })
    }

    fn with_several_leaves(run: &NativeRun, incoming: &SchemaRef, leaves: &[SchemaRef]) -> Result<Self> {
        let mut columns: Vec<usize> = Vec::new();
        for leaf in leaves {
            columns.extend(positions(leaf, incoming)?);
        }
        columns.sort_unstable();
        columns.dedup();
        let leaf = Arc::new(incoming.project(&columns)?);
        Ok(Self { run: run.clone(), columns, leaf })
    }

    /// Schema of the result.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.run.schema
    }

    /// The rows that come out, in order; batches without rows are left out.
    pub(crate) fn process(&self, rows: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let rows = self.cut(rows)?;
        let out = match &self.run.simple {
            Some(operations) => directly(operations, rows).map(|rows| vec![rows]),
            None => self.streamed(rows),
        };
        let out = out.map_err(|e| evaluation_error(&e))?;
        out.into_iter().filter(|rows| rows.num_rows() > 0).map(|rows| self.shaped(rows)).collect()
    }

    fn cut(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.columns.iter().map(|at| rows.column(*at).clone()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.leaf.clone(), columns, &options)?)
    }

    /// The calling thread drives the stream, so that the functions find their scope on it.
    fn streamed(&self, rows: RecordBatch) -> Result<Vec<RecordBatch>, DataFusionError> {
        let task = input::task(&self.run.config, &self.run.runtime, rows);
        let mut out = Vec::new();
        // A UNION ALL has a partition for each of its sides.
        for partition in 0..self.run.plan.output_partitioning().partition_count() {
            let mut stream = self.run.plan.execute(partition, task.clone())?;
            while let Some(rows) = futures::executor::block_on(stream.next()) {
                out.push(rows?);
            }
        }
        Ok(out)
    }

    /// Gives the rows exactly the schema that was promised.
    fn shaped(&self, rows: RecordBatch) -> Result<RecordBatch> {
        if rows.schema_ref() == &self.run.schema {
            return Ok(rows);
        }
        let column = |(column, field): (&Arc<dyn Array>, &arrow::datatypes::FieldRef)| match column
            .data_type()
            == field.data_type()
        {
            true => Ok(column.clone()),
            false => cast(column, field.data_type()),
        };
        let columns =
            rows.columns().iter().zip(self.run.schema.fields()).map(column).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.run.schema.clone(), columns, &options)?)
    }
}

fn positions(leaf: &SchemaRef, incoming: &SchemaRef) -> Result<Vec<usize>> {
    let position = |field: &arrow::datatypes::FieldRef| {
        incoming.index_of(field.name()).map_err(|_| {
            Error::internal(format!("the column '{}' that a step reads is not in its input", field.name()))
        })
    };
    leaf.fields().iter().map(position).collect()
}

fn directly(operations: &[RowOperation], mut rows: RecordBatch) -> Result<RecordBatch, DataFusionError> {
    for operation in operations {
        if rows.num_rows() == 0 {
            break;
        }
        rows = match operation {
            RowOperation::Columns(columns) => rows.project(columns)?,
            RowOperation::Filter(predicate) => {
                let kept = predicate.evaluate(&rows)?.into_array(rows.num_rows())?;
                keep(rows, &kept)?
            }
            RowOperation::Project(exprs, schema) => {
                let count = rows.num_rows();
                let column = |expr: &Arc<dyn datafusion::physical_expr::PhysicalExpr>| {
                    expr.evaluate(&rows).and_then(|value| value.into_array(count))
                };
                let columns = exprs.iter().map(column).collect::<Result<Vec<_>, _>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(count));
                RecordBatch::try_new_with_options(schema.clone(), columns, &options)?
            }
        };
    }
    Ok(rows)
}

/// The rows for which the mask is true; NULL is not.
fn keep(rows: RecordBatch, mask: &Arc<dyn Array>) -> Result<RecordBatch, DataFusionError> {
    let Some(mask) = mask.as_any().downcast_ref::<BooleanArray>() else {
        return Err(DataFusionError::Internal(format!(
            "a filter gave {} instead of true or false",
            mask.data_type()
        )));
    };
    let mask = if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() };
    match mask.true_count() {
        0 => Ok(rows.slice(0, 0)),
        all if all == rows.num_rows() => Ok(rows),
        _ => Ok(filter_record_batch(&rows, &mask)?),
    }
}
