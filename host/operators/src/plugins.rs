//! Runs plugin functions over a batch and turns the rows that they refuse into dead letters.

use crate::native::NativeRunner;
use arrow::array::{Array, AsArray, BooleanBuilder, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use pelton_core::{
    CallScope, DeadLetter, Error, LossKind, Rejected, Result, ScalarFunction, TransformFunction,
};
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::{FunctionRef, PluginFilter, PluginTransform};
use std::sync::Arc;

/// A filter by a plugin's function.
pub(crate) struct FilterRunner {
    operator: Arc<str>,
    function: FunctionRef,
    arguments: NativeRunner,
    scalar: Arc<dyn ScalarFunction>,
}

/// A transformation by a plugin's function.
pub(crate) struct TransformRunner {
    operator: Arc<str>,
    function: FunctionRef,
    transform: Arc<dyn TransformFunction>,
    schema: SchemaRef,
}

impl FilterRunner {
    pub(crate) fn new(step: &PluginFilter, incoming: &SchemaRef) -> Result<Self> {
        Ok(Self {
            operator: step.operator.as_str().into(),
            function: step.function.clone(),
            arguments: NativeRunner::new(&step.arguments, incoming)?,
            scalar: step.scalar.clone(),
        })
    }

    pub(crate) fn operator(&self) -> &Arc<str> {
        &self.operator
    }

    /// The arguments of a batch. Evaluated in the operator's scope, as an expression.
    pub(crate) fn arguments(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut computed = self.arguments.process(rows)?;
        match (computed.pop(), computed.is_empty()) {
            (Some(arguments), true) if arguments.num_rows() == rows.num_rows() => {
                // The function was bound to nullable arguments, whatever the columns say.
                let fields = arguments.columns().iter().enumerate().map(|(index, column)| {
                    arrow::datatypes::Field::new(format!("arg{index}"), column.data_type().clone(), true)
                });
                let schema = arrow::datatypes::Schema::new(fields.collect::<Vec<_>>());
                Ok(RecordBatch::try_new(Arc::new(schema), arguments.columns().to_vec())?)
            }
            _ => Err(Error::internal(format!(
                "the arguments of {} are not as long as the batch",
                self.function
            ))),
        }
    }

    /// The rows for which the function says true; refused ones go to `letters`.
    pub(crate) fn keep(
        &self,
        scope: &CallScope<'_>,
        rows: &RecordBatch,
        arguments: &RecordBatch,
        letters: &mut Vec<DeadLetter>,
    ) -> Result<RecordBatch> {
        let output = self
            .scalar
            .evaluate(scope, arguments)
            .map_err(|e| e.context(format!("operator '{}'", self.operator)))?;
        let Some(mask) = output.column.as_boolean_opt().filter(|mask| mask.len() == rows.num_rows()) else {
            let what =
                format!("{} gave no true or false for each of {} rows", self.function, rows.num_rows());
            return Err(Error::plugin(what).of_plugin(&self.function.plugin));
        };
        refuse(&self.operator, &self.function, rows, &output.rejected, letters)?;
        let mut rejected = output.rejected.iter().map(|r| r.row as usize).peekable();
        let mut kept = BooleanBuilder::with_capacity(mask.len());
        for row in 0..mask.len() {
            let refused = rejected.next_if_eq(&row).is_some();
            kept.append_value(!refused && mask.is_valid(row) && mask.value(row));
        }
        Ok(filter_record_batch(rows, &kept.finish())?)
    }
}

impl TransformRunner {
    pub(crate) fn new(step: &PluginTransform) -> Self {
        Self {
            operator: step.operator.as_str().into(),
            function: step.function.clone(),
            transform: step.transform.clone(),
            schema: step.schema.clone(),
        }
    }

    pub(crate) fn operator(&self) -> &Arc<str> {
        &self.operator
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows that go on; refused ones go to `letters`.
    pub(crate) fn process(
        &self,
        scope: &CallScope<'_>,
        rows: &RecordBatch,
        letters: &mut Vec<DeadLetter>,
    ) -> Result<RecordBatch> {
        let output = self
            .transform
            .process(scope, rows)
            .map_err(|e| e.context(format!("operator '{}'", self.operator)))?;
        refuse(&self.operator, &self.function, rows, &output.rejected, letters)?;
        if output.rows.schema_ref() == &self.schema {
            return Ok(output.rows);
        }
        let column = |(column, field): (&Arc<dyn Array>, &arrow::datatypes::FieldRef)| match column
            .data_type()
            == field.data_type()
        {
            true => Ok(column.clone()),
            false => arrow::compute::cast(column, field.data_type()),
        };
        let fields = self.schema.fields();
        let columns = output.rows.columns().iter().zip(fields).map(column).collect::<Result<Vec<_>, _>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(output.rows.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|e| {
            Error::plugin(format!("{} gave rows that do not match its schema: {e}", self.function))
                .of_plugin(&self.function.plugin)
        })
    }
}

/// A dead letter for every refused row, with the row's columns as JSON.
fn refuse(
    operator: &str,
    function: &FunctionRef,
    rows: &RecordBatch,
    rejected: &[Rejected],
    letters: &mut Vec<DeadLetter>,
) -> Result<()> {
    for rejected in rejected {
        let row = rejected.row as usize;
        if row >= rows.num_rows() {
            let what = format!("{function} refused row {row} of a batch of {}", rows.num_rows());
            return Err(Error::plugin(what).of_plugin(&function.plugin));
        }
        letters.push(refused(operator, function, rows, row, &rejected.reason)?);
    }
    Ok(())
}

/// The dead letter of one refused row.
pub(crate) fn refused(
    operator: &str,
    function: &FunctionRef,
    rows: &RecordBatch,
    row: usize,
    reason: &str,
) -> Result<DeadLetter> {
    Ok(DeadLetter {
        kind: LossKind::Refused,
        origin: operator.to_owned(),
        position: None,
        reason: reason.to_owned(),
        plugin: Some(function.digest.clone()),
        payload: row_json(rows, row, Nulls::Written)?.to_string().into(),
    })
}
