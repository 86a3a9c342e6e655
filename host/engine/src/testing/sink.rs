//! A sink that keeps every micro-batch and fails on demand.

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::TryStreamExt;
use pelton_core::sink::RowStream;
use pelton_core::{BatchId, BatchInfo, Error, OutputMode, Result, Sink, SinkContext, SinkReport};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the next write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkFault {
    /// Nothing is kept.
    Before,
    /// The rows are kept; the answer is lost.
    After,
}

/// Keeps what it is given, idempotent by micro-batch. Clones share one content, as two processes share a table.
#[derive(Debug, Clone, Default)]
pub struct RecordingSink {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    batches: BTreeMap<BatchId, Vec<RecordBatch>>,
    opened: Vec<Option<BatchId>>,
    writes: u64,
    /// The micro-batch whose write fails; None: whichever is next.
    fault: Option<(Option<BatchId>, SinkFault)>,
}

impl RecordingSink {
    /// An empty sink.
    pub fn new() -> Self {
        Self::default()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of every micro-batch, in their order.
    pub fn batches(&self) -> BTreeMap<BatchId, Vec<RecordBatch>> {
        self.shared().batches.clone()
    }

    /// All rows in the order of their micro-batches.
    pub fn rows(&self) -> Vec<RecordBatch> {
        self.shared().batches.values().flatten().cloned().collect()
    }

    /// Calls of `write` so far, repeated ones included.
    pub fn writes(&self) -> u64 {
        self.shared().writes
    }

    /// What each run told as the last committed micro-batch when it opened the sink.
    pub fn opened(&self) -> Vec<Option<BatchId>> {
        self.shared().opened.clone()
    }

    /// The next write fails.
    pub fn fail_next(&self, fault: SinkFault) {
        self.shared().fault = Some((None, fault));
    }

    /// The write of this micro-batch fails, once.
    pub fn fail_batch(&self, batch_id: BatchId, fault: SinkFault) {
        self.shared().fault = Some((Some(batch_id), fault));
    }
}

#[async_trait]
impl Sink for RecordingSink {
    fn description(&self) -> String {
        "recording".into()
    }

    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    async fn open(&self, context: SinkContext) -> Result<()> {
        self.shared().opened.push(context.last_committed);
        Ok(())
    }

    async fn write(&self, batch: &BatchInfo, rows: RowStream) -> Result<SinkReport> {
        let fault = {
            let mut shared = self.shared();
            shared.writes += 1;
            if shared.batches.contains_key(&batch.batch_id) {
                return Ok(SinkReport { already_committed: true, ..SinkReport::default() });
            }
            let due =
                |fault: &mut (Option<BatchId>, SinkFault)| fault.0.is_none_or(|id| id == batch.batch_id);
            shared.fault.take_if(due).map(|(_, fault)| fault)
        };
        let kept: Vec<RecordBatch> = rows.try_collect().await?;
        let count = kept.iter().map(|batch| batch.num_rows() as u64).sum();
        if fault == Some(SinkFault::Before) {
            return Err(Error::unavailable("injected fault before the sink's write"));
        }
        self.shared().batches.insert(batch.batch_id, kept);
        match fault {
            Some(_) => Err(Error::unavailable("injected fault after the sink's write")),
            None => Ok(SinkReport { rows: count, ..SinkReport::default() }),
        }
    }

    async fn may_hold(&self, batch: &BatchInfo, _begun_before: bool) -> Result<bool> {
        Ok(self.shared().batches.contains_key(&batch.batch_id))
    }
}
