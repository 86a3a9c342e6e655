//! The sources of a pipeline file.

use super::events::{MemorySource, WatermarkSpec};
use super::feeds::{HttpSource, SocketSource, StdinSource};
use super::kafka::KafkaSource;
use super::node::Span;
use super::values::{ByteSize, Duration, FormatOptions, Spanned};
use pelton_core::MalformedPolicy;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A source: the key `connector` says which, the others are its options.
#[derive(Debug, Clone, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "connector")]
pub enum SourceSpec {
    /// Files as they appear in a directory.
    File(Box<FileSource>),
    /// Records of Kafka topics.
    Kafka(Box<KafkaSource>),
    /// Numbered rows at a steady rate, for trying things out.
    Rate(RateSource),
    /// Rows that a test script gives.
    Memory(MemorySource),
    /// Rows that others send by POST.
    Http(Box<HttpSource>),
    /// Lines from a server, for trying things out.
    Socket(Box<SocketSource>),
    /// Lines on the process's input.
    Stdin(Box<StdinSource>),
}

impl SourceSpec {
    /// The event time that it declares.
    pub fn watermark(&self) -> Option<&Spanned<WatermarkSpec>> {
        match self {
            Self::File(source) => source.watermark.as_ref(),
            Self::Kafka(source) => source.watermark.as_ref(),
            Self::Rate(source) => source.watermark.as_ref(),
            Self::Memory(source) => source.watermark.as_ref(),
            Self::Http(source) => source.watermark.as_ref(),
            Self::Socket(source) => source.watermark.as_ref(),
            Self::Stdin(source) => source.watermark.as_ref(),
        }
    }

    /// The word in the file.
    pub fn connector(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Kafka(_) => "kafka",
            Self::Rate(_) => "rate",
            Self::Memory(_) => "memory",
            Self::Http(_) => "http",
            Self::Socket(_) => "socket",
            Self::Stdin(_) => "stdin",
        }
    }
}

/// Files as they appear in a directory.
#[derive(Debug, Clone, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSource {
    /// A file, a directory or a glob such as `data/*.jsonl`: a path or an `object_store` URL. Directories named
    /// `key=value` become columns. `.gz` and `.zst` files are unpacked.
    pub path: Spanned<String>,
    /// How the files are written.
    pub format: Format,
    /// The format's own options, by Spark's names in snake case: `{header: true, null_value: NA}`.
    #[serde(default)]
    pub options: FormatOptions,
    /// The columns: a map of `name: type` in order, or Spark's DDL text. Types are Spark's: `string`, `double`, `long`,
    /// `timestamp`, `array<string>`, `struct<a: long>` ….
    #[serde(default)]
    pub schema: Option<SchemaSpec>,
    /// Reads the schema from the files that are there at the start, as Spark does with
    /// `spark.sql.streaming.schemaInference`.
    #[serde(default)]
    pub infer_schema: bool,
    /// How many new files one micro-batch takes at most. Unless said: all.
    #[serde(default)]
    pub max_files_per_trigger: Option<Spanned<u64>>,
    /// How many bytes of new files one micro-batch takes at most (`64MiB`); at least one file is taken. Not together
    /// with `max_files_per_trigger`.
    #[serde(default)]
    pub max_bytes_per_trigger: Option<ByteSize>,
    /// Files older than the newest file seen by more than this are not read; it bounds what the checkpoint remembers.
    /// Unless said: 7 days.
    #[serde(default)]
    pub max_file_age: Option<Duration>,
    /// Reads all directories below the path, and makes no columns of `key=value` ones.
    #[serde(default)]
    pub recursive_file_lookup: bool,
    /// Takes the newest files first.
    #[serde(default)]
    pub latest_first: bool,
    /// Two files with the same name in different directories are the same file.
    #[serde(default)]
    pub file_name_only: bool,
    /// What becomes of a record that does not decode: `fail`, `drop`, `null` or `dead_letter`.
    #[serde(default, deserialize_with = "policy")]
    #[schemars(with = "MalformedPolicySchema")]
    pub on_malformed: MalformedPolicy,
    /// The event time of its rows.
    #[serde(default)]
    pub watermark: Option<Spanned<WatermarkSpec>>,
}

/// The same for a key that has no default.
pub(super) fn some_policy<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<MalformedPolicy>, D::Error> {
    policy(deserializer).map(Some)
}

/// `null` without quotes is YAML's null, and means the policy of that name here.
pub(super) fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MalformedPolicy, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(MalformedPolicy::Null))
}

/// Numbered rows at a steady rate: columns `timestamp` and `value`.
#[derive(Debug, Clone, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateSource {
    /// How many rows a second. Unless said: 1.
    #[serde(default = "one")]
    pub rows_per_second: Spanned<u64>,
    /// How long it takes to come up to that rate.
    #[serde(default)]
    pub ramp_up_time: Option<Duration>,
    /// In how many parts each micro-batch is produced.
    #[serde(default)]
    pub num_partitions: Option<Spanned<u64>>,
    /// The event time of its rows.
    #[serde(default)]
    pub watermark: Option<Spanned<WatermarkSpec>>,
}

fn one() -> Spanned<u64> {
    Spanned::unplaced(1)
}

/// How files and messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// JSON objects: in a file one a line, of messages one each.
    Json,
    /// Comma-separated values.
    Csv,
    /// Apache Parquet. There are no messages of it.
    Parquet,
    /// One string column `value`: a line, or a message.
    Text,
    /// Apache Avro: files with their schema in them; messages with `avro_schema` or a `schema_registry`.
    Avro,
    /// Arrow IPC: files and streams; a message is a stream.
    Arrow,
    /// Protobuf messages, by a descriptor set. There are no files of them.
    Protobuf,
    /// One binary column `value` as it is: a message, or a whole file that is read.
    Raw,
}

impl Format {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Text => "text",
            Self::Avro => "avro",
            Self::Arrow => "arrow",
            Self::Protobuf => "protobuf",
            Self::Raw => "raw",
        }
    }
}

/// What becomes of a record that does not decode.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", rename = "MalformedPolicy")]
#[allow(dead_code, reason = "only its JSON Schema is used: core's type knows no schemars")]
pub(super) enum MalformedPolicySchema {
    /// The query fails, naming the record (the default). Spark's `FAILFAST`.
    Fail,
    /// The record is counted and left out. Spark's `DROPMALFORMED`.
    Drop,
    /// The fields that could not be read are null; the text goes to `_corrupt_record` if the schema has it.
    Null,
    /// The record goes to the dead letters with its position and the reason.
    DeadLetter,
}

/// The columns of a source.
#[derive(Debug, Clone, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum SchemaSpec {
    /// Spark's DDL: `carrier string, dep_delay double NOT NULL`.
    Ddl(Spanned<String>),
    /// `name: type`, in order.
    Columns(Columns),
}

/// Pairs of name and text, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(pub Vec<Column>);

/// A name and the text that belongs to it: a type or an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The column's name.
    pub name: Spanned<String>,
    /// Its type or its expression.
    pub text: Spanned<String>,
}

impl Column {
    /// Where the pair begins.
    pub fn span(&self) -> Span {
        self.name.span
    }
}

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Columns;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
                let mut columns = Vec::new();
                while let Some((name, text)) = map.next_entry()? {
                    columns.push(Column { name, text });
                }
                Ok(Columns(columns))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl JsonSchema for Columns {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "columns".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": {"type": "string"}})
    }
}
