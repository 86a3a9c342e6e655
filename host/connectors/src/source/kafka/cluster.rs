//! What is asked of the cluster beside records: which partitions there are, and where they begin and end.
//!
//! It has a connection of its own: on one that fetches, an answer waits for the records that come before it.
//! All calls block.

use super::offsets::{PartitionOffsets, TopicPartition};
use super::options::Subscription;
use crate::kafka::{Context, Failure, hear};
use pelton_core::Error;
use pelton_core::suggest::did_you_mean;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::metadata::MetadataTopic;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A cluster as a reader of topics sees it.
pub(super) struct Cluster {
    client: BaseConsumer<Context>,
    /// How long one call takes at most.
    call: Duration,
}

impl Cluster {
    pub(super) fn new(client: BaseConsumer<Context>, call: Duration) -> Self {
        Self { client, call }
    }

    /// The partitions that are there of those that are wanted, and the topics that are not there.
    pub(super) fn partitions(
        &self,
        wanted: &Subscription,
    ) -> Result<(BTreeSet<TopicPartition>, Vec<String>), Failure> {
        let mut missing = Vec::new();
        let mut found = BTreeSet::new();
        match wanted {
            Subscription::Topics(topics) => {
                for topic in topics {
                    match self.topic(topic)? {
                        Some(partitions) => found.extend(partitions),
                        None => missing.push(topic.clone()),
                    }
                }
            }
            Subscription::Pattern(pattern) => {
                for topic in self.metadata(None)? {
                    if pattern.is_match(topic.0.as_ref()) && !topic.0.starts_with("__") {
                        found.extend((0..topic.1).map(|n| TopicPartition::new(topic.0.clone(), n)));
                    }
                }
            }
            Subscription::Assign(assigned) => {
                for (topic, numbers) in assigned {
                    let there = self.topic(topic)?.unwrap_or_default();
                    let (here, gone): (Vec<_>, Vec<_>) = numbers
                        .iter()
                        .map(|n| TopicPartition::new(topic.as_str(), *n))
                        .partition(|at| there.contains(at));
                    found.extend(here);
                    missing.extend(gone.iter().map(ToString::to_string));
                }
            }
        }
        Ok((found, missing))
    }

    /// That a topic is not there, with the nearest that is.
    pub(super) fn no_topic(&self, missing: &[String]) -> Result<Error, Failure> {
        let place = self.client.context().status.place().to_owned();
        let Some(first) = missing.first() else {
            return Ok(Error::invalid(format!("no topic at {place} fits subscribe_pattern"))
                .hint("create one, or correct the pattern: it must fit the whole name"));
        };
        let topics = self.metadata(None)?;
        let near = did_you_mean(first, topics.iter().map(|(name, _)| name.as_ref()));
        Ok(Error::invalid(format!("there is no topic '{}' at {place}{near}", missing.join("', '")))
            .hint("create it, or correct its name"))
    }

    fn topic(&self, name: &str) -> Result<Option<BTreeSet<TopicPartition>>, Failure> {
        let found = self.metadata(Some(name))?;
        let of =
            |(topic, count): (Arc<str>, i32)| (0..count).map(move |n| TopicPartition::new(topic.clone(), n));
        Ok((!found.is_empty()).then(|| found.into_iter().flat_map(of).collect()))
    }

    /// Topics by name with the number of their partitions; those that are not there are left out.
    fn metadata(&self, topic: Option<&str>) -> Result<Vec<(Arc<str>, i32)>, Failure> {
        const WHAT: &str = "asking for topics";
        self.serve();
        let metadata = self.client.fetch_metadata(topic, self.call).map_err(|e| self.failed(&e, WHAT))?;
        let there = |found: &MetadataTopic| match found.error().map(Code::from) {
            None => Ok(true),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(false),
            Some(code) => {
                Err(Failure::of_code(code, self.client.context(), &format!("topic '{}'", found.name())))
            }
        };
        let mut topics = Vec::new();
        for found in metadata.topics() {
            if there(found)? && !found.partitions().is_empty() {
                topics
                    .push((found.name().into(), i32::try_from(found.partitions().len()).unwrap_or(i32::MAX)));
            }
        }
        Ok(topics)
    }

    /// Where the partitions end: with `read_committed` at the first record of an open transaction.
    pub(super) fn ends(&self, of: &BTreeSet<TopicPartition>) -> Result<PartitionOffsets, Failure> {
        self.all(of, Offset::End)
    }

    /// Where the partitions begin.
    pub(super) fn begins(&self, of: &BTreeSet<TopicPartition>) -> Result<PartitionOffsets, Failure> {
        self.all(of, Offset::Beginning)
    }

    /// Where a partition begins and ends. The failure is permanent if it is not there.
    pub(super) fn bounds(&self, at: &TopicPartition) -> Result<(i64, i64), Failure> {
        if !self.topic(&at.topic)?.is_some_and(|there| there.contains(at)) {
            return Err(Error::data(format!("{at} is not there")).into());
        }
        let of = BTreeSet::from([at.clone()]);
        let (begins, ends) = (self.begins(&of)?, self.ends(&of)?);
        Ok((begins.get(at).copied().unwrap_or(0), ends.get(at).copied().unwrap_or(0)))
    }

    /// An offset of each, or none: a partition without a leader does not answer.
    fn all(&self, of: &BTreeSet<TopicPartition>, which: Offset) -> Result<PartitionOffsets, Failure> {
        let found = self.list(of.iter().map(|at| (at, which)))?;
        let answered = of.iter().map(|at| {
            let offset = found.get(at).copied().flatten();
            let silent = || Failure::Unavailable(format!("{at} has no leader"));
            Ok((at.clone(), offset.ok_or_else(silent)?))
        });
        answered.collect()
    }

    /// The first offsets whose records have these times (in milliseconds) or later ones; `None` where there is none.
    pub(super) fn at_times(
        &self,
        times: &PartitionOffsets,
    ) -> Result<BTreeMap<TopicPartition, Option<i64>>, Failure> {
        self.list(times.iter().map(|(at, ms)| (at, Offset::Offset((*ms).max(0)))))
    }

    /// One request a broker.
    fn list<'a>(
        &self,
        wanted: impl Iterator<Item = (&'a TopicPartition, Offset)>,
    ) -> Result<BTreeMap<TopicPartition, Option<i64>>, Failure> {
        const WHAT: &str = "asking for offsets";
        let mut list = TopicPartitionList::new();
        for (at, offset) in wanted {
            list.add_partition_offset(&at.topic, at.partition, offset).map_err(|e| self.failed(&e, WHAT))?;
        }
        if list.count() == 0 {
            return Ok(BTreeMap::new());
        }
        self.serve();
        let found = self.client.offsets_for_times(list, self.call).map_err(|e| self.failed(&e, WHAT))?;
        let mut offsets = BTreeMap::new();
        for element in found.elements() {
            let at = TopicPartition::new(element.topic(), element.partition());
            element.error().map_err(|e| self.failed(&e, &format!("asking for the offsets of {at}")))?;
            let offset = match element.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            };
            offsets.insert(at, offset);
        }
        Ok(offsets)
    }

    /// Lets the client tell of its connections.
    fn serve(&self) {
        let _ = self.client.poll(Duration::ZERO);
    }

    fn failed(&self, error: &rdkafka::error::KafkaError, what: &str) -> Failure {
        hear(&self.client);
        Failure::new(error, self.client.context(), what)
    }
}
