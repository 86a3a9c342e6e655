//! Sink functions: rows in, nothing out. `plugin` opens them, the sink over plugins calls them.

use super::{Pool, When, encoded, error, started};
use crate::code::{Fault, Running};
use crate::codec::Encoder;
use crate::contract::Bytes;
use crate::contract::sink::{Mode, WriteFn};
use crate::http::Granted;
use crate::plugin::Parts;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::{BatchInfo, BatchPart, CallScope, Error, FunctionKind, OutputMode, Result, SinkFunction};
use std::sync::Arc;

/// A sink function, opened for rows of one schema.
pub(crate) struct OpenedSink {
    pool: Pool<Instance>,
    mode: OutputMode,
    input: Encoder,
    input_message: Bytes,
}

/// An instance on which the function is open.
struct Instance {
    running: Running,
    write: WriteFn,
    /// Where its input is encoded, used again and again.
    input: Bytes,
}

impl OpenedSink {
    pub(crate) fn open(
        plugin: &Arc<Parts>,
        function: &str,
        input: SchemaRef,
        mode: OutputMode,
    ) -> Result<Self> {
        let named = |e: Error| e.context(format!("plugin '{}', function '{function}'", plugin.name));
        let input = Encoder::new(plugin.manifest.encoding, input).map_err(named)?;
        let input_message = Bytes::new(input.schema_message().map_err(named)?);
        let instance = start(plugin, function, &input_message, mode)
            .map_err(|fault| error(&plugin.name, function, When::Opened, fault))?;
        Ok(Self { pool: Pool::new(plugin, function, instance), mode, input, input_message })
    }
}

impl SinkFunction for OpenedSink {
    fn write(&self, scope: &CallScope<'_>, part: BatchPart, rows: &RecordBatch) -> Result<()> {
        let another = || start(&self.pool.plugin, &self.pool.function, &self.input_message, self.mode);
        self.pool.call(When::Called(scope), rows.num_rows(), another, |instance| {
            let (code, clock) = (&self.pool.plugin.code, self.pool.clock(scope));
            let input = encoded(&self.input, rows, &mut instance.input)?;
            let parameters = (clock, part.into(), input);
            let BatchInfo { query_id, batch_id, .. } = scope.batch;
            let key = format!("{}-{batch_id}-{}", query_id.0, part.number);
            instance.running.grant_http(Some(Granted::new(Arc::clone(&self.pool.plugin.http), key)));
            let answer = instance.running.call(code, &clock, &instance.write, parameters)?.0;
            instance.running.grant_http(None);
            answer.map_err(|error| Fault::said(&error))
        })
    }
}

/// Makes an instance and opens the function on it.
fn start(plugin: &Parts, function: &str, input: &Bytes, mode: OutputMode) -> Result<Instance, Fault> {
    let (mut running, pair) = started(plugin, FunctionKind::Sink)?;
    let parameters = (function.to_owned(), plugin.config.clone(), input.clone(), Mode::from(mode));
    running.open::<_, ()>(&plugin.code, &pair.open, parameters)?;
    let write = running.function(&pair.call)?;
    Ok(Instance { running, write, input: Bytes::default() })
}
