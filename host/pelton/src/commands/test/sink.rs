//! The sink of a script: it keeps what each micro-batch gives and fails when it is told to.
//!
//! Like every sink it is idempotent: what a micro-batch has once given stays. It also compares: a micro-batch that
//! runs again must give the same rows, unless the pipeline has been changed meanwhile.

use super::script::{FaultTime, SinkFault};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use futures::TryStreamExt;
use pelton_core::{BatchId, BatchInfo, Error, OutputMode, Result, RowStream, Sink, SinkContext, SinkReport};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps rows by micro-batch.
#[derive(Default)]
pub(super) struct ScriptSink(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    schema: Option<SchemaRef>,
    batches: BTreeMap<BatchId, Vec<RecordBatch>>,
    fault: Option<SinkFault>,
    /// Batches from before a change of the pipeline may run again with other rows.
    changed_at: Option<BatchId>,
}

impl ScriptSink {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next write of this micro-batch fails.
    pub(super) fn fail(&self, fault: SinkFault) {
        self.kept().fault = Some(fault);
    }

    /// The pipeline is another from here on.
    pub(super) fn pipeline_changed(&self) {
        let mut kept = self.kept();
        kept.changed_at = kept.batches.keys().next_back().copied();
    }

    /// The rows of a micro-batch and their columns.
    pub(super) fn rows(&self, batch_id: BatchId) -> (SchemaRef, Vec<RecordBatch>) {
        let kept = self.kept();
        let schema = kept.schema.clone().unwrap_or_else(|| SchemaRef::new(Schema::empty()));
        (schema, kept.batches.get(&batch_id).cloned().unwrap_or_default())
    }
}

#[async_trait]
impl Sink for ScriptSink {
    fn description(&self) -> String {
        "script".into()
    }

    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    async fn open(&self, context: SinkContext) -> Result<()> {
        self.kept().schema = Some(context.schema);
        Ok(())
    }

    async fn write(&self, batch: &BatchInfo, rows: RowStream) -> Result<SinkReport> {
        let batch_id = batch.batch_id;
        let fault = self.kept().fault.take_if(|fault| fault.batch_id == batch_id).map(|fault| fault.when);
        let failed = |when| {
            Err(Error::unavailable(format!("the script makes the sink fail {when} micro-batch {batch_id}")))
        };
        if fault == Some(FaultTime::Before) {
            return failed("before it takes");
        }
        let rows: Vec<RecordBatch> = rows.try_collect().await?;
        let count = rows.iter().map(|rows| rows.num_rows() as u64).sum();
        self.kept().keep(batch_id, rows)?;
        match fault {
            Some(_) => failed("after it has taken"),
            None => Ok(SinkReport { rows: count, ..SinkReport::default() }),
        }
    }

    async fn may_hold(&self, batch: &BatchInfo, _begun_before: bool) -> Result<bool> {
        Ok(self.kept().batches.contains_key(&batch.batch_id))
    }
}

impl Kept {
    fn keep(&mut self, batch_id: BatchId, rows: Vec<RecordBatch>) -> Result<()> {
        let may_differ = self.changed_at.is_some_and(|last| batch_id <= last);
        match self.batches.get(&batch_id) {
            Some(first) if !may_differ && !same(first, &rows) => Err(Error::data(format!(
                "micro-batch {batch_id} ran again and gave other rows than the first time"
            ))
            .hint("every step must give the same rows for the same input: look for functions that do not")),
            Some(_) => Ok(()),
            None => {
                self.batches.insert(batch_id, rows);
                Ok(())
            }
        }
    }
}

/// However they are cut into batches.
fn same(first: &[RecordBatch], second: &[RecordBatch]) -> bool {
    let whole = |rows: &[RecordBatch]| {
        let schema = rows.first()?.schema();
        arrow::compute::concat_batches(&schema, rows).ok().filter(|rows| rows.num_rows() > 0)
    };
    whole(first) == whole(second)
}
