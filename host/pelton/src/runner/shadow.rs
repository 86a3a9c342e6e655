//! Shadows of a query's swaps: one at a time. They begin when a version fits as for a swap, run on a task of their own, and
//! end with a report, or by themselves with the query. If it is wished, and the report is good, a swap follows.

use super::{Prepared, QueryRunner, to_its_end};
use crate::assembly::{Parts, forked_state};
use crate::shadow::{Ended, Follow, PromoteIf, Shadow, ShadowOptions, ShadowOutcome, ShadowReport};
use bytes::Bytes;
use parking_lot::Mutex;
use pelton_checkpoint::{CommitLog, OffsetLog};
use pelton_core::{BatchId, Error, Result};
use pelton_engine::SwapKind;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// How often the state is opened anew because the query has forgotten it meanwhile.
const TRIES: usize = 3;

/// Those of a query.
#[derive(Default)]
pub(super) struct Shadows {
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
    /// The one that runs, or the last one.
    last: Mutex<Option<Arc<Shadow>>>,
    /// What those before it did.
    before: Mutex<BTreeMap<String, ShadowCounts>>,
}

/// What the shadows of a plugin have done since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ShadowCounts {
    /// Micro-batches that both versions have run.
    pub(crate) batches: u64,
    /// Rows and dead letters that differed.
    pub(crate) differing_rows: u64,
}

impl QueryRunner {
    /// Lets a version run beside the query; answers when it has begun. Refused: it does not fit, or another one runs.
    pub(crate) async fn shadow(
        self: &Arc<Self>,
        plugin: &str,
        bytes: Bytes,
        options: ShadowOptions,
    ) -> Result<ShadowReport> {
        let one = Arc::clone(&self.shadows.one_at_a_time).try_lock_owned().map_err(|_| {
            let running = self.last_shadow().map(|shadow| shadow.report().plugin).unwrap_or_default();
            let hint = format!("wait for it, or end it: pelton shadow {} --end", self.name());
            Error::invalid(format!("a shadow of plugin '{running}' runs already")).hint(hint)
        })?;
        let (this, name) = (Arc::clone(self), plugin.to_owned());
        to_its_end(async move { this.begin_shadow(&name, bytes, options, one).await }).await
    }

    async fn begin_shadow(
        self: Arc<Self>,
        plugin: &str,
        bytes: Bytes,
        options: ShadowOptions,
        one: OwnedMutexGuard<()>,
    ) -> Result<ShadowReport> {
        let Prepared { report, .. } = self.prepare(plugin, bytes.clone(), SwapKind::Swap).await?;
        let running = self.parts()?;
        let follow = self.follow(&running, (plugin, bytes.clone()), &options.key).await?;
        let key = follow.forks.key.clone();
        let ShadowOptions { batches, promote_if, .. } = options;
        let versions = (report.from.as_str(), report.to.as_str());
        let shadow = Arc::new(Shadow::new(ShadowReport::new(plugin, versions, batches, promote_if, key)));
        self.remember(Arc::clone(&shadow));
        let begun = shadow.report();
        tokio::spawn(async move {
            // Whoever waits hears of the end, however it comes: dropped in this order.
            let _ended = shadow.ended.clone().drop_guard();
            let _one = one;
            shadow.attend(self.run_shadow(&shadow, follow, bytes)).await;
        });
        Ok(begun)
    }

    /// The shadow that runs, or the last one.
    pub(crate) fn last_shadow(&self) -> Option<Arc<Shadow>> {
        self.shadows.last.lock().clone()
    }

    /// What all shadows have done, by plugin.
    pub(crate) fn shadow_counts(&self) -> BTreeMap<String, ShadowCounts> {
        let mut counts = self.shadows.before.lock().clone();
        if let Some(shadow) = self.last_shadow() {
            add(&mut counts, &shadow.report());
        }
        counts
    }

    fn remember(&self, shadow: Arc<Shadow>) {
        if let Some(before) = self.shadows.last.lock().replace(shadow) {
            add(&mut self.shadows.before.lock(), &before.report());
        }
    }

    /// Both versions on the state of the last micro-batch that is committed.
    async fn follow(
        &self,
        running: &Parts,
        (plugin, bytes): (&str, Bytes),
        key: &[String],
    ) -> Result<Follow> {
        let forks = self.assembly.forks(&self.file, running, (plugin, bytes), key).await?;
        let offsets = OffsetLog::new(Arc::clone(&running.checkpoint));
        let commits = CommitLog::new(Arc::clone(&running.checkpoint));
        let mut tries = 0;
        loop {
            let committed = self.committed.subscribe();
            let last = *committed.borrow();
            let opened = async {
                let commit = match last {
                    Some(last) => commits.expect(last).await?.state,
                    None => None,
                };
                let (file, checkpoint, commit) = (&self.file, &running.checkpoint, commit.as_ref());
                let state = forked_state(file, checkpoint, &forks.running, commit).await?;
                Ok::<_, Error>((state, forked_state(file, checkpoint, &forks.new, commit).await?))
            };
            match opened.await {
                Ok(states) => {
                    let next = last.map_or(BatchId::FIRST, BatchId::next);
                    let plugins = running.plugins.digests();
                    return Ok(Follow { forks, states, next, plugins, committed, offsets, commits });
                }
                Err(failed) if tries == TRIES || *committed.borrow() == last => return Err(failed),
                Err(_) => tries += 1,
            }
        }
    }

    async fn run_shadow(self: &Arc<Self>, shadow: &Shadow, follow: Follow, bytes: Bytes) {
        let early = |why: &str| Ok(Ended::Early(why.to_owned()));
        let ended = tokio::select! {
            biased;
            () = shadow.end.cancelled() => early("it was asked to end"),
            () = self.ended.cancelled() => early("the query has ended"),
            ended = follow.run(shadow) => ended,
        };
        let report = shadow.report();
        let promoted = match (&ended, report.promote_if) {
            (Ok(Ended::Done), Some(condition)) => Some(self.promote(&report, condition, bytes).await),
            _ => None,
        };
        shadow.note(|report| {
            (report.outcome, report.message) = match ended {
                Ok(Ended::Done) => (ShadowOutcome::Done, None),
                Ok(Ended::Early(why)) => (ShadowOutcome::Ended, Some(why)),
                Err(failed) => (ShadowOutcome::Failed, Some(in_a_line(&failed))),
            };
            match promoted {
                Some(Ok(swapped)) => report.promoted = Some(swapped),
                Some(Err(why)) => report.not_promoted = Some(why),
                None => {}
            }
        });
        let report = shadow.report();
        tracing::info!(query = self.name(), "{}", report.headline(self.name()));
    }

    /// Swaps the plugin if the report allows it; else says why not.
    async fn promote(
        self: &Arc<Self>,
        report: &ShadowReport,
        condition: PromoteIf,
        bytes: Bytes,
    ) -> Result<super::Swapped, String> {
        if let Some(why) = condition.refusal(report) {
            return Err(why);
        }
        let runs = self.parts().map_err(|gone| gone.message().to_owned())?;
        if runs.plugins.digest(&report.plugin).is_none_or(|digest| digest.as_str() != report.from) {
            return Err("another version has taken over in between".to_owned());
        }
        self.swap(&report.plugin, bytes).await.map_err(|refused| refused.message().to_owned())
    }
}

fn in_a_line(failed: &Error) -> String {
    let hint = failed.hint_text().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{}{hint}", failed.message())
}

fn add(counts: &mut BTreeMap<String, ShadowCounts>, report: &ShadowReport) {
    let counts = counts.entry(report.plugin.clone()).or_default();
    counts.batches += report.batches;
    counts.differing_rows += report.differing_rows();
}
