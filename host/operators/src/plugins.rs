//! Runs plugin functions over a batch and turns the rows that they refuse, or fail on, into dead letters.

use crate::native::NativeRunner;
use crate::poison::{Blame, Losses, Piece, Whole, poisoned};
use arrow::array::{Array, AsArray, BooleanArray, BooleanBuilder, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use pelton_core::function::ScalarOutput;
use pelton_core::{
    CallScope, DeadLetter, Error, LossKind, Rejected, Result, ScalarFunction, TransformFunction,
};
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::{FunctionRef, PluginFilter, PluginTransform};
use std::ops::Range;
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

    /// The rows for which the function says true, in pieces if some had to be found guilty; refused and guilty ones are lost.
    pub(crate) fn keep(
        &self,
        scope: &CallScope<'_>,
        rows: &RecordBatch,
        arguments: &RecordBatch,
        losses: &mut Losses,
    ) -> Result<Vec<RecordBatch>> {
        let evaluate = |scope: &CallScope<'_>, range: Range<usize>| {
            self.evaluate(scope, &arguments.slice(range.start, range.len()))
        };
        let pieces = called(&self.operator, &self.function, scope, rows, losses, evaluate)?;
        let mut kept = Vec::with_capacity(pieces.len());
        for (rows, output) in pieces {
            refuse(&self.operator, &self.function, &rows, &output.rejected, &mut losses.letters)?;
            kept.push(filter_record_batch(&rows, &mask(&output)?)?);
        }
        Ok(kept)
    }

    fn evaluate(&self, scope: &CallScope<'_>, arguments: &RecordBatch) -> Result<ScalarOutput> {
        let output = self.scalar.evaluate(scope, arguments)?;
        let rows = arguments.num_rows();
        match output.column.as_boolean_opt() {
            Some(mask) if mask.len() == rows => Ok(output),
            _ => {
                let what = format!("{} gave no true or false for each of {rows} rows", self.function);
                Err(Error::plugin(what).of_plugin(&self.function.plugin))
            }
        }
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

    /// The rows that go on, in pieces if some had to be found guilty; refused and guilty ones are lost.
    pub(crate) fn process(
        &self,
        scope: &CallScope<'_>,
        rows: &RecordBatch,
        losses: &mut Losses,
    ) -> Result<Vec<RecordBatch>> {
        let process = |scope: &CallScope<'_>, range: Range<usize>| {
            let output = self.transform.process(scope, &rows.slice(range.start, range.len()))?;
            Ok((self.shaped(output.rows)?, output.rejected))
        };
        let pieces = called(&self.operator, &self.function, scope, rows, losses, process)?;
        let mut out = Vec::with_capacity(pieces.len());
        for (rows, (processed, rejected)) in pieces {
            refuse(&self.operator, &self.function, &rows, &rejected, &mut losses.letters)?;
            out.push(processed);
        }
        Ok(out)
    }

    fn shaped(&self, rows: RecordBatch) -> Result<RecordBatch> {
        if rows.schema_ref() == &self.schema {
            return Ok(rows);
        }
        let column = |(column, field): (&Arc<dyn Array>, &arrow::datatypes::FieldRef)| match column
            .data_type()
            == field.data_type()
        {
            true => Ok(column.clone()),
            false => arrow::compute::cast(column, field.data_type()),
        };
        let fields = self.schema.fields();
        let columns = rows.columns().iter().zip(fields).map(column).collect::<Result<Vec<_>, _>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|e| {
            Error::plugin(format!("{} gave rows that do not match its schema: {e}", self.function))
                .of_plugin(&self.function.plugin)
        })
    }
}

/// Calls a function over rows: again if it fails and the policy says so, or cut. Gives the rows of each call that went well
/// and what it made of them.
fn called<T>(
    operator: &str,
    function: &FunctionRef,
    scope: &CallScope<'_>,
    rows: &RecordBatch,
    losses: &mut Losses,
    call: impl Fn(&CallScope<'_>, Range<usize>) -> Result<T>,
) -> Result<Vec<(RecordBatch, T)>> {
    let count = rows.num_rows();
    let failed = match function.on_failure.run(|| call(scope, 0..count)) {
        Ok(made) => return Ok(vec![(rows.clone(), made)]),
        Err(failed) => failed.context(format_args!("operator '{operator}'")),
    };
    let whole = Whole { operator, unit: "rows", count };
    let blame = |error: &Error| Blame::of_call(function, error);
    let pieces = losses.poison.cut(&whole, failed, &blame, |range| {
        call(&scope.piece(range.start, range.len()), range)
            .map_err(|failed| failed.context(format_args!("operator '{operator}'")))
    })?;
    sorted_out(operator, rows, pieces, &mut losses.letters)
}

/// The good pieces with their rows; guilty rows become dead letters.
pub(crate) fn sorted_out<T>(
    operator: &str,
    rows: &RecordBatch,
    pieces: Vec<Piece<T>>,
    letters: &mut Vec<DeadLetter>,
) -> Result<Vec<(RecordBatch, T)>> {
    let mut good = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Piece::Good(range, made) => good.push((rows.slice(range.start, range.len()), made)),
            Piece::Guilty(row, blame) => letters.push(poisoned(operator, &blame, rows, row)?),
        }
    }
    Ok(good)
}

/// Which rows a filter keeps: where it says true and does not refuse.
fn mask(output: &ScalarOutput) -> Result<BooleanArray> {
    let Some(mask) = output.column.as_boolean_opt() else {
        return Err(Error::internal("a filter's function gave no booleans"));
    };
    let mut rejected = output.rejected.iter().map(|r| r.row as usize).peekable();
    let mut kept = BooleanBuilder::with_capacity(mask.len());
    for row in 0..mask.len() {
        let refused = rejected.next_if_eq(&row).is_some();
        kept.append_value(!refused && mask.is_valid(row) && mask.value(row));
    }
    Ok(kept.finish())
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
        message: None,
    })
}
