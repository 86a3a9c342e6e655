//! The sinks of a pipeline file.

use super::kafka::KafkaSink;
use super::sources::Format;
use super::values::{ByteSize, Duration, FormatOptions, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

/// A sink: the key `connector` says which, the others are its options.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "connector")]
pub enum SinkSpec {
    /// Prints the rows of each micro-batch to stdout.
    Console(ConsoleSink),
    /// Writes files, exactly once.
    File(FileSink),
    /// Writes messages into Kafka topics, exactly once or at least once.
    Kafka(Box<KafkaSink>),
    /// Keeps the rows in memory, for tests.
    Memory(MemorySink),
    /// Hands the rows to a plugin's sink function. Spark's `foreachBatch`.
    Plugin(PluginSink),
    /// Writes into a table of PostgreSQL, exactly once, in every output mode.
    Postgres(PostgresSink),
}

impl SinkSpec {
    /// The word in the file.
    pub fn connector(&self) -> &'static str {
        match self {
            Self::Console(_) => "console",
            Self::File(_) => "file",
            Self::Kafka(_) => "kafka",
            Self::Memory(_) => "memory",
            Self::Plugin(_) => "plugin",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Whether what it was given lasts: then the query must remember what that was.
    pub fn is_lasting(&self) -> bool {
        !matches!(self, Self::Console(_) | Self::Memory(_))
    }
}

/// Prints the rows of each micro-batch to stdout.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsoleSink {
    /// A table as Spark's, or lines of JSON, CSV or text.
    #[serde(default)]
    pub format: ConsoleFormat,
    /// The options of `json`, `csv` and `text`, as for files: `{header: true}`.
    #[serde(default)]
    pub options: FormatOptions,
    /// How many rows of a micro-batch the table shows at most. Unless said: 20.
    #[serde(default = "twenty")]
    pub num_rows: u64,
    /// Cuts long values in the table: `true` to 20 characters, a number to as many, `false` not at all.
    #[serde(default)]
    pub truncate: Truncate,
}

fn twenty() -> u64 {
    20
}

/// What the console sink prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConsoleFormat {
    /// A table as Spark's (the default).
    #[default]
    Table,
    /// All rows, one JSON object a line.
    Json,
    /// All rows as comma-separated values; a header stands at the top of the first micro-batch of a run.
    Csv,
    /// One string column, a line each.
    Text,
}

/// How long values are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum Truncate {
    /// To 20 characters, or not at all.
    Flag(bool),
    /// To this many characters.
    Width(u64),
}

impl Default for Truncate {
    fn default() -> Self {
        Self::Flag(true)
    }
}

impl Truncate {
    /// The number of characters that are left, if values are cut.
    pub fn width(self) -> Option<u64> {
        match self {
            Self::Flag(true) => Some(20),
            Self::Flag(false) | Self::Width(0) => None,
            Self::Width(width) => Some(width),
        }
    }
}

/// Writes files, exactly once: what is visible through the directory's commit log is what was committed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSink {
    /// The directory: a path or an `object_store` URL.
    pub path: Spanned<String>,
    /// How the files are written.
    pub format: Format,
    /// The format's own options, by Spark's names in snake case: `{header: true, compression: gzip}`.
    #[serde(default)]
    pub options: FormatOptions,
    /// Columns that become directories named `column=value`.
    #[serde(default)]
    pub partition_by: Vec<Spanned<String>>,
    /// How many rows a file has at most. Unless said: no limit.
    #[serde(default)]
    pub max_records_per_file: Option<Spanned<u64>>,
    /// Rows of several micro-batches go into one file, which appears when it is large enough or its oldest rows have waited long
    /// enough. Unless said: each micro-batch writes its own files. Not together with `max_records_per_file`.
    #[serde(default)]
    pub rollover: Option<Spanned<Rollover>>,
}

/// When a file of several micro-batches appears: whichever comes first, for each partition by itself. Until then its rows are
/// committed and safe, but not to be seen; at the end of a run that ends by itself nothing is held back.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollover {
    /// It has so many bytes. Unless said: 128MiB.
    #[serde(default)]
    pub size: Option<ByteSize>,
    /// Its first rows came so long ago, by the time of the micro-batches. Unless said: 5 minutes.
    #[serde(default)]
    pub interval: Option<Duration>,
}

/// Keeps the rows in memory, for tests.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySink {}

/// Hands the rows to a plugin's sink function, in parts of bounded size. After a failure the same micro-batch comes again:
/// to write its rows once is the function's own work, for which it has the micro-batch's number.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginSink {
    /// The sink function, as `plugin.function`.
    pub plugin: Spanned<String>,
}

/// Writes into a table of PostgreSQL, exactly once: append adds the rows, update replaces those of the same `key`, complete
/// replaces all. A micro-batch is one transaction, which also notes its number in the table `pelton_commits` of the same
/// schema.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostgresSink {
    /// The database: `postgresql://user@host:5432/database`, with `?sslmode=require` encrypted. Without a password in it, the
    /// environment variable `PGPASSWORD` counts.
    pub url: Spanned<String>,
    /// The table, as `table` or `schema.table`, to the letter. The schema is `public` unless said.
    pub table: Spanned<String>,
    /// In output mode `update`, and only there: the columns by which a row finds the one that it replaces. The table needs
    /// a unique constraint on them.
    #[serde(default)]
    pub key: Vec<Spanned<String>>,
    /// Makes the table if it is missing. Unless said: yes.
    #[serde(default = "yes")]
    pub create_table: bool,
}

fn yes() -> bool {
    true
}
