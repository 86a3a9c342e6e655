//! The stateless steps of a lane.
//!
//! `dataflow` runs lanes; many threads at once, every call on its own. Nothing here keeps anything between calls.

use crate::native::NativeRunner;
use crate::plugins::{FilterRunner, TransformRunner, sorted_out};
use crate::poison::{Blame, Losses, Whole};
use crate::static_join::StaticJoinRunner;
use crate::watermark::EventTimes;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::batch::piece_of_call;
use pelton_core::{BatchInfo, CallScope, DeadLetter, Error, PoisonReport, Result};
use pelton_plan::scope::{EvaluationScope, within};
use pelton_plan::{PhysicalStep, ROWS_PER_BATCH_MAX};
use std::sync::Arc;

/// The stateless steps of a lane, in order.
pub(crate) struct LaneSteps {
    steps: Vec<Step>,
    columns: Option<Vec<usize>>,
}

enum Step {
    Native(Arc<str>, NativeRunner),
    PluginFilter(FilterRunner),
    PluginTransform(TransformRunner),
    Watermark(EventTimes),
    StaticJoin(Arc<str>, StaticJoinRunner),
}

/// What became of rows on a lane.
#[derive(Default)]
pub(crate) struct LaneOutput {
    pub(crate) rows: Vec<RecordBatch>,
    pub(crate) dead_letters: Vec<DeadLetter>,
    pub(crate) poison: Vec<PoisonReport>,
    /// By watermark: the latest event time in milliseconds.
    pub(crate) event_times: Vec<Option<i64>>,
}

impl LaneSteps {
    /// Binds the steps to rows of schema `input`, which may lack columns that no step reads. The rows that come out
    /// have the schema `wanted`.
    pub(crate) fn new(physical: &[PhysicalStep], input: &SchemaRef, wanted: &SchemaRef) -> Result<Self> {
        let mut schema = input.clone();
        let mut steps = Vec::with_capacity(physical.len());
        for step in physical {
            let step = match step {
                PhysicalStep::Native(run) => {
                    let runner = NativeRunner::new(run, &schema)?;
                    schema = runner.schema().clone();
                    let operator = run.operators.first().map_or("sql", String::as_str);
                    Step::Native(operator.into(), runner)
                }
                PhysicalStep::Watermark(step) => Step::Watermark(EventTimes::new(step, &schema)?),
                PhysicalStep::StaticJoin(join) => {
                    let runner = StaticJoinRunner::new(join, &schema)?;
                    schema = runner.schema().clone();
                    Step::StaticJoin(join.operator.as_str().into(), runner)
                }
                PhysicalStep::PluginFilter(filter) => Step::PluginFilter(FilterRunner::new(filter, &schema)?),
                PhysicalStep::PluginTransform(transform) => {
                    let runner = TransformRunner::new(transform);
                    schema = runner.schema().clone();
                    Step::PluginTransform(runner)
                }
            };
            steps.push(step);
        }
        let columns = reordered(&schema, wanted)?;
        Ok(Self { steps, columns })
    }

    /// Takes rows through the steps. `watermarks` is how many the query has.
    pub(crate) fn process(
        &self,
        batch: &Arc<BatchInfo>,
        partition: u64,
        watermarks: usize,
        rows: Vec<RecordBatch>,
    ) -> Result<LaneOutput> {
        let mut part = Part {
            batch: batch.clone(),
            partition,
            calls: vec![0; self.steps.len()],
            losses: Losses::default(),
            event_times: vec![None; watermarks],
        };
        let mut out = Vec::with_capacity(rows.len());
        for rows in rows {
            part.through(&self.steps, 0, rows, &mut out)?;
        }
        if let Some(columns) = &self.columns {
            out = out.iter().map(|rows| rows.project(columns)).collect::<Result<_, _>>()?;
        }
        Ok(LaneOutput {
            rows: out,
            dead_letters: part.losses.letters,
            poison: part.losses.poison.reports,
            event_times: part.event_times,
        })
    }
}

/// Where the promised columns are, if the last step's are not they already (a query without steps).
fn reordered(have: &SchemaRef, wanted: &SchemaRef) -> Result<Option<Vec<usize>>> {
    if have == wanted {
        return Ok(None);
    }
    let position = |field: &arrow::datatypes::FieldRef| {
        have.index_of(field.name())
            .map_err(|_| Error::internal(format!("the column '{}' of the result is not there", field.name())))
    };
    wanted.fields().iter().map(position).collect::<Result<Vec<_>>>().map(Some)
}

/// What changes while a part of a micro-batch is processed.
struct Part {
    batch: Arc<BatchInfo>,
    partition: u64,
    /// For every step how many calls it has made.
    calls: Vec<u64>,
    losses: Losses,
    event_times: Vec<Option<i64>>,
}

impl Part {
    /// Takes a batch through the steps from `at` on; whole, so that only one batch is in flight.
    fn through(
        &mut self,
        steps: &[Step],
        at: usize,
        rows: RecordBatch,
        out: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if rows.num_rows() > ROWS_PER_BATCH_MAX {
            for start in (0..rows.num_rows()).step_by(ROWS_PER_BATCH_MAX) {
                let length = ROWS_PER_BATCH_MAX.min(rows.num_rows() - start);
                self.through(steps, at, rows.slice(start, length), out)?;
            }
            return Ok(());
        }
        let Some(step) = steps.get(at) else {
            out.push(rows);
            return Ok(());
        };
        match step {
            Step::Watermark(watermark) => {
                watermark.note(&rows, &mut self.event_times)?;
                self.through(steps, at + 1, rows, out)
            }
            Step::Native(operator, runner) => {
                let results = self.evaluate(at, operator, &rows, |rows| runner.process(rows))?;
                let mut results = results.into_iter().flat_map(|(_, results)| results);
                results.try_for_each(|rows| self.through(steps, at + 1, rows, out))
            }
            Step::StaticJoin(operator, runner) => {
                let batch_id = self.batch.batch_id;
                let results = self.evaluate(at, operator, &rows, |rows| runner.process(batch_id, rows))?;
                let mut results = results.into_iter().flat_map(|(_, results)| results);
                results.try_for_each(|rows| self.through(steps, at + 1, rows, out))
            }
            Step::PluginFilter(filter) => {
                let pieces = self.evaluate(at, filter.operator(), &rows, |rows| filter.arguments(rows))?;
                for (rows, arguments) in pieces {
                    let call = self.next_call(at);
                    let scope = CallScope {
                        batch: &self.batch,
                        operator: filter.operator(),
                        partition: self.partition,
                        call,
                    };
                    let kept = filter.keep(&scope, &rows, &arguments, &mut self.losses)?;
                    kept.into_iter().try_for_each(|rows| self.through(steps, at + 1, rows, out))?;
                }
                Ok(())
            }
            Step::PluginTransform(transform) => {
                let call = self.next_call(at);
                let scope = CallScope {
                    batch: &self.batch,
                    operator: transform.operator(),
                    partition: self.partition,
                    call,
                };
                let pieces = transform.process(&scope, &rows, &mut self.losses)?;
                pieces.into_iter().try_for_each(|rows| self.through(steps, at + 1, rows, out))
            }
        }
    }

    fn next_call(&mut self, step: usize) -> u64 {
        let call = self.calls[step];
        self.calls[step] += 1;
        call
    }

    /// Evaluates expressions over rows in the scope of a step; cuts the rows if a function in them fails and guilty ones are to
    /// be found. Gives the rows of each evaluation with what came of it.
    fn evaluate<T>(
        &mut self,
        step: usize,
        operator: &Arc<str>,
        rows: &RecordBatch,
        body: impl Fn(&RecordBatch) -> Result<T>,
    ) -> Result<Vec<(RecordBatch, T)>> {
        let first = self.calls[step];
        let (result, calls) = self.evaluated(operator, first, || body(rows));
        self.calls[step] = calls;
        let failed = match result {
            Ok(made) => return Ok(vec![(rows.clone(), made)]),
            Err(failed) => failed,
        };
        let whole = Whole { operator, unit: "rows", count: rows.num_rows() };
        let mut losses = std::mem::take(&mut self.losses);
        let pieces = losses.poison.cut(&whole, failed, &Blame::of_expression, |range| {
            let call = piece_of_call(first, range.start, range.len());
            self.evaluated(operator, call, || body(&rows.slice(range.start, range.len()))).0
        })?;
        let good = sorted_out(operator, rows, pieces, &mut losses.letters);
        self.losses = losses;
        good
    }

    /// Evaluates in the scope of an operator, functions being called from the call `first` on. With the number of the next.
    fn evaluated<T>(
        &self,
        operator: &Arc<str>,
        first: u64,
        body: impl FnOnce() -> Result<T>,
    ) -> (Result<T>, u64) {
        let scope = EvaluationScope {
            batch: self.batch.clone(),
            operator: operator.clone(),
            partition: self.partition,
            call: first,
        };
        let (result, next) = within(scope, body);
        (result.map_err(|e| e.context(format!("operator '{operator}'"))), next)
    }
}
