//! A version of a plugin that runs beside a query, on the rows of its micro-batches and a fork of its state, to see whether
//! it gives the same.
//!
//! ```text
//! the query:     … commits/7    commits/8    commits/9 …          knows nothing of it
//!                      └ state      └────┐       └────┐
//! shadow:   fork ┬ the version that runs ▸ 8 ▸ 9 ▸ … ┐
//!                └ the new version       ▸ 8 ▸ 9 ▸ … ┴▸ compared, then let go
//! ```
//! Both versions run here: what the query gave is nowhere kept, and so both cost what can be compared. Micro-batches are
//! read from the logs when they are committed, their rows from the sources once more. Nothing is written, nobody is told but
//! whoever asks for the [`ShadowReport`]. Begun and ended by `runner`.

mod follow;
mod promote;
mod report;
mod words;

pub(crate) use follow::{Ended, Follow};
pub(crate) use promote::PromoteIf;
pub(crate) use report::{DifferenceCounts, Sample, ShadowOutcome, ShadowReport, VersionReport};
pub(crate) use words::differing;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How to try a version.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShadowOptions {
    /// So many micro-batches.
    pub(crate) batches: u64,
    /// When it takes over by itself.
    pub(crate) promote_if: Option<PromoteIf>,
    /// The columns by which rows of both versions belong together.
    pub(crate) key: Vec<String>,
}

/// A shadow, while it runs and afterwards.
pub(crate) struct Shadow {
    report: Mutex<ShadowReport>,
    /// Ends it before its time.
    pub(crate) end: CancellationToken,
    /// It has ended.
    pub(crate) ended: CancellationToken,
}

impl Shadow {
    /// One that begins.
    pub(crate) fn new(report: ShadowReport) -> Self {
        Self { report: Mutex::new(report), end: CancellationToken::new(), ended: CancellationToken::new() }
    }

    /// What was found so far.
    pub(crate) fn report(&self) -> ShadowReport {
        self.report.lock().clone()
    }

    /// Adds what was found.
    pub(crate) fn note(&self, note: impl FnOnce(&mut ShadowReport)) {
        note(&mut self.report.lock());
    }
}
