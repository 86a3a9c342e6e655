//! One turn of the loop. Spark's `MicroBatchExecution`.
//!
//! ```text
//! 1 ask every source for its latest offset; admission decides whether there is a micro-batch
//! 2 write offsets/N                                  <- the input of N is now fixed for ever
//! 3 read the ranges, decode
//! 4 steps and plugins
//! 6 the sink takes the rows, idempotent by (query id, N); dead letters are durable before it can
//! 8 write commits/N; trim the logs                   <- N is done
//! 9 acknowledge the sources
//! ```
//!
//! (5 and 7 are the stateful operators' and their state's.) [`Query::run_once`] holds every decision, its helpers
//! hold none; a micro-batch's own state is in its [`BatchContext`]. A crash before 2 plans again; between 2 and 8 it
//! runs the same micro-batch again, with the same ranges, time, watermark and plugins; after 8 it goes on.

use crate::admission::{self, Available};
use crate::clock::Stopwatch;
use crate::meters::Meters;
use crate::progress::{DurationMs, millis};
use crate::query::{Input, Logic, Query};
use crate::rows::{InputRows, RowsOfBatch};
use futures::future;
use pelton_checkpoint::{CommitEntry, DeadLetterFile, OffsetEntry, Resume, SinkCommit, SourceOffsets};
use pelton_core::sink::RowStream;
use pelton_core::{BatchId, BatchInfo, Error, Offset, OffsetRange, Result, SinkReport};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What a trigger led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A micro-batch ran and is committed.
    Ran(BatchId),
    /// There was nothing to do.
    Idle,
}

/// How far a query is: what the logs say, kept in memory from micro-batch to micro-batch.
#[derive(Debug)]
pub(crate) struct Position {
    /// The micro-batch to run next.
    batch_id: BatchId,
    /// Where each input's last micro-batch ended.
    offsets: Vec<Option<Offset>>,
    /// The watermark to run it with.
    watermark_ms: Option<i64>,
    /// The time of the one before; time never runs backwards within a query.
    batch_time_ms: i64,
    /// It was planned by a run that died.
    pending: Option<OffsetEntry>,
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
                watermark_ms: None,
                batch_time_ms: i64::MIN,
                pending: None,
            },
            Resume::Rerun { batch_id, entry } => Self {
                batch_id,
                offsets: at(&entry, |source| source.start.clone()),
                watermark_ms: entry.watermark_ms,
                batch_time_ms: entry.batch_time_ms,
                pending: Some(entry),
            },
            Resume::Next { batch_id, last, watermark_ms } => Self {
                batch_id,
                offsets: at(&last, |source| source.end.clone()),
                watermark_ms,
                batch_time_ms: last.batch_time_ms,
                pending: None,
            },
        }
    }
}

/// All mutable state of one micro-batch.
pub(crate) struct BatchContext {
    pub(crate) info: Arc<BatchInfo>,
    /// What the offset log says of it.
    entry: OffsetEntry,
    /// What it reads, an input each, as the entry says.
    pub(crate) ranges: Vec<SourceOffsets>,
    logic: Arc<Logic>,
    pub(crate) is_rerun: bool,
    pub(crate) meters: Arc<Meters>,
    pub(crate) sink: SinkReport,
    pub(crate) spent: DurationMs,
}

impl Query {
    /// Runs one micro-batch, if there is one to run. [`Query::run`] calls it for every trigger; tests may do so
    /// themselves. After an error the query is at its end.
    pub async fn run_once(&mut self) -> Result<Turn> {
        if self.failed {
            return Err(Error::internal("a query that has failed was asked to go on"));
        }
        let batch_id = self.position.batch_id;
        let turn = self.turn().await;
        self.failed = turn.is_err();
        let name = &self.checkpoint.metadata().query_name;
        turn.map_err(|failed| failed.context(format_args!("query '{name}', micro-batch {batch_id}")))
    }

    async fn turn(&mut self) -> Result<Turn> {
        let started = Stopwatch::start();
        let mut batch = match self.position.pending.take() {
            Some(planned) => self.planned_batch(planned),
            None => {
                let time_ms = self.clock.now_ms().max(self.position.batch_time_ms);
                let available = self.ask_sources(time_ms).await?;
                let Some(ranges) = admission::plan_batch(&available) else { return Ok(Turn::Idle) };
                let mut batch = self.new_batch(time_ms, ranges);
                batch.spent.latest_offset = millis(started.elapsed());
                self.write_offsets(&mut batch).await?;
                batch
            }
        };
        let rows = self.read(&mut batch).await?;
        self.write_sink(&mut batch, rows).await?;
        if !batch.sink.already_committed && !batch.meters.ended() {
            return Err(Error::internal(format!(
                "the sink `{}` took a micro-batch without reading it to its end",
                self.sink.description()
            )));
        }
        self.write_commit(&mut batch).await?;
        self.acknowledge(&mut batch).await?;
        batch.spent.trigger_execution = millis(started.elapsed());
        let batch_id = batch.info.batch_id;
        self.report(batch, started);
        Ok(Turn::Ran(batch_id))
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

    fn new_batch(&self, time_ms: i64, ranges: Vec<SourceOffsets>) -> BatchContext {
        let named = self.inputs.iter().map(|input| input.name.clone()).zip(ranges.iter().cloned());
        let digests = self.logic.plugins.iter().map(|(name, plugin)| (name.clone(), plugin.digest.clone()));
        let entry = OffsetEntry {
            batch_time_ms: time_ms,
            watermark_ms: self.position.watermark_ms,
            sources: named.collect(),
            plugins: digests.collect(),
            run_id: self.checkpoint.run_id().clone(),
        };
        self.context(entry, ranges, Arc::clone(&self.logic), false)
    }

    /// A micro-batch that a dead run has planned, exactly as it planned it.
    fn planned_batch(&mut self, entry: OffsetEntry) -> BatchContext {
        let logic = self.rerun_logic.take().unwrap_or_else(|| Arc::clone(&self.logic));
        let nothing = SourceOffsets { start: None, end: None };
        let range = |input: &Input| entry.sources.get(&input.name).cloned().unwrap_or(nothing.clone());
        let ranges = self.inputs.iter().map(range).collect();
        self.context(entry, ranges, logic, true)
    }

    fn context(
        &self,
        entry: OffsetEntry,
        ranges: Vec<SourceOffsets>,
        logic: Arc<Logic>,
        is_rerun: bool,
    ) -> BatchContext {
        let info = BatchInfo {
            query_id: self.checkpoint.metadata().query_id.clone(),
            batch_id: self.position.batch_id,
            time_ms: entry.batch_time_ms,
            watermark_ms: entry.watermark_ms,
            late_watermark_ms: entry.watermark_ms,
        };
        BatchContext {
            info: Arc::new(info),
            entry,
            ranges,
            logic,
            is_rerun,
            meters: Arc::new(Meters::new(self.inputs.len())),
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

    /// Opens the way of the rows through steps 3 and 4. They move when the sink asks for them.
    async fn read(&self, batch: &mut BatchContext) -> Result<RowStream> {
        let watch = Stopwatch::start();
        let batch_id = batch.info.batch_id;
        let reads = self.inputs.iter().zip(&batch.ranges).enumerate();
        let moved = reads.filter(|(_, (_, range))| range.start != range.end);
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (index, (input, range)) in moved {
            let Some(end) = range.end.clone() else { continue };
            let range = OffsetRange { start: range.start.clone(), end };
            let blocks = input.source.read(batch_id, &range).await;
            let blocks = blocks.map_err(|failed| failed.context(format_args!("source '{}'", input.name)))?;
            inputs.push(InputRows { index, blocks, segment: Arc::clone(&batch.logic.segments[index]) });
        }
        batch.spent.get_batch = millis(watch.elapsed());
        let rows = RowsOfBatch {
            info: Arc::clone(&batch.info),
            inputs,
            parallelism: self.parallelism,
            dead_letters: DeadLetterFile::new(Arc::clone(&self.dead_letters), batch_id),
            meters: Arc::clone(&batch.meters),
        };
        Ok(rows.into_stream())
    }

    /// Step 6; 3 and 4 happen inside.
    async fn write_sink(&self, batch: &mut BatchContext, rows: RowStream) -> Result<()> {
        let watch = Stopwatch::start();
        batch.sink = self.sink.write(&batch.info, rows).await?;
        let took = watch.elapsed();
        let waited = Duration::from_nanos(batch.meters.rows_wait_nanos.load(Relaxed));
        let busy = Duration::from_nanos(batch.sink.busy_nanos);
        batch.spent.add_batch = millis(took);
        batch.spent.sink = millis(if busy.is_zero() { took.saturating_sub(waited) } else { busy });
        Ok(())
    }

    /// Step 8. From here on the query stands behind this micro-batch. Old entries of the logs go at the same time.
    async fn write_commit(&mut self, batch: &mut BatchContext) -> Result<()> {
        let watch = Stopwatch::start();
        let SinkReport { rows, bytes, files, .. } = batch.sink;
        let commit = CommitEntry {
            next_watermark_ms: self.position.watermark_ms,
            sink: SinkCommit { rows, bytes, files },
            run_id: self.checkpoint.run_id().clone(),
        };
        let written = self.checkpoint.write_commit(batch.info.batch_id, &commit);
        let (written, trimmed) = tokio::join!(written, self.checkpoint.trim(batch.info.batch_id));
        written?;
        // What cannot be removed now is removed later; the micro-batch is done all the same.
        let _ = trimmed.inspect_err(|failed| tracing::warn!(%failed, "old log entries could not be removed"));
        self.position.batch_id = batch.info.batch_id.next();
        self.position.batch_time_ms = batch.info.time_ms;
        self.position.offsets = batch.ranges.iter().map(|range| range.end.clone()).collect();
        batch.spent.commit_offsets = millis(watch.elapsed());
        Ok(())
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
