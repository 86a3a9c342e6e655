//! ORDER BY over the result of a micro-batch (complete mode).
//!
//! Driven by the dataflow; keeps no state. The order of equal rows is that of the input. As in Spark every NaN is alike
//! and the greatest number, and -0.0 equals 0.0.

use super::{NodeScope, Operator, Piece, Prepared, ShardOutput, Shown, unpacked};
use crate::scoped::scoped;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array, make_array};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use datafusion::physical_expr::PhysicalSortExpr;
use pelton_core::{Error, Result, StateShard};
use pelton_plan::stateful::{self as plan, StatefulNode};
use pelton_plan::{ROWS_PER_BATCH_MAX, evaluation_error};
use std::sync::Arc;

/// See the module. Works on the whole, in shard 0.
pub(crate) struct Sort {
    by: Vec<PhysicalSortExpr>,
    schema: SchemaRef,
}

impl Sort {
    /// The operator of a node.
    pub(crate) fn new(spec: &plan::Sort, node: &StatefulNode) -> Result<Self> {
        Ok(Self { by: spec.by.clone(), schema: node.schema.clone() })
    }

    fn sorted(&self, scope: &NodeScope<'_>, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = u32::try_from(rows.num_rows()).map_err(|_| {
            Error::data(format!("operator '{}': more than {} rows to sort", scope.name, u32::MAX))
                .hint("put a LIMIT or a narrower grouping before the ORDER BY")
        })?;
        let mut columns = scoped(scope, 0, || {
            let column =
                |by: &PhysicalSortExpr| by.evaluate_to_sort_column(rows).map_err(|e| evaluation_error(&e));
            self.by.iter().map(column).collect::<Result<Vec<_>>>()
        })?;
        for column in &mut columns {
            column.values = alike(&column.values)?;
        }
        // What is equal stays in order.
        let position = UInt32Array::from_iter_values(0..count);
        columns.push(SortColumn { values: Arc::new(position), options: None });
        Ok(take_record_batch(rows, &lexsort_to_indices(&columns, None)?)?)
    }
}

/// The values with every NaN the same and no -0.0, also within lists and structs.
fn alike(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Float64 => Ok(Arc::new(
            values
                .as_primitive::<Float64Type>()
                .unary::<_, Float64Type>(|value| if value.is_nan() { f64::NAN } else { value + 0.0 }),
        )),
        DataType::Float32 => Ok(Arc::new(
            values
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(|value| if value.is_nan() { f32::NAN } else { value + 0.0 }),
        )),
        kind if kind.is_nested() => {
            let data = values.to_data();
            let child = |child: &arrow::array::ArrayData| {
                alike(&make_array(child.clone())).map(|child| child.to_data())
            };
            let children = data.child_data().iter().map(child).collect::<Result<Vec<_>>>()?;
            Ok(make_array(data.into_builder().child_data(children).build()?))
        }
        _ => Ok(values.clone()),
    }
}

impl Operator for Sort {
    fn counted_tables(&self, _name: &str) -> Vec<String> {
        Vec::new()
    }

    fn prepare(&self, _scope: &NodeScope<'_>, _port: usize, rows: &[RecordBatch]) -> Result<Prepared> {
        let rows: Vec<_> = rows.iter().filter(|rows| rows.num_rows() > 0).cloned().collect();
        let pieces = if rows.is_empty() { Vec::new() } else { vec![(0, Box::new(rows) as Piece)] };
        Ok(Prepared { pieces, ..Prepared::default() })
    }

    fn run(
        &self,
        scope: &NodeScope<'_>,
        _shard: usize,
        pieces: Vec<Vec<Piece>>,
        _state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let rows: Vec<RecordBatch> = unpacked::<Vec<RecordBatch>>(pieces.into_iter().flatten())?.concat();
        if rows.is_empty() {
            return Ok(ShardOutput::default());
        }
        let sorted = self.sorted(scope, &concat_batches(&self.schema, &rows)?)?;
        let starts = (0..sorted.num_rows()).step_by(ROWS_PER_BATCH_MAX);
        let cut = |start: usize| sorted.slice(start, ROWS_PER_BATCH_MAX.min(sorted.num_rows() - start));
        Ok(ShardOutput { rows: starts.map(cut).collect(), ..ShardOutput::default() })
    }

    fn watches_watermark(&self) -> bool {
        false
    }

    fn state_form(&self) -> String {
        String::new()
    }

    fn waits_for(&self) -> String {
        "nothing; sorts the result of each micro-batch".to_owned()
    }

    fn show(&self, _name: &str, _state: &mut dyn StateShard, _each: &mut Shown<'_>) -> Result<()> {
        Ok(())
    }
}
