//! A consumer that is kept from one micro-batch to the next: it has fetched ahead what the next will read.
//!
//! Each partition has a queue of its own, so that partitions can be read one after the other while all are fetched.

use super::offsets::{PartitionOffsets, TopicPartition};
use super::records::Records;
use crate::kafka::{Context, Failure, client};
use pelton_core::{Error, Result};
use rdkafka::ClientConfig;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where a partition is to be fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) offset: i64,
    /// Wherever the partition begins now.
    pub(super) at_beginning: bool,
}

/// The consumer and how far each of its partitions was given out.
pub(super) struct Fetcher {
    consumer: Arc<BaseConsumer<Context>>,
    pub(super) positions: BTreeMap<TopicPartition, Position>,
}

/// One partition.
pub(super) struct Position {
    queue: PartitionQueue<Context>,
    context: Arc<Context>,
    /// Records before this one were given out, or are not there.
    pub(super) from: Begin,
    /// A record beyond what was asked for, which is the next.
    ahead: Option<Records>,
    /// What the cluster said while nobody read.
    told: Option<KafkaError>,
}

/// What came of asking for a record.
pub(super) enum Step {
    /// It was appended.
    Record,
    /// The next lies at or behind the end.
    Beyond,
    /// Nothing for now.
    Nothing,
    /// The fetch has come to the end of the partition as it is now.
    EndOfPartition,
    /// The offset that is fetched is not there: not any more, or not yet.
    OutOfRange,
    /// The cluster has said something else.
    Failed(Failure),
}

impl Fetcher {
    /// Begins to fetch.
    pub(super) fn new(
        config: &ClientConfig,
        context: Context,
        from: &BTreeMap<TopicPartition, Begin>,
    ) -> Result<Self> {
        let consumer: Arc<BaseConsumer<Context>> = Arc::new(client(config, context)?);
        let failed = |what: &str| Error::internal(format!("the Kafka consumer cannot be assigned: {what}"));
        let mut list = TopicPartitionList::new();
        let mut positions = BTreeMap::new();
        for (at, from) in from {
            let offset = if from.at_beginning { Offset::Beginning } else { Offset::Offset(from.offset) };
            list.add_partition_offset(&at.topic, at.partition, offset).map_err(|e| failed(&e.to_string()))?;
            let queue = consumer.split_partition_queue(&at.topic, at.partition);
            let queue = queue.ok_or_else(|| failed(&format!("{at} has no queue")))?;
            positions.insert(
                at.clone(),
                Position {
                    queue,
                    context: Arc::clone(consumer.context()),
                    from: *from,
                    ahead: None,
                    told: None,
                },
            );
        }
        consumer.assign(&list).map_err(|e| failed(&e.to_string()))?;
        Ok(Self { consumer, positions })
    }

    /// Where each partition goes on.
    pub(super) fn from(&self) -> BTreeMap<TopicPartition, Begin> {
        self.positions.iter().map(|(at, position)| (at.clone(), position.from)).collect()
    }

    /// The offset behind everything of a partition that was taken from its queue, markers of transactions included.
    pub(super) fn taken(&self, at: &TopicPartition) -> Option<i64> {
        let positions = self.consumer.position().ok()?;
        match positions.find_partition(&at.topic, at.partition)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }

    /// Lets the client tell of its connections. What it says, if it matters to those who read: the group does not.
    pub(super) fn serve(&self) -> Option<Failure> {
        let context = self.consumer.context();
        let mut told = None;
        while let Some(Err(failed)) = self.consumer.poll(Duration::ZERO) {
            match Failure::new(&failed, context, "reading") {
                Failure::Permanent(error) if context.refused().is_none() => {
                    tracing::debug!(%error, "while reading")
                }
                failure => told = Some(failure),
            }
        }
        told
    }

    /// Tells the consumer group how far the query is; an answer is not waited for.
    pub(super) fn mirror(&self, offsets: &PartitionOffsets) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::new();
        for (at, offset) in offsets {
            list.add_partition_offset(&at.topic, at.partition, Offset::Offset(*offset))?;
        }
        if list.count() == 0 {
            return Ok(());
        }
        self.consumer.commit(&list, CommitMode::Async)
    }
}

impl Drop for Fetcher {
    // The queues before the consumer that they belong to.
    fn drop(&mut self) {
        self.positions.clear();
    }
}

impl Position {
    /// Everything before `offset` was given out, or is not there.
    pub(super) fn passed(&mut self, offset: i64) {
        self.from = Begin { offset, at_beginning: false };
    }

    /// The timestamp of the next record, if it was fetched and has one.
    pub(super) fn next_ms(&mut self, at: &TopicPartition, with_headers: bool) -> Option<i64> {
        if self.ahead.is_none() && self.told.is_none() {
            match self.queue.poll(Duration::ZERO)? {
                Ok(message) if message.offset() >= self.from.offset => {
                    let mut ahead = Records::new(at, with_headers);
                    ahead.push(&message);
                    self.ahead = Some(ahead);
                }
                Ok(_) => {}
                Err(told) => self.told = Some(told),
            }
        }
        let next = self.ahead.as_ref()?.records.first()?;
        (next.timestamp_ms >= 0).then_some(next.timestamp_ms)
    }

    /// Appends the next record if it lies before `end`.
    pub(super) fn step(
        &mut self,
        at: &TopicPartition,
        end: i64,
        into: &mut Records,
        timeout: Duration,
    ) -> Step {
        if let Some(ahead) = self.ahead.take() {
            let offset = ahead.records.first().map_or(end, |record| record.offset);
            if offset >= end {
                self.ahead = Some(ahead);
                return Step::Beyond;
            }
            into.extend(&ahead);
            self.passed(offset + 1);
            return Step::Record;
        }
        let message = match self.told.take().map(Err).or_else(|| self.queue.poll(timeout)) {
            None => return Step::Nothing,
            Some(Ok(message)) => message,
            Some(Err(KafkaError::PartitionEOF(_))) => return Step::EndOfPartition,
            Some(Err(failed)) => {
                return match failed.rdkafka_error_code() {
                    Some(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation) => {
                        Step::OutOfRange
                    }
                    Some(code) => {
                        Step::Failed(Failure::of_code(code, &self.context, &format!("reading {at}")))
                    }
                    None => Step::Nothing,
                };
            }
        };
        let offset = message.offset();
        if offset >= end {
            let mut ahead = into.emptied();
            ahead.push(&message);
            drop(message);
            self.ahead = Some(ahead);
            return Step::Beyond;
        }
        if offset >= self.from.offset {
            into.push(&message);
            drop(message);
            self.passed(offset + 1);
        }
        Step::Record
    }
}
