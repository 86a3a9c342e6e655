//! The sinks of a pipeline file.

use super::values::{FormatOptions, Spanned};
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
    /// Keeps the rows in memory, for tests.
    Memory(MemorySink),
}

impl SinkSpec {
    /// The word in the file.
    pub fn connector(&self) -> &'static str {
        match self {
            Self::Console(_) => "console",
            Self::File(_) => "file",
            Self::Memory(_) => "memory",
        }
    }
}

/// Prints the rows of each micro-batch to stdout.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsoleSink {
    /// A table as Spark's, or JSON lines.
    #[serde(default)]
    pub format: ConsoleFormat,
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
    pub format: FileFormat,
    /// The format's own options, by Spark's names in snake case: `{header: true, compression: gzip}`.
    #[serde(default)]
    pub options: FormatOptions,
    /// Columns that become directories named `column=value`.
    #[serde(default)]
    pub partition_by: Vec<Spanned<String>>,
    /// How many rows a file has at most. Unless said: no limit.
    #[serde(default)]
    pub max_records_per_file: Option<Spanned<u64>>,
}

/// How the file sink writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileFormat {
    /// One JSON object a line.
    Json,
    /// Comma-separated values.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// One string column, a line each.
    Text,
}

impl FileFormat {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Text => "text",
        }
    }
}

/// Keeps the rows in memory, for tests.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySink {}
