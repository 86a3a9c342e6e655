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

use futures::FutureExt;
use parking_lot::Mutex;
use std::any::Any;
use std::panic::AssertUnwindSafe;
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

    /// Lets the work on it come to its end. If that panics, the report says that it failed: else it would run for ever.
    pub(crate) async fn attend(&self, work: impl Future<Output = ()>) {
        if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
            let why = panicked(&*panic);
            tracing::error!("{why}");
            self.note(|report| (report.outcome, report.message) = (ShadowOutcome::Failed, Some(why)));
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    format!("it panicked: {text}; the query goes on without it: report this, please")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_panics_has_failed() {
        let shadow = Shadow::new(ShadowReport::new("p", ("a", "b"), 5, None, Vec::new()));
        shadow.attend(async { shadow.note(|report| panic!("{} batches", report.batches_wanted)) }).await;
        let report = shadow.report();
        let why = "it panicked: 5 batches; the query goes on without it: report this, please";
        assert_eq!((report.outcome, report.message.as_deref()), (ShadowOutcome::Failed, Some(why)));
        shadow.attend(async { shadow.note(|report| report.outcome = ShadowOutcome::Done) }).await;
        assert_eq!(shadow.report().outcome, ShadowOutcome::Done);
    }
}
