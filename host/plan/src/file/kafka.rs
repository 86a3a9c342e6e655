//! The Kafka source and the Kafka sink of a pipeline file.

use super::events::WatermarkSpec;
use super::sources::{Format, MalformedPolicySchema, SchemaSpec, some_policy};
use super::values::{Duration, FormatOptions, OptionValue, Spanned};
use pelton_core::MalformedPolicy;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Records of Kafka topics. Without a `format` the columns are those of Spark: `key`, `value` (both binary), `topic`,
/// `partition`, `offset`, `timestamp` and `timestamp_type`. What it has read is remembered by the checkpoint.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KafkaSource {
    /// The cluster: `host:port`, several with commas between them. It may also be `bootstrap.servers` under `kafka`.
    #[serde(default)]
    pub bootstrap_servers: Option<Spanned<String>>,
    /// The topics, one or a list. Exactly one of `subscribe`, `subscribe_pattern` and `assign` is given.
    #[serde(default)]
    pub subscribe: Option<TopicsSpec>,
    /// A regular expression: all topics whose whole name fits, also those that come later.
    #[serde(default)]
    pub subscribe_pattern: Option<Spanned<String>>,
    /// Some partitions of topics: `{orders: [0, 1]}`.
    #[serde(default)]
    pub assign: Option<Spanned<BTreeMap<String, Vec<i32>>>>,
    /// Where a new query begins: `earliest`, `latest`, or an offset a partition, `{orders: {"0": 23, "1": -2}}`, in which -2
    /// is the beginning and -1 the end. Unless said: `latest`. Partitions that come later are read from their beginning.
    #[serde(default)]
    pub starting_offsets: Option<Spanned<OffsetsSpec>>,
    /// Where a new query begins: at the first record of this time or a later one, in milliseconds or as a timestamp.
    #[serde(default)]
    pub starting_timestamp: Option<Spanned<OptionValue>>,
    /// The same, a time in milliseconds a partition: `{orders: {"0": 1735689600000}}`.
    #[serde(default)]
    pub starting_offsets_by_timestamp: Option<Spanned<OffsetsSpec>>,
    /// What a partition does that has no record of the starting time or later: `error` ends the query, `latest` begins at
    /// its end. Unless said: `error`.
    #[serde(default)]
    pub starting_offsets_by_timestamp_strategy: NoRecordStrategy,
    /// Where the source ends: `latest` (as it is at the start) or an offset a partition. Unless said: nowhere.
    #[serde(default)]
    pub ending_offsets: Option<Spanned<OffsetsSpec>>,
    /// Where the source ends: before the first record of this time or a later one.
    #[serde(default)]
    pub ending_timestamp: Option<Spanned<OptionValue>>,
    /// The same, a time in milliseconds a partition.
    #[serde(default)]
    pub ending_offsets_by_timestamp: Option<Spanned<OffsetsSpec>>,
    /// Ends the query when records are gone before they were read; otherwise it goes on with what is left, and says so.
    #[serde(default = "yes")]
    pub fail_on_data_loss: bool,
    /// How many offsets one micro-batch takes at most, all partitions together, each in proportion to what it has. Unless
    /// said: all.
    #[serde(default)]
    pub max_offsets_per_trigger: Option<Spanned<u64>>,
    /// How many offsets one micro-batch waits for, up to `max_trigger_delay`.
    #[serde(default)]
    pub min_offsets_per_trigger: Option<Spanned<u64>>,
    /// How long a micro-batch waits for `min_offsets_per_trigger`. Unless said: 15 minutes.
    #[serde(default)]
    pub max_trigger_delay: Option<Duration>,
    /// In how many parts each micro-batch is decoded at least. Unless said: as many as there are partitions.
    #[serde(default)]
    pub min_partitions: Option<Spanned<u64>>,
    /// Without a `format`: adds the column `headers`, `array<struct<key: string, value: binary>>`.
    #[serde(default)]
    pub include_headers: bool,
    /// The consumer group that is told how far the query is, for tools that show the lag. Unless said:
    /// `pelton-<name of the pipeline>-<name of the source>`.
    #[serde(default)]
    pub group_id: Option<Spanned<String>>,
    /// How values are written. Unless said, they are bytes in the column `value`.
    #[serde(default)]
    pub format: Option<Spanned<Format>>,
    /// The format's own options, by Spark's names in snake case.
    #[serde(default)]
    pub options: FormatOptions,
    /// The columns of the values: a map of `name: type` in order, or Spark's DDL text.
    #[serde(default)]
    pub schema: Option<SchemaSpec>,
    /// With a `format`: the columns of Kafka that come beside those of the value: `[key, topic, partition, offset, timestamp]`.
    #[serde(default)]
    pub metadata_columns: Vec<Spanned<String>>,
    /// What becomes of a value that does not decode: `fail`, `drop`, `null` or `dead_letter`. A record without a value (a
    /// tombstone) is never malformed: it is a row of nulls.
    #[serde(default, deserialize_with = "some_policy")]
    #[schemars(with = "Option<MalformedPolicySchema>")]
    pub on_malformed: Option<MalformedPolicy>,
    /// How long a cluster that does not answer is waited for. Unless said: without end.
    #[serde(default)]
    pub broker_timeout: Option<Duration>,
    /// Settings of librdkafka, by its names: `{security.protocol: sasl_ssl, sasl.password: "${KAFKA_PASSWORD}"}`. `${NAME}` is
    /// the environment variable of that name.
    #[serde(default)]
    pub kafka: FormatOptions,
    /// The event time of its rows.
    #[serde(default)]
    pub watermark: Option<Spanned<WatermarkSpec>>,
}

fn yes() -> bool {
    true
}

/// Topics: one, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum TopicsSpec {
    /// One, or several with commas between them as in Spark.
    One(Spanned<String>),
    /// A list.
    Many(Vec<Spanned<String>>),
}

impl TopicsSpec {
    /// Their names.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::One(text) => text.value.split(',').map(|name| name.trim().to_owned()).collect(),
            Self::Many(names) => names.iter().map(|name| name.value.clone()).collect(),
        }
    }
}

/// A word, or a number a partition.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum OffsetsSpec {
    /// `earliest` or `latest`; or Spark's JSON as a text.
    Word(String),
    /// By topic and partition.
    Offsets(BTreeMap<String, BTreeMap<String, i64>>),
}

impl OffsetsSpec {
    /// As JSON has it.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Word(word) => word.as_str().into(),
            Self::Offsets(offsets) => serde_json::to_value(offsets).unwrap_or_default(),
        }
    }
}

/// What a partition does that has no record of the starting time or later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoRecordStrategy {
    /// The query fails (the default).
    #[default]
    Error,
    /// It begins at its end.
    Latest,
}

/// Writes messages into Kafka topics, in every output mode. Exactly once, a micro-batch is a transaction, which readers with
/// `isolation.level=read_committed` see when it is committed. The rows have Spark's columns `key`, `value`, `headers`,
/// `topic` and `partition`, or a `format` makes the value of all columns but Kafka's.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KafkaSink {
    /// The cluster: `host:port`, several with commas between them. It may also be `bootstrap.servers` under `kafka`.
    #[serde(default)]
    pub bootstrap_servers: Option<Spanned<String>>,
    /// The topic of all rows. Unless said, the column `topic` names it row by row.
    #[serde(default)]
    pub topic: Option<Spanned<String>>,
    /// The column that becomes the key; it stays part of the value. Unless said: a column called `key`, which does not.
    #[serde(default)]
    pub key: Option<Spanned<String>>,
    /// How values are written. Unless said, the column `value` holds them.
    #[serde(default)]
    pub format: Option<Spanned<Format>>,
    /// The format's own options, by Spark's names in snake case.
    #[serde(default)]
    pub options: FormatOptions,
    /// `exactly_once` (the default) or `at_least_once`, which has less latency and may write rows again after a failure.
    #[serde(default)]
    pub delivery: Delivery,
    /// Exactly once: how long a micro-batch may take to be written; not longer than the brokers' `transaction.max.timeout.ms`.
    /// Unless said: 5 minutes.
    #[serde(default)]
    pub transaction_timeout: Option<Duration>,
    /// Exactly once: the name of the query's transactions, and of the group that knows its micro-batches. Unless said:
    /// `pelton-<id of the query>`.
    #[serde(default)]
    pub transactional_id: Option<Spanned<String>>,
    /// Exactly once, without `topic`: a topic that is always there, by whose name micro-batches are noted. Nothing is written
    /// into it.
    #[serde(default)]
    pub commit_topic: Option<Spanned<String>>,
    /// Exactly once: what becomes of an unfinished micro-batch if the brokers have forgotten whether it was written, because
    /// the query was not run for days: `write` or `skip`. Unless said the query fails and asks.
    #[serde(default)]
    pub undecided: Option<Undecided>,
    /// How long a cluster that does not answer is waited for. Unless said: without end.
    #[serde(default)]
    pub broker_timeout: Option<Duration>,
    /// Settings of librdkafka, by its names: `{compression.type: zstd, sasl.password: "${KAFKA_PASSWORD}"}`. `${NAME}` is the
    /// environment variable of that name.
    #[serde(default)]
    pub kafka: FormatOptions,
}

/// How often a row may be there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Once, for readers of what is committed (the default).
    #[default]
    ExactlyOnce,
    /// Once or, after a failure, more often.
    AtLeastOnce,
}

/// What becomes of a micro-batch of which nobody knows whether it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Undecided {
    /// It is written: its rows may be there twice.
    Write,
    /// It is taken to be written.
    Skip,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PipelineFile;
    use crate::file::{SinkSpec, SourceSpec};
    use serde_json::json;

    fn read(source: &str) -> Result<KafkaSource, String> {
        let text = format!(
            "name: q\nsources:\n  s: {{connector: kafka, {source}}}\nsink: {{connector: kafka, topic: t, delivery: at_least_once}}\n"
        );
        let file = PipelineFile::read(&text, "p.yaml", &[]).map_err(|error| error.message().to_owned())?;
        assert!(matches!(&file.sink, SinkSpec::Kafka(sink) if sink.delivery == Delivery::AtLeastOnce));
        match file.sources.value.get("s") {
            Some(SourceSpec::Kafka(source)) => Ok(KafkaSource::clone(source)),
            other => panic!("a Kafka source: {other:?}"),
        }
    }

    #[test]
    fn topics_are_one_or_many() {
        let topics = |text: &str| read(text).expect("reads").subscribe.expect("topics").names();
        assert_eq!(topics("subscribe: a"), ["a"]);
        assert_eq!(topics("subscribe: 'a, b'"), ["a", "b"]);
        assert_eq!(topics("subscribe: [a, b]"), ["a", "b"]);
    }

    #[test]
    fn offsets_are_a_word_or_numbers() {
        let offsets =
            |text: &str| read(text).expect("reads").starting_offsets.expect("offsets").value.to_json();
        assert_eq!(offsets("starting_offsets: earliest"), json!("earliest"));
        assert_eq!(
            offsets("starting_offsets: {a: {\"0\": 23, \"1\": -2}}"),
            json!({"a": {"0": 23, "1": -2}})
        );
        let told = read("starting_offsets: [1]").expect_err("refused");
        assert!(told.contains("expected text or a map of keys, found a list"), "{told}");
    }

    #[test]
    fn the_policy_of_malformed_values_is_said_or_not() {
        let policy = |text: &str| read(text).expect("reads").on_malformed;
        assert_eq!(policy("format: json"), None);
        assert_eq!(policy("on_malformed: null"), Some(MalformedPolicy::Null));
        assert_eq!(policy("on_malformed: dead_letter"), Some(MalformedPolicy::DeadLetter));
    }

    #[test]
    fn a_misspelt_key_is_answered_with_the_nearest() {
        let told = read("starting_offset: earliest").expect_err("refused");
        assert!(told.contains("did you mean 'starting_offsets'?"), "{told}");
    }
}
