//! Event time and state in a pipeline file: watermarks, deduplication, static tables.

use super::node::Span;
use super::sources::{Format, SchemaSpec};
use super::values::{ByteSize, Duration, FormatOptions, Spanned, SpannedText};
use schemars::JsonSchema;
use serde::Deserialize;

/// Which column is the event time, and how late rows may come.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatermarkSpec {
    /// The event-time column, a timestamp.
    pub column: SpannedText,
    /// How far the watermark stays behind the latest event time, for example `10 minutes`. A month counts 31 days.
    pub delay: Duration,
    /// Keeps it by partition of the sources: it follows the slowest one, and one that has delivered nothing holds it back.
    /// Unless said it follows the latest event time of all, as in Spark.
    #[serde(default)]
    pub per_partition: bool,
    /// A partition that has had nothing to read for so long is idle and holds the watermark back no longer, until it has
    /// something to read again. Unless said none is ever idle. Flink's `withIdleness`.
    #[serde(default)]
    pub idle_timeout: Option<Spanned<Duration>>,
}

/// The working copy of the state: in memory, and on disk what does not fit. The truth is in the checkpoint.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateSpec {
    /// Memory for the state of this query, for example `2GiB`; at least `1MiB`, and of less than `64MiB` RocksDB takes the most.
    /// Unless said: a quarter of what the machine has, or of the limit of the container.
    pub memory: Option<Spanned<ByteSize>>,
    /// A directory for what does not fit; it is worth nothing after the run. Unless said: the system's for temporary files.
    pub directory: Option<String>,
}

impl StateSpec {
    /// Whatever is less was meant in another unit: a number alone counts bytes.
    const MEMORY_MIN: ByteSize = ByteSize(1 << 20);

    /// What is wrong with it, if something is, and where.
    pub(super) fn check(&self) -> Result<(), (String, Span)> {
        match &self.memory {
            Some(memory) if memory.value.0 < Self::MEMORY_MIN.0 => Err((
                format!(
                    "the state needs memory: 1MiB or more, not {} bytes; write it with a unit, for example memory: 2GiB (left \
                     out it is a quarter of the machine's)",
                    memory.value.0
                ),
                memory.span,
            )),
            _ => Ok(()),
        }
    }
}

/// Declares the event time of the rows. Spark's `withWatermark`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatermarkStep {
    /// The column and the delay.
    pub watermark: Spanned<WatermarkSpec>,
    /// The operator's stable name in the checkpoint, metrics and dead letters.
    pub name: Option<Spanned<String>>,
}

/// Keeps the first row of each key. Spark's `dropDuplicates`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DedupStep {
    /// The columns that make a duplicate: a list of names, `all`, or `{columns: …, within_watermark: true}`.
    pub dedup: Spanned<DedupSpec>,
    /// The operator's stable name in the checkpoint, metrics and dead letters.
    pub name: Option<Spanned<String>>,
}

/// What makes a duplicate.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum DedupSpec {
    /// `all`: all columns.
    All(SpannedText),
    /// These columns.
    Columns(Vec<SpannedText>),
    /// The columns and how long they are remembered.
    Full(DedupOptions),
}

/// Which rows are duplicates, and how long they are remembered.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DedupOptions {
    /// The columns. Unless said: all.
    #[serde(default)]
    pub columns: Option<Vec<SpannedText>>,
    /// Remembers a key from its first row's event time for as long as the watermark's delay, and no longer. Spark's
    /// `dropDuplicatesWithinWatermark`.
    #[serde(default)]
    pub within_watermark: bool,
}

impl DedupSpec {
    /// The columns (`None`: all) and whether they are forgotten when the watermark's delay is over.
    pub fn parts(&self) -> (Option<&[SpannedText]>, bool) {
        match self {
            Self::All(_) => (None, false),
            Self::Columns(columns) => (Some(columns), false),
            Self::Full(options) => (options.columns.as_deref(), options.within_watermark),
        }
    }
}

/// A static table, to join with: files, or rows in this file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    /// A file, a directory or a glob: a path or an `object_store` URL.
    #[serde(default)]
    pub path: Option<Spanned<String>>,
    /// How the files are written.
    #[serde(default)]
    pub format: Option<Format>,
    /// The format's own options, by Spark's names in snake case.
    #[serde(default)]
    pub options: FormatOptions,
    /// The columns: a map of `name: type` in order, or Spark's DDL text. Files need none: it is read from them.
    #[serde(default)]
    pub schema: Option<SchemaSpec>,
    /// The rows, if they stand here: a list of maps. Needs a `schema`.
    #[serde(default)]
    pub rows: Option<Vec<serde_json::Value>>,
    /// Looks for changed files before each micro-batch and reads them again. Unless said, the table is read once.
    #[serde(default)]
    pub reload: bool,
}

/// Rows that a test script gives (`pelton test`); `pelton run` has none of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySource {
    /// The columns: a map of `name: type` in order, or Spark's DDL text.
    pub schema: SchemaSpec,
    /// The event time of its rows.
    #[serde(default)]
    pub watermark: Option<Spanned<WatermarkSpec>>,
}

/// How several watermarks make the query's. Spark's `spark.sql.streaming.multipleWatermarkPolicy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WatermarkPolicySpec {
    /// The slowest counts: nothing is late as long as one source is behind (the default).
    #[default]
    Min,
    /// The fastest counts: rows of slower sources may be late.
    Max,
}

impl From<WatermarkPolicySpec> for pelton_core::WatermarkPolicy {
    fn from(policy: WatermarkPolicySpec) -> Self {
        match policy {
            WatermarkPolicySpec::Min => Self::Min,
            WatermarkPolicySpec::Max => Self::Max,
        }
    }
}

/// What becomes of rows that come behind the watermark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LatePolicy {
    /// They are counted and left out, as in Spark (the default).
    #[default]
    Drop,
    /// They go to the dead letters, with how late they were.
    DeadLetter,
}
