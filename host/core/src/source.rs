//! The port to where rows come from. Spark's `MicroBatchStream` with `SupportsAdmissionControl`.

use crate::{BatchId, DeadLetter, Offset, OffsetRange, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
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
    /// The source's partitions as a micro-batch over `start..end` is planned; asked right after `latest_offset`, and only
    /// if a watermark is kept by partition. Unless said otherwise a source is one partition without a name.
    async fn partitions(
        &self,
        start: Option<&Offset>,
        end: Option<&Offset>,
        _now_ms: i64,
    ) -> Result<Vec<PartitionStatus>> {
        // Who has said that there is nothing new has nothing beyond; who gives something may have more.
        let has_data = start != end;
        Ok(vec![PartitionStatus { name: String::new(), has_data, caught_up: !has_data }])
    }
    /// The rows of a range, as blocks in a fixed order. The same range gives the same blocks, for ever.
    async fn read(&self, batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream>;
    /// All up to `end` is committed: what lies before need not be kept for this query.
    async fn commit(&self, end: &Offset) -> Result<()>;
    /// Nothing will ever come after `position`, where the last micro-batch ended. A query whose sources are all at their end
    /// ends, whatever its trigger.
    fn is_at_end(&self, _position: Option<&Offset>) -> bool {
        false
    }
    /// Records that are to be decoded as if the source gave them now: dead letters that are fed back. `None`: it cannot.
    fn decode_again(&self, _records: Vec<Record>) -> Option<Box<dyn Block>> {
        None
    }
    /// What waits beyond `position`, as far as the source knows without asking anyone: for people who wonder how far behind a
    /// query is. Asked after each micro-batch. Spark's `metrics` of a source.
    async fn backlog(&self, _position: Option<&Offset>) -> Option<Backlog> {
        None
    }
    /// What it waits for without being able to go on, for people: `Kafka at localhost:9092: …`.
    fn waits_for(&self) -> Option<String> {
        None
    }
    /// Offsets that were gone before they could be read, as many as were found missing since this was asked last; `None`: it
    /// does not count them. Asked after each micro-batch.
    fn take_lost(&self) -> Option<u64> {
        None
    }
}

/// A record as a source once gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its bytes.
    pub payload: Bytes,
    /// Where it was, for messages and dead letters.
    pub position: String,
}

/// What a source still has to give. What it does not count is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Records, over all partitions.
    pub records: Option<u64>,
    /// Bytes, as they will be read.
    pub bytes: Option<u64>,
    /// Files.
    pub files: Option<u64>,
    /// When the oldest of it came: a file's time of modification, a record's timestamp; milliseconds since the Unix epoch.
    pub oldest_ms: Option<i64>,
}

/// A part of a source that has its own order of events. Kafka's word; Flink calls it a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionStatus {
    /// Its name within the source, the same for ever; empty if the source is not divided.
    pub name: String,
    /// The planned micro-batch reads something of it.
    pub has_data: bool,
    /// There is nothing to read beyond the planned micro-batch, for certain: neither left back by an admission limit nor
    /// by the end that `available_now` has fixed.
    pub caught_up: bool,
}

/// Raw records in reading order. Reading is the stream's work, decoding the blocks': many at once.
pub type BlockStream = BoxStream<'static, Result<Box<dyn Block>>>;

/// A piece of a source's input that decodes on its own.
pub trait Block: Send {
    /// Bytes of input that it holds (as read, before decompression if it is known).
    fn input_bytes(&self) -> u64;
    /// The partition that it comes from, by the name that [`Source::partitions`] gives.
    fn partition(&self) -> &str {
        ""
    }
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
    /// Of records that were decoded one by one (messages): which of them each row comes of, over all batches. Else empty.
    pub records: Vec<u32>,
}

/// How much of what is available a micro-batch may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLimit {
    /// Everything, whatever the source's options say (trigger `once`, `--batch`).
    All,
    /// What the source's own options allow (`max_files_per_trigger` …).
    Configured,
}
