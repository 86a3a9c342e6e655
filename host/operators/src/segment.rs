//! The stateless steps of a lane.
//!
//! `dataflow` runs lanes; many threads at once, every call on its own. Nothing here keeps anything between calls.

use crate::native::NativeRunner;
use crate::plugins::{FilterRunner, TransformRunner};
use crate::static_join::StaticJoinRunner;
use crate::watermark::EventTimes;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::{BatchInfo, CallScope, DeadLetter, Error, Result};
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
            letters: Vec::new(),
            event_times: vec![None; watermarks],
        };
        let mut out = Vec::with_capacity(rows.len());
        for rows in rows {
            part.through(&self.steps, 0, rows, &mut out)?;
        }
        if let Some(columns) = &self.columns {
            out = out.iter().map(|rows| rows.project(columns)).collect::<Result<_, _>>()?;
        }
        Ok(LaneOutput { rows: out, dead_letters: part.letters, event_times: part.event_times })
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
    letters: Vec<DeadLetter>,
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
                let results = self.evaluate(at, operator, || runner.process(&rows))?;
                results.into_iter().try_for_each(|rows| self.through(steps, at + 1, rows, out))
            }
            Step::StaticJoin(operator, runner) => {
                let batch_id = self.batch.batch_id;
                let results = self.evaluate(at, operator, || runner.process(batch_id, &rows))?;
                results.into_iter().try_for_each(|rows| self.through(steps, at + 1, rows, out))
            }
            Step::PluginFilter(filter) => {
                let arguments = self.evaluate(at, filter.operator(), || filter.arguments(&rows))?;
                let call = self.next_call(at);
                let scope = CallScope {
                    batch: &self.batch,
                    operator: filter.operator(),
                    partition: self.partition,
                    call,
                };
                let kept = filter.keep(&scope, &rows, &arguments, &mut self.letters)?;
                self.through(steps, at + 1, kept, out)
            }
            Step::PluginTransform(transform) => {
                let call = self.next_call(at);
                let scope = CallScope {
                    batch: &self.batch,
                    operator: transform.operator(),
                    partition: self.partition,
                    call,
                };
                let rows = transform.process(&scope, &rows, &mut self.letters)?;
                self.through(steps, at + 1, rows, out)
            }
        }
    }

    fn next_call(&mut self, step: usize) -> u64 {
        let call = self.calls[step];
        self.calls[step] += 1;
        call
    }

    /// Evaluates expressions in the scope of a step.
    fn evaluate<T>(
        &mut self,
        step: usize,
        operator: &Arc<str>,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let scope = EvaluationScope {
            batch: self.batch.clone(),
            operator: operator.clone(),
            partition: self.partition,
            call: self.calls[step],
        };
        let (result, calls) = within(scope, body);
        self.calls[step] = calls;
        result.map_err(|e| e.context(format!("operator '{operator}'")))
    }
}
