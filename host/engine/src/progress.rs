//! What a query tells about itself: one [`Progress`] a micro-batch, one [`RunSummary`] a run.
//!
//! Made by `micro_batch`, given to the listener that the binary sets. The fields are those of Spark's
//! `StreamingQueryProgress` in snake case, and a few more (and have a JSON Schema, for those who describe what they pass
//! on); durations are milliseconds with a fraction, because a
//! micro-batch takes only one or two.

use crate::swap::PluginProgress;
use chrono::{DateTime, SecondsFormat};
use pelton_core::{Backlog, BatchId, Offset, QueryId, RunId};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// What became of one micro-batch. Spark's `StreamingQueryProgress`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Progress {
    /// The query's identity.
    #[schemars(with = "String")]
    pub id: QueryId,
    /// This run of it.
    #[schemars(with = "String")]
    pub run_id: RunId,
    /// The pipeline file's `name`.
    pub name: String,
    /// The micro-batch's processing time, ISO 8601 in UTC.
    pub timestamp: String,
    /// The micro-batch's number.
    #[schemars(with = "u64")]
    pub batch_id: BatchId,
    /// It had been planned by a run that died.
    pub is_rerun: bool,
    /// No source had anything new: it ran because the watermark had moved.
    pub no_data: bool,
    /// How long it took, in milliseconds; the same as `duration_ms.trigger_execution`.
    pub batch_duration: f64,
    /// Rows decoded, over all sources.
    pub num_input_rows: u64,
    /// Rows decoded a second since the micro-batch before began (0 in a run's first).
    pub input_rows_per_second: f64,
    /// Rows decoded a second while this micro-batch ran.
    pub processed_rows_per_second: f64,
    /// Where the time went.
    pub duration_ms: DurationMs,
    /// Times seen in the data.
    pub event_time: EventTime,
    /// One a stateful operator.
    pub state_operators: Vec<StateOperatorProgress>,
    /// The plugins that the next micro-batch runs with, by their name in the pipeline file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, PluginProgress>,
    /// One a source, in the pipeline's order.
    pub sources: Vec<SourceProgress>,
    /// The sink.
    pub sink: SinkProgress,
    /// Rows that a function refused.
    pub num_refused_rows: u64,
    /// Rows that a function failed on and that went to the dead letters.
    pub num_poison_rows: u64,
    /// Rows behind the watermark.
    pub num_late_rows: u64,
    /// Rows written to the dead letters.
    pub num_dead_letters: u64,
}

/// Milliseconds by stage. `decode` and `segments` are sums over worker threads and so may exceed the rest.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct DurationMs {
    /// Asking the sources what is new (not in a rerun).
    pub latest_offset: f64,
    /// Writing `offsets/N` (not in a rerun).
    pub wal_commit: f64,
    /// Opening the sources' ranges and waiting for their blocks.
    pub get_batch: f64,
    /// Decoding, summed over workers.
    pub decode: f64,
    /// Steps and plugins, summed over workers.
    pub segments: f64,
    /// The stateful operators' work on rows and state, after all rows are there.
    pub stateful: f64,
    /// From the first row asked for to the sink's answer: everything above but the first two runs inside it.
    pub add_batch: f64,
    /// The sink's own share: encoding and writing summed over threads if the sink measures it, else what is left
    /// of `add_batch` without waiting for rows.
    pub sink: f64,
    /// Making the state's changes durable, giving up old ones.
    pub state_commit: f64,
    /// Writing `commits/N` and trimming the logs.
    pub commit_offsets: f64,
    /// Telling the sources what is committed.
    pub acknowledge: f64,
    /// The whole micro-batch.
    pub trigger_execution: f64,
}

impl DurationMs {
    /// The stages by name, but for the whole, in the order in which a micro-batch comes to them.
    pub fn stages(&self) -> [(&'static str, f64); 11] {
        [
            ("latest_offset", self.latest_offset),
            ("wal_commit", self.wal_commit),
            ("get_batch", self.get_batch),
            ("decode", self.decode),
            ("segments", self.segments),
            ("stateful", self.stateful),
            ("add_batch", self.add_batch),
            ("sink", self.sink),
            ("state_commit", self.state_commit),
            ("commit_offsets", self.commit_offsets),
            ("acknowledge", self.acknowledge),
        ]
    }
}

/// Times seen in the data, ISO 8601 in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct EventTime {
    /// The latest event time in the micro-batch, over all watermarks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// The watermark that the micro-batch ran with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<String>,
    /// The query's watermarks after it, in the order of the plan: which of them holds the others back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watermarks: Vec<WatermarkProgress>,
}

/// How far one of the query's watermarks is; times ISO 8601 in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct WatermarkProgress {
    /// Its stable name.
    pub name: String,
    /// The latest event time in the micro-batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// Where it is now.
    pub watermark: String,
    /// The query's watermark waits for it: no other is further behind (with policy `max`: further ahead).
    pub holds: bool,
    /// How far its partitions are, if it is kept by partition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionProgress>,
}

/// How far a partition of a watermark is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct PartitionProgress {
    /// `source/partition`; the source's name if it is not divided.
    pub name: String,
    /// Its latest event time so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// It had nothing to read beyond the micro-batch.
    pub caught_up: bool,
    /// It has had nothing to read for so long that it is left out.
    pub idle: bool,
    /// The watermark waits for it.
    pub holds: bool,
}

/// What a stateful operator did. Spark's `StateOperatorProgress`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct StateOperatorProgress {
    /// Its stable name.
    pub operator_name: String,
    /// What it is: `aggregate`, `dedup`, `join` ….
    pub kind: &'static str,
    /// Entries after the micro-batch.
    pub num_rows_total: u64,
    /// Entries it changed.
    pub num_rows_updated: u64,
    /// Entries it removed.
    pub num_rows_removed: u64,
    /// Rows it gave up as late: rows of its input, before anything is combined (Spark counts after).
    pub num_rows_dropped_by_watermark: u64,
    /// The bytes of all keys and values, in memory or on local disk.
    pub state_bytes: u64,
    /// The bytes of memory that they take.
    pub memory_used_bytes: u64,
}

/// What a source gave. Spark's `SourceProgress`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SourceProgress {
    /// Its name in the pipeline file.
    pub name: String,
    /// What it says of itself.
    pub description: String,
    /// Where the micro-batch before ended.
    #[schemars(with = "Option<serde_json::Value>")]
    pub start_offset: Option<Offset>,
    /// Where this one ends.
    #[schemars(with = "Option<serde_json::Value>")]
    pub end_offset: Option<Offset>,
    /// Rows decoded.
    pub num_input_rows: u64,
    /// Rows decoded a second since the micro-batch before began (0 in a run's first).
    pub input_rows_per_second: f64,
    /// Rows decoded a second while this micro-batch ran.
    pub processed_rows_per_second: f64,
    /// Bytes read.
    pub num_input_bytes: u64,
    /// Records that did not decode and were dropped or sent to the dead letters.
    pub num_malformed_rows: u64,
    /// What still waits in it and what it has lost, as far as it knows. Spark's source `metrics`.
    #[serde(skip_serializing_if = "SourceMetrics::is_empty")]
    pub metrics: SourceMetrics,
}

/// How far behind a source the query is after the micro-batch, and what it has lost; by the names
/// of Spark's metrics where it has them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct SourceMetrics {
    /// Records that were there and are not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_records_outstanding: Option<u64>,
    /// Bytes that were there and are not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_bytes_outstanding: Option<u64>,
    /// Files that were there and are not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_files_outstanding: Option<u64>,
    /// When the oldest of them came, ISO 8601 in UTC: a file's time of modification, a record's timestamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_outstanding: Option<String>,
    /// Offsets that were found to be gone before they could be read, since the micro-batch before; a source that may lose
    /// some counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_lost_offsets: Option<u64>,
}

impl SourceMetrics {
    /// The source counts nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All that was there is read, as far as the source counts.
    pub fn is_caught_up(&self) -> bool {
        let counts = [self.num_records_outstanding, self.num_bytes_outstanding, self.num_files_outstanding];
        self.oldest_outstanding.is_none() && !self.is_empty() && counts.into_iter().flatten().all(|n| n == 0)
    }

    /// What a source says after a micro-batch.
    pub(crate) fn of(backlog: Option<Backlog>, lost: Option<u64>) -> Self {
        let backlog = backlog.unwrap_or_default();
        Self {
            num_records_outstanding: backlog.records,
            num_bytes_outstanding: backlog.bytes,
            num_files_outstanding: backlog.files,
            oldest_outstanding: backlog.oldest_ms.map(iso8601),
            num_lost_offsets: lost,
        }
    }
}

/// What the sink took. Spark's `SinkProgress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SinkProgress {
    /// What it says of itself.
    pub description: String,
    /// Rows it took.
    pub num_output_rows: u64,
    /// Bytes it wrote, if it writes bytes.
    pub num_output_bytes: u64,
    /// Files it made visible, if it writes files.
    pub num_output_files: u64,
    /// It had the micro-batch already and took nothing.
    pub already_committed: bool,
}

/// What a running query is doing. Spark's `StreamingQueryStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// For data, for the watermark or for its trigger.
    Waiting,
    /// A micro-batch is planned and runs.
    Running {
        /// Which one.
        batch_id: BatchId,
        /// It had been planned by a run that died.
        is_rerun: bool,
    },
}

/// Why a run ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// The trigger has nothing more to fire for.
    #[default]
    Finished,
    /// It was asked to stop and the running micro-batch is committed.
    Stopped,
    /// It was told to end at once; the running micro-batch runs again at the next start.
    Aborted,
    /// A micro-batch failed with a plugin that had been swapped, and is to run again with the version before: the query
    /// goes on when it is put together anew.
    RolledBack,
}

/// A whole run, summed up.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RunSummary {
    /// Why it ended.
    pub end: RunEnd,
    /// Micro-batches committed.
    pub batches: u64,
    /// Rows decoded.
    pub rows_in: u64,
    /// Rows that the sink took.
    pub rows_out: u64,
    /// Records that did not decode and were dropped or sent to the dead letters.
    pub rows_malformed: u64,
    /// Rows that a function refused.
    pub rows_refused: u64,
    /// Rows that a function failed on and that went to the dead letters.
    pub rows_poison: u64,
    /// Rows behind the watermark.
    pub rows_late: u64,
    /// Rows written to the dead letters.
    pub dead_letters: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes that the sink wrote.
    pub bytes_out: u64,
    /// Files that the sink made visible.
    pub files_out: u64,
    /// From the start of the run to its end.
    pub seconds: f64,
    /// Where the time went.
    pub stages: StageSeconds,
}

/// Busy seconds by stage. `decode`, `process` and `sink` are sums over threads: with n threads they may add up to
/// n times the run's time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct StageSeconds {
    /// Asking the sources, waiting for their blocks, acknowledging them.
    pub read: f64,
    /// Decoding blocks.
    pub decode: f64,
    /// Steps, plugins and stateful operators.
    pub process: f64,
    /// Encoding and writing.
    pub sink: f64,
    /// Offset log, state, commit log, trimming.
    pub log: f64,
}

impl RunSummary {
    /// Adds a micro-batch.
    pub(crate) fn add(&mut self, progress: &Progress) {
        let inputs = &progress.sources;
        self.batches += 1;
        self.rows_in += progress.num_input_rows;
        self.rows_out += progress.sink.num_output_rows;
        self.rows_malformed += inputs.iter().map(|source| source.num_malformed_rows).sum::<u64>();
        self.rows_refused += progress.num_refused_rows;
        self.rows_poison += progress.num_poison_rows;
        self.rows_late += progress.num_late_rows;
        self.dead_letters += progress.num_dead_letters;
        self.bytes_in += inputs.iter().map(|source| source.num_input_bytes).sum::<u64>();
        self.bytes_out += progress.sink.num_output_bytes;
        self.files_out += progress.sink.num_output_files;
        let spent = &progress.duration_ms;
        self.stages.read += (spent.latest_offset + spent.get_batch + spent.acknowledge) / 1e3;
        self.stages.decode += spent.decode / 1e3;
        self.stages.process += (spent.segments + spent.stateful) / 1e3;
        self.stages.sink += spent.sink / 1e3;
        self.stages.log += (spent.wal_commit + spent.state_commit + spent.commit_offsets) / 1e3;
    }
}

/// Milliseconds to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// `2026-11-30T06:19:49.456Z`; a time outside the calendar shows as its number.
pub fn iso8601(time_ms: i64) -> String {
    DateTime::from_timestamp_millis(time_ms)
        .map_or_else(|| time_ms.to_string(), |time| time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// Rows a second; 0 where no time has passed.
pub(crate) fn rate(rows: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { (rows as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_its_name() {
        let spent = serde_json::to_value(DurationMs::default()).unwrap();
        let mut fields: Vec<String> = spent.as_object().unwrap().keys().cloned().collect();
        fields.retain(|field| field != "trigger_execution");
        let stages: Vec<&str> = DurationMs::default().stages().iter().map(|(name, _)| *name).collect();
        assert_eq!(stages, fields);
    }

    #[test]
    fn times_and_rates_read_as_sparks_do() {
        assert_eq!(iso8601(1_796_019_589_456), "2026-11-30T06:19:49.456Z");
        assert_eq!(iso8601(i64::MAX), i64::MAX.to_string());
        assert_eq!(rate(10, 4.0), 2.5);
        assert_eq!(rate(10, 0.0), 0.0);
        assert_eq!(millis(Duration::from_nanos(1_234_567)), 1.235);
    }
}
