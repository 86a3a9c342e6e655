//! A producer, and what the cluster knows of the query's micro-batches.
//!
//! A micro-batch is noted as the committed offset of a group that has no members: the note is written in the transaction
//! of the rows, so that the two agree whatever dies. All calls block, each for a few seconds at most.

use super::messages::{Message, Messages};
use super::options::KafkaSinkOptions;
use crate::kafka::{CALL, ClientOptions, Context, Failure, HEARING, Status, client, hear};
use pelton_core::{BatchId, Result};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long a call waits for room in the producer's queue, or for deliveries.
const TURN: Duration = Duration::from_secs(1);
/// How long before a full queue is looked at again.
const ROOM_PAUSE: Duration = Duration::from_millis(5);
/// Answers of the coordinator of transactions.
const COORDINATOR: Duration = Duration::from_secs(10);
/// How often a topic is asked for that the brokers may be making.
const TOPIC_TRIES: u32 = 10;
const TOPIC_PAUSE: Duration = Duration::from_millis(200);
/// How often messages that are delivered are looked for that are still held.
const LETTING_GO_TRIES: u32 = 1_000;
const LETTING_GO_PAUSE: Duration = Duration::from_micros(50);

/// What was noted last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The last micro-batch that is written.
    pub(super) batch: Option<BatchId>,
    /// Which run of the query may write.
    pub(super) run: String,
}

/// Where a query's micro-batches are noted.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The transactional id, which is also the group's.
    pub(super) id: String,
    pub(super) topic: String,
}

/// A producer that is ready to write.
pub(super) struct Session {
    /// A thread of its own hears of deliveries. To poll for them would take a core while it waits.
    producer: ThreadedProducer<Context>,
    notes: Option<Notes>,
}

struct Notes {
    place: Place,
    reader: BaseConsumer<Context>,
    group: ConsumerGroupMetadata,
}

impl Session {
    /// Opens one; with a place it writes in transactions, and whoever did so before cannot any more.
    pub(super) fn open(
        options: &KafkaSinkOptions,
        status: &Arc<Status>,
        place: Option<&Place>,
    ) -> Result<Self, Failure> {
        let timeout_ms = options.transaction_timeout.as_millis().to_string();
        let mut defaults = vec![
            // Keys go to the partitions to which Kafka's own clients would send them.
            ("partitioner", "murmur2_random"),
            ("linger.ms", "0.2"),
            ("queue.buffering.max.kbytes", "65536"),
            ("queue.buffering.max.messages", "1000000"),
            ("reconnect.backoff.max.ms", "2000"),
            // A transaction may begin when the brokers have written the end of the one before: moments later. The pauses
            // double.
            ("retry.backoff.ms", "5"),
            ("socket.nagle.disable", "true"),
        ];
        let mut fixed = vec![("enable.idempotence", "true")];
        match place {
            Some(place) => {
                defaults.push(("transaction.timeout.ms", timeout_ms.as_str()));
                fixed.push(("transactional.id", place.id.as_str()));
            }
            // A broker that is away is waited for.
            None => defaults.push(("message.timeout.ms", "0")),
        }
        let config = options.client.config(&defaults, &fixed)?;
        let producer: ThreadedProducer<Context> = client(&config, Context::new(status))?;
        let session = Self { producer, notes: None };
        if let Some(topic) = options.topic.as_deref().or(place.map(|place| place.topic.as_str())) {
            session.check_topic(topic)?;
        }
        let Some(place) = place else { return Ok(session) };
        let initialised = session.producer.init_transactions(COORDINATOR);
        initialised.map_err(|e| session.failed(&e, "opening the sink"))?;
        let notes = Notes::new(&options.client, status, place)?;
        Ok(Self { notes: Some(notes), ..session })
    }

    /// Brokers that make topics when they are asked for one do so now.
    fn check_topic(&self, topic: &str) -> Result<(), Failure> {
        let what = format!("topic '{topic}'");
        let mut tries = 0;
        loop {
            tries += 1;
            let metadata = self.producer.client().fetch_metadata(Some(topic), CALL);
            let metadata = metadata.map_err(|e| self.failed(&e, &what))?;
            match metadata.topics().first().and_then(|topic| topic.error()).map(Code::from) {
                None => return Ok(()),
                Some(Code::LeaderNotAvailable | Code::UnknownTopicOrPartition) if tries < TOPIC_TRIES => {
                    std::thread::sleep(TOPIC_PAUSE);
                }
                Some(code) => return Err(Failure::of_code(code, self.producer.context(), &what)),
            }
        }
    }

    pub(super) fn begin(&self) -> Result<(), Failure> {
        self.producer.context().begin_delivery();
        if self.notes.is_some() {
            self.producer.begin_transaction().map_err(|e| self.failed(&e, "beginning a transaction"))?;
        }
        Ok(())
    }

    /// Hands messages to the producer, from the `from`th on, as long as there is room. Where to go on.
    pub(super) fn send(&self, messages: &Messages, from: usize) -> Result<usize, Failure> {
        for nth in from..messages.count {
            let message = messages.get(nth)?;
            if !self.send_one(&message)? {
                return Ok(nth);
            }
        }
        self.check_delivered()?;
        Ok(messages.count)
    }

    /// Whether there was room.
    fn send_one(&self, message: &Message<'_>) -> Result<bool, Failure> {
        let mut waited = Duration::ZERO;
        loop {
            let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(message.topic);
            (record.key, record.payload, record.partition) = (message.key, message.value, message.partition);
            if !message.headers.is_empty() {
                let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
                for (key, value) in &message.headers {
                    headers = headers.insert(Header { key, value: *value });
                }
                record.headers = Some(headers);
            }
            self.producer.context().sending();
            let sent = self.producer.send(record);
            if sent.is_err() {
                self.producer.context().not_sent();
            }
            match sent {
                Ok(()) => return Ok(true),
                Err((KafkaError::MessageProduction(Code::QueueFull), _)) if waited < TURN => {
                    std::thread::sleep(ROOM_PAUSE);
                    self.check_delivered()?;
                    waited += ROOM_PAUSE;
                }
                Err((KafkaError::MessageProduction(Code::QueueFull), _)) => return Ok(false),
                Err((failed, _)) => {
                    let bytes = message.value.map_or(0, <[u8]>::len);
                    let what = format!("writing a message of {bytes} bytes to topic '{}'", message.topic);
                    return Err(self.failed(&failed, &what));
                }
            }
        }
    }

    /// Waits for deliveries for a while; how many messages are not delivered yet.
    pub(super) fn deliver(&self) -> Result<usize, Failure> {
        let outstanding = self.producer.context().wait_for_delivery(TURN);
        self.check_delivered()?;
        Ok(outstanding)
    }

    /// The first message that was not delivered.
    fn check_delivered(&self) -> Result<(), Failure> {
        let context = self.producer.context();
        match context.undelivered() {
            None => Ok(()),
            Some(lost) => {
                let what = format!("writing a message of {} bytes to topic '{}'", lost.bytes, lost.topic);
                Err(Failure::of_code(lost.code, context, &what))
            }
        }
    }

    /// Notes a micro-batch in the transaction.
    pub(super) fn note(&self, note: &Note) -> Result<(), Failure> {
        const WHAT: &str = "noting a micro-batch";
        let Some(notes) = &self.notes else { return Ok(()) };
        let list = notes.list(note).map_err(|e| self.failed(&e, WHAT))?;
        let sent = self.producer.send_offsets_to_transaction(&list, &notes.group, COORDINATOR);
        sent.map_err(|e| self.failed(&e, WHAT))
    }

    pub(super) fn commit(&self) -> Result<(), Failure> {
        if self.notes.is_none() {
            return Ok(());
        }
        self.let_go();
        self.producer.commit_transaction(COORDINATOR).map_err(|e| self.failed(&e, "committing a transaction"))
    }

    /// Waits until the thread that hears of deliveries has let go of the last, moments after it was told of it. Until then
    /// a commit would poll beside it, in vain, for a tenth of a second.
    fn let_go(&self) {
        for _ in 0..LETTING_GO_TRIES {
            if self.producer.in_flight_count() == 0 {
                break;
            }
            std::thread::sleep(LETTING_GO_PAUSE);
        }
    }

    /// Gives up what was begun, if that can be said; otherwise the next producer does so, or time.
    pub(super) fn abort(&self) {
        if self.notes.is_some() {
            let _ = self.producer.abort_transaction(CALL);
        }
    }

    /// What was noted last.
    pub(super) fn noted(&self) -> Result<Option<Note>, Failure> {
        match &self.notes {
            Some(notes) => notes.read(),
            None => Ok(None),
        }
    }

    /// Why nothing seems to go on.
    pub(super) fn last_failure(&self) -> String {
        self.producer.context().last().unwrap_or_else(|| "messages are not acknowledged".into())
    }

    fn failed(&self, error: &KafkaError, what: &str) -> Failure {
        self.producer.poll(HEARING);
        Failure::new(error, self.producer.context(), what)
    }
}

impl Notes {
    fn new(options: &ClientOptions, status: &Arc<Status>, place: &Place) -> Result<Self, Failure> {
        // A note of a transaction that is not over yet is waited for.
        let fixed = [
            ("group.id", place.id.as_str()),
            ("enable.auto.commit", "false"),
            ("isolation.level", "read_committed"),
        ];
        let config = options.config(&[("reconnect.backoff.max.ms", "2000")], &fixed)?;
        let reader: BaseConsumer<Context> = client(&config, Context::new(status))?;
        let group = reader.group_metadata();
        let group = group.ok_or_else(|| pelton_core::Error::internal("a consumer has no group"))?;
        Ok(Self { place: place.clone(), reader, group })
    }

    fn list(&self, note: &Note) -> Result<TopicPartitionList, KafkaError> {
        let mut list = TopicPartitionList::new();
        let done = note.batch.map_or(0, |batch| i64::try_from(batch.0).unwrap_or(i64::MAX - 1) + 1);
        list.add_partition_offset(&self.place.topic, 0, Offset::Offset(done))?;
        if let (Some(mut element), Ok(text)) =
            (list.find_partition(&self.place.topic, 0), serde_json::to_string(note))
        {
            element.set_metadata(text);
        }
        Ok(list)
    }

    fn read(&self) -> Result<Option<Note>, Failure> {
        const WHAT: &str = "reading which micro-batch was noted";
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.place.topic, 0);
        let found = self.reader.committed_offsets(list, COORDINATOR).map_err(|e| {
            hear(&self.reader);
            Failure::new(&e, self.reader.context(), WHAT)
        })?;
        let Some(element) = found.find_partition(&self.place.topic, 0) else { return Ok(None) };
        element.error().map_err(|e| Failure::new(&e, self.reader.context(), WHAT))?;
        match element.offset() {
            Offset::Offset(_) => {}
            _ => return Ok(None),
        }
        let note = serde_json::from_str(element.metadata()).map_err(|_| {
            pelton_core::Error::data(format!(
                "the group '{}' at {} has an offset that is not of this sink",
                self.place.id,
                self.reader.context().status.place()
            ))
            .hint("set `transactional_id` to a name that nothing else uses")
        })?;
        Ok(Some(note))
    }
}
