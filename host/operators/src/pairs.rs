//! Pairs of rows of a join's two inputs: the ON condition is evaluated over many pairs at a time, never row by row.
//!
//! Used by both kinds of joins. Knows neither keys nor state.

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use pelton_core::{Error, Result};
use pelton_plan::evaluation_error;
use std::sync::Arc;

/// A condition over the columns of left then right, which reads no more columns than it names.
pub(crate) struct PairCondition {
    expr: Arc<dyn PhysicalExpr>,
    /// Positions in left then right.
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl PairCondition {
    /// Rebinds the condition to the columns that it names.
    pub(crate) fn new(
        condition: &Arc<dyn PhysicalExpr>,
        left: &SchemaRef,
        right: &SchemaRef,
    ) -> Result<Self> {
        let mut columns: Vec<usize> = collect_columns(condition).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let fields: Vec<_> = left.fields().iter().chain(right.fields()).collect();
        let field = |at: &usize| {
            let field =
                fields.get(*at).ok_or_else(|| Error::internal("a join condition over a column too many"))?;
            Ok(Field::new(format!("c{at}"), field.data_type().clone(), true))
        };
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Result<Vec<_>>>()?));
        let rebound = condition.clone().transform(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let at = columns.binary_search(&column.index()).unwrap_or_default();
            let column = Column::new(&format!("c{}", column.index()), at);
            Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
        });
        let expr = rebound.map_err(|e| evaluation_error(&e))?.data;
        Ok(Self { expr, columns, schema })
    }

    /// For which of so many pairs it is true. `column` gives a column of the pairs by its position in left then right.
    pub(crate) fn holds(
        &self,
        pairs: usize,
        column: impl Fn(usize) -> Result<ArrayRef>,
    ) -> Result<BooleanArray> {
        let columns = self.columns.iter().map(|at| column(*at)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(pairs));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        is_true(&self.expr, &rows)
    }
}

/// For which rows a condition is true; NULL is not.
pub(crate) fn is_true(condition: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<BooleanArray> {
    let value = condition.evaluate(rows).and_then(|value| value.into_array(rows.num_rows()));
    let value = value.map_err(|e| evaluation_error(&e))?;
    match value.data_type() {
        DataType::Boolean if value.null_count() > 0 => Ok(prep_null_mask_filter(value.as_boolean())),
        DataType::Boolean => Ok(value.as_boolean().clone()),
        DataType::Null => Ok(BooleanArray::from(vec![false; rows.num_rows()])),
        other => Err(Error::internal(format!("a join condition of type {other}"))),
    }
}

/// Values of expressions over rows.
pub(crate) fn values<'a>(
    exprs: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
    rows: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    let value = |expr: &Arc<dyn PhysicalExpr>| {
        let value = expr.evaluate(rows).and_then(|value| value.into_array(rows.num_rows()));
        value.map_err(|e| evaluation_error(&e))
    };
    exprs.into_iter().map(value).collect()
}

/// The types of expressions over a schema.
pub(crate) fn types<'a>(
    exprs: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
    schema: &SchemaRef,
) -> Result<Vec<DataType>> {
    let kind = |expr: &Arc<dyn PhysicalExpr>| expr.data_type(schema).map_err(|e| evaluation_error(&e));
    exprs.into_iter().map(kind).collect()
}
