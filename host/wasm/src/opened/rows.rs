//! Scalar and transform functions: rows in, a column or rows out. `plugin` opens them, segments call them.

use super::{Pool, Pooled, When, encoded, error, rejected_rows, started};
use crate::code::{Fault, Running};
use crate::codec::{Decoder, Encoder, zone_of};
use crate::contract::{Bytes, EvaluateFn, ProcessFn};
use crate::plugin::Parts;
use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};
use pelton_core::function::ScalarOutput;
use pelton_core::{
    CallScope, Error, FunctionKind, Rejected, Result, ScalarFunction, TransformFunction, TransformOutput,
};
use std::sync::Arc;

/// A scalar function, bound to the types of its arguments.
pub(crate) struct OpenedScalar {
    opened: Opened,
    field: FieldRef,
}

/// A transform function, opened for rows of one schema.
pub(crate) struct OpenedTransform(Opened);

impl OpenedScalar {
    pub(crate) fn bind(plugin: &Arc<Parts>, function: &str, arguments: SchemaRef) -> Result<Self> {
        let opened = Opened::new(plugin, function, FunctionKind::Scalar, arguments)?;
        match &opened.output.schema().fields()[..] {
            [field] => Ok(Self { field: field.clone(), opened }),
            fields => {
                let fault = format!("bound to {} columns; a scalar function has exactly one", fields.len());
                Err(opened.pool.error(When::Opened, Fault::broken(fault)))
            }
        }
    }
}

impl ScalarFunction for OpenedScalar {
    fn field(&self) -> FieldRef {
        self.field.clone()
    }
    fn evaluate(&self, scope: &CallScope<'_>, arguments: &RecordBatch) -> Result<ScalarOutput> {
        let (rows, rejected) = self.opened.call(scope, arguments)?;
        Ok(ScalarOutput { column: rows.column(0).clone(), rejected })
    }
}

impl OpenedTransform {
    pub(crate) fn open(plugin: &Arc<Parts>, function: &str, input: SchemaRef) -> Result<Self> {
        Opened::new(plugin, function, FunctionKind::Transform, input).map(Self)
    }
}

impl TransformFunction for OpenedTransform {
    fn output_schema(&self) -> SchemaRef {
        self.0.output.schema().clone()
    }
    fn process(&self, scope: &CallScope<'_>, rows: &RecordBatch) -> Result<TransformOutput> {
        let (rows, rejected) = self.0.call(scope, rows)?;
        Ok(TransformOutput { rows, rejected })
    }
}

/// The function that is called for every batch.
enum Entry {
    Evaluate(EvaluateFn),
    Process(ProcessFn),
}

/// An instance on which the function is open.
struct Instance {
    running: Running,
    entry: Entry,
    /// Where its input is encoded, used again and again.
    input: Bytes,
}

impl Pooled for Instance {
    fn running(&self) -> &Running {
        &self.running
    }
}

/// What both kinds have in common.
struct Opened {
    pool: Pool<Instance>,
    kind: FunctionKind,
    zone: String,
    input: Encoder,
    input_schema: Bytes,
    output: Decoder,
}

impl Opened {
    fn new(plugin: &Arc<Parts>, function: &str, kind: FunctionKind, schema: SchemaRef) -> Result<Self> {
        let named = |e: Error| e.context(format!("plugin '{}', function '{function}'", plugin.name));
        let encoding = plugin.manifest.encoding;
        let zone = zone_of(&schema).map_or_else(|| plugin.time_zone.clone(), |zone| zone.to_string());
        let input = Encoder::new(encoding, schema).map_err(named)?;
        let input_schema = Bytes::new(input.schema_message().map_err(named)?);
        let started = start(plugin, function, kind, &input_schema).and_then(|(instance, answer)| {
            let output = Decoder::new(encoding, &answer, &zone, &plugin.code.limits)
                .map_err(|lie| Fault::broken(format!("answered a wrong schema: {lie}")))?;
            Ok((instance, output))
        });
        let (instance, output) =
            started.map_err(|fault| error(&plugin.name, function, When::Opened, fault))?;
        let pool = Pool::new(plugin, function, instance);
        Ok(Self { pool, kind, zone, input, input_schema, output })
    }

    fn call(&self, scope: &CallScope<'_>, batch: &RecordBatch) -> Result<(RecordBatch, Vec<Rejected>)> {
        let run = |instance: &mut Instance| self.run(instance, scope, batch);
        let answer = self.pool.call(When::Called(scope), batch.num_rows(), || self.another(), run)?;
        self.pool.plugin.code.stats.refused(answer.1.len());
        Ok(answer)
    }

    fn run(
        &self,
        instance: &mut Instance,
        scope: &CallScope<'_>,
        batch: &RecordBatch,
    ) -> Result<(RecordBatch, Vec<Rejected>), Fault> {
        let (code, clock) = (&self.pool.plugin.code, self.pool.clock(scope));
        let input = encoded(&self.input, batch, &mut instance.input)?;
        instance.running.repeats(scope.is_piece());
        let answer = match &instance.entry {
            Entry::Evaluate(evaluate) => instance
                .running
                .call(code, &clock, evaluate, (clock, input))?
                .0
                .map(|answer| (answer.column, answer.rejected)),
            Entry::Process(process) => {
                instance.running.call(code, &clock, process, (clock, input))?.0.map(|a| (a.rows, a.rejected))
            }
        };
        let (message, rejected) = answer.map_err(|error| Fault::said(&error))?;
        let lie = |lie: String| Fault::broken(format!("answered wrong rows: {lie}"));
        let rows = self.output.decode(message, &code.limits).map_err(lie)?;
        let rows_in = batch.num_rows();
        if self.kind == FunctionKind::Scalar && rows.num_rows() != rows_in {
            return Err(lie(format!("{} values for {rows_in} rows", rows.num_rows())));
        }
        let rejected = rejected_rows(rejected, rows_in, code.limits.reason_bytes).map_err(lie)?;
        Ok((rows, rejected))
    }

    /// A further instance; it must answer the schema that the first one answered.
    fn another(&self) -> Result<Instance, Fault> {
        let plugin = &self.pool.plugin;
        let (instance, answer) = start(plugin, &self.pool.function, self.kind, &self.input_schema)?;
        match Decoder::new(plugin.manifest.encoding, &answer, &self.zone, &plugin.code.limits) {
            Ok(again) if again.schema() == self.output.schema() => Ok(instance),
            _ => Err(Fault::broken("answered another schema than when it was first opened")),
        }
    }
}

/// Makes an instance and opens the function on it; with the schema that it answered.
fn start(
    plugin: &Parts,
    function: &str,
    kind: FunctionKind,
    schema: &Bytes,
) -> Result<(Instance, Vec<u8>), Fault> {
    let (mut running, pair) = started(plugin, kind)?;
    let parameters = (function.to_owned(), plugin.config.clone(), schema.clone());
    let answer = running.open(&plugin.code, &pair.open, parameters)?;
    let entry = match kind {
        FunctionKind::Scalar => Entry::Evaluate(running.function(&pair.call)?),
        _ => Entry::Process(running.function(&pair.call)?),
    };
    Ok((Instance { running, entry, input: Bytes::default() }, answer))
}
