//! How far a query is: what the logs say, kept in memory from micro-batch to micro-batch.
//!
//! Made by the builder from what the checkpoint says, moved on by `micro_batch`.

use crate::query::Input;
use pelton_checkpoint::{OffsetEntry, Resume, SourceOffsets};
use pelton_core::{BatchId, Offset};

/// Where the next micro-batch begins.
#[derive(Debug)]
pub(crate) struct Position {
    /// The micro-batch to run next.
    pub(crate) batch_id: BatchId,
    /// Where each input's last micro-batch ended.
    pub(crate) offsets: Vec<Option<Offset>>,
    /// The watermark of the micro-batch before, which judges the late rows of the next.
    pub(crate) last_watermark_ms: Option<i64>,
    /// The time of the one before; time never runs backwards within a query.
    pub(crate) batch_time_ms: i64,
    /// A micro-batch has run in this run. Before the first one there is none without data, as in Spark.
    pub(crate) has_run: bool,
    /// The first processing time at which something can fall due, as the last micro-batch of this run has left it.
    pub(crate) next_due_ms: Option<i64>,
    /// It was planned by a run that died.
    pub(crate) pending: Option<OffsetEntry>,
}

impl Position {
    pub(crate) fn new(resume: Resume, inputs: &[Input]) -> Self {
        let at = |entry: &OffsetEntry, end: fn(&SourceOffsets) -> Option<Offset>| {
            inputs.iter().map(|input| entry.sources.get(&input.name).and_then(end)).collect()
        };
        match resume {
            Resume::Fresh => Self {
                batch_id: BatchId::FIRST,
                offsets: vec![None; inputs.len()],
                last_watermark_ms: None,
                batch_time_ms: i64::MIN,
                has_run: false,
                next_due_ms: None,
                pending: None,
            },
            Resume::Rerun { batch_id, entry, .. } => Self {
                batch_id,
                offsets: at(&entry, |source| source.start.clone()),
                last_watermark_ms: entry.late_watermark_ms,
                batch_time_ms: entry.batch_time_ms,
                has_run: false,
                next_due_ms: None,
                pending: Some(entry),
            },
            Resume::Next { batch_id, last, .. } => Self {
                batch_id,
                offsets: at(&last, |source| source.end.clone()),
                last_watermark_ms: last.watermark_ms,
                batch_time_ms: last.batch_time_ms,
                has_run: false,
                next_due_ms: None,
                pending: None,
            },
        }
    }
}
