//! A source that holds what a test has added. Spark's `MemoryStream`.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::StreamExt;
use pelton_core::source::BlockStream;
use pelton_core::{
    BatchId, Block, DeadLetter, Decoded, Error, Offset, OffsetRange, PartitionStatus, ReadLimit, Result,
    Source,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One addition: one block.
#[derive(Debug, Clone, Default)]
struct Addition {
    partition: String,
    batches: Vec<RecordBatch>,
    dead_letters: Vec<DeadLetter>,
    dropped_rows: u64,
}

/// A source over additions; its offset is how many of them are read. Everything added is kept, as by a source that
/// can be read again for ever.
#[derive(Debug)]
pub struct MemorySource {
    schema: SchemaRef,
    additions: Arc<Mutex<Vec<Addition>>>,
    additions_per_batch: Option<u64>,
    partitions: Vec<String>,
    end: Mutex<Option<u64>>,
    acknowledged: Arc<Mutex<Option<u64>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemorySource {
    /// An empty source.
    pub fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            additions: Arc::default(),
            additions_per_batch: None,
            partitions: vec![String::new()],
            end: Mutex::default(),
            acknowledged: Arc::default(),
        }
    }

    /// The same source as another process would open it: same content, none of this run's state.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self {
            schema: Arc::clone(&self.schema),
            additions: Arc::clone(&self.additions),
            additions_per_batch: self.additions_per_batch,
            partitions: self.partitions.clone(),
            end: Mutex::default(),
            acknowledged: Arc::clone(&self.acknowledged),
        }
    }

    /// Limits what a micro-batch takes, where the trigger lets the source decide.
    #[must_use]
    pub fn additions_per_batch(mut self, limit: u64) -> Self {
        self.additions_per_batch = Some(limit);
        self
    }

    /// Divides it into partitions.
    #[must_use]
    pub fn partitions(mut self, names: &[&str]) -> Self {
        self.partitions = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Adds rows of a partition: one block.
    pub fn add_to(&self, partition: &str, batches: Vec<RecordBatch>) {
        let addition = Addition { partition: partition.to_owned(), batches, ..Addition::default() };
        locked(&self.additions).push(addition);
    }

    /// Adds rows: one block.
    pub fn add(&self, batches: Vec<RecordBatch>) {
        self.add_with_losses(batches, Vec::new(), 0);
    }

    /// Adds rows and records that do not decode: one block.
    pub fn add_with_losses(
        &self,
        batches: Vec<RecordBatch>,
        dead_letters: Vec<DeadLetter>,
        dropped_rows: u64,
    ) {
        let addition = Addition { partition: String::new(), batches, dead_letters, dropped_rows };
        locked(&self.additions).push(addition);
    }

    /// How many additions the engine has acknowledged as committed.
    pub fn acknowledged(&self) -> Option<u64> {
        *locked(&self.acknowledged)
    }

    fn number(offset: &Offset) -> Result<u64> {
        offset
            .0
            .as_u64()
            .ok_or_else(|| Error::data(format!("{} is not an offset of a memory source", offset.0)))
    }
}

#[async_trait]
impl Source for MemorySource {
    fn description(&self) -> String {
        "memory".into()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn prepare_for_available_now(&self) -> Result<()> {
        *locked(&self.end) = Some(locked(&self.additions).len() as u64);
        Ok(())
    }

    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        limit: ReadLimit,
        _now_ms: i64,
    ) -> Result<Option<Offset>> {
        let start = start.map_or(Ok(0), Self::number)?;
        let there = locked(&self.end).unwrap_or(locked(&self.additions).len() as u64);
        let admitted = match (limit, self.additions_per_batch) {
            (ReadLimit::Configured, Some(limit)) => there.min(start + limit),
            _ => there,
        };
        Ok((admitted > start).then(|| Offset(admitted.into())))
    }

    async fn partitions(
        &self,
        start: Option<&Offset>,
        end: Option<&Offset>,
        _now_ms: i64,
    ) -> Result<Vec<PartitionStatus>> {
        let (start, end) = (start.map_or(Ok(0), Self::number)?, end.map_or(Ok(0), Self::number)?);
        let additions = locked(&self.additions);
        let (planned, beyond) = additions.split_at(additions.len().min(end as usize));
        let planned = planned.get(start as usize..).unwrap_or_default();
        let of = |additions: &[Addition], name: &String| additions.iter().any(|a| a.partition == *name);
        let status = |name: &String| PartitionStatus {
            name: name.clone(),
            has_data: of(planned, name),
            caught_up: !of(beyond, name),
        };
        Ok(self.partitions.iter().map(status).collect())
    }

    async fn read(&self, _batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream> {
        let start = range.start.as_ref().map_or(Ok(0), Self::number)? as usize;
        let end = Self::number(&range.end)? as usize;
        let blocks = locked(&self.additions)
            .get(start..end)
            .ok_or_else(|| Error::data(format!("the memory source has no additions {start} to {end}")))?
            .to_vec();
        let blocks = blocks.into_iter().map(|addition| Ok(Box::new(addition) as Box<dyn Block>));
        Ok(futures::stream::iter(blocks).boxed())
    }

    async fn commit(&self, end: &Offset) -> Result<()> {
        *locked(&self.acknowledged) = Some(Self::number(end)?);
        Ok(())
    }
}

impl Block for Addition {
    fn partition(&self) -> &str {
        &self.partition
    }
    fn input_bytes(&self) -> u64 {
        self.batches.iter().map(|batch| batch.get_array_memory_size() as u64).sum()
    }
    fn decode(self: Box<Self>) -> Result<Decoded> {
        Ok(Decoded {
            batches: self.batches,
            dead_letters: self.dead_letters,
            dropped_rows: self.dropped_rows,
            records: Vec::new(),
        })
    }
}
