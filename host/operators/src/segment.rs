//! Core's `Segment` over a physical plan.

use crate::native::NativeRunner;
use crate::plugins::{FilterRunner, TransformRunner};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::{BatchInfo, CallScope, DeadLetter, Error, Result, Segment, SegmentOutput};
use pelton_plan::scope::{EvaluationScope, within};
use pelton_plan::{PhysicalPlan, PhysicalStep, ROWS_PER_BATCH_MAX};
use std::sync::Arc;

/// The stateless steps of a query, in order. Called from many threads at once; every call is on its own.
pub struct StatelessSegment {
    steps: Vec<Step>,
    columns: Option<Vec<usize>>,
    schema: SchemaRef,
}

enum Step {
    Native(Arc<str>, NativeRunner),
    PluginFilter(FilterRunner),
    PluginTransform(TransformRunner),
}

impl StatelessSegment {
    /// `input` is the schema of the batches that the source really gives: all of its columns, or those that
    /// `plan.required_columns` names.
    pub fn new(plan: &PhysicalPlan, input: &SchemaRef) -> Result<Self> {
        let mut schema = input.clone();
        let mut steps = Vec::with_capacity(plan.lanes[0].steps.len());
        for step in &plan.lanes[0].steps {
            let step = match step {
                PhysicalStep::Native(run) => {
                    let runner = NativeRunner::new(run, &schema)?;
                    schema = runner.schema().clone();
                    let operator = run.operators.first().map_or("sql", String::as_str);
                    Step::Native(operator.into(), runner)
                }
                PhysicalStep::Watermark(_) | PhysicalStep::StaticJoin(_) => {
                    return Err(Error::internal("a step that is not here yet"));
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
        let columns = reordered(&schema, &plan.schema)?;
        Ok(Self { steps, columns, schema: plan.schema.clone() })
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

impl Segment for StatelessSegment {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn process(&self, batch: &BatchInfo, partition: u64, rows: Vec<RecordBatch>) -> Result<SegmentOutput> {
        let mut part = Part {
            batch: Arc::new(batch.clone()),
            partition,
            calls: vec![0; self.steps.len()],
            letters: Vec::new(),
        };
        let mut out = Vec::with_capacity(rows.len());
        for rows in rows {
            part.through(&self.steps, 0, rows, &mut out)?;
        }
        if let Some(columns) = &self.columns {
            out = out.iter().map(|rows| rows.project(columns)).collect::<Result<_, _>>()?;
        }
        Ok(SegmentOutput { batches: out, dead_letters: part.letters })
    }
}

/// What changes while a part of a micro-batch is processed.
struct Part {
    batch: Arc<BatchInfo>,
    partition: u64,
    /// For every step how many calls it has made.
    calls: Vec<u64>,
    letters: Vec<DeadLetter>,
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
            Step::Native(operator, runner) => {
                let results = self.evaluate(at, operator, || runner.process(&rows))?;
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
