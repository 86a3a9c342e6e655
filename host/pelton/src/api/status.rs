//! What a query is and does, as JSON: what the server answers and `pelton status` reads.

use super::failure::Failure;
use super::registry::{Committed, Running, Seen};
use crate::shadow::{ShadowOutcome, ShadowReport};
use pelton_core::{Clock, Plugin};
use pelton_engine::progress::{SourceProgress, iso8601};
use pelton_engine::{PluginProgress, Progress, SystemClock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use utoipa::ToSchema;

/// A query at rest for so long shows rates of 0. Spark's `noDataProgressEventInterval`.
const RATES_LAST_MS: i64 = 10_000;

/// What a query does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QueryState {
    /// It is planned, its checkpoint and state are read.
    Starting,
    /// For data, for the watermark or for its trigger.
    Waiting,
    /// A micro-batch runs.
    Running,
    /// A micro-batch runs again that a dead run had begun.
    Rerunning,
    /// Its trigger had nothing more to do.
    Finished,
    /// It was asked to stop; all that it began is committed.
    Stopped,
    /// It was told to end at once; the micro-batch that was running runs again at the next start.
    Aborted,
    /// See `failure`. What is committed stands.
    Failed,
}

impl QueryState {
    /// It runs micro-batches, or would if there were any.
    pub(crate) fn is_alive(self) -> bool {
        matches!(self, Self::Waiting | Self::Running | Self::Rerunning)
    }

    /// All there are, as they are written.
    pub(crate) const ALL: [(Self, &'static str); 8] = [
        (Self::Starting, "starting"),
        (Self::Waiting, "waiting"),
        (Self::Running, "running"),
        (Self::Rerunning, "rerunning"),
        (Self::Finished, "finished"),
        (Self::Stopped, "stopped"),
        (Self::Aborted, "aborted"),
        (Self::Failed, "failed"),
    ];
}

impl fmt::Display for QueryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(state, _)| state == self);
        f.write_str(named.map_or("unknown", |(_, name)| name))
    }
}

/// A query of this process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueryStatus {
    /// The pipeline file's `name`.
    pub(crate) name: String,
    /// Its identity for life, from its checkpoint; not there before that is read.
    pub(crate) id: Option<String>,
    /// This run of it.
    pub(crate) run_id: Option<String>,
    /// The process that runs it.
    pub(crate) pid: u32,
    /// Where it is remembered; nothing is kept of a query without.
    pub(crate) checkpoint: Option<String>,
    /// What it does.
    pub(crate) state: QueryState,
    /// Since when, ISO 8601 in UTC.
    pub(crate) since: String,
    /// What it waits for without being able to go on, if it does: a Kafka cluster that does not answer, and why.
    pub(crate) waiting_for: Option<String>,
    /// It was asked to end.
    pub(crate) stop_requested: bool,
    /// The micro-batch that runs.
    pub(crate) running_batch: Option<u64>,
    /// The last micro-batch that is committed, by this run or one before.
    pub(crate) last_committed: Option<u64>,
    /// When this run committed it.
    pub(crate) last_commit_at: Option<String>,
    /// Rows decoded a second since the micro-batch before the last began; 0 after 10 seconds of rest.
    pub(crate) input_rows_per_second: f64,
    /// Rows decoded a second while the last micro-batch ran; 0 after 10 seconds of rest.
    pub(crate) processed_rows_per_second: f64,
    /// Rows that the sink took a second between the last two commits; 0 after 10 seconds of rest.
    pub(crate) output_rows_per_second: f64,
    /// The watermark of the last micro-batch; not there before the first event.
    pub(crate) watermark: Option<String>,
    /// How far it is behind the time of day.
    pub(crate) watermark_delay_seconds: Option<f64>,
    /// Its sources by name, as the last micro-batch of this run has left them.
    #[serde(default)]
    pub(crate) sources: BTreeMap<String, SourceStatus>,
    /// Rows of state, over all operators.
    pub(crate) state_rows: u64,
    /// The bytes of their keys and values.
    pub(crate) state_bytes: u64,
    /// What this run has done so far.
    pub(crate) counts: Counts,
    /// The plugins that it calls, by their names in the pipeline file.
    pub(crate) plugins: BTreeMap<String, PluginStatus>,
    /// The version of a plugin that runs beside it, or ran last.
    pub(crate) shadow: Option<ShadowStatus>,
    /// Why it has failed.
    pub(crate) failure: Option<Failure>,
}

/// A version of a plugin beside a query. What it gives otherwise, `/queries/{name}/shadow` shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ShadowStatus {
    /// The plugin's name in the pipeline file.
    pub(crate) plugin: String,
    /// SHA-256 of the version.
    pub(crate) digest: String,
    /// How far it is.
    pub(crate) outcome: ShadowOutcome,
    /// Micro-batches that it has run.
    pub(crate) batches: u64,
    /// Micro-batches that it is to run.
    pub(crate) batches_wanted: u64,
    /// Rows and dead letters that differ.
    pub(crate) differing_rows: u64,
    /// Why it failed or was ended.
    pub(crate) message: Option<String>,
}

impl ShadowStatus {
    /// It has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.outcome == ShadowOutcome::Running
    }

    fn of(report: ShadowReport) -> Self {
        let differing_rows = report.differing_rows();
        let ShadowReport { plugin, to: digest, outcome, batches, batches_wanted, message, .. } = report;
        Self { plugin, digest, outcome, batches, batches_wanted, differing_rows, message }
    }
}

/// What a run has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Counts {
    /// Micro-batches committed.
    pub(crate) batches: u64,
    /// Rows decoded.
    pub(crate) input_rows: u64,
    /// Rows that the sink took.
    pub(crate) output_rows: u64,
    /// Records that did not decode and were dropped or sent to the dead letters.
    pub(crate) malformed_rows: u64,
    /// Rows that a function refused.
    pub(crate) refused_rows: u64,
    /// Rows behind the watermark.
    pub(crate) late_rows: u64,
    /// Rows written to the dead letters.
    pub(crate) dead_letters: u64,
}

/// What waits in a source, as far as it knows without asking anyone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SourceStatus {
    /// What it says of itself.
    pub(crate) description: String,
    /// Records that were there and are not read.
    pub(crate) backlog_rows: Option<u64>,
    /// Their bytes.
    pub(crate) backlog_bytes: Option<u64>,
    /// Files that were there and are not read.
    pub(crate) backlog_files: Option<u64>,
    /// How long the oldest of it has been there; 0 if nothing waits.
    pub(crate) lag_seconds: Option<f64>,
}

/// A plugin, and what it has cost since it was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PluginStatus {
    /// SHA-256 of its bytes.
    pub(crate) digest: String,
    /// What it says of itself.
    pub(crate) version: String,
    /// Calls of its functions.
    pub(crate) calls: u64,
    /// Rows that they were called with.
    pub(crate) rows: u64,
    /// Time inside calls, summed over threads. A guest waits for nothing, so it is CPU time if there is enough of that.
    pub(crate) busy_seconds: f64,
    /// The largest guest memory seen.
    pub(crate) memory_bytes_max: u64,
    /// Instances made.
    pub(crate) instances: u64,
    /// Calls that gave no answer.
    pub(crate) errors: u64,
    /// Of these, calls that trapped or overran a limit.
    pub(crate) traps: u64,
    /// Rows that its functions refused.
    pub(crate) refused_rows: u64,
    /// Counters of its own.
    pub(crate) counters: BTreeMap<String, u64>,
    /// SHA-256 of the versions before, oldest first: a rollback goes to the last of them.
    pub(crate) before: Vec<String>,
    /// It was swapped so lately that a failure undoes the swap.
    pub(crate) on_probation: bool,
    /// Versions that took over in this run, rollbacks by hand included.
    pub(crate) swaps: u64,
    /// Versions that were refused.
    pub(crate) swaps_refused: u64,
    /// Versions that failed on probation and were swapped back.
    pub(crate) swaps_rolled_back: u64,
    /// How the last swap ended.
    pub(crate) last_swap: Option<SwapStatus>,
}

/// How a swap ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SwapStatus {
    /// `took_over`, `refused` or `rolled_back`.
    pub(crate) outcome: String,
    /// The micro-batch that decided it; none if it was refused.
    pub(crate) batch_id: Option<u64>,
    /// Why it was refused or swapped back.
    pub(crate) message: Option<String>,
}

impl QueryStatus {
    /// As it is now.
    pub(crate) fn of(running: &Running) -> Self {
        let seen = running.seen();
        let now_ms = SystemClock.now_ms();
        let last = seen.recent.back();
        let rates = Rates::of(&seen, now_ms);
        let watermark_ms = last.and_then(|last| watermark_ms(&last.progress));
        let operators = last.map(|last| last.progress.state_operators.as_slice()).unwrap_or_default();
        let swapped = running.runner().map(|runner| runner.plugins()).unwrap_or_default();
        let (id, run_id) = seen.ids.clone().map(|(id, run_id)| (id.0, run_id.0)).unzip();
        Self {
            name: running.name.clone(),
            id,
            run_id,
            pid: std::process::id(),
            checkpoint: running.checkpoint.clone(),
            state: seen.state,
            since: iso8601(seen.since_ms),
            waiting_for: running.waits_for(),
            stop_requested: running.control.stop.is_cancelled() || running.control.abort.is_cancelled(),
            running_batch: seen.running_batch.map(|batch| batch.0),
            last_committed: seen.last_committed.map(|batch| batch.0),
            last_commit_at: last.map(|last| iso8601(last.at_ms)),
            input_rows_per_second: rates.input,
            processed_rows_per_second: rates.processed,
            output_rows_per_second: rates.output,
            watermark: watermark_ms.map(iso8601),
            watermark_delay_seconds: watermark_ms.map(|at_ms| delay_seconds(now_ms, at_ms)),
            sources: last.map(|last| SourceStatus::all(&last.progress, now_ms)).unwrap_or_default(),
            state_rows: operators.iter().map(|operator| operator.num_rows_total).sum(),
            state_bytes: operators.iter().map(|operator| operator.state_bytes).sum(),
            counts: Counts::of(&seen),
            plugins: seen
                .plugins
                .iter()
                .map(|(name, plugin)| (name.clone(), PluginStatus::of(plugin, swapped.get(name))))
                .collect(),
            shadow: running
                .runner()
                .and_then(|runner| runner.last_shadow())
                .map(|shadow| ShadowStatus::of(shadow.report())),
            failure: seen.failure,
        }
    }
}

impl Counts {
    fn of(seen: &Seen) -> Self {
        let totals = &seen.totals;
        Self {
            batches: totals.batches,
            input_rows: totals.input_rows,
            output_rows: totals.output_rows,
            malformed_rows: totals.malformed_rows,
            refused_rows: totals.refused_rows,
            late_rows: totals.late_rows,
            dead_letters: totals.dead_letters,
        }
    }
}

impl SourceStatus {
    fn all(progress: &Progress, now_ms: i64) -> BTreeMap<String, Self> {
        progress.sources.iter().map(|source| (source.name.clone(), Self::of(source, now_ms))).collect()
    }

    fn of(source: &SourceProgress, now_ms: i64) -> Self {
        Self {
            description: source.description.clone(),
            backlog_rows: source.metrics.num_records_outstanding,
            backlog_bytes: source.metrics.num_bytes_outstanding,
            backlog_files: source.metrics.num_files_outstanding,
            lag_seconds: lag_seconds(source, now_ms),
        }
    }
}

impl PluginStatus {
    fn of(plugin: &Arc<dyn Plugin>, swapped: Option<&PluginProgress>) -> Self {
        let cost = plugin.metrics();
        let counts = swapped.map(|swapped| swapped.counts.clone()).unwrap_or_default();
        let before = swapped.map(|swapped| swapped.before.as_slice()).unwrap_or_default();
        Self {
            digest: plugin.digest().to_string(),
            version: plugin.manifest().version.clone(),
            calls: cost.calls,
            rows: cost.rows,
            busy_seconds: cost.busy_nanos as f64 / 1e9,
            memory_bytes_max: cost.memory_bytes_max,
            instances: cost.instances,
            errors: cost.errors,
            traps: cost.traps,
            refused_rows: cost.refused_rows,
            counters: cost.counters,
            before: before.iter().map(ToString::to_string).collect(),
            on_probation: swapped.is_some_and(|swapped| swapped.on_probation),
            swaps: counts.swaps,
            swaps_refused: counts.refused,
            swaps_rolled_back: counts.rolled_back,
            last_swap: counts.last.map(|last| SwapStatus {
                outcome: last.outcome.to_owned(),
                batch_id: last.batch_id.map(|batch| batch.0),
                message: last.message,
            }),
        }
    }
}

/// Rows a second, lately.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) input: f64,
    pub(crate) processed: f64,
    pub(crate) output: f64,
}

impl Rates {
    /// Those of the last micro-batch, as long as that is news.
    pub(crate) fn of(seen: &Seen, now_ms: i64) -> Self {
        let is_news = |last: &&Committed| seen.running_batch.is_some() || now_ms - last.at_ms < RATES_LAST_MS;
        let Some(last) = seen.recent.back().filter(is_news) else { return Self::default() };
        let progress = &last.progress;
        let before = seen.recent.iter().rev().nth(1);
        let seconds = before.map_or(0.0, |before| (last.at_ms - before.at_ms) as f64 / 1e3);
        let output = progress.sink.num_output_rows as f64;
        Self {
            input: progress.input_rows_per_second,
            processed: progress.processed_rows_per_second,
            output: if seconds > 0.0 { (output / seconds * 10.0).round() / 10.0 } else { 0.0 },
        }
    }
}

/// The watermark that a micro-batch ran with, if it has moved from where all watermarks begin.
pub(crate) fn watermark_ms(progress: &Progress) -> Option<i64> {
    progress.event_time.watermark.as_deref().and_then(time_ms).filter(|at_ms| *at_ms > 0)
}

/// How long the oldest of what waits in a source has been there, if it knows.
pub(crate) fn lag_seconds(source: &SourceProgress, now_ms: i64) -> Option<f64> {
    let metrics = &source.metrics;
    match metrics.oldest_outstanding.as_deref().and_then(time_ms) {
        Some(oldest_ms) => Some(delay_seconds(now_ms, oldest_ms)),
        None => metrics.is_caught_up().then_some(0.0),
    }
}

fn time_ms(text: &str) -> Option<i64> {
    Some(chrono::DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis())
}

/// How far a time is behind. One of the future is not.
pub(crate) fn delay_seconds(now_ms: i64, at_ms: i64) -> f64 {
    now_ms.saturating_sub(at_ms).max(0) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_written_alike_for_people_and_programs() {
        for (state, name) in QueryState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), name);
            assert_eq!(state.to_string(), name);
        }
    }
}
