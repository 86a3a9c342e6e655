//! One turn of the loop. Spark's `MicroBatchExecution`.
//!
//! ```text
//! 1 ask every source for its latest offset; admission decides whether there is a micro-batch
//! 2 write offsets/N                                  <- the input of N is now fixed for ever
//! 3 read the ranges, decode
//! 4 steps and plugins
//! 5 stateful operators: rows + state@N-1 -> rows + state@N
//! 6 the sink takes the rows, idempotent by (query id, N); dead letters are durable before it can
//! 7 the state's changes become durable
//! 8 write commits/N with the watermark to go on with and the state; trim the logs       <- N is done
//! 9 acknowledge the sources
//! ```
//!
//! [`Query::run_once`] holds every decision, its helpers hold none; a micro-batch's own state is in its
//! [`BatchContext`]. A crash before 2 plans again; between 2 and 8 it runs the same micro-batch again, with the same
//! ranges, time, watermarks and plugins, on the state of the one before; after 8 it goes on.

use crate::admission::{self, Available};
use crate::clock::Stopwatch;
use crate::letters::Letters;
use crate::meters::Meters;
use crate::progress::{DurationMs, Phase, millis};
use crate::query::{Logic, Query};
use crate::replay;
use crate::rows::{RowsOfBatch, open_inputs};
use crate::swap;
use crate::trigger::{self, ClockWatch};
use crate::watermark::partitions::SourcePartitions;
use crate::watermark::{EventTimes, WatermarkTracker};
use futures::{TryStreamExt, future};
use pelton_checkpoint::{CommitEntry, DeadLetterFile, LayoutId, OffsetEntry, SinkCommit, SourceOffsets};
use pelton_core::sink::RowStream;
use pelton_core::{
    BatchId, BatchInfo, END_OF_TIME_MS, Error, OperatorReport, Result, SinkReport, StateCommit, StateStore,
    TableVersion,
};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// What a trigger led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A micro-batch ran and is committed.
    Ran(BatchId),
    /// There was nothing to do.
    Idle,
    /// It failed with a plugin that had been swapped, and the log says by now that it runs again with the version before.
    /// This query is at its end; one that is put together anew goes on.
    RolledBack(BatchId),
}

/// All mutable state of one micro-batch.
pub(crate) struct BatchContext {
    pub(crate) info: Arc<BatchInfo>,
    /// What the offset log says of it.
    pub(crate) entry: OffsetEntry,
    /// What it reads, an input each, as the entry says.
    pub(crate) ranges: Vec<SourceOffsets>,
    pub(crate) logic: Arc<Logic>,
    pub(crate) is_rerun: bool,
    pub(crate) meters: Arc<Meters>,
    /// The latest event time of each watermark.
    pub(crate) event_times: Arc<EventTimes>,
    /// What the stateful operators did.
    pub(crate) operators: Vec<OperatorReport>,
    /// Where the state after it is.
    state: Option<StateCommit>,
    /// What that consists of.
    layout: Option<LayoutId>,
    /// The sink has it.
    pub(crate) is_in_sink: bool,
    pub(crate) sink: SinkReport,
    pub(crate) spent: DurationMs,
}

impl BatchContext {
    /// What its static tables are read from.
    pub(crate) fn tables(&self) -> &BTreeMap<String, TableVersion> {
        &self.entry.tables
    }

    fn is_stateful(&self) -> bool {
        !self.logic.dataflow.operators().is_empty()
    }
}

impl Query {
    /// Runs one micro-batch, if there is one to run. [`Query::run`] calls it for every trigger; tests may do so
    /// themselves. After an error the query is at its end.
    pub async fn run_once(&mut self) -> Result<Turn> {
        self.run_turn(false).await
    }

    /// Runs a micro-batch without data if a plugin is to be swapped; nothing otherwise.
    pub async fn swap_once(&mut self) -> Result<Turn> {
        self.run_turn(true).await
    }

    async fn run_turn(&mut self, only_swaps: bool) -> Result<Turn> {
        if self.failed {
            return Err(Error::internal("a query that has failed was asked to go on"));
        }
        let batch_id = self.position.batch_id;
        let turn = self.turn(only_swaps).await;
        self.failed = matches!(turn, Err(_) | Ok(Turn::RolledBack(_)));
        if turn.is_ok() {
            self.tell(Phase::Waiting);
        }
        let name = &self.checkpoint.metadata().query_name;
        let turn =
            turn.map_err(|failed| failed.context(format_args!("query '{name}', micro-batch {batch_id}")));
        turn.inspect_err(|failed| self.swap_failed(failed))
    }

    async fn turn(&mut self, only_swaps: bool) -> Result<Turn> {
        let started = Stopwatch::start();
        let planned = match self.position.pending.take() {
            Some(planned) => Some(self.planned_batch(planned)),
            None => self.plan(started, only_swaps).await?,
        };
        let Some(mut batch) = planned else { return Ok(Turn::Idle) };
        self.tell(Phase::Running { batch_id: batch.info.batch_id, is_rerun: batch.is_rerun });
        if let Err(failed) = self.process(&mut batch).await {
            return self.undo_swap(&batch, failed).await;
        }
        batch.spent.trigger_execution = millis(started.elapsed());
        let batch_id = batch.info.batch_id;
        self.swaps_committed(batch_id);
        self.report(batch, started).await;
        Ok(Turn::Ran(batch_id))
    }

    /// Steps 1 and 2, if there is a micro-batch to run.
    async fn plan(&mut self, started: Stopwatch, only_swaps: bool) -> Result<Option<BatchContext>> {
        self.take_over().await;
        let is_swap = self.swapping.is_some();
        if only_swaps && !is_swap {
            return Ok(None);
        }
        let time_ms = self.clock.now_ms().max(self.position.batch_time_ms);
        let available = match only_swaps {
            true => self.position.offsets.iter().map(Available::nothing_after).collect(),
            // A source that waits for its cluster has nothing under way that would have to be finished.
            false => tokio::select! {
                biased;
                asked = self.ask_sources(time_ms) => asked?,
                () = self.stop.cancelled() => return Ok(None),
            },
        };
        let watermarks = self.planned_watermarks(&available, time_ms).await?;
        let without_data = is_swap || self.wants_batch_without_data(&watermarks, time_ms);
        let Some(ranges) = admission::plan_batch(&available, without_data) else {
            self.sink.rest(time_ms).await?;
            return Ok(None);
        };
        self.watermarks = watermarks;
        let tables = self.latest_tables().await?;
        let mut batch = self.new_batch(time_ms, ranges, tables);
        batch.spent.latest_offset = millis(started.elapsed());
        self.write_offsets(&mut batch).await?;
        Ok(Some(batch))
    }

    /// Steps 3 to 9.
    async fn process(&mut self, batch: &mut BatchContext) -> Result<()> {
        let working = Stopwatch::start();
        self.pin_tables(batch).await?;
        let rows = self.rows(batch).await?;
        self.write_sink(batch, rows).await?;
        batch.spent.add_batch = millis(working.elapsed());
        if batch.sink.already_committed {
            self.see_unread_event_times(batch).await?;
        } else if !batch.meters.ended() {
            return Err(Error::internal(format!(
                "the sink `{}` took a micro-batch without reading it to its end",
                self.sink.description()
            )));
        }
        self.commit_state(batch).await?;
        self.write_commit(batch).await?;
        self.forget(batch).await;
        self.acknowledge(batch).await
    }

    /// Step 1.
    async fn ask_sources(&self, time_ms: i64) -> Result<Vec<Available>> {
        let asked = self.inputs.iter().zip(&self.position.offsets).map(|(input, position)| async move {
            let latest = input.source.latest_offset(position.as_ref(), self.limit, time_ms).await;
            let latest = latest.map_err(|failed| failed.context(format_args!("source '{}'", input.name)))?;
            Ok(Available { position: position.clone(), latest })
        });
        future::try_join_all(asked).await
    }

    /// The watermarks that a micro-batch over this would run with. They count from when one is really planned.
    async fn planned_watermarks(&self, available: &[Available], time_ms: i64) -> Result<WatermarkTracker> {
        let mut partitions = Vec::new();
        for (input, Available { position, latest }) in self.inputs.iter().zip(available) {
            if self.watermarks.watches_partitions_of(&input.name) {
                let (start, end) = (position.as_ref(), latest.as_ref().or(position.as_ref()));
                let told = input.source.partitions(start, end, time_ms).await;
                let told = told.map_err(|failed| failed.context(format_args!("source '{}'", input.name)))?;
                partitions.push(SourcePartitions { source: &input.name, partitions: told });
            }
        }
        let mut planned = self.watermarks.clone();
        if !partitions.is_empty() {
            planned.plan(&partitions, time_ms);
        }
        Ok(planned)
    }

    /// Whether the watermark has moved since the last micro-batch to where something expires or becomes final, or time
    /// has moved to where something falls due. Not before this run's first micro-batch, as in Spark; but a reset, which
    /// counts with that one, does not wait for rows.
    fn wants_batch_without_data(&self, planned: &WatermarkTracker, time_ms: i64) -> bool {
        if !self.position.has_run && !self.reset.is_empty() && self.position.batch_id != BatchId::FIRST {
            return true;
        }
        let (ran_with, next) = (self.position.last_watermark_ms, planned.current_ms());
        self.no_data_batches
            && self.position.has_run
            && (self.logic.dataflow.wants_batch_without_data(ran_with, next)
                || trigger::wants_batch_by_clock(self.trigger, self.clock_watch(), time_ms))
    }

    /// What waits for the clock.
    fn clock_watch(&self) -> ClockWatch {
        match self.logic.dataflow.operators().iter().any(|operator| operator.watches_clock) {
            false => ClockWatch::Nothing,
            true => ClockWatch::Until(self.position.next_due_ms),
        }
    }

    fn new_batch(
        &self,
        time_ms: i64,
        ranges: Vec<SourceOffsets>,
        tables: BTreeMap<String, TableVersion>,
    ) -> BatchContext {
        let named = self.inputs.iter().map(|input| input.name.clone()).zip(ranges.iter().cloned());
        let digests = self.logic.plugins.iter().map(|(name, plugin)| (name.clone(), plugin.digest.clone()));
        let (watermark_ms, late_watermark_ms) = match (self.watermarks.current_ms(), self.bounded) {
            (None, _) => (None, None),
            // All there will ever be is in this micro-batch: nothing is late, and everything is over after it.
            (Some(_), true) => (Some(END_OF_TIME_MS), Some(-END_OF_TIME_MS)),
            (now, false) => (now, Some(self.position.last_watermark_ms.unwrap_or(0))),
        };
        let entry = OffsetEntry {
            batch_time_ms: time_ms,
            watermark_ms,
            late_watermark_ms,
            watermark_policy: watermark_ms.map(|_| self.watermarks.policy()),
            partitions: self.watermarks.record_partitions(),
            sources: named.collect(),
            tables,
            plugins: digests.collect(),
            swaps: self.swapped.clone(),
            rolled_back: Vec::new(),
            // Of a run's first micro-batch: with its commit the reset has happened.
            reset: if self.position.has_run { Vec::new() } else { self.reset.clone() },
            sink: Some(self.sink.kind()),
            run_id: self.checkpoint.run_id().clone(),
        };
        self.context(entry, ranges, (Arc::clone(&self.logic), self.layout.clone()), false)
    }

    /// A micro-batch that a dead run has planned, exactly as it planned it.
    fn planned_batch(&mut self, entry: OffsetEntry) -> BatchContext {
        let current = || (Arc::clone(&self.logic), self.layout.clone());
        let logic = self.rerun_logic.take().unwrap_or_else(current);
        let ranges = replay::ranges(&self.inputs, &entry);
        self.context(entry, ranges, logic, true)
    }

    fn context(
        &self,
        entry: OffsetEntry,
        ranges: Vec<SourceOffsets>,
        (logic, layout): (Arc<Logic>, Option<LayoutId>),
        is_rerun: bool,
    ) -> BatchContext {
        let event_times = Arc::new(EventTimes::new(logic.dataflow.watermarks()));
        let query_id = &self.checkpoint.metadata().query_id;
        let info = replay::batch_info(query_id, self.position.batch_id, &entry, logic.dataflow.as_ref());
        BatchContext {
            info: Arc::new(info),
            entry,
            ranges,
            logic,
            is_rerun,
            meters: Arc::new(Meters::new(self.inputs.len())),
            event_times,
            operators: Vec::new(),
            state: None,
            layout,
            is_in_sink: false,
            sink: SinkReport::default(),
            spent: DurationMs::default(),
        }
    }

    /// Step 2.
    async fn write_offsets(&self, batch: &mut BatchContext) -> Result<()> {
        let watch = Stopwatch::start();
        self.checkpoint.write_offsets(batch.info.batch_id, &batch.entry).await?;
        batch.spent.wal_commit = millis(watch.elapsed());
        Ok(())
    }

    /// Steps 3 and 4, which happen when the sink asks for rows; with stateful operators 3, 4 and 5, which are over
    /// when this returns. So the state is computed whether the sink wants the rows or has them already.
    async fn rows(&mut self, batch: &mut BatchContext) -> Result<RowStream> {
        let rows = self.read(batch).await?;
        if !batch.is_stateful() {
            return Ok(rows.into_stream());
        }
        let gathered = rows.gather(self.take_state()?).await?;
        batch.operators = gathered.operators;
        self.state = Some(gathered.state).into();
        Ok(gathered.rows)
    }

    /// Opens the way of the rows through steps 3 and 4.
    async fn read(&self, batch: &mut BatchContext) -> Result<RowsOfBatch> {
        let watch = Stopwatch::start();
        let batch_id = batch.info.batch_id;
        let inputs = open_inputs(&self.inputs, &batch.ranges, batch_id).await?;
        batch.spent.get_batch = millis(watch.elapsed());
        Ok(RowsOfBatch {
            info: Arc::clone(&batch.info),
            inputs,
            dataflow: Arc::clone(&batch.logic.dataflow),
            parallelism: self.parallelism,
            dead_letters: self.letters(batch),
            on_probation: swap::on_probation(&batch.entry, batch_id, &batch.logic),
            event_times: Arc::clone(&batch.event_times),
            meters: Arc::clone(&batch.meters),
        })
    }

    /// Begins the dead letters.
    fn letters(&self, batch: &BatchContext) -> Letters {
        let file = DeadLetterFile::new(Arc::clone(&self.dead_letters), batch.info.batch_id);
        let letters = Letters::new(file.replacing(batch.is_rerun));
        let Some(sink) = &self.dead_letter_sink else { return letters };
        let plugins = batch.logic.plugins.iter();
        let names = plugins.map(|(name, plugin)| (plugin.digest.clone(), name.clone())).collect();
        letters.beside(Some(sink.begin(&batch.info, &Arc::new(names))))
    }

    /// The store goes with the rows to the worker thread and comes back with them.
    fn take_state(&mut self) -> Result<Box<dyn StateStore>> {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        state.ok_or_else(|| Error::internal("a stateful query has lost its state store"))
    }

    /// Step 6.
    async fn write_sink(&self, batch: &mut BatchContext, rows: RowStream) -> Result<()> {
        let watch = Stopwatch::start();
        batch.sink = self.sink.write(&batch.info, rows).await?;
        batch.is_in_sink = true;
        let took = watch.elapsed();
        let waited = Duration::from_nanos(batch.meters.rows_wait_nanos.load(Relaxed));
        let busy = Duration::from_nanos(batch.sink.busy_nanos);
        batch.spent.sink = millis(if busy.is_zero() { took.saturating_sub(waited) } else { busy });
        Ok(())
    }

    /// A sink that has the rows already may leave them unread, but the watermark follows from them.
    async fn see_unread_event_times(&self, batch: &mut BatchContext) -> Result<()> {
        if batch.is_stateful() || batch.meters.ended() || batch.info.watermark_ms.is_none() {
            return Ok(());
        }
        batch.meters = Arc::new(Meters::new(self.inputs.len()));
        let rows = self.read(batch).await?.into_stream();
        rows.try_for_each(|_| future::ready(Ok(()))).await
    }

    /// Step 7.
    async fn commit_state(&mut self, batch: &mut BatchContext) -> Result<()> {
        let Some(state) = self.state.get_mut().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
        let watch = Stopwatch::start();
        let committed = state.commit(batch.info.batch_id).await;
        batch.state = Some(committed.map_err(|failed| failed.context("the state was not committed"))?);
        batch.spent.state_commit = millis(watch.elapsed());
        Ok(())
    }

    /// Step 8. From here on the query stands behind this micro-batch. Old entries of the logs go at the same time.
    async fn write_commit(&mut self, batch: &mut BatchContext) -> Result<()> {
        let watch = Stopwatch::start();
        self.watermarks.advance(&batch.event_times.latest(), batch.info.time_ms);
        let SinkReport { rows, bytes, files, already_committed, .. } = batch.sink;
        let commit = CommitEntry {
            next_watermark_ms: self.watermarks.current_ms(),
            watermarks: self.watermarks.record(),
            partitions: self.watermarks.record_partitions(),
            state: batch.state.take(),
            layout: self.layout_after(batch),
            sink: SinkCommit { rows, bytes, files, already_committed },
            run_id: self.checkpoint.run_id().clone(),
        };
        let written = self.checkpoint.write_commit(batch.info.batch_id, &commit);
        let (written, trimmed) = tokio::join!(written, self.checkpoint.trim(batch.info.batch_id));
        written?;
        // What cannot be removed now is removed later; the micro-batch is done all the same.
        let _ = trimmed.inspect_err(|failed| tracing::warn!(%failed, "old log entries could not be removed"));
        self.committed_layout = commit.layout;
        self.position.batch_id = batch.info.batch_id.next();
        self.position.batch_time_ms = batch.info.time_ms;
        self.position.offsets = batch.ranges.iter().map(|range| range.end.clone()).collect();
        self.position.last_watermark_ms = batch.info.watermark_ms;
        self.position.has_run = true;
        self.position.next_due_ms = batch.operators.iter().filter_map(|operator| operator.next_due_ms).min();
        batch.spent.commit_offsets = millis(watch.elapsed());
        Ok(())
    }

    /// What the state after a micro-batch consists of. A swap without data leaves the state as the version before has
    /// written it, so that version can still read it.
    fn layout_after(&self, batch: &BatchContext) -> Option<LayoutId> {
        let on_probation = batch.entry.swaps.values().any(|swapped| swapped.probation.is_some());
        let is_untouched = admission::reads_nothing(&batch.ranges)
            && batch.operators.iter().all(|operator| operator.rows_updated == 0);
        match (on_probation && is_untouched, &self.committed_layout) {
            (true, Some(before)) => Some(before.clone()),
            _ => batch.layout.clone(),
        }
    }

    /// Gives up plugins and lets the state store give up what no entry of the logs names any more.
    async fn forget(&mut self, batch: &mut BatchContext) {
        let oldest = self.checkpoint.oldest_retained(batch.info.batch_id);
        self.kept_plugins.named(batch.entry.plugins.values(), &batch.entry.swaps, batch.info.batch_id);
        if let Some(digest) = self.kept_plugins.superfluous(oldest).cloned() {
            let removed = self.checkpoint.remove_plugin(&digest).await;
            let _ =
                removed.inspect_err(|failed| tracing::warn!(%failed, "an old plugin could not be removed"));
            self.kept_plugins.removed(&digest);
        }
        let Some(state) = self.state.get_mut().unwrap_or_else(PoisonError::into_inner) else { return };
        let watch = Stopwatch::start();
        let forgotten = state.retain(oldest).await;
        let _ = forgotten.inspect_err(|failed| tracing::warn!(%failed, "old state could not be removed"));
        batch.spent.state_commit += millis(watch.elapsed());
    }

    /// Step 9.
    async fn acknowledge(&mut self, batch: &mut BatchContext) -> Result<()> {
        let watch = Stopwatch::start();
        for (input, range) in
            self.inputs.iter().zip(&batch.ranges).filter(|(_, range)| range.start != range.end)
        {
            let Some(end) = &range.end else { continue };
            let done = input.source.commit(end).await;
            done.map_err(|failed| failed.context(format_args!("source '{}'", input.name)))?;
        }
        batch.spent.acknowledge = millis(watch.elapsed());
        Ok(())
    }
}
