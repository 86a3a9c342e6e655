//! The port to where rows come from. Spark's `MicroBatchStream` with `SupportsAdmissionControl`.

use crate::{BatchId, DeadLetter, Offset, OffsetRange, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::stream::BoxStream;

/// A source of rows that can be read again from any offset range it has once named.
#[async_trait]
pub trait Source: Send + Sync {
    /// For messages and progress: `file examples/data/flights/*.csv`.
    fn description(&self) -> String;
    /// The schema of every batch that [`Block::decode`] gives.
    fn schema(&self) -> SchemaRef;
    /// Fixes what `available_now` will read: from now on `latest_offset` never passes what is there at this moment.
    /// Spark's `prepareForTriggerAvailableNow`.
    async fn prepare_for_available_now(&self) -> Result<()>;
    /// The end of the next micro-batch, given where the last one ended and how much may be taken.
    /// `None`: there is nothing new. `now_ms` is the time of the micro-batch being planned.
    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        limit: ReadLimit,
        now_ms: i64,
    ) -> Result<Option<Offset>>;
    /// The rows of a range, as blocks in a fixed order. The same range gives the same blocks, for ever.
    async fn read(&self, batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream>;
    /// All up to `end` is committed: what lies before need not be kept for this query.
    async fn commit(&self, end: &Offset) -> Result<()>;
}

/// Raw records in reading order. Reading is the stream's work, decoding the blocks': many at once.
pub type BlockStream = BoxStream<'static, Result<Box<dyn Block>>>;

/// A piece of a source's input that decodes on its own.
pub trait Block: Send {
    /// Bytes of input that it holds (as read, before decompression if it is known).
    fn input_bytes(&self) -> u64;
    /// Decodes it; runs on a worker thread and does no I/O.
    fn decode(self: Box<Self>) -> Result<Decoded>;
}

/// The rows of a block.
#[derive(Debug, Default)]
pub struct Decoded {
    /// In reading order, each of at most a few thousand rows.
    pub batches: Vec<RecordBatch>,
    /// Records that did not decode and that the source's policy sends to the dead letters.
    pub dead_letters: Vec<DeadLetter>,
    /// Records that did not decode and that the source's policy drops.
    pub dropped_rows: u64,
}

/// How much of what is available a micro-batch may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLimit {
    /// Everything, whatever the source's options say (trigger `once`, `--batch`).
    All,
    /// What the source's own options allow (`max_files_per_trigger` …).
    Configured,
}
