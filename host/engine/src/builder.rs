//! Puts a query together and checks that its parts fit, before anything runs.
//!
//! Called by the binary with the parts that it has made, and by tests. It makes no part itself.

use crate::micro_batch::Position;
use crate::progress::{Progress, RunSummary};
use crate::query::{Input, Listener, Logic, Query};
use crate::recover::Recovered;
use crate::trigger;
use pelton_checkpoint::{OffsetEntry, Resume};
use pelton_core::{
    BatchId, Error, FileManager, OutputMode, Result, Sink, SinkContext, Source, Trigger, suggest,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Spark's `spark.sql.streaming.pollingDelay`.
const POLLING_DELAY: Duration = Duration::from_millis(10);

/// Collects the parts of a query. [`QueryBuilder::build`] checks them.
pub struct QueryBuilder {
    recovered: Recovered,
    inputs: Vec<Input>,
    logic: Option<Logic>,
    rerun_logic: Option<Logic>,
    rerun_with_current_plugins: bool,
    sink: Option<Arc<dyn Sink>>,
    output_mode: OutputMode,
    trigger: Trigger,
    dead_letters: Option<Arc<dyn FileManager>>,
    parallelism: usize,
    polling_delay: Duration,
    listener: Option<Listener>,
}

impl QueryBuilder {
    pub(crate) fn new(recovered: Recovered) -> Self {
        Self {
            recovered,
            inputs: Vec::new(),
            logic: None,
            rerun_logic: None,
            rerun_with_current_plugins: false,
            sink: None,
            output_mode: OutputMode::default(),
            trigger: Trigger::default(),
            dead_letters: None,
            parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            polling_delay: POLLING_DELAY,
            listener: None,
        }
    }

    /// Adds a source under its name in the pipeline file. Several are united in the order in which they are added.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, source: Arc<dyn Source>) -> Self {
        self.inputs.push(Input { name: name.into(), source });
        self
    }

    /// What happens to the rows: one segment an input, in their order.
    #[must_use]
    pub fn logic(mut self, logic: Logic) -> Self {
        self.logic = Some(logic);
        self
    }

    /// The same steps with the plugins that [`Recovered::rerun_plugins`] names, for the micro-batch that is run again.
    /// Needed only if their digests differ from those of [`QueryBuilder::logic`].
    #[must_use]
    pub fn rerun_logic(mut self, logic: Logic) -> Self {
        self.rerun_logic = Some(logic);
        self
    }

    /// Lets a micro-batch that is run again use the plugins of [`QueryBuilder::logic`], whatever it was begun with: the
    /// way out if those fail on it. Exactly once holds all the same, since its first attempt is nowhere visible; only
    /// the promise that a rerun gives the same rows is the user's now.
    #[must_use]
    pub fn rerun_with_current_plugins(mut self, allowed: bool) -> Self {
        self.rerun_with_current_plugins = allowed;
        self
    }

    /// Where the rows go.
    #[must_use]
    pub fn sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// What of the result goes there in each micro-batch. Default: append.
    #[must_use]
    pub fn output_mode(mut self, output_mode: OutputMode) -> Self {
        self.output_mode = output_mode;
        self
    }

    /// When micro-batches start. Default: as fast as possible.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.trigger = trigger;
        self
    }

    /// The tree for `N.jsonl`. Default: `dead-letters/` in the checkpoint.
    #[must_use]
    pub fn dead_letters(mut self, files: Arc<dyn FileManager>) -> Self {
        self.dead_letters = Some(files);
        self
    }

    /// Blocks that are decoded and processed at a time. Default: the machine's cores.
    #[must_use]
    pub fn parallelism(mut self, parallelism: usize) -> Self {
        self.parallelism = parallelism.max(1);
        self
    }

    /// How long an idle query waits before it asks its sources again. Default: Spark's 10 ms.
    #[must_use]
    pub fn polling_delay(mut self, delay: Duration) -> Self {
        self.polling_delay = delay;
        self
    }

    /// Is told of every micro-batch when it is committed, on the engine's task: it must return quickly.
    #[must_use]
    pub fn on_progress(mut self, listener: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Checks that the parts fit each other and the checkpoint, keeps the plugins' bytes there and opens the sink.
    pub async fn build(self) -> Result<Query> {
        let missing = |part: &str| Error::internal(format!("the query was assembled without {part}"));
        let logic = self.logic.ok_or_else(|| missing("steps"))?;
        let sink = self.sink.ok_or_else(|| missing("a sink"))?;
        check_inputs(&self.inputs, &logic)?;
        check_output_mode(sink.as_ref(), self.output_mode)?;
        if let Some(entry) = self.recovered.newest_entry() {
            check_sources(&self.inputs, entry)?;
        }
        if let Some(rerun) = &self.rerun_logic {
            check_inputs(&self.inputs, rerun)?;
        }
        let rerun_logic = match &self.recovered.resume {
            Resume::Rerun { .. } if self.rerun_with_current_plugins => None,
            Resume::Rerun { batch_id, entry } => {
                let rerun = self.rerun_logic.as_ref().unwrap_or(&logic);
                check_rerun(*batch_id, entry, rerun, &logic)?;
                self.rerun_logic
            }
            Resume::Fresh | Resume::Next { .. } => None,
        };
        let Recovered { checkpoint, resume, clock } = self.recovered;
        for plugin in logic.plugins.values() {
            checkpoint.save_plugin(&plugin.digest, &plugin.bytes).await?;
        }
        let schema = logic.schema().ok_or_else(|| missing("steps"))?;
        let query_id = checkpoint.metadata().query_id.clone();
        let (output_mode, last_committed) = (self.output_mode, resume.last_committed());
        sink.open(SinkContext { query_id, schema, output_mode, last_committed }).await?;
        Ok(Query {
            position: Position::new(resume, &self.inputs),
            dead_letters: self.dead_letters.unwrap_or_else(|| checkpoint.dead_letter_files()),
            checkpoint,
            inputs: self.inputs,
            logic: Arc::new(logic),
            rerun_logic: rerun_logic.map(Arc::new),
            sink,
            trigger: self.trigger,
            limit: trigger::read_limit(self.trigger),
            clock,
            parallelism: self.parallelism,
            polling_delay: self.polling_delay,
            listener: self.listener,
            last_started: None,
            summary: RunSummary::default(),
            failed: false,
        })
    }
}

fn check_inputs(inputs: &[Input], logic: &Logic) -> Result<()> {
    let names: BTreeSet<_> = inputs.iter().map(|input| &input.name).collect();
    if inputs.is_empty() || names.len() != inputs.len() || logic.segments.len() != inputs.len() {
        return Err(Error::internal(format!(
            "the query was assembled with {} sources of {} names and steps for {}",
            inputs.len(),
            names.len(),
            logic.segments.len()
        )));
    }
    let schema = logic.schema();
    if logic.segments.iter().any(|segment| Some(segment.schema()) != schema) {
        return Err(Error::internal("the query was assembled from sources whose rows do not unite"));
    }
    Ok(())
}

fn check_output_mode(sink: &dyn Sink, mode: OutputMode) -> Result<()> {
    if sink.output_modes().contains(&mode) {
        return Ok(());
    }
    let takes: Vec<String> = sink.output_modes().iter().map(ToString::to_string).collect();
    Err(Error::invalid(format!("the sink `{}` cannot take output mode {mode}", sink.description()))
        .hint(format!("it takes {}; set `output_mode:` to that or choose another sink", takes.join(" and "))))
}

/// Offsets mean something only to the source that made them, so the sources must be those of the checkpoint.
/// (Spark matches them by position and refuses another number.)
fn check_sources(inputs: &[Input], entry: &OffsetEntry) -> Result<()> {
    let way_out = "set the sources as they were, or give the changed query a checkpoint of its own";
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    if let Some(gone) = entry.sources.keys().find(|known| !names.contains(&known.as_str())) {
        let near = suggest::nearest(gone, names.iter().copied())
            .map_or_else(String::new, |near| format!(" (is '{near}' its new name?)"));
        return Err(Error::invalid(format!(
            "the checkpoint knows how far the source '{gone}' was read, but the pipeline has no such source{near}"
        ))
        .hint(way_out));
    }
    if let Some(new) = names.iter().find(|name| !entry.sources.contains_key(**name)) {
        return Err(Error::invalid(format!(
            "the source '{new}' is new: the checkpoint was made by a query without it"
        ))
        .hint(way_out));
    }
    Ok(())
}

/// A micro-batch that runs again must run the code that it ran the first time.
fn check_rerun(batch_id: BatchId, entry: &OffsetEntry, rerun: &Logic, logic: &Logic) -> Result<()> {
    for (name, plugin) in &rerun.plugins {
        if entry.plugins.get(name).is_some_and(|recorded| *recorded != plugin.digest) {
            return Err(Error::internal(format!(
                "micro-batch {batch_id} was to run again with other bytes of the plugin '{name}' than the first time"
            )));
        }
    }
    if rerun.schema() != logic.schema() {
        return Err(Error::invalid(format!(
            "micro-batch {batch_id} must first be finished with the plugins it was begun with, but the changed \
             pipeline gives the sink other columns"
        ))
        .hint(
            "start the query once with the plugins as they were (`--trigger once` finishes that micro-batch), then \
             with the new ones",
        ));
    }
    Ok(())
}
