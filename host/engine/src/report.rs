//! Says what became of a micro-batch: from its counts to the [`Progress`] that the listener gets.
//!
//! Called by `micro_batch` when all is done, and for every change of what it does; decides nothing.

use crate::admission;
use crate::clock::Stopwatch;
use crate::meters::InputMeter;
use crate::micro_batch::BatchContext;
use crate::progress::{
    self, EventTime, PartitionProgress, Phase, Progress, SinkProgress, SourceMetrics, SourceProgress,
    StateOperatorProgress, WatermarkProgress, millis,
};
use crate::query::{Input, Query};
use crate::watermark::{Mark, partitions};
use pelton_checkpoint::SourceOffsets;
use pelton_core::{Backlog, OperatorInfo, StateUsage};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

impl Query {
    pub(crate) async fn report(&mut self, mut batch: BatchContext, started: Stopwatch) {
        let meters = &batch.meters;
        let of_nanos = |nanos: &AtomicU64| millis(Duration::from_nanos(nanos.load(Relaxed)));
        batch.spent.get_batch += of_nanos(&meters.read_nanos);
        batch.spent.decode = of_nanos(&meters.decode_nanos);
        batch.spent.segments = of_nanos(&meters.process_nanos);
        batch.spent.stateful = of_nanos(&meters.stateful_nanos);
        let since_last = self
            .last_started
            .replace(started)
            .map_or(0.0, |last| last.elapsed().saturating_sub(started.elapsed()).as_secs_f64());
        let asked = self.inputs.iter().zip(&self.position.offsets);
        let asked = asked.map(|(input, position)| input.source.backlog(position.as_ref()));
        let backlogs = futures::future::join_all(asked).await;
        let progress = self.progress(&batch, since_last, &backlogs);
        self.warn_of_late_rows(&batch);
        self.summary.add(&progress);
        if let Some(listener) = &self.listener {
            listener(&progress);
        }
    }

    /// Tells what the query is doing, if that is news.
    pub(crate) fn tell(&mut self, phase: Phase) {
        if self.phase.replace(phase) != Some(phase)
            && let Some(listener) = &self.phase_listener
        {
            listener(phase);
        }
    }

    /// Once a run: who wonders where rows have gone should find it in the log.
    fn warn_of_late_rows(&mut self, batch: &BatchContext) {
        let (late, kept) = (batch.meters.late.load(Relaxed), batch.meters.late_kept.load(Relaxed));
        if late > kept && !self.warned_of_late_rows {
            self.warned_of_late_rows = true;
            tracing::warn!(
                query = self.checkpoint.metadata().query_name,
                batch_id = %batch.info.batch_id,
                rows = late - kept,
                "late rows are dropped: they are behind the watermark; `on_late: dead_letter` would keep them"
            );
        }
    }

    fn event_time(&self, batch: &BatchContext) -> EventTime {
        let marks = self.watermarks.marks().iter().zip(batch.event_times.latest().all);
        let marks = marks.map(|(mark, latest)| WatermarkProgress {
            name: mark.name.clone(),
            max: latest.map(progress::iso8601),
            watermark: progress::iso8601(mark.at_ms),
            holds: self.watermarks.waits_for(mark),
            partitions: Self::partitions(mark),
        });
        EventTime {
            max: batch.event_times.latest().all.into_iter().flatten().max().map(progress::iso8601),
            watermark: batch.info.watermark_ms.map(progress::iso8601),
            watermarks: marks.collect(),
        }
    }

    fn partitions(mark: &Mark) -> Vec<PartitionProgress> {
        let partitions = mark.partitions.iter().map(|(name, partition)| PartitionProgress {
            name: name.clone(),
            max: partition.latest_ms.map(progress::iso8601),
            caught_up: partition.caught_up,
            idle: partition.idle,
            holds: partitions::holds(&mark.partitions, name),
        });
        partitions.collect()
    }

    fn state_operators(&mut self, batch: &BatchContext) -> Vec<StateOperatorProgress> {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).as_deref();
        let usage = |operator: &OperatorInfo| {
            state.map_or_else(StateUsage::default, |state| state.usage(&format!("{}/", operator.name)))
        };
        let operators = batch.logic.dataflow.operators().iter().zip(&batch.operators);
        let operators = operators.map(|(operator, did)| {
            let StateUsage { bytes, memory_bytes } = usage(operator);
            StateOperatorProgress {
                operator_name: operator.name.clone(),
                kind: operator.kind,
                num_rows_total: did.rows_total,
                num_rows_updated: did.rows_updated,
                num_rows_removed: did.rows_removed,
                num_rows_dropped_by_watermark: did.late_rows,
                state_bytes: bytes,
                memory_used_bytes: memory_bytes,
            }
        });
        operators.collect()
    }

    fn progress(
        &mut self,
        batch: &BatchContext,
        seconds_since_last: f64,
        backlogs: &[Option<Backlog>],
    ) -> Progress {
        let state_operators = self.state_operators(batch);
        let meters = &batch.meters;
        let seconds = batch.spent.trigger_execution / 1e3;
        let sources = self.inputs.iter().zip(&batch.ranges).zip(&meters.inputs).zip(backlogs);
        type Told<'a> = (((&'a Input, &'a SourceOffsets), &'a InputMeter), &'a Option<Backlog>);
        let source = |(((input, range), meter), backlog): Told<'_>| SourceProgress {
            name: input.name.clone(),
            description: input.source.description(),
            start_offset: range.start.clone(),
            end_offset: range.end.clone(),
            num_input_rows: meter.rows.load(Relaxed),
            input_rows_per_second: progress::rate(meter.rows.load(Relaxed), seconds_since_last),
            processed_rows_per_second: progress::rate(meter.rows.load(Relaxed), seconds),
            num_input_bytes: meter.bytes.load(Relaxed),
            num_malformed_rows: meter.malformed.load(Relaxed),
            metrics: SourceMetrics::of(*backlog, input.source.take_lost()),
        };
        let num_input_rows = meters.inputs.iter().map(|meter| meter.rows.load(Relaxed)).sum();
        Progress {
            id: batch.info.query_id.clone(),
            run_id: self.checkpoint.run_id().clone(),
            name: self.checkpoint.metadata().query_name.clone(),
            timestamp: progress::iso8601(batch.info.time_ms),
            batch_id: batch.info.batch_id,
            is_rerun: batch.is_rerun,
            no_data: admission::reads_nothing(&batch.ranges),
            batch_duration: batch.spent.trigger_execution,
            num_input_rows,
            input_rows_per_second: progress::rate(num_input_rows, seconds_since_last),
            processed_rows_per_second: progress::rate(num_input_rows, seconds),
            duration_ms: batch.spent,
            event_time: self.event_time(batch),
            state_operators,
            plugins: self.swaps.plugins(),
            sources: sources.map(source).collect(),
            sink: SinkProgress {
                description: self.sink.description(),
                num_output_rows: batch.sink.rows,
                num_output_bytes: batch.sink.bytes,
                num_output_files: batch.sink.files,
                already_committed: batch.sink.already_committed,
            },
            num_refused_rows: meters.refused.load(Relaxed),
            num_poison_rows: meters.poison.load(Relaxed),
            num_late_rows: meters.late.load(Relaxed),
            num_dead_letters: meters.dead_letters.load(Relaxed),
        }
    }
}
