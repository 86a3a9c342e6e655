//! A chain of plugin functions over record batches. `pipe` builds one from the command line and the columns of its
//! input; it reads and writes nothing.

use super::target::Target;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use pelton_core::function::ScalarOutput;
use pelton_core::suggest::did_you_mean;
use pelton_core::{
    BatchInfo, CallScope, Error, FunctionKind, Plugin, Rejected, Result, ScalarFunction, TransformFunction,
};
use std::sync::Arc;

/// The functions, each bound to what the one before gives.
pub(super) struct Chain {
    links: Vec<Link>,
}

struct Link {
    /// `flights.wasm:legs`, for messages and as the operator's name.
    name: String,
    work: Work,
}

enum Work {
    Scalar { function: Arc<dyn ScalarFunction>, arguments: Vec<usize> },
    Transform(Arc<dyn TransformFunction>),
}

/// A row that a function of the chain refused.
#[derive(Debug)]
pub(super) struct Refused {
    /// Which function.
    pub(super) by: String,
    /// Why.
    pub(super) reason: String,
    /// The row that it got, alone in a batch.
    pub(super) row: RecordBatch,
}

impl Chain {
    /// Binds each function to the columns that come to it.
    pub(super) fn bind(targets: &[(Target, Arc<dyn Plugin>)], input: &SchemaRef) -> Result<Self> {
        let mut schema = Arc::clone(input);
        let mut links = Vec::new();
        for (target, plugin) in targets {
            let name = target.to_string();
            let (work, next) =
                bind(target, plugin.as_ref(), &schema).map_err(|error| error.context(&name))?;
            links.push(Link { name, work });
            schema = next;
        }
        Ok(Self { links })
    }

    /// Sends a batch through all of them.
    pub(super) fn process(
        &self,
        info: &BatchInfo,
        call: u64,
        mut rows: RecordBatch,
        refused: &mut Vec<Refused>,
    ) -> Result<RecordBatch> {
        for link in &self.links {
            let scope = CallScope { batch: info, operator: &link.name, partition: 0, call };
            let (next, rejected) = link.work.run(&scope, &rows)?;
            refused.extend(rejected.into_iter().map(|Rejected { row, reason }| Refused {
                by: link.name.clone(),
                reason,
                row: rows.slice(row as usize, 1),
            }));
            rows = next;
        }
        Ok(rows)
    }
}

fn bind(target: &Target, plugin: &dyn Plugin, input: &SchemaRef) -> Result<(Work, SchemaRef)> {
    let info = target.choose(plugin.manifest())?;
    match info.kind {
        FunctionKind::Transform if target.arguments.is_some() => {
            Err(Error::invalid("a transform function takes whole rows; leave out the columns in parentheses"))
        }
        FunctionKind::Transform => {
            let function = plugin.transform(&info.name, Arc::clone(input))?;
            let output = function.output_schema();
            Ok((Work::Transform(function), output))
        }
        FunctionKind::Scalar => bind_scalar(target, &info.name, plugin, input),
        FunctionKind::Stateful | FunctionKind::Aggregate | FunctionKind::Sink => {
            Err(Error::invalid("a pipe takes scalar and transform functions; this one is of another kind"))
        }
    }
}

/// Its arguments are the columns in parentheses, or all of them.
fn bind_scalar(
    target: &Target,
    name: &str,
    plugin: &dyn Plugin,
    input: &SchemaRef,
) -> Result<(Work, SchemaRef)> {
    let arguments = match &target.arguments {
        Some(names) => names.iter().map(|column| position(input, column)).collect::<Result<_>>()?,
        None => (0..input.fields().len()).collect::<Vec<usize>>(),
    };
    let function = plugin.scalar(name, Arc::new(input.project(&arguments)?))?;
    let output = output_of_scalar(input, &function.field());
    Ok((Work::Scalar { function, arguments }, output))
}

fn position(schema: &Schema, column: &str) -> Result<usize> {
    let names = || schema.fields().iter().map(|field| field.name().as_str());
    names().position(|name| name == column).ok_or_else(|| {
        Error::invalid(format!("there is no column '{column}'{}", did_you_mean(column, names())))
    })
}

/// A boolean function filters; another one adds its result as a column, or replaces the one of its name.
fn output_of_scalar(input: &SchemaRef, result: &Field) -> SchemaRef {
    if *result.data_type() == DataType::Boolean {
        return Arc::clone(input);
    }
    let others = input.fields().iter().filter(|field| field.name() != result.name()).cloned();
    Arc::new(Schema::new(others.chain([Arc::new(result.clone())]).collect::<Vec<_>>()))
}

impl Work {
    fn run(&self, scope: &CallScope<'_>, rows: &RecordBatch) -> Result<(RecordBatch, Vec<Rejected>)> {
        match self {
            Self::Transform(function) => {
                let output = function.process(scope, rows)?;
                Ok((output.rows, output.rejected))
            }
            Self::Scalar { function, arguments } => {
                let output = function.evaluate(scope, &rows.project(arguments)?)?;
                Ok((apply(rows, &function.field(), &output)?, output.rejected))
            }
        }
    }
}

/// The rows that go on behind a scalar function.
fn apply(rows: &RecordBatch, result: &FieldRef, output: &ScalarOutput) -> Result<RecordBatch> {
    let passed = output.column.as_boolean_opt();
    let mut refused = output.rejected.iter().map(|rejected| rejected.row as usize).peekable();
    let keep = |row: usize| {
        refused.next_if_eq(&row).is_none()
            && passed.is_none_or(|column| column.is_valid(row) && column.value(row))
    };
    let keep: Vec<bool> = (0..rows.num_rows()).map(keep).collect();
    let rows = if passed.is_some() { rows.clone() } else { with_column(rows, result, &output.column)? };
    Ok(filter_record_batch(&rows, &BooleanArray::from(keep))?)
}

fn with_column(rows: &RecordBatch, field: &FieldRef, column: &ArrayRef) -> Result<RecordBatch> {
    let schema = output_of_scalar(rows.schema_ref(), field);
    let columns = schema.fields()[..schema.fields().len() - 1].iter();
    let others = columns.map(|field| position(rows.schema_ref(), field.name()));
    let mut columns = others.map(|at| Ok(Arc::clone(rows.column(at?)))).collect::<Result<Vec<_>>>()?;
    columns.push(Arc::clone(column));
    Ok(RecordBatch::try_new(schema, columns)?)
}
