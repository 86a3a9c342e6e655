//! Swapping a plugin while the query runs: another version takes over between two micro-batches, is on probation for the
//! first of them, and goes again if it fails.
//!
//! ```text
//! Swaps::offer(candidate)   by the binary, off the hot path: compiled and planned
//!   → take_over             before a micro-batch is planned: compared, its bytes kept, then put in place
//!   → offsets/N             names the new version and the one before: from here on N runs with it, whatever dies
//!   → commits/N             the offer is answered
//!   → undo                  a failure on probation: offsets/N names the version before again, and the query ends with
//!                           [`crate::Turn::RolledBack`] to be put together anew, as after a crash
//! ```
//!
//! So there is one way back for a failure and for a crash: the restart, which does what the log says. [`check`] and
//! [`record`] decide, purely; the rest carries it out. Nothing here compiles or loads a plugin.

mod check;
mod kept;
mod record;
#[cfg(test)]
mod tests;
mod undo;

pub(crate) use kept::KeptPlugins;
pub use record::in_force;
pub(crate) use record::{carried_on, committed, on_probation, started_with};

use crate::query::{Logic, Query};
use pelton_core::{BatchId, Error, PluginDigest, Result, Sink, SinkContext};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// So many micro-batches a new version is on probation, the one with which it takes over included.
pub const PROBATION_BATCHES: u64 = 10;

/// So many versions before are remembered for a rollback.
pub(crate) const VERSIONS_BEFORE_MAX: usize = 8;

/// Which way a version comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapKind {
    /// It is new.
    Swap,
    /// It is the one before.
    Rollback,
}

/// A version of a plugin that is to take over.
#[derive(Clone)]
pub struct Candidate {
    /// The plugin's name in the pipeline file.
    pub plugin: String,
    /// The query's steps with it.
    pub logic: Logic,
    /// Instead of the query's sink, if that is a function of the plugin.
    pub sink: Option<Arc<dyn Sink>>,
    /// Which way it comes.
    pub kind: SwapKind,
    /// The pipeline file names it by now. (Else it goes on as long as the file stays as it is.)
    pub is_in_file: bool,
}

/// Whether a candidate may take over from steps that run, as far as they alone say; what a person should know of it.
pub fn check_swap(running: &Logic, candidate: &Candidate) -> Result<Vec<String>> {
    check::check(running, &candidate.logic, &candidate.plugin)?;
    check::notes(running, &candidate.logic)
}

/// What became of a candidate that was not refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum SwapOutcome {
    /// A micro-batch with it is committed.
    TookOver {
        /// The first one.
        batch_id: BatchId,
        /// The version before.
        from: PluginDigest,
        /// Itself.
        to: PluginDigest,
    },
    /// Its first micro-batch failed, and runs again with the version before.
    RolledBack {
        /// That one.
        batch_id: BatchId,
        /// The version that failed.
        from: PluginDigest,
        /// The version before.
        to: PluginDigest,
        /// What the failure said.
        why: String,
    },
}

/// How the last swap of a plugin ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LastSwap {
    /// `took_over`, `refused`, `rolled_back`.
    pub outcome: &'static str,
    /// The micro-batch that decided it; none if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub batch_id: Option<BatchId>,
    /// Why it was refused or rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How often a plugin was swapped since the process began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct SwapCounts {
    /// Versions that took over, rollbacks by hand included.
    pub swaps: u64,
    /// Versions that were refused.
    pub refused: u64,
    /// Versions that failed on probation.
    pub rolled_back: u64,
    /// How the last one ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<LastSwap>,
}

/// A plugin of a running query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PluginProgress {
    /// The version that runs.
    #[schemars(with = "String")]
    pub digest: PluginDigest,
    /// The versions before, oldest first: a rollback goes to the last of them.
    #[schemars(with = "Vec<String>")]
    pub before: Vec<PluginDigest>,
    /// It was swapped so lately that a failure undoes the swap.
    pub on_probation: bool,
    /// What became of swaps.
    #[serde(flatten)]
    pub counts: SwapCounts,
}

/// The way from outside to a running query, shared by both: candidates go in, what became of them comes out. It outlives
/// the query, so that one that is put together anew goes on with it.
#[derive(Clone, Default)]
pub struct Swaps(Arc<Shared>);

#[derive(Default)]
struct Shared {
    told: Mutex<Told>,
    arrived: Notify,
}

#[derive(Default)]
struct Told {
    offers: VecDeque<Offer>,
    has_ended: bool,
    running: BTreeMap<String, (PluginDigest, Vec<PluginDigest>, bool)>,
    counts: BTreeMap<String, SwapCounts>,
}

type Answer = oneshot::Sender<Result<SwapOutcome>>;

/// A candidate and who waits for it.
struct Offer {
    candidate: Candidate,
    answer: Answer,
}

/// A version that has taken over in a micro-batch that is not committed yet.
pub(crate) struct Swapping {
    plugin: String,
    from: PluginDigest,
    to: PluginDigest,
    answer: Answer,
}

fn ended() -> Error {
    Error::unavailable("the query has ended, so nothing can be swapped in it any more")
        .hint(
            "give the pipeline file the new version of the plugin and start it again; if it has failed with the version \
             before, with --rerun-with-current-plugins",
        )
}

impl Swaps {
    /// Hands a candidate to the query, which looks at it before its next micro-batch. The answer comes when the first
    /// micro-batch with it is committed, or when it was refused or rolled back.
    pub fn offer(&self, candidate: Candidate) -> oneshot::Receiver<Result<SwapOutcome>> {
        let (answer, answered) = oneshot::channel();
        let mut told = self.told();
        if told.has_ended {
            let _ = answer.send(Err(ended()));
        } else {
            told.offers.push_back(Offer { candidate, answer });
            self.0.arrived.notify_one();
        }
        answered
    }

    /// The same, waiting for the answer.
    pub async fn swap(&self, candidate: Candidate) -> Result<SwapOutcome> {
        self.offer(candidate).await.unwrap_or_else(|_| Err(ended()))
    }

    /// The query has come to its end: whoever waits is told so, and nothing is taken any more.
    pub fn end(&self) {
        let mut told = self.told();
        told.has_ended = true;
        told.offers.clear();
    }

    /// Refused once the query has come to its end.
    pub fn check_alive(&self) -> Result<()> {
        match self.told().has_ended {
            true => Err(ended()),
            false => Ok(()),
        }
    }

    /// The plugins that run and what became of swaps so far, by their name in the pipeline file.
    pub fn plugins(&self) -> BTreeMap<String, PluginProgress> {
        let told = self.told();
        let plugin = |(name, (digest, before, on_probation)): (&String, &(PluginDigest, Vec<_>, bool))| {
            let counts = told.counts.get(name).cloned().unwrap_or_default();
            let (digest, before) = (digest.clone(), before.clone());
            (name.clone(), PluginProgress { digest, before, on_probation: *on_probation, counts })
        };
        told.running.iter().map(plugin).collect()
    }

    /// Counts a candidate that was refused before it was offered, or by the query.
    pub fn refused(&self, plugin: &str, why: &Error) {
        let message = Some(why.message().to_owned());
        self.count(plugin, LastSwap { outcome: "refused", batch_id: None, message }, |counts| {
            counts.refused += 1;
        });
    }

    fn count(&self, plugin: &str, last: LastSwap, add: impl FnOnce(&mut SwapCounts)) {
        let mut told = self.told();
        let counts = told.counts.entry(plugin.to_owned()).or_default();
        add(counts);
        counts.last = Some(last);
    }

    fn take(&self) -> Option<Offer> {
        self.told().offers.pop_front()
    }

    /// Returns when a candidate may be there.
    pub(crate) async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Query {
    /// Lets the first candidate take over that may. From here to its commit the micro-batch is the swap's.
    pub(crate) async fn take_over(&mut self) {
        while self.swapping.is_none() {
            let Some(Offer { candidate, answer }) = self.swaps.take() else { return };
            let plugin = candidate.plugin.clone();
            match self.put_in_place(candidate).await {
                Ok((from, to)) => self.swapping = Some(Swapping { plugin, from, to, answer }),
                Err(refused) => {
                    self.swaps.refused(&plugin, &refused);
                    let _ = answer.send(Err(refused));
                }
            }
        }
    }

    /// Nothing is changed unless all of it is.
    async fn put_in_place(&mut self, candidate: Candidate) -> Result<(PluginDigest, PluginDigest)> {
        let Candidate { plugin, logic, sink, kind, is_in_file } = candidate;
        let known = self.swapped.get(&plugin);
        let (from, to) = check::check(&self.logic, &logic, &plugin)?;
        if kind == SwapKind::Rollback {
            check::is_before(&plugin, &to, known)?;
        }
        let recorded = check::recorded(&plugin, &self.recorded, &logic)?;
        for note in check::notes(&self.logic, &logic)? {
            tracing::info!("{note}");
        }
        let code = logic.plugins.get(&plugin).map(|code| code.bytes.clone()).unwrap_or_default();
        self.checkpoint.save_plugin(&to, &code).await?;
        let mut layout = None;
        if self.layout.is_some() {
            layout = Some(self.checkpoint.save_layouts(&recorded).await?);
        }
        if let Some(sink) = sink {
            sink.open(self.sink_context(&logic)).await?;
            self.sink = sink;
        }
        if is_in_file {
            self.file_plugins.insert(plugin.clone(), to.clone());
        }
        let change = record::Change {
            kind,
            from: from.clone(),
            in_file: self.file_plugins.get(&plugin).unwrap_or(&from).clone(),
            since: self.position.batch_id,
            layout: self.layout.take(),
        };
        let swapped = record::swapped(known, change);
        self.swapped.insert(plugin, swapped);
        self.layout = layout;
        self.recorded = recorded;
        self.logic = Arc::new(logic);
        self.tell_plugins();
        Ok((from, to))
    }

    fn sink_context(&self, logic: &Logic) -> SinkContext {
        SinkContext {
            query_id: self.checkpoint.metadata().query_id.clone(),
            schema: logic.dataflow.schema(),
            output_mode: self.output_mode,
            last_committed: self.position.batch_id.0.checked_sub(1).map(BatchId),
            unfinished: None,
        }
    }

    /// A micro-batch is committed: a swap that it made is done, and some are no longer on probation.
    pub(crate) fn swaps_committed(&mut self, batch_id: BatchId) {
        let before = self.swapped.clone();
        committed(&mut self.swapped, &self.logic, batch_id);
        if let Some(Swapping { plugin, from, to, answer }) = self.swapping.take() {
            let last = LastSwap { outcome: "took_over", batch_id: Some(batch_id), message: None };
            self.swaps.count(&plugin, last, |counts| counts.swaps += 1);
            tracing::info!(%batch_id, "plugin '{plugin}' was swapped from {} to {}", short(&from), short(&to));
            let _ = answer.send(Ok(SwapOutcome::TookOver { batch_id, from, to }));
            self.tell_plugins();
        } else if before != self.swapped {
            self.tell_plugins();
        }
    }

    /// The query fails, and with it a swap that was on its way.
    pub(crate) fn swap_failed(&mut self, failed: &Error) {
        if let Some(Swapping { answer, .. }) = self.swapping.take() {
            let _ =
                answer.send(Err(failed.copied().context("the query failed before the swap was committed")));
        }
    }

    /// Tells whoever asks which versions run.
    pub(crate) fn tell_plugins(&self) {
        let plugin = |(name, code): (&String, &crate::PluginCode)| {
            let swapped = self.swapped.get(name);
            let before = swapped.map(|swapped| swapped.before.clone()).unwrap_or_default();
            let on_probation = swapped.is_some_and(|swapped| swapped.probation.is_some());
            (name.clone(), (code.digest.clone(), before, on_probation))
        };
        self.swaps.told().running = self.logic.plugins.iter().map(plugin).collect();
    }
}

/// Enough of a digest for a person.
pub(crate) fn short(digest: &PluginDigest) -> &str {
    digest.as_str().get(..12).unwrap_or(digest.as_str())
}
