//! A function that was opened for one schema, and its pool of instances. Segments call it, from many threads, once
//! for every batch. An instance serves one opened function; whatever went wrong in it, it is not used again.

use crate::code::{Fault, Running};
use crate::codec::{Decoder, Encoder, zone_of};
use crate::contract::{Bytes, Clock, EvaluateFn, GuestError, ProcessFn, Rejection};
use crate::limits::clean_text;
use crate::plugin::Parts;
use crate::reason::said;
use crate::stats::Stopwatch;
use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};
use parking_lot::Mutex;
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
                Err(opened.error(None, Fault::broken(fault)))
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

/// What both kinds have in common.
struct Opened {
    plugin: Arc<Parts>,
    function: String,
    kind: FunctionKind,
    zone: String,
    input: Encoder,
    input_schema: Bytes,
    output: Decoder,
    idle: Mutex<Vec<Instance>>,
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
        let (instance, output) = started.map_err(|fault| error(&plugin.name, function, None, fault))?;
        let idle = match plugin.discard_after_every_call {
            true => Vec::new(),
            false => vec![instance],
        };
        let (plugin, function, idle) = (plugin.clone(), function.to_owned(), Mutex::new(idle));
        Ok(Self { plugin, function, kind, zone, input, input_schema, output, idle })
    }

    fn call(&self, scope: &CallScope<'_>, batch: &RecordBatch) -> Result<(RecordBatch, Vec<Rejected>)> {
        let since = Stopwatch::start();
        let answer = self.call_untimed(scope, batch);
        self.plugin.code.stats.called(since.elapsed());
        answer
    }

    fn call_untimed(
        &self,
        scope: &CallScope<'_>,
        batch: &RecordBatch,
    ) -> Result<(RecordBatch, Vec<Rejected>)> {
        // Not in one line: the lock must not be held while a new instance starts.
        let idle = self.idle.lock().pop();
        let mut instance = match idle {
            Some(instance) => instance,
            None => self.another().map_err(|fault| self.error(Some(scope), fault))?,
        };
        if Arc::get_mut(&mut instance.input).is_none() {
            instance.input = Bytes::default();
        }
        if let Some(input) = Arc::get_mut(&mut instance.input) {
            self.input.encode(batch, input)?;
        }
        let answer = self.run(&mut instance, scope, batch.num_rows());
        let answer = answer.map_err(|fault| self.error(Some(scope), fault))?;
        if !self.plugin.discard_after_every_call {
            let mut idle = self.idle.lock();
            if idle.len() < self.plugin.idle_instances {
                idle.push(instance);
            }
        }
        Ok(answer)
    }

    fn run(
        &self,
        instance: &mut Instance,
        scope: &CallScope<'_>,
        rows_in: usize,
    ) -> Result<(RecordBatch, Vec<Rejected>), Fault> {
        let code = &self.plugin.code;
        let (own, input) = (Clock::of(scope), instance.input.clone());
        let clock = Clock { seed: self.plugin.seed.unwrap_or(own.seed), ..own };
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
        let (message, rejected) = answer.map_err(|error| match error {
            GuestError::Failed(message) => Fault::broken(format!("failed: {}", said(&message))),
            GuestError::Unsuitable(message) => {
                Fault::broken(format!("found its input unsuitable: {}", said(&message)))
            }
        })?;
        let lie = |lie: String| Fault::broken(format!("answered wrong rows: {lie}"));
        let rows = self.output.decode(message, &code.limits).map_err(lie)?;
        if self.kind == FunctionKind::Scalar && rows.num_rows() != rows_in {
            return Err(lie(format!("{} values for {rows_in} rows", rows.num_rows())));
        }
        let rejected = rejected_rows(rejected, rows_in, code.limits.reason_bytes).map_err(lie)?;
        Ok((rows, rejected))
    }

    /// A further instance; it must answer the schema that the first one answered.
    fn another(&self) -> Result<Instance, Fault> {
        let (instance, answer) = start(&self.plugin, &self.function, self.kind, &self.input_schema)?;
        let encoding = self.plugin.manifest.encoding;
        match Decoder::new(encoding, &answer, &self.zone, &self.plugin.code.limits) {
            Ok(again) if again.schema() == self.output.schema() => Ok(instance),
            _ => Err(Fault::broken("answered another schema than when it was first opened")),
        }
    }

    fn error(&self, scope: Option<&CallScope<'_>>, fault: Fault) -> Error {
        error(&self.plugin.name, &self.function, scope, fault)
    }
}

/// Makes an instance and opens the function on it; with the schema that it answered.
fn start(
    plugin: &Parts,
    function: &str,
    kind: FunctionKind,
    schema: &Bytes,
) -> Result<(Instance, Vec<u8>), Fault> {
    let code = &plugin.code;
    let pair = code.exports.pair(kind).ok_or_else(|| Fault::broken("is not exported"))?;
    let mut running = code.instantiate()?;
    let answer = running.open(code, &pair, (function.to_owned(), plugin.config.clone(), schema.clone()))?;
    let entry = match kind {
        FunctionKind::Scalar => Entry::Evaluate(running.function(&pair.call)?),
        _ => Entry::Process(running.function(&pair.call)?),
    };
    Ok((Instance { running, entry, input: Bytes::default() }, answer))
}

fn error(plugin: &str, function: &str, scope: Option<&CallScope<'_>>, fault: Fault) -> Error {
    let Fault { unsuitable, reason } = fault;
    match scope {
        Some(scope) => Error::plugin(format!(
            "plugin '{plugin}', function '{function}', batch {}: {reason}; the instance was discarded",
            scope.batch.batch_id
        )),
        None if unsuitable => Error::invalid(format!("plugin '{plugin}', function '{function}': {reason}")),
        None => {
            Error::plugin(format!("plugin '{plugin}', function '{function}', when it was opened: {reason}"))
        }
    }
}

/// Ascending, each once, and rows that there are.
fn rejected_rows(
    rejected: Vec<Rejection>,
    rows: usize,
    reason_bytes: usize,
) -> Result<Vec<Rejected>, String> {
    let mut next = 0_u64;
    rejected
        .into_iter()
        .map(|Rejection { row, reason }| {
            if u64::from(row) < next {
                return Err(format!("rejected rows must ascend, row {row} comes after row {}", next - 1));
            }
            if row as usize >= rows {
                return Err(format!("row {row} is rejected, there are {rows}"));
            }
            next = u64::from(row) + 1;
            let reason = match clean_text(&reason, reason_bytes) {
                reason if reason.is_empty() => "no reason given".to_owned(),
                reason => reason,
            };
            Ok(Rejected { row, reason })
        })
        .collect()
}
