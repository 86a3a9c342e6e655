//! Puts a query together and checks that its parts fit, before anything runs.
//!
//! Called by the binary with the parts that it has made, and by tests. It makes no part itself.

use crate::fit;
use crate::position::Position;
use crate::progress::{Phase, Progress, RunSummary};
use crate::query::{Input, Listener, Logic, PhaseListener, Query, layouts};
use crate::recover::Recovered;
use crate::reset::{self, Carried, ResetState};
use crate::swap::{KeptPlugins, Swaps, carried_on, started_with};
use crate::trigger;
use crate::waits::Waits;
use crate::watermark::{Recorded, WatermarkTracker};
use pelton_checkpoint::{Checkpoint, LayoutId, Resume, SwappedPlugin};
use pelton_core::{
    BatchId, DeadLetterContext, DeadLetterSink, Error, FileManager, OutputMode, PluginDigest, Result, Sink,
    SinkContext, Source, StateStore, Table, Trigger, WatermarkPolicy,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Spark's `spark.sql.streaming.pollingDelay`.
const POLLING_DELAY: Duration = Duration::from_millis(10);

/// Collects the parts of a query. [`QueryBuilder::build`] checks them.
pub struct QueryBuilder {
    recovered: Recovered,
    inputs: Vec<Input>,
    logic: Option<Logic>,
    rerun_logic: Option<Logic>,
    rerun_with_current_plugins: bool,
    accept_changed_state: BTreeSet<String>,
    reset_state: ResetState,
    tables: Vec<(String, Arc<dyn Table>)>,
    rerun_with_current_tables: bool,
    state: Option<Box<dyn StateStore>>,
    watermark_policy: WatermarkPolicy,
    bounded: bool,
    no_data_batches: bool,
    sink: Option<Arc<dyn Sink>>,
    output_mode: OutputMode,
    trigger: Trigger,
    dead_letters: Option<Arc<dyn FileManager>>,
    dead_letter_sink: Option<Arc<dyn DeadLetterSink>>,
    parallelism: usize,
    polling_delay: Duration,
    listener: Option<Listener>,
    swaps: Swaps,
    file_plugins: BTreeMap<String, PluginDigest>,
    on_probation: BTreeSet<String>,
    summary: RunSummary,
    phase_listener: Option<PhaseListener>,
}

impl QueryBuilder {
    pub(crate) fn new(recovered: Recovered) -> Self {
        Self {
            recovered,
            inputs: Vec::new(),
            logic: None,
            rerun_logic: None,
            rerun_with_current_plugins: false,
            accept_changed_state: BTreeSet::new(),
            reset_state: ResetState::Nothing,
            tables: Vec::new(),
            rerun_with_current_tables: false,
            state: None,
            watermark_policy: WatermarkPolicy::default(),
            bounded: false,
            no_data_batches: true,
            sink: None,
            output_mode: OutputMode::default(),
            trigger: Trigger::default(),
            dead_letters: None,
            dead_letter_sink: None,
            parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            polling_delay: POLLING_DELAY,
            listener: None,
            swaps: Swaps::default(),
            file_plugins: BTreeMap::new(),
            on_probation: BTreeSet::new(),
            summary: RunSummary::default(),
            phase_listener: None,
        }
    }

    /// Adds a source under its name in the pipeline file. Several are united in the order in which they are added.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, source: Arc<dyn Source>) -> Self {
        self.inputs.push(Input { name: name.into(), source });
        self
    }

    /// What happens to the rows; rows of the n-th input go to the dataflow's input n.
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

    /// The operators that may go on with state that meant something else: other keys, functions or windows of the same
    /// types. Without this a start with such a change is refused.
    #[must_use]
    pub fn accept_changed_state(mut self, operators: impl IntoIterator<Item = String>) -> Self {
        self.accept_changed_state.extend(operators);
        self
    }

    /// The operators that begin with empty state, whatever the checkpoint holds of them. Refused while a micro-batch must
    /// be run again, which needs the state that it was begun with.
    #[must_use]
    pub fn reset_state(mut self, reset: ResetState) -> Self {
        self.reset_state = reset;
        self
    }

    /// Adds a static table under its name in the pipeline file: what it is read from is written down with each
    /// micro-batch, so that a rerun reads the same.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>, table: Arc<dyn Table>) -> Self {
        self.tables.push((name.into(), table));
        self
    }

    /// Lets a micro-batch that is run again read its tables as they are now: the way out if what they were read from is
    /// gone. As with [`QueryBuilder::rerun_with_current_plugins`] it still has its effect once.
    #[must_use]
    pub fn rerun_with_current_tables(mut self, allowed: bool) -> Self {
        self.rerun_with_current_tables = allowed;
        self
    }

    /// The state of a query with stateful operators, or whose checkpoint holds state: opened at
    /// [`Recovered::state_commit`].
    #[must_use]
    pub fn state(mut self, state: Box<dyn StateStore>) -> Self {
        self.state = Some(state);
        self
    }

    /// The sources have an end, and one micro-batch takes all there is (trigger once): what would wait for a watermark is
    /// final at its end, so the result is that of a query over tables. Default: no.
    #[must_use]
    pub fn bounded(mut self, bounded: bool) -> Self {
        self.bounded = bounded;
        self
    }

    /// How the query's watermark follows from several. Default: min. A checkpoint that has one keeps it, as in Spark.
    #[must_use]
    pub fn watermark_policy(mut self, policy: WatermarkPolicy) -> Self {
        self.watermark_policy = policy;
        self
    }

    /// Whether micro-batches run without data when the watermark has moved to where something expires or becomes
    /// final. Default: they do. Spark's `spark.sql.streaming.noDataMicroBatches.enabled`.
    #[must_use]
    pub fn no_data_batches(mut self, enabled: bool) -> Self {
        self.no_data_batches = enabled;
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

    /// Where dead letters go beside that. Default: nowhere.
    #[must_use]
    pub fn dead_letter_sink(mut self, sink: Arc<dyn DeadLetterSink>) -> Self {
        self.dead_letter_sink = Some(sink);
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

    /// Where other versions of plugins come from while the query runs. Default: from nowhere.
    #[must_use]
    pub fn swaps(mut self, swaps: Swaps) -> Self {
        self.swaps = swaps;
        self
    }

    /// The versions of the plugins that the pipeline file names. Default: those of [`QueryBuilder::logic`]; others if
    /// some were swapped in an earlier run ([`Recovered::swapped_in`]).
    #[must_use]
    pub fn file_plugins(mut self, digests: BTreeMap<String, PluginDigest>) -> Self {
        self.file_plugins = digests;
        self
    }

    /// Plugins that run in another version than the last micro-batch, which would fit in its place: they are on probation as
    /// if they were swapped in, if the checkpoint says what its state consists of.
    #[must_use]
    pub fn on_probation(mut self, plugins: BTreeSet<String>) -> Self {
        self.on_probation = plugins;
        self
    }

    /// The run goes on from one that ended with [`crate::RunEnd::RolledBack`].
    #[must_use]
    pub fn continuing(mut self, summary: RunSummary) -> Self {
        self.summary = summary;
        self
    }

    /// Is told of every change of what the query is doing, on the engine's task: it must return quickly.
    #[must_use]
    pub fn on_phase(mut self, listener: impl Fn(Phase) + Send + Sync + 'static) -> Self {
        self.phase_listener = Some(Arc::new(listener));
        self
    }

    /// What it waits for, from now on.
    pub fn waits(&self) -> Waits {
        Waits::new(&self.inputs, self.dead_letter_sink.as_ref(), self.sink.as_ref())
    }

    /// Checks that the parts fit each other and the checkpoint, keeps the plugins' bytes there and opens the sink.
    pub async fn build(mut self) -> Result<Query> {
        let missing = |part: &str| Error::internal(format!("the query was assembled without {part}"));
        let logic = self.logic.take().ok_or_else(|| missing("steps"))?;
        let sink = self.sink.take().ok_or_else(|| missing("a sink"))?;
        let (rerun_logic, carried) = self.check(&logic, sink.as_ref())?;
        let watermarks = self.watermarks(&logic);
        let Recovered { checkpoint, resume, clock, .. } = self.recovered;
        let committed_layout = resume.last_commit().and_then(|commit| commit.layout.clone());
        save_plugins(&checkpoint, &logic).await?;
        if let Some(state) = &mut self.state {
            carried.clear(state.as_mut())?;
        }
        // A micro-batch that runs again leaves what its own plugins describe.
        let rerun_layouts = rerun_logic.as_ref().map(|rerun| carried.recorded(layouts(rerun), &carried.then));
        let before = rerun_layouts.as_deref().unwrap_or(&carried.then);
        let recorded = carried.recorded(layouts(&logic), before);
        let next = resume.last_committed().map_or(BatchId::FIRST, BatchId::next);
        let kept_plugins = KeptPlugins::new(checkpoint.kept_plugins().await?, next);
        let (mut layout, mut rerun_layout) = (None, None);
        if self.state.is_some() {
            layout = Some(checkpoint.save_layouts(&recorded).await?);
            if let Some(rerun) = &rerun_layouts {
                rerun_layout = Some(checkpoint.save_layouts(rerun).await?);
            }
        }
        let then = (rerun_layout.as_ref(), committed_layout.as_ref());
        let swapped = swapped(&resume, &logic, (&self.file_plugins, &self.on_probation), then);
        let context = sink_context(&checkpoint, &resume, &logic, self.output_mode);
        open_sinks(sink.as_ref(), self.dead_letter_sink.as_ref(), &checkpoint, context).await?;
        let query = Query {
            position: Position::new(resume, &self.inputs),
            dead_letters: self.dead_letters.unwrap_or_else(|| checkpoint.dead_letter_files()),
            dead_letter_sink: self.dead_letter_sink,
            checkpoint,
            inputs: self.inputs,
            tables: self.tables,
            rerun_with_current_tables: self.rerun_with_current_tables,
            logic: Arc::new(logic),
            layout,
            committed_layout,
            recorded,
            swaps: self.swaps,
            swapped,
            swapping: None,
            file_plugins: self.file_plugins,
            kept_plugins,
            rerun_logic: rerun_logic.map(|logic| (Arc::new(logic), rerun_layout)),
            state: self.state.into(),
            reset: carried.named,
            bounded: self.bounded,
            watermarks,
            no_data_batches: self.no_data_batches,
            sink,
            output_mode: self.output_mode,
            trigger: self.trigger,
            limit: trigger::read_limit(self.trigger),
            clock,
            parallelism: self.parallelism,
            polling_delay: self.polling_delay,
            listener: self.listener,
            phase_listener: self.phase_listener,
            phase: None,
            last_started: None,
            summary: self.summary,
            failed: false,
            stop: CancellationToken::new(),
            warned_of_late_rows: false,
        };
        query.tell_plugins();
        Ok(query)
    }

    /// All that can be refused. Gives the steps for the micro-batch that runs again, if they are others, and what
    /// becomes of the state that is there.
    fn check(&mut self, logic: &Logic, sink: &dyn Sink) -> Result<(Option<Logic>, Carried)> {
        fit::check_inputs(&self.inputs)?;
        fit::check_output_mode(sink, self.output_mode)?;
        if let Some(entry) = self.recovered.resume.newest_entry() {
            fit::check_sources(&self.inputs, entry)?;
        }
        // A micro-batch that runs again goes on with the state of the one before, whatever its first run left.
        let accepted = &self.accept_changed_state;
        let rerun = self.rerun_logic.as_ref().filter(|_| !self.rerun_with_current_plugins);
        let then = self.recovered.layouts.as_deref().unwrap_or_default();
        let reset = std::mem::take(&mut self.reset_state).at(&self.recovered.resume)?;
        let carried = reset::carried(then, rerun.unwrap_or(logic), &reset)?;
        fit::check_layouts(&self.recovered, &carried, accepted)?;
        fit::check_state(&self.recovered, logic, &carried, self.state.is_some())?;
        let Resume::Rerun { batch_id, entry, .. } = &self.recovered.resume else {
            return Ok((None, carried));
        };
        fit::check_sink_of_rerun(*batch_id, entry, sink)?;
        if self.rerun_with_current_plugins {
            return Ok((None, carried));
        }
        let rerun = self.rerun_logic.as_ref().unwrap_or(logic);
        let mut leaves = carried.recorded(layouts(rerun), &carried.then);
        leaves.retain(|layout| !layout.set_aside);
        fit::check_rerun(*batch_id, entry, (rerun, &leaves), logic, accepted)?;
        Ok((self.rerun_logic.take(), carried))
    }

    /// The watermarks as the checkpoint has them.
    fn watermarks(&self, logic: &Logic) -> WatermarkTracker {
        let resume = &self.recovered.resume;
        let recorded = resume.newest_entry().and_then(|entry| entry.watermark_policy);
        let policy = recorded.unwrap_or(self.watermark_policy);
        if policy != self.watermark_policy {
            tracing::warn!(
                "the checkpoint keeps watermark policy {policy}; the pipeline's {} would count only with a new one",
                self.watermark_policy
            );
        }
        let last = resume.last_commit();
        let (partitions, query_ms) = match resume {
            Resume::Fresh => (BTreeMap::new(), None),
            Resume::Rerun { entry, .. } => (entry.partitions.clone(), entry.watermark_ms),
            Resume::Next { commit, .. } => (commit.partitions.clone(), commit.next_watermark_ms),
        };
        let marks = last.map(|commit| commit.watermarks.clone()).unwrap_or_default();
        WatermarkTracker::new(logic.dataflow.watermarks(), policy, &Recorded { marks, partitions, query_ms })
    }
}

/// The swaps that the next entry of the log tells of: those that go on, and those that the start itself makes. The latter
/// begin after a micro-batch that runs again, whose own layout of the state is the first of the two.
fn swapped(
    resume: &Resume,
    logic: &Logic,
    (in_file, on_probation): (&BTreeMap<String, PluginDigest>, &BTreeSet<String>),
    (rerun, committed): (Option<&LayoutId>, Option<&LayoutId>),
) -> BTreeMap<String, SwappedPlugin> {
    let Some(entry) = resume.newest_entry() else { return BTreeMap::new() };
    let next = resume.last_committed().map_or(BatchId::FIRST, BatchId::next);
    let since = if rerun.is_some() { next.next() } else { next };
    let mut swapped = carried_on(entry, logic, in_file);
    if let Some(layout) = rerun.or(committed) {
        swapped.extend(started_with(entry, on_probation, logic, (since, layout)));
    }
    swapped
}

/// Keeps the plugins' bytes, for reruns and rollbacks.
async fn save_plugins(checkpoint: &Checkpoint, logic: &Logic) -> Result<()> {
    for plugin in logic.plugins.values() {
        checkpoint.save_plugin(&plugin.digest, &plugin.bytes).await?;
    }
    Ok(())
}

/// Opens where dead letters go beside their file, and the sink.
async fn open_sinks(
    sink: &dyn Sink,
    letters: Option<&Arc<dyn DeadLetterSink>>,
    checkpoint: &Checkpoint,
    context: SinkContext,
) -> Result<()> {
    if let Some(letters) = letters {
        let of_letters = DeadLetterContext {
            query_name: checkpoint.metadata().query_name.clone(),
            query_id: context.query_id.clone(),
            last_committed: context.last_committed,
            unfinished: context.unfinished,
        };
        letters.open(of_letters).await.map_err(|failed| failed.context("dead_letters"))?;
    }
    sink.open(context).await
}

fn sink_context(
    checkpoint: &Checkpoint,
    resume: &Resume,
    logic: &Logic,
    output_mode: OutputMode,
) -> SinkContext {
    let unfinished = match resume {
        Resume::Rerun { batch_id, .. } => Some(*batch_id),
        Resume::Fresh | Resume::Next { .. } => None,
    };
    SinkContext {
        query_id: checkpoint.metadata().query_id.clone(),
        schema: logic.dataflow.schema(),
        output_mode,
        last_committed: resume.last_committed(),
        unfinished,
    }
}
