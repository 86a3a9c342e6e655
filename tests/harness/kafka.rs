//! A Kafka broker of the tests' own, and what tests do with it: topics, records, what a `read_committed` reader sees.

use anyhow::{Context, Result, bail, ensure};
use futures::executor::block_on;
use pelton_services::{KafkaBroker, Secured};
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication, TopicResult};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::{ClientConfig, FromClientConfig};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Headers as _, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for one of several tries.
const CALL: Duration = Duration::from_secs(5);

static SHARED: Mutex<Option<Arc<Kafka>>> = Mutex::new(None);

/// A running broker.
#[derive(Debug)]
pub struct Kafka {
    broker: KafkaBroker,
}

impl Kafka {
    /// One for all tests of this process; each should keep to topics and groups of its own, and not stop it.
    pub fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*shared {
            return Ok(Arc::clone(running));
        }
        let started = Arc::new(Self::start()?);
        *shared = Some(Arc::clone(&started));
        Ok(started)
    }

    /// A new one, empty, which may be stopped.
    pub fn start() -> Result<Self> {
        Self::of(KafkaBroker::start()?)
    }

    /// A new one, empty, to be measured.
    pub fn start_lasting() -> Result<Self> {
        Self::of(KafkaBroker::start_lasting()?)
    }

    fn of(broker: KafkaBroker) -> Result<Self> {
        let kafka = Self { broker };
        kafka.wait_until_it_answers()?;
        Ok(kafka)
    }

    /// The same with a listener beside the open one that encrypts and asks for a user.
    pub fn start_secured() -> Result<(Self, Secured)> {
        let kafka = Self { broker: KafkaBroker::start_secured()? };
        kafka.wait_until_it_answers()?;
        let secured = kafka.broker.secured().context("the broker has no such listener")?;
        Ok((kafka, secured))
    }

    /// `host:port`, for `bootstrap.servers`.
    pub fn bootstrap_servers(&self) -> String {
        self.broker.bootstrap_servers()
    }

    /// Ends the broker at once, as `kill -9` does; its files stay.
    pub fn hard_stop(&self) -> Result<()> {
        self.broker.hard_stop()
    }

    /// Starts it again after a hard stop, on the same port and the same files, and waits until it answers.
    pub fn start_again(&self) -> Result<()> {
        self.broker.start_again()?;
        self.wait_until_it_answers()
    }

    /// Creates a topic.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        self.create_topic_with(name, partitions, &[])
    }

    /// Creates a topic with settings of its own.
    pub fn create_topic_with(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) -> Result<()> {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        done(block_on(self.admin()?.create_topics([&topic], &admin_options()))?)?;
        self.wait_for_leaders(name, partitions)
    }

    /// Deletes a topic, and waits until nobody hears of it any more.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        done(block_on(self.admin()?.delete_topics(&[name], &admin_options()))?)?;
        until("the topic is gone", || Ok(self.partitions(name)?.is_empty()))
    }

    /// Raises the number of a topic's partitions.
    pub fn add_partitions(&self, topic: &str, partitions: i32) -> Result<()> {
        let more = NewPartitions::new(topic, usize::try_from(partitions)?);
        done(block_on(self.admin()?.create_partitions([&more], &admin_options()))?)?;
        self.wait_for_leaders(topic, partitions)
    }

    /// Deletes the records of a partition that lie before an offset, as retention does.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<()> {
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(topic, partition, Offset::Offset(before))?;
        let deleted = block_on(self.admin()?.delete_records(&offsets, &admin_options()))?;
        deleted.elements().iter().try_for_each(|element| element.error()).context("deleting records")
    }

    /// Writes records and waits until the broker has them all.
    pub fn produce(&self, topic: &str, records: impl IntoIterator<Item = Record>) -> Result<()> {
        let context = Reports::default();
        let mut config = self.config();
        config.set("linger.ms", "5").set("enable.idempotence", "true");
        let producer: BaseProducer<Reports> = config.create_with_context(context.clone())?;
        for Record { key, value, partition, timestamp_ms } in records {
            let mut record = BaseRecord::<[u8], [u8]>::to(topic);
            (record.partition, record.timestamp) = (partition, timestamp_ms);
            (record.key, record.payload) = (key.as_deref(), value.as_deref());
            while let Err((why, unsent)) = producer.send(record) {
                let full = matches!(why, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
                ensure!(full, "cannot write to {topic}: {why}");
                producer.poll(Duration::from_millis(10));
                record = unsent;
            }
        }
        producer.flush(PATIENCE)?;
        let failed = context.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        failed.map_or(Ok(()), |why| bail!("cannot write to {topic}: {why}"))
    }

    /// All records of a topic that a `read_committed` reader sees, by partition and offset.
    pub fn consume(&self, topic: &str) -> Result<Vec<Message>> {
        let reader: BaseConsumer = self.reader("pelton-tests")?;
        let mut unread = self.settled(topic, &reader)?;
        let mut from = TopicPartitionList::new();
        for partition in &unread {
            from.add_partition_offset(topic, *partition, Offset::Beginning)?;
        }
        reader.assign(&from)?;
        let (mut messages, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while !unread.is_empty() {
            ensure!(Instant::now() < deadline, "{topic} could not be read to its end: {unread:?} are left");
            match reader.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => messages.push(Message {
                    partition: message.partition(),
                    offset: message.offset(),
                    key: message.key().map(<[u8]>::to_vec),
                    value: message.payload().map(<[u8]>::to_vec),
                    timestamp_ms: message.timestamp().to_millis(),
                    headers: headers(&message),
                }),
                Some(Err(KafkaError::PartitionEOF(partition))) => _ = unread.remove(&partition),
                Some(Err(why)) if passes(&why) => {}
                Some(Err(why)) => bail!("cannot read {topic}: {why}"),
                None => {}
            }
        }
        messages.sort_by_key(|message| (message.partition, message.offset));
        Ok(messages)
    }

    /// The partitions of a topic, as soon as a reader of what is committed sees all that has been committed by now. A
    /// broker answers a commit before the transaction's end stands in the partitions, and one that was stopped has all
    /// partitions again before it knows how far they may be read.
    fn settled(&self, topic: &str, reader: &BaseConsumer) -> Result<BTreeSet<i32>> {
        let metadata = reader.fetch_metadata(Some(topic), PATIENCE)?;
        let of_topic = metadata.topics().iter().flat_map(|topic| topic.partitions());
        let partitions: BTreeSet<i32> = of_topic.map(|partition| partition.id()).collect();
        ensure!(!partitions.is_empty(), "there is no topic {topic}");
        let all = self.reader_with("pelton-tests", "read_uncommitted")?;
        for partition in &partitions {
            let end = |of: &BaseConsumer| Some(of.fetch_watermarks(topic, *partition, CALL).ok()?.1);
            let mut written = None;
            until("a partition is written, and its transactions have ended", || {
                written = written.or_else(|| end(&all));
                Ok(written.is_some() && end(reader) >= written)
            })
            .with_context(|| {
                let committed = end(reader);
                format!(
                    "{topic}-{partition} is written up to {written:?}, and may be read up to {committed:?}"
                )
            })?;
        }
        Ok(partitions)
    }

    /// What a consumer group has committed, by partition; what it has not is left out.
    pub fn group_offsets(&self, group: &str, topic: &str) -> Result<BTreeMap<i32, i64>> {
        let mut asked = TopicPartitionList::new();
        for partition in self.partitions(topic)? {
            asked.add_partition(topic, partition);
        }
        let committed = self.reader(group)?.committed_offsets(asked, PATIENCE)?;
        let known = committed.elements().into_iter().filter_map(|of| match of.offset() {
            Offset::Offset(offset) => Some((of.partition(), offset)),
            _ => None,
        });
        Ok(known.collect())
    }

    /// The names of all consumer groups.
    pub fn groups(&self) -> Result<Vec<String>> {
        let groups = self.reader("pelton-tests")?.fetch_group_list(None, PATIENCE)?;
        Ok(groups.groups().iter().map(|group| group.name().to_owned()).collect())
    }

    /// A client's settings: to this broker.
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.bootstrap_servers());
        config
    }

    /// A reader of what is committed, from the start, that says where a partition ends.
    fn reader(&self, group: &str) -> Result<BaseConsumer> {
        self.reader_with(group, "read_committed")
    }

    fn reader_with(&self, group: &str, isolation_level: &str) -> Result<BaseConsumer> {
        let mut config = self.config();
        config.set("group.id", group).set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        config.set("isolation.level", isolation_level).set("auto.offset.reset", "earliest");
        Ok(config.create()?)
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(AdminClient::from_config(&self.config())?)
    }

    /// A topic's partitions that have a leader.
    fn partitions(&self, topic: &str) -> Result<Vec<i32>> {
        let metadata = self.reader("pelton-tests")?;
        let metadata = metadata.fetch_metadata(Some(topic), PATIENCE)?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        Ok(partitions.filter(|partition| partition.leader() >= 0).map(|partition| partition.id()).collect())
    }

    fn wait_for_leaders(&self, topic: &str, partitions: i32) -> Result<()> {
        let all = usize::try_from(partitions)?;
        until("every partition has a leader", || Ok(self.partitions(topic)?.len() == all))
    }

    fn wait_until_it_answers(&self) -> Result<()> {
        let asker: BaseProducer = self.config().create()?;
        until("the broker answers", || {
            let metadata = asker.client().fetch_metadata(None, Duration::from_secs(1));
            ensure!(!self.broker.has_ended()?, "the broker ended by itself:\n{}", self.broker.log());
            Ok(metadata.is_ok_and(|metadata| !metadata.brokers().is_empty()))
        })
    }
}

/// A record to write.
#[derive(Debug, Clone, Default)]
pub struct Record {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    partition: Option<i32>,
    timestamp_ms: Option<i64>,
}

impl Record {
    /// With a value, and nothing else.
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// A key without a value.
    pub fn tombstone(key: impl Into<Vec<u8>>) -> Self {
        Self::default().key(key)
    }

    /// With this key, which decides the partition unless that is given.
    #[must_use]
    pub fn key(self, key: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// In this partition.
    #[must_use]
    pub fn partition(self, partition: i32) -> Self {
        Self { partition: Some(partition), ..self }
    }

    /// With this time, in milliseconds since 1970.
    #[must_use]
    pub fn at_ms(self, timestamp_ms: i64) -> Self {
        Self { timestamp_ms: Some(timestamp_ms), ..self }
    }
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Where it lies.
    pub partition: i32,
    /// Its place there.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value; a tombstone has none.
    pub value: Option<Vec<u8>>,
    /// Its time, in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
    /// Its headers, as text.
    pub headers: Vec<(String, String)>,
}

impl Message {
    /// The header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value as text; nothing for a tombstone.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }
}

fn headers(message: &BorrowedMessage<'_>) -> Vec<(String, String)> {
    let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    let of = message.headers().into_iter().flat_map(|headers| headers.iter());
    of.map(|header| (header.key.to_owned(), text(header.value))).collect()
}

/// Keeps the first record that the broker did not take.
#[derive(Clone, Default)]
struct Reports {
    failed: Arc<Mutex<Option<String>>>,
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((why, _)) = result {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| why.to_string());
        }
    }
}

/// What a client says while it still tries.
fn passes(why: &KafkaError) -> bool {
    matches!(
        why.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::OperationTimedOut
        )
    )
}

fn admin_options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE))
}

fn done(results: Vec<TopicResult>) -> Result<()> {
    results.into_iter().try_for_each(|result| match result {
        Ok(_) => Ok(()),
        Err((topic, why)) => bail!("{topic}: {why}"),
    })
}

/// Asks until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "it did not come to pass within {PATIENCE:?} that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_keeps_its_records_over_a_hard_stop() -> Result<()> {
        let kafka = Kafka::start()?;
        kafka.create_topic("kept", 2)?;
        let records = (0..1000).map(|n| Record::new(n.to_string()).key(format!("{}", n % 7)));
        kafka.produce("kept", records)?;
        let before = kafka.consume("kept")?;
        kafka.hard_stop()?;
        kafka.start_again()?;
        assert_eq!(before, kafka.consume("kept")?);
        let mut values: Vec<u32> = before.iter().map(|m| Ok(m.text().parse()?)).collect::<Result<_>>()?;
        values.sort_unstable();
        assert_eq!(values, (0..1000).collect::<Vec<_>>());
        kafka.delete_records("kept", 0, 5)?;
        kafka.add_partitions("kept", 3)?;
        assert_eq!(kafka.consume("kept")?.first().map(|m| (m.partition, m.offset)), Some((0, 5)));
        kafka.delete_topic("kept")
    }
}
