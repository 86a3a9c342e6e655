//! A query: its parts, and the loop that fires its triggers.
//!
//! Built by [`crate::QueryBuilder`], run by the binary. One turn of the loop is in `micro_batch`.

use crate::builder::QueryBuilder;
use crate::clock::Stopwatch;
use crate::micro_batch::Turn;
use crate::position::Position;
use crate::progress::{Phase, Progress, RunEnd, RunSummary};
use crate::recover::Recovered;
use crate::swap::{KeptPlugins, Swapping, Swaps};
use crate::trigger;
use crate::watermark::WatermarkTracker;
use bytes::Bytes;
use pelton_checkpoint::{Checkpoint, LayoutId, SwappedPlugin};
use pelton_core::{
    BatchId, Clock, Dataflow, DeadLetterSink, FileManager, OutputMode, PluginDigest, QueryId, ReadLimit,
    Result, RunId, Sink, Source, StateLayout, StateStore, Table, Trigger,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Is told of every committed micro-batch.
pub(crate) type Listener = Arc<dyn Fn(&Progress) + Send + Sync>;

/// Is told of every change of what the query is doing.
pub(crate) type PhaseListener = Arc<dyn Fn(Phase) + Send + Sync>;

/// The bytes of a plugin under their digest.
#[derive(Debug, Clone)]
pub struct PluginCode {
    /// SHA-256 of the bytes.
    pub digest: PluginDigest,
    /// What was compiled.
    pub bytes: Bytes,
}

/// What the user wrote, in one version: the steps, bound to the plugins that they call.
#[derive(Clone)]
pub struct Logic {
    /// What happens to the rows of all inputs.
    pub dataflow: Arc<dyn Dataflow>,
    /// The plugins in them, by their name in the pipeline file.
    pub plugins: BTreeMap<String, PluginCode>,
}

impl Logic {
    /// Steps without plugins.
    pub fn new(dataflow: Arc<dyn Dataflow>) -> Self {
        Self { dataflow, plugins: BTreeMap::new() }
    }
}

/// What the state of the operators consists of, those that keep one.
pub(crate) fn layouts(logic: &Logic) -> Vec<StateLayout> {
    logic.dataflow.operators().iter().filter_map(|operator| operator.layout.clone()).collect()
}

/// A source under its name in the pipeline file.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) source: Arc<dyn Source>,
}

/// How a run is asked to end.
#[derive(Debug, Clone, Default)]
pub struct RunControl {
    /// Ends the run after the micro-batch that is running, which is committed.
    pub stop: CancellationToken,
    /// Ends the run at once. The micro-batch that is running runs again at the next start.
    pub abort: CancellationToken,
}

/// A query that is ready to run. It owns its checkpoint until it is dropped.
///
/// A failure ends it: there is no retry, as in Spark. A new start goes on where this one stood.
pub struct Query {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) inputs: Vec<Input>,
    /// The static tables, by their name in the pipeline file.
    pub(crate) tables: Vec<(String, Arc<dyn Table>)>,
    /// A micro-batch that runs again reads them as they are now.
    pub(crate) rerun_with_current_tables: bool,
    pub(crate) logic: Arc<Logic>,
    /// What the state after a micro-batch consists of, if the query is stateful.
    pub(crate) layout: Option<LayoutId>,
    /// What the state of the last committed micro-batch consists of, if that is recorded.
    pub(crate) committed_layout: Option<LayoutId>,
    /// The same, in full: with what is set aside.
    pub(crate) recorded: Vec<StateLayout>,
    /// Where versions of plugins come from while the query runs.
    pub(crate) swaps: Swaps,
    /// The plugins of `logic` that were swapped, as the next entry of the log has them.
    pub(crate) swapped: BTreeMap<String, SwappedPlugin>,
    /// The swap of the micro-batch that is under way.
    pub(crate) swapping: Option<Swapping>,
    /// The versions that the pipeline file names.
    pub(crate) file_plugins: BTreeMap<String, PluginDigest>,
    pub(crate) kept_plugins: KeptPlugins,
    /// For the micro-batch that runs again, if it ran other plugins than `logic`; and what its state consists of.
    pub(crate) rerun_logic: Option<(Arc<Logic>, Option<LayoutId>)>,
    /// The state of the last micro-batch, if the query is stateful. A worker thread has it while operators run. (The
    /// mutex is never contended: it only lets a query be shared between threads, which a store need not allow.)
    pub(crate) state: Mutex<Option<Box<dyn StateStore>>>,
    /// The operators that begin with empty state in this run.
    pub(crate) reset: Vec<String>,
    /// The sources have an end, and one micro-batch takes all there is.
    pub(crate) bounded: bool,
    pub(crate) watermarks: WatermarkTracker,
    pub(crate) no_data_batches: bool,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) output_mode: OutputMode,
    pub(crate) trigger: Trigger,
    pub(crate) limit: ReadLimit,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dead_letters: Arc<dyn FileManager>,
    pub(crate) dead_letter_sink: Option<Arc<dyn DeadLetterSink>>,
    pub(crate) parallelism: usize,
    pub(crate) polling_delay: Duration,
    pub(crate) listener: Option<Listener>,
    pub(crate) phase_listener: Option<PhaseListener>,
    /// What was told last.
    pub(crate) phase: Option<Phase>,
    /// How far the query is.
    pub(crate) position: Position,
    /// When the micro-batch before began, for rates.
    pub(crate) last_started: Option<Stopwatch>,
    pub(crate) summary: RunSummary,
    pub(crate) failed: bool,
    /// Whoever runs it wants it to end: what only waits for a source ends at once.
    pub(crate) stop: CancellationToken,
    /// That late rows are lost was said in this run.
    pub(crate) warned_of_late_rows: bool,
}

impl Query {
    /// Begins to put a query together.
    pub fn builder(recovered: Recovered) -> QueryBuilder {
        QueryBuilder::new(recovered)
    }

    /// The query's identity, for life.
    pub fn id(&self) -> &QueryId {
        &self.checkpoint.metadata().query_id
    }

    /// This run of it.
    pub fn run_id(&self) -> &RunId {
        self.checkpoint.run_id()
    }

    /// The last micro-batch that is surely done.
    pub fn last_committed(&self) -> Option<BatchId> {
        self.position.batch_id.0.checked_sub(1).map(BatchId)
    }

    /// What the run has done so far.
    pub fn summary(&self) -> &RunSummary {
        &self.summary
    }

    /// Runs until the trigger has nothing more to fire for, a micro-batch fails, or it is asked to end.
    pub async fn run(&mut self, control: &RunControl) -> Result<RunSummary> {
        let watch = Stopwatch::start();
        self.stop = control.stop.clone();
        let end = tokio::select! {
            biased;
            () = control.abort.cancelled() => Ok(RunEnd::Aborted),
            end = self.fire(&control.stop) => end,
        };
        self.summary.seconds += watch.elapsed().as_secs_f64();
        self.summary.end = end?;
        Ok(self.summary.clone())
    }

    /// Does once what Spark's `Trigger.AvailableNow` does first: fixes where the sources end.
    async fn prepare_for_available_now(&self) -> Result<()> {
        for input in &self.inputs {
            input.source.prepare_for_available_now().await?;
        }
        Ok(())
    }

    async fn fire(&mut self, stop: &CancellationToken) -> Result<RunEnd> {
        match self.trigger {
            Trigger::Once => match self.run_once().await? {
                Turn::RolledBack(_) => Ok(RunEnd::RolledBack),
                Turn::Idle if stop.is_cancelled() => Ok(RunEnd::Stopped),
                Turn::Ran(_) | Turn::Idle => self.finish().await,
            },
            Trigger::AvailableNow => {
                tokio::select! {
                    prepared = self.prepare_for_available_now() => prepared?,
                    () = stop.cancelled() => {}
                }
                self.fire_until_idle(stop).await
            }
            Trigger::AsFastAsPossible => self.fire_as_fast_as_possible(stop).await,
            Trigger::ProcessingTime(interval) if interval.as_millis() <= 0 => {
                self.fire_as_fast_as_possible(stop).await
            }
            Trigger::ProcessingTime(interval) => self.fire_every(interval.as_millis(), stop).await,
        }
    }

    /// All there was is done: a sink that holds rows back lets go of them.
    async fn finish(&self) -> Result<RunEnd> {
        self.sink.finish().await.map(|()| RunEnd::Finished)
    }

    /// Nothing will ever come.
    fn is_at_end(&self) -> bool {
        let mut inputs = self.inputs.iter().zip(&self.position.offsets).peekable();
        inputs.peek().is_some() && inputs.all(|(input, position)| input.source.is_at_end(position.as_ref()))
    }

    async fn fire_until_idle(&mut self, stop: &CancellationToken) -> Result<RunEnd> {
        while !stop.is_cancelled() {
            match self.run_once().await? {
                Turn::Ran(_) => {}
                Turn::Idle if stop.is_cancelled() => {}
                Turn::Idle => return self.finish().await,
                Turn::RolledBack(_) => return Ok(RunEnd::RolledBack),
            }
        }
        Ok(RunEnd::Stopped)
    }

    async fn fire_as_fast_as_possible(&mut self, stop: &CancellationToken) -> Result<RunEnd> {
        while !stop.is_cancelled() {
            match self.run_once().await? {
                Turn::Ran(_) => {}
                Turn::Idle if self.is_at_end() => return self.finish().await,
                Turn::Idle => {
                    let rest = tokio::time::sleep(self.polling_delay);
                    tokio::select! { () = rest => {}, () = stop.cancelled() => {} }
                }
                Turn::RolledBack(_) => return Ok(RunEnd::RolledBack),
            }
        }
        Ok(RunEnd::Stopped)
    }

    async fn fire_every(&mut self, interval_ms: i64, stop: &CancellationToken) -> Result<RunEnd> {
        while !stop.is_cancelled() {
            let fired_ms = self.clock.now_ms();
            match self.run_once().await? {
                Turn::Idle if self.is_at_end() => return self.finish().await,
                Turn::Ran(_) | Turn::Idle => {}
                Turn::RolledBack(_) => return Ok(RunEnd::RolledBack),
            }
            let next_ms = trigger::next_trigger_ms(fired_ms, interval_ms);
            let took_ms = self.clock.now_ms() - fired_ms;
            if took_ms > interval_ms {
                tracing::warn!(
                    took_ms,
                    interval_ms,
                    "the micro-batch took longer than its trigger's interval"
                );
            }
            if let Turn::RolledBack(_) = self.wait_for_trigger(next_ms, stop).await? {
                return Ok(RunEnd::RolledBack);
            }
        }
        Ok(RunEnd::Stopped)
    }

    /// Waits for the time of the next trigger, or until it is asked to stop. A plugin that is to be swapped does not wait
    /// for it: it takes over in a micro-batch without data.
    async fn wait_for_trigger(&mut self, next_ms: i64, stop: &CancellationToken) -> Result<Turn> {
        loop {
            let (clock, swaps) = (Arc::clone(&self.clock), self.swaps.clone());
            tokio::select! {
                () = clock.sleep_until(next_ms) => return Ok(Turn::Idle),
                () = stop.cancelled() => return Ok(Turn::Idle),
                () = swaps.arrived() => {
                    if let Turn::RolledBack(batch_id) = self.swap_once().await? {
                        return Ok(Turn::RolledBack(batch_id));
                    }
                }
            }
        }
    }
}
