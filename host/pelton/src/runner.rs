//! A query of this process while it runs: it is put together, runs, goes on after a rollback, and has its plugins swapped.
//!
//! Made by `run` for each pipeline file and by `test` for its script's. One swap at a time: a version is compiled and
//! compared beside the query, and offered to it when it fits; or it runs beside the query for a while (`shadow`).

mod shadow;

use crate::assembly::{Assembled, Assembly, Migrated, Parts, Planned, Plugins, RunOptions, migrated};
use bytes::Bytes;
use parking_lot::Mutex;
use pelton_core::suggest::did_you_mean;
use pelton_core::{BatchId, Error, Plugin, PluginDigest, Result};
use pelton_engine::{
    Candidate, Phase, PluginProgress, Progress, Query, RunControl, RunEnd, RunSummary, SwapKind, SwapOutcome,
    Swaps, Waits, check_swap,
};
use pelton_plan::PipelineFile;
use serde::{Deserialize, Serialize};
pub(crate) use shadow::ShadowCounts;
use shadow::Shadows;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

/// Is told what a query does, on the engine's task: it must return quickly.
pub(crate) trait Observer: Send + Sync {
    /// A micro-batch is committed.
    fn progress(&self, committed: &Progress);
    /// It does something else than before.
    fn phase(&self, _phase: Phase) {}
    /// Whoever wants to know what it waits for may ask there.
    fn waits(&self, _waits: Waits) {}
    /// It owns its checkpoint, perhaps once more.
    fn opened(&self, _query: &Query) {}
    /// It calls these plugins from now on.
    fn uses(&self, _plugins: BTreeMap<String, Arc<dyn Plugin>>) {}
}

/// See the module.
pub(crate) struct QueryRunner {
    assembly: Arc<Assembly>,
    file: PipelineFile,
    options: RunOptions,
    observer: Arc<dyn Observer>,
    swaps: Swaps,
    /// What it is made of now; none before its first start.
    parts: Mutex<Option<Parts>>,
    /// The plugins as the pipeline file names them.
    written: Mutex<Option<Plugins>>,
    /// A version that the pipeline file names by now, on its way into the query.
    offered: Mutex<Option<(String, Plugins)>>,
    one_at_a_time: tokio::sync::Mutex<()>,
    shadows: Shadows,
    /// The last micro-batch that is committed.
    committed: watch::Sender<Option<BatchId>>,
    /// It has come to its end.
    ended: CancellationToken,
}

/// A version of a plugin that has taken over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Swapped {
    /// The plugin's name in the pipeline file.
    pub(crate) plugin: String,
    /// SHA-256 of the version before.
    pub(crate) from: String,
    /// SHA-256 of the version that runs.
    pub(crate) to: String,
    /// The first micro-batch with it, which is committed.
    pub(crate) batch_id: u64,
}

impl Swapped {
    /// What a query has answered. A version that was swapped back is an error.
    pub(crate) fn of(plugin: &str, outcome: SwapOutcome) -> Result<Self> {
        match outcome {
            SwapOutcome::TookOver { batch_id, from, to } => {
                Ok(Self { plugin: plugin.to_owned(), from: from.0, to: to.0, batch_id: batch_id.0 })
            }
            SwapOutcome::RolledBack { why, .. } => {
                Err(Error::plugin(format!("the swap of plugin '{plugin}' is undone: {why}"))
                    .hint("the version before goes on"))
            }
        }
    }
}

/// What a version would change: the answer to a dry run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DryRun {
    /// The plugin's name in the pipeline file.
    pub(crate) plugin: String,
    /// SHA-256 of the version that runs.
    pub(crate) from: String,
    /// SHA-256 of the version that would take over.
    pub(crate) to: String,
    /// What to know of it.
    pub(crate) notes: Vec<String>,
    /// Rows of state that it reads otherwise.
    pub(crate) migrated: Vec<Migrated>,
}

/// A version that fits, ready to be offered.
pub(crate) struct Prepared {
    pub(crate) candidate: Candidate,
    pub(crate) parts: Parts,
    pub(crate) report: DryRun,
}

impl QueryRunner {
    /// A query that is still to be started.
    pub(crate) fn new(
        assembly: Arc<Assembly>,
        file: PipelineFile,
        options: RunOptions,
        observer: Box<dyn Observer>,
    ) -> Arc<Self> {
        Arc::new(Self {
            assembly,
            file,
            options,
            observer: observer.into(),
            swaps: Swaps::default(),
            parts: Mutex::default(),
            written: Mutex::default(),
            offered: Mutex::default(),
            one_at_a_time: tokio::sync::Mutex::default(),
            shadows: Shadows::default(),
            committed: watch::Sender::default(),
            ended: CancellationToken::new(),
        })
    }

    /// The query's name.
    pub(crate) fn name(&self) -> &str {
        &self.file.name.value
    }

    /// The pipeline file.
    pub(crate) fn file(&self) -> &PipelineFile {
        &self.file
    }

    /// Its plugins.
    pub(crate) fn plugins(&self) -> BTreeMap<String, PluginProgress> {
        self.swaps.plugins()
    }

    /// The way to the query itself.
    pub(crate) fn swaps(&self) -> &Swaps {
        &self.swaps
    }

    /// Takes the checkpoint and puts the query together.
    pub(crate) async fn start(&self, planned: Planned) -> Result<Query> {
        *self.written.lock() = Some(planned.written().clone());
        self.assembled(planned, self.options, RunSummary::default()).await
    }

    /// Puts it together once more after it has ended with a rollback: the checkpoint says how it goes on.
    pub(crate) async fn start_again(&self, so_far: RunSummary) -> Result<Query> {
        let written = self.written.lock().clone();
        let written = written.ok_or_else(|| Error::internal("a query goes on that was never started"))?;
        let planned = self.assembly.plan_with(&self.file, written).await?;
        let planned = planned.with_offered(self.offered.lock().clone());
        let options = RunOptions { rerun_with_current_plugins: false, goes_on: true, ..self.options };
        self.assembled(planned, options, so_far).await
    }

    async fn assembled(&self, planned: Planned, options: RunOptions, so_far: RunSummary) -> Result<Query> {
        let Assembled { query, parts } = self.assembly.query(&self.file, planned, options).await?;
        let (of_progress, of_phase) = (Arc::clone(&self.observer), Arc::clone(&self.observer));
        let last_committed = self.committed.clone();
        let query = query
            .swaps(self.swaps.clone())
            .continuing(so_far)
            .on_phase(move |phase| of_phase.phase(phase))
            .on_progress(move |committed| {
                last_committed.send_replace(Some(committed.batch_id));
                of_progress.progress(committed);
            });
        self.observer.waits(query.waits());
        let query = query.build().await?;
        self.committed.send_replace(query.last_committed());
        self.observer.opened(&query);
        self.took_over(parts);
        Ok(query)
    }

    /// Runs it to its end, rollbacks included; also says what it has done, well or not.
    pub(crate) async fn run(&self, query: Query, control: &RunControl) -> (Result<()>, RunSummary) {
        let ended = self.run_on(query, control).await;
        self.swaps.end();
        self.ended.cancel();
        ended
    }

    async fn run_on(&self, mut query: Query, control: &RunControl) -> (Result<()>, RunSummary) {
        loop {
            let ended = query.run(control).await;
            let summary = query.summary().clone();
            if summary.end != RunEnd::RolledBack || ended.is_err() {
                return (ended.map(|_| ()), summary);
            }
            // The checkpoint, the sink and the state are given back first.
            drop(query);
            query = match self.start_again(summary.clone()).await {
                Ok(query) => query,
                Err(failed) => return (Err(failed), summary),
            };
        }
    }

    /// Swaps a plugin for one with these bytes. Errors: it is refused, or was swapped back; the running one goes on.
    pub(crate) async fn swap(self: &Arc<Self>, plugin: &str, bytes: Bytes) -> Result<Swapped> {
        let (this, name) = (Arc::clone(self), plugin.to_owned());
        let outcome = to_its_end(async move {
            let _one = this.one_at_a_time.lock().await;
            this.offer(this.prepared(&name, bytes, SwapKind::Swap).await?).await
        });
        Swapped::of(plugin, outcome.await?)
    }

    /// The same with a version that the pipeline file names by now.
    pub(crate) async fn swap_to_file(&self, plugin: &str, bytes: Bytes) -> Result<SwapOutcome> {
        let _one = self.one_at_a_time.lock().await;
        let mut prepared = self.prepared(plugin, bytes, SwapKind::Swap).await?;
        prepared.candidate.is_in_file = true;
        let plugins = prepared.parts.plugins.clone();
        *self.offered.lock() = Some((plugin.to_owned(), plugins.clone()));
        let outcome = self.offer(prepared).await;
        if outcome.is_ok() {
            let mut written = self.written.lock();
            *written = written.take().map(|written| written.with_version_of(plugin, &plugins));
        }
        *self.offered.lock() = None;
        outcome
    }

    /// Goes back to the version before. Without a name: of the only plugin that was swapped.
    pub(crate) async fn rollback(self: &Arc<Self>, plugin: Option<&str>) -> Result<Swapped> {
        let (this, name) = (Arc::clone(self), plugin.map(str::to_owned));
        let (plugin, outcome) = to_its_end(async move {
            let _one = this.one_at_a_time.lock().await;
            let prepared = this.prepared_rollback(name.as_deref()).await?;
            Ok((prepared.report.plugin.clone(), this.offer(prepared).await?))
        })
        .await?;
        Swapped::of(&plugin, outcome)
    }

    /// The version before, compared with the one that runs.
    pub(crate) async fn prepared_rollback(&self, plugin: Option<&str>) -> Result<Prepared> {
        let (plugin, before) = version_before(&self.plugins(), self.name(), plugin)?;
        let checkpoint = self.parts()?.checkpoint;
        let bytes = pelton_checkpoint::plugins::load(checkpoint.as_ref(), &before).await?;
        self.prepared(&plugin, bytes, SwapKind::Rollback).await
    }

    /// What a swap would do, without doing it.
    pub(crate) async fn dry_run(&self, plugin: &str, bytes: Bytes) -> Result<DryRun> {
        self.prepare(plugin, bytes, SwapKind::Swap).await.map(|prepared| prepared.report)
    }

    /// Compiles a version, compares it with the one that runs, and tries it on some of the state.
    pub(crate) async fn prepared(&self, plugin: &str, bytes: Bytes, kind: SwapKind) -> Result<Prepared> {
        let prepared = self.prepare(plugin, bytes, kind).await;
        prepared.inspect_err(|refused| self.swaps.refused(plugin, refused))
    }

    async fn prepare(&self, plugin: &str, bytes: Bytes, kind: SwapKind) -> Result<Prepared> {
        self.swaps.check_alive()?;
        let running = self.parts()?;
        let (assembly, file) = (Arc::clone(&self.assembly), self.file.clone());
        let (now, name) = (running.clone(), plugin.to_owned());
        let compile = move || assembly.candidate(&file, &now, &name, bytes, kind);
        let (candidate, parts) = tokio::task::spawn_blocking(compile)
            .await
            .map_err(|e| Error::internal(format!("compiling a plugin did not end: {e}")))??;
        let notes = check_swap(&running.logic, &candidate)?;
        let digest = |parts: &Parts| {
            let digest = parts.plugins.digest(plugin).map(|digest| digest.0.clone());
            digest.ok_or_else(|| Error::internal("a plugin without a digest"))
        };
        let migrated = migrated(&self.file, &running, &parts).await.map_err(|e| {
            let what = format!("plugin '{plugin}' is not swapped: tried on the state, {}", e.message());
            Error::new(e.kind(), what).hint("the version that runs goes on; mend `migrate`")
        })?;
        let (from, to) = (digest(&running)?, digest(&parts)?);
        let report = DryRun { plugin: plugin.to_owned(), from, to, notes, migrated };
        Ok(Prepared { candidate, parts, report })
    }

    /// Hands it over and waits for what becomes of it.
    async fn offer(&self, prepared: Prepared) -> Result<SwapOutcome> {
        let Prepared { candidate, parts, .. } = prepared;
        let outcome = self.swaps.swap(candidate).await?;
        if let SwapOutcome::TookOver { .. } = outcome {
            self.took_over(parts);
        }
        Ok(outcome)
    }

    /// The query is made of this now.
    pub(crate) fn took_over(&self, parts: Parts) {
        self.observer.uses(parts.plugins.loaded());
        *self.parts.lock() = Some(parts);
    }

    fn parts(&self) -> Result<Parts> {
        let parts = self.parts.lock().clone();
        parts.ok_or_else(|| Error::unavailable(format!("the query '{}' has not started yet", self.name())))
    }
}

/// Runs it also if whoever waits for it has gone.
async fn to_its_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let done = tokio::spawn(work).await;
    done.map_err(|why| Error::internal(format!("a swap did not come to its end: {why}")))?
}

/// Which plugin a rollback is about, and the version that it goes to.
fn version_before(
    plugins: &BTreeMap<String, PluginProgress>,
    query: &str,
    plugin: Option<&str>,
) -> Result<(String, PluginDigest)> {
    let before = |name: &str, progress: &PluginProgress| match progress.before.last() {
        Some(before) => Ok((name.to_owned(), before.clone())),
        None => Err(Error::invalid(format!(
            "the plugin '{name}' of the query '{query}' has no version before: it was not swapped"
        ))),
    };
    if let Some(name) = plugin {
        let known = plugins.get(name).ok_or_else(|| {
            let near = did_you_mean(name, plugins.keys().map(String::as_str));
            Error::invalid(format!("the query '{query}' has no plugin '{name}'{near}"))
        })?;
        return before(name, known);
    }
    let swapped: Vec<_> = plugins.iter().filter(|(_, plugin)| !plugin.before.is_empty()).collect();
    match &swapped[..] {
        [(name, plugin)] => before(name, plugin),
        [] => Err(Error::invalid(format!("no plugin of the query '{query}' was swapped"))),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(Error::invalid(format!("several plugins of the query '{query}' were swapped"))
                .hint(format!("name one of them: {}", names.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_engine::SwapCounts;

    fn plugin(before: &[&str]) -> PluginProgress {
        let digest = |name: &&str| PluginDigest((*name).to_owned());
        PluginProgress {
            digest: digest(&"now"),
            before: before.iter().map(digest).collect(),
            on_probation: false,
            counts: SwapCounts::default(),
        }
    }

    #[test]
    fn a_rollback_names_its_plugin_or_there_is_only_one() {
        let plugins = |list: &[(&str, &[&str])]| -> BTreeMap<String, PluginProgress> {
            list.iter().map(|(name, before)| ((*name).to_owned(), plugin(before))).collect()
        };
        let one = plugins(&[("a", &["x", "y"]), ("b", &[])]);
        let goes_to = |plugin| version_before(&one, "q", plugin).map(|(name, digest)| (name, digest.0));
        assert_eq!(goes_to(None).unwrap(), ("a".to_owned(), "y".to_owned()));
        let message = |plugins: &BTreeMap<_, _>, plugin| version_before(plugins, "q", plugin).unwrap_err();
        assert_eq!(
            message(&one, Some("b")).message(),
            "the plugin 'b' of the query 'q' has no version before: it was not swapped"
        );
        assert_eq!(
            message(&one, Some("aa")).message(),
            "the query 'q' has no plugin 'aa'; did you mean 'a'?"
        );
        assert_eq!(
            message(&plugins(&[("b", &[])]), None).message(),
            "no plugin of the query 'q' was swapped"
        );
        let two = plugins(&[("a", &["x"]), ("b", &["y"])]);
        assert_eq!(message(&two, None).hint_text(), Some("name one of them: a, b"));
    }
}
