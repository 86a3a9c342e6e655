//! What a query has done in this run, summed up for `/metrics`. Added to once a micro-batch, by the registry.

use pelton_engine::Progress;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::collections::BTreeMap;

/// The first bucket of durations, in seconds; each further one is twice as long, the last about 65 s.
const SHORTEST_SECONDS: f64 = 0.000_5;
const BUCKETS: u16 = 18;

/// Counts since the start of the run.
#[derive(Clone)]
pub(crate) struct Totals {
    pub(crate) batches: u64,
    pub(crate) reruns: u64,
    pub(crate) input_rows: u64,
    pub(crate) output_rows: u64,
    pub(crate) output_bytes: u64,
    pub(crate) output_files: u64,
    pub(crate) malformed_rows: u64,
    pub(crate) refused_rows: u64,
    pub(crate) late_rows: u64,
    pub(crate) dead_letters: u64,
    pub(crate) sources: BTreeMap<String, SourceTotals>,
    pub(crate) operators: BTreeMap<String, OperatorTotals>,
    /// Seconds of a micro-batch.
    pub(crate) duration: Histogram,
    /// Of its stages.
    pub(crate) stages: BTreeMap<&'static str, Histogram>,
}

/// Of a source.
#[derive(Clone, Default)]
pub(crate) struct SourceTotals {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) malformed_rows: u64,
    /// Of a source that may lose some.
    pub(crate) lost_offsets: Option<u64>,
}

/// Of a stateful operator.
#[derive(Clone, Default)]
pub(crate) struct OperatorTotals {
    pub(crate) updated_rows: u64,
    pub(crate) removed_rows: u64,
    pub(crate) late_rows: u64,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            batches: 0,
            reruns: 0,
            input_rows: 0,
            output_rows: 0,
            output_bytes: 0,
            output_files: 0,
            malformed_rows: 0,
            refused_rows: 0,
            late_rows: 0,
            dead_letters: 0,
            sources: BTreeMap::new(),
            operators: BTreeMap::new(),
            duration: durations(),
            stages: BTreeMap::new(),
        }
    }
}

fn durations() -> Histogram {
    Histogram::new(exponential_buckets(SHORTEST_SECONDS, 2.0, BUCKETS))
}

impl Totals {
    /// Adds a micro-batch.
    pub(crate) fn add(&mut self, progress: &Progress) {
        self.batches += 1;
        self.reruns += u64::from(progress.is_rerun);
        self.input_rows += progress.num_input_rows;
        self.output_rows += progress.sink.num_output_rows;
        self.output_bytes += progress.sink.num_output_bytes;
        self.output_files += progress.sink.num_output_files;
        self.refused_rows += progress.num_refused_rows;
        self.late_rows += progress.num_late_rows;
        self.dead_letters += progress.num_dead_letters;
        for source in &progress.sources {
            let of = self.sources.entry(source.name.clone()).or_default();
            of.rows += source.num_input_rows;
            of.bytes += source.num_input_bytes;
            of.malformed_rows += source.num_malformed_rows;
            if let Some(lost) = source.metrics.num_lost_offsets {
                *of.lost_offsets.get_or_insert(0) += lost;
            }
            self.malformed_rows += source.num_malformed_rows;
        }
        for operator in &progress.state_operators {
            let of = self.operators.entry(operator.operator_name.clone()).or_default();
            of.updated_rows += operator.num_rows_updated;
            of.removed_rows += operator.num_rows_removed;
            of.late_rows += operator.num_rows_dropped_by_watermark;
        }
        self.duration.observe(progress.batch_duration / 1e3);
        for (stage, ms) in progress.duration_ms.stages() {
            self.stages.entry(stage).or_insert_with(durations).observe(ms / 1e3);
        }
    }
}
