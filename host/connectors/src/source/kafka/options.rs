//! What the pipeline file says of a Kafka source. Names are Spark's in snake case.

use super::columns::Metadata;
use super::offsets::{PartitionOffsets, from_json};
use crate::decode::options::OptionMap;
use crate::decode::{Zone, parse_timestamp};
use crate::kafka::{ClientOptions, Role};
use crate::source::file::{FileFormat, FormatOptions};
use arrow::datatypes::SchemaRef;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Interval, MalformedPolicy, Result};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// In an offset of `starting_offsets`: where the partition begins.
pub(super) const EARLIEST: i64 = -2;
/// In an offset of `starting_offsets`: where the partition ends.
pub(super) const LATEST: i64 = -1;

/// A Kafka source as the pipeline file has it.
#[derive(Clone)]
pub struct KafkaSourceOptions {
    /// The cluster.
    pub client: ClientOptions,
    /// Which partitions are read.
    pub subscription: Subscription,
    /// Where a new query begins.
    pub starting: Boundary,
    /// A partition without a record at or after the starting time begins at its end. Otherwise the query fails.
    /// Spark's `startingOffsetsByTimestampStrategy`.
    pub no_record_is_latest: bool,
    /// Where the source ends, if it does.
    pub ending: Option<Boundary>,
    /// Records that are gone before they were read end the query. Otherwise it goes on without them.
    pub fail_on_data_loss: bool,
    /// Offsets that a micro-batch takes, at most.
    pub max_offsets_per_trigger: Option<u64>,
    /// Offsets that a micro-batch waits for.
    pub min_offsets_per_trigger: Option<u64>,
    /// How long it waits for them.
    pub max_trigger_delay: Interval,
    /// Parts in which a micro-batch is decoded, at least.
    pub min_partitions: Option<u64>,
    /// Without a format: there is a column `headers`.
    pub include_headers: bool,
    /// The consumer group that shows how far the query is.
    pub group_id: String,
    /// How values are written, with the format's own options. Without it they are bytes.
    pub format: Option<(FileFormat, OptionMap)>,
    /// The columns of the values.
    pub schema: Option<SchemaRef>,
    /// Kafka's columns that come beside those of the values.
    pub metadata_columns: Vec<String>,
    /// What becomes of a value that does not decode.
    pub on_malformed: MalformedPolicy,
    /// The session's time zone.
    pub time_zone: String,
}

/// Which partitions are read.
#[derive(Debug, Clone)]
pub enum Subscription {
    /// All partitions of these topics.
    Topics(BTreeSet<String>),
    /// All partitions of topics whose whole name fits.
    Pattern(Regex),
    /// These partitions.
    Assign(BTreeMap<String, BTreeSet<i32>>),
}

impl Subscription {
    /// Spark's `subscribePattern`. The error is of kind `Invalid`.
    pub fn pattern(text: &str) -> Result<Self> {
        // As Java's `matches`, the pattern is one for the whole name.
        let pattern = Regex::new(&format!("^(?:{text})$"));
        pattern.map(Self::Pattern).map_err(|why| {
            let why = why.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Error::invalid(format!("subscribe_pattern: '{text}' is not a regular expression: {why}"))
        })
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Topics(topics) => topics.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
            Self::Pattern(pattern) => {
                let text = pattern.as_str();
                text.strip_prefix("^(?:").and_then(|text| text.strip_suffix(")$")).unwrap_or(text).to_owned()
            }
            Self::Assign(assigned) => {
                let numbers =
                    |of: &BTreeSet<i32>| of.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
                let topics = assigned.iter().map(|(topic, of)| format!("{topic}[{}]", numbers(of)));
                topics.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// A place in all partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boundary {
    /// Where they begin.
    Earliest,
    /// Where they end.
    Latest,
    /// At these offsets; -2 is where a partition begins, -1 where it ends.
    Offsets(PartitionOffsets),
    /// At the first record of this time or a later one, in milliseconds.
    Timestamp(i64),
    /// The same, a time a partition.
    Timestamps(PartitionOffsets),
}

impl Boundary {
    /// `earliest`, `latest` or JSON, for `key`. The error is of kind `Invalid`.
    pub fn parse(key: &str, value: &Value) -> Result<Self> {
        match value {
            Value::String(word) if word.eq_ignore_ascii_case("earliest") => Ok(Self::Earliest),
            Value::String(word) if word.eq_ignore_ascii_case("latest") => Ok(Self::Latest),
            Value::String(text) if text.trim_start().starts_with('{') => {
                let json = serde_json::from_str(text)
                    .map_err(|why| Error::invalid(format!("{key} is not JSON: {why}")))?;
                Self::offsets(key, &json).map(Self::Offsets)
            }
            Value::String(word) => Err(Error::invalid(format!(
                "{key}: '{word}' is neither earliest nor latest nor offsets{}",
                did_you_mean(word, ["earliest", "latest"])
            ))),
            other => Self::offsets(key, other).map(Self::Offsets),
        }
    }

    /// A time for all partitions: milliseconds, or a timestamp in the session's time zone. The error is of kind `Invalid`.
    pub fn timestamp(key: &str, value: &Value, time_zone: &str) -> Result<Self> {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let ms = match text.trim().parse::<i64>() {
            Ok(ms) => Some(ms),
            Err(_) => parse_timestamp(text.trim().as_bytes(), Zone::of_session(time_zone)?)
                .map(|us| us.div_euclid(1_000)),
        };
        ms.filter(|ms| *ms >= 0).map(Self::Timestamp).ok_or_else(|| {
            Error::invalid(format!("{key}: '{text}' is no time that a record can have"))
                .hint("write milliseconds since 1970, or a timestamp such as 2013-01-31T10:00:00Z")
        })
    }

    /// Numbers by topic and partition.
    pub fn offsets(key: &str, value: &Value) -> Result<PartitionOffsets> {
        let read = from_json(value)
            .filter(|offsets| !offsets.is_empty() && offsets.values().all(|n| *n >= EARLIEST));
        read.ok_or_else(|| {
            Error::invalid(format!("{key}: {value} does not name offsets"))
                .hint(format!("{key}: {{orders: {{\"0\": 23, \"1\": -2}}}}; -2 is the beginning, -1 the end"))
        })
    }

    /// Whether every offset is one that can be read from. An end is none.
    fn names(&self, special: i64) -> bool {
        matches!(self, Self::Offsets(offsets) if offsets.values().any(|offset| *offset == special))
    }
}

impl KafkaSourceOptions {
    /// A source of one topic with Spark's defaults.
    pub fn new(bootstrap_servers: &str, topic: &str) -> Self {
        Self {
            client: ClientOptions {
                bootstrap_servers: Some(bootstrap_servers.into()),
                ..ClientOptions::default()
            },
            subscription: Subscription::Topics(BTreeSet::from([topic.to_owned()])),
            starting: Boundary::Latest,
            no_record_is_latest: false,
            ending: None,
            fail_on_data_loss: true,
            max_offsets_per_trigger: None,
            min_offsets_per_trigger: None,
            max_trigger_delay: Interval::from_millis(15 * 60 * 1000),
            min_partitions: None,
            include_headers: false,
            group_id: format!("pelton-{topic}"),
            format: None,
            schema: None,
            metadata_columns: Vec::new(),
            on_malformed: MalformedPolicy::default(),
            time_zone: "UTC".into(),
        }
    }

    /// What can be said to be wrong without the cluster. The error is of kind `Invalid`.
    pub(super) fn check(&self) -> Result<()> {
        self.client.check(Role::Source)?;
        for (name, limit) in [
            ("max_offsets_per_trigger", self.max_offsets_per_trigger),
            ("min_offsets_per_trigger", self.min_offsets_per_trigger),
            ("min_partitions", self.min_partitions),
        ] {
            if limit == Some(0) {
                return Err(Error::invalid(format!("{name} must be at least 1")));
            }
        }
        if let (Some(max), Some(min)) = (self.max_offsets_per_trigger, self.min_offsets_per_trigger)
            && max < min
        {
            return Err(Error::invalid(format!(
                "max_offsets_per_trigger ({max}) must not be less than min_offsets_per_trigger ({min})"
            )));
        }
        match &self.ending {
            Some(Boundary::Earliest) => {
                return Err(Error::invalid("a source cannot end at the earliest offsets"));
            }
            Some(ending) if ending.names(EARLIEST) => {
                return Err(Error::invalid("ending_offsets: a partition cannot end at -2, where it begins"));
            }
            _ => {}
        }
        self.check_format()
    }

    /// With the columns that the format or a schema registry knows, if none are declared. The registry is asked for the
    /// newest schema of the one topic that is read.
    pub async fn with_found_schema(mut self) -> Result<Self> {
        if let (Some((format, map)), None) = (&self.format, &self.schema) {
            let topic = match &self.subscription {
                Subscription::Topics(topics) if topics.len() == 1 => topics.first().map(String::as_str),
                Subscription::Assign(assigned) if assigned.len() == 1 => {
                    assigned.keys().next().map(String::as_str)
                }
                _ => None,
            };
            let format = FormatOptions::read(*format, map)?;
            self.schema = match topic {
                Some(topic) => format.record_schema(&self.time_zone, topic).await?,
                None => format.own_schema(&self.time_zone)?,
            };
        }
        Ok(self)
    }

    /// The columns of values that the format alone knows.
    pub(super) fn own_schema(&self) -> Result<Option<SchemaRef>> {
        let Some((format, map)) = &self.format else { return Ok(None) };
        FormatOptions::read(*format, map)?.own_schema(&self.time_zone)
    }

    fn check_format(&self) -> Result<()> {
        if let Some(unknown) = self.metadata_columns.iter().find(|name| Metadata::parse(name).is_none()) {
            return Err(Error::invalid(format!(
                "metadata_columns: Kafka has no column '{unknown}'{}",
                did_you_mean(unknown, Metadata::NAMES)
            )));
        }
        match (&self.format, &self.schema) {
            (None, Some(_)) => {
                return Err(Error::invalid(
                    "schema says the columns of values, and without `format` a value is bytes",
                )
                .hint("add a line 'format: json', or leave `schema` out"));
            }
            (None, None) if !self.metadata_columns.is_empty() => {
                return Err(Error::invalid(
                    "without `format` a Kafka source has all of Kafka's columns anyway",
                )
                .hint("leave `metadata_columns` out; `include_headers: true` adds the headers"));
            }
            (Some((FileFormat::Parquet, _)), _) => {
                return Err(Error::invalid("format parquet is one of files, not of messages"));
            }
            (Some((format, _)), None) if self.own_schema()?.is_none() => {
                return Err(Error::invalid(format!(
                    "a Kafka source with format {} needs a schema",
                    format.as_str()
                ))
                .hint("schema: {user: string, amount: double}"));
            }
            _ => {}
        }
        let twice =
            |name: &&String| self.schema.as_ref().is_some_and(|schema| schema.fields().find(name).is_some());
        match self.metadata_columns.iter().find(twice) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!("the value has a column '{name}', and so has Kafka"))
                .hint("leave one out: of `schema`, or of `metadata_columns`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::offsets::TopicPartition;
    use super::*;
    use serde_json::json;

    #[test]
    fn boundaries_are_words_or_offsets() {
        let parse = |value: Value| Boundary::parse("starting_offsets", &value);
        assert_eq!(parse(json!("earliest")).unwrap(), Boundary::Earliest);
        assert_eq!(parse(json!("Latest")).unwrap(), Boundary::Latest);
        let offsets =
            PartitionOffsets::from([(TopicPartition::new("a", 0), 23), (TopicPartition::new("a", 1), -2)]);
        assert_eq!(parse(json!({"a": {"0": 23, "1": -2}})).unwrap(), Boundary::Offsets(offsets.clone()));
        assert_eq!(parse(json!("{\"a\": {\"0\": 23, \"1\": -2}}")).unwrap(), Boundary::Offsets(offsets));
        let told = |value: Value| parse(value).unwrap_err().to_string();
        assert!(told(json!("earlist")).contains("did you mean 'earliest'?"));
        assert!(told(json!({"a": {"0": -3}})).contains("hint: starting_offsets: {orders: {\"0\": 23"));
        assert!(told(json!("{a")).contains("is not JSON"));
        let time = |value: Value| Boundary::timestamp("starting_timestamp", &value, "Europe/Paris");
        assert_eq!(time(json!(1000)).unwrap(), Boundary::Timestamp(1000));
        assert_eq!(time(json!("1970-01-01T01:00:02")).unwrap(), Boundary::Timestamp(2000));
        assert_eq!(time(json!("1970-01-01T00:00:03Z")).unwrap(), Boundary::Timestamp(3000));
        assert!(time(json!("yesterday")).unwrap_err().to_string().contains("write milliseconds"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let told = |change: &dyn Fn(&mut KafkaSourceOptions)| {
            let mut options = KafkaSourceOptions::new("localhost:9092", "t");
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert!(told(&|o| o.max_offsets_per_trigger = Some(0)).contains("must be at least 1"));
        let both = told(&|o| (o.max_offsets_per_trigger, o.min_offsets_per_trigger) = (Some(1), Some(2)));
        assert!(both.contains("must not be less than"), "{both}");
        assert!(told(&|o| o.ending = Some(Boundary::Earliest)).contains("cannot end"));
        assert!(told(&|o| o.format = Some((FileFormat::Json, OptionMap::new()))).contains("needs a schema"));
        assert!(told(&|o| o.format = Some((FileFormat::Parquet, OptionMap::new()))).contains("one of files"));
        assert!(told(&|o| o.metadata_columns = vec!["ofset".into()]).contains("did you mean 'offset'?"));
        assert!(told(&|o| o.metadata_columns = vec!["offset".into()]).contains("anyway"));
        assert!(Subscription::pattern("a(").unwrap_err().message().contains("is not a regular expression"));
    }

    #[test]
    fn a_pattern_fits_the_whole_name() {
        let Ok(Subscription::Pattern(pattern)) = Subscription::pattern("a|b.*") else { panic!("a pattern") };
        assert_eq!(["a", "ab", "bc", "cb"].map(|name| pattern.is_match(name)), [true, false, true, false]);
        assert_eq!(Subscription::Pattern(pattern).describe(), "a|b.*");
    }
}
