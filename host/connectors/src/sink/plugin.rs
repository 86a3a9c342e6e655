//! Hands the rows to a plugin's sink function: Spark's `foreachBatch`.
//!
//! A micro-batch comes in parts of bounded size, one after the other; one without rows is a single part without rows.
//! After a failure the same micro-batch comes again, cut at the same rows. That each row then counts once is the
//! function's own work: the batch id that it is given tells a repetition. Nothing here keeps anything between runs.

mod parts;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use parking_lot::Mutex;
use parts::Parts;
use pelton_core::{
    BatchId, BatchInfo, BatchPart, CallScope, Error, OutputMode, Result, RowStream, Sink, SinkContext,
    SinkFunction, SinkReport,
};
use std::sync::Arc;

/// The operator that a sink function is to its calls: no step has this name.
const OPERATOR: &str = "sink";

/// The plugin sink. It takes every output mode.
pub struct PluginSink {
    /// `plugin.function`, for messages.
    name: String,
    function: Arc<dyn SinkFunction>,
    /// Instead, for the first micro-batch of the run.
    rerun: Option<Arc<dyn SinkFunction>>,
    run: Mutex<Option<Run>>,
    /// The last micro-batch of which the function has taken a part.
    given: Mutex<Option<BatchId>>,
}

/// Between `open` and the next one.
#[derive(Clone)]
struct Run {
    first: BatchId,
    schema: SchemaRef,
}

impl PluginSink {
    /// A sink that calls this function.
    pub fn new(name: impl Into<String>, function: Arc<dyn SinkFunction>) -> Self {
        Self { name: name.into(), function, rerun: None, run: Mutex::new(None), given: Mutex::new(None) }
    }

    /// The first micro-batch of a run was begun by a dead one with other code, and is finished with it.
    #[must_use]
    pub fn with_rerun(mut self, function: Arc<dyn SinkFunction>) -> Self {
        self.rerun = Some(function);
        self
    }

    fn function_for(&self, batch: BatchId, first: BatchId) -> Arc<dyn SinkFunction> {
        match &self.rerun {
            Some(rerun) if first == batch => Arc::clone(rerun),
            _ => Arc::clone(&self.function),
        }
    }
}

#[async_trait]
impl Sink for PluginSink {
    fn description(&self) -> String {
        format!("plugin {}", self.name)
    }

    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    async fn open(&self, context: SinkContext) -> Result<()> {
        let first = context.last_committed.map_or(BatchId::FIRST, BatchId::next);
        *self.run.lock() = Some(Run { first, schema: context.schema });
        Ok(())
    }

    async fn write(&self, batch: &BatchInfo, rows: RowStream) -> Result<SinkReport> {
        let run = self.run.lock().clone().ok_or_else(|| Error::internal("the plugin sink was not opened"))?;
        let function = self.function_for(batch.batch_id, run.first);
        let batch = Arc::new(batch.clone());
        let mut parts = Parts::new(rows);
        let mut report = SinkReport::default();
        let mut number = 0;
        let mut next = parts.next().await?;
        while let Some(rows) = next {
            next = parts.next().await?;
            report.rows += rows.num_rows() as u64;
            let part = BatchPart { number, is_last: next.is_none() };
            call(&function, &batch, part, rows).await?;
            *self.given.lock() = Some(batch.batch_id);
            number += 1;
        }
        if number == 0 {
            let rows = RecordBatch::new_empty(run.schema);
            call(&function, &batch, BatchPart { number, is_last: true }, rows).await?;
        }
        Ok(report)
    }

    /// Nobody knows what the function has done with what it took.
    async fn may_hold(&self, batch: &BatchInfo, begun_before: bool) -> Result<bool> {
        Ok(begun_before || *self.given.lock() == Some(batch.batch_id))
    }
}

async fn call(
    function: &Arc<dyn SinkFunction>,
    batch: &Arc<BatchInfo>,
    part: BatchPart,
    rows: RecordBatch,
) -> Result<()> {
    let (function, batch) = (Arc::clone(function), Arc::clone(batch));
    let called = tokio::task::spawn_blocking(move || {
        let partition = u64::from(part.number);
        let scope = CallScope { batch: &batch, operator: OPERATOR, partition, call: 0 };
        function.write(&scope, part, &rows)
    });
    called
        .await
        .unwrap_or_else(|e| Err(Error::internal(format!("calling a sink function: {e}")).caused_by(e)))
}

#[cfg(test)]
mod tests;
