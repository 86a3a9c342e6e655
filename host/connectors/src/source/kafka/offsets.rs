//! Offsets of partitions, and the JSON that they have in the offset log: Spark's `{"orders":{"0":23,"1":45}}`.

use pelton_core::{Error, Offset, Result};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A partition of a topic. They are read in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Its number.
    pub partition: i32,
}

impl TopicPartition {
    /// Of a name and a number.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Of each partition the offset of the next record.
pub type PartitionOffsets = BTreeMap<TopicPartition, i64>;

/// As it stands in the offset log.
pub(super) fn to_offset(offsets: &PartitionOffsets) -> Offset {
    Offset(to_json(offsets))
}

pub(super) fn to_json(offsets: &PartitionOffsets) -> Value {
    let mut topics: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for (at, offset) in offsets {
        topics.entry(&at.topic).or_default().insert(at.partition.to_string(), (*offset).into());
    }
    Value::Object(topics.into_iter().map(|(topic, of)| (topic.to_owned(), Value::Object(of))).collect())
}

/// Reads such JSON.
pub(super) fn from_json(value: &Value) -> Option<PartitionOffsets> {
    let mut offsets = PartitionOffsets::new();
    for (topic, of) in value.as_object()? {
        let topic: Arc<str> = topic.as_str().into();
        for (partition, offset) in of.as_object()? {
            let partition = partition.parse().ok().filter(|n| *n >= 0)?;
            offsets.insert(TopicPartition { topic: topic.clone(), partition }, offset.as_i64()?);
        }
    }
    Some(offsets)
}

pub(super) fn from_offset(name: &str, offset: &Offset) -> Result<PartitionOffsets> {
    from_json(&offset.0).ok_or_else(|| {
        Error::data(format!("{} is not an offset of Kafka source '{name}'", offset.0))
            .hint("the checkpoint belongs to another kind of source: start with a new one")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn offsets_are_those_of_spark() {
        let json = json!({"a": {"0": 23, "10": 4, "2": 345}, "b": {"0": 0}});
        let offsets = from_json(&json).unwrap();
        let order: Vec<String> = offsets.keys().map(ToString::to_string).collect();
        assert_eq!(order, ["a-0", "a-2", "a-10", "b-0"]);
        assert_eq!(to_json(&offsets), json);
        assert_eq!(from_offset("s", &to_offset(&offsets)).unwrap(), offsets);
    }

    #[test]
    fn other_json_is_no_offset() {
        for other in [
            json!(7),
            json!({"log_offset": 3}),
            json!({"a": {"x": 1}}),
            json!({"a": {"0": "1"}}),
            json!({"a": {"-1": 1}}),
        ] {
            assert_eq!(from_json(&other), None, "{other}");
        }
        let told = from_offset("s", &Offset(json!({"log_offset": 3}))).unwrap_err();
        assert!(told.message().contains("is not an offset of Kafka source 's'"), "{told}");
    }
}
