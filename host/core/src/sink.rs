//! The port to where rows go. Spark's `Sink` and `foreachBatch`.

use crate::{BatchId, BatchInfo, OutputMode, QueryId, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::stream::BoxStream;

/// The rows of a micro-batch in a fixed order.
pub type RowStream = BoxStream<'static, Result<RecordBatch>>;

/// What a sink must know before the first micro-batch of a run.
#[derive(Debug, Clone)]
pub struct SinkContext {
    /// The query's identity: with the batch id it makes a write recognisable.
    pub query_id: QueryId,
    /// Schema of every batch.
    pub schema: SchemaRef,
    /// What the batches mean.
    pub output_mode: OutputMode,
    /// The last micro-batch that the commit log knows; what a sink holds beyond it is unfinished.
    pub last_committed: Option<BatchId>,
    /// The micro-batch that was begun and must run again, if there is one: the only one beyond `last_committed` that the
    /// sink may hold. If it holds another, the checkpoint is older than it.
    pub unfinished: Option<BatchId>,
}

impl SinkContext {
    /// The last micro-batch that the sink may hold.
    pub fn may_hold(&self) -> Option<BatchId> {
        self.unfinished.or(self.last_committed)
    }
}

/// A sink whose writes are idempotent by (query id, batch id).
#[async_trait]
pub trait Sink: Send + Sync {
    /// For messages and progress: `file ./out (json)`.
    fn description(&self) -> String;
    /// What it is, without where: `file`, `kafka`. A micro-batch that is run again must go to the same kind of sink.
    fn kind(&self) -> String {
        self.description().split_whitespace().next().unwrap_or_default().to_owned()
    }
    /// The output modes that it can take; anything else is refused before the query starts.
    fn output_modes(&self) -> &[OutputMode];
    /// Called once a run, before the first write: checks the schema, finishes or removes what a dead run left.
    async fn open(&self, context: SinkContext) -> Result<()>;
    /// Takes a micro-batch. When it returns, the rows are durable and a second call with the same
    /// (query id, batch id) changes nothing. Nothing may become visible before the stream has ended, and an
    /// error of the stream is the error of the write.
    async fn write(&self, batch: &BatchInfo, rows: RowStream) -> Result<SinkReport>;
    /// A trigger has fired and there was nothing to run. A sink that holds committed rows back may let go of those that have
    /// waited long enough.
    async fn rest(&self, _now_ms: i64) -> Result<()> {
        Ok(())
    }
    /// The sources are at their end (`once`, `available_now`): a sink that holds committed rows back lets go of all. A run that is
    /// stopped does not come here: the next one goes on.
    async fn finish(&self) -> Result<()> {
        Ok(())
    }
    /// What it waits for without being able to go on, for people: `Kafka at localhost:9092: …`.
    fn waits_for(&self) -> Option<String> {
        None
    }
    /// Whether rows of a micro-batch whose write did not succeed in this run may have got out all the same: then no other
    /// rows may take their place. `begun_before`: an earlier run has begun it, too, and may have come to its end. Without
    /// a look at what is there, that alone decides.
    async fn may_hold(&self, batch: &BatchInfo, begun_before: bool) -> Result<bool> {
        let _ = batch;
        Ok(begun_before)
    }
}

/// What a sink did with a micro-batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SinkReport {
    /// Rows taken from the stream.
    pub rows: u64,
    /// Bytes written, if the sink writes bytes.
    pub bytes: u64,
    /// Files made visible, if the sink writes files.
    pub files: u64,
    /// Time spent encoding and writing, in nanoseconds, summed over threads (0 if the sink does not measure it).
    pub busy_nanos: u64,
    /// The sink had this micro-batch already (a rerun after a crash). It may then leave the rows unread.
    pub already_committed: bool,
}
