//! A query over a store in memory, micro-batch by micro-batch: what the engine does, without the engine.

use crate::QueryDataflow;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::{BatchId, BatchInfo, Dataflow, DeadLetter, QueryId, Result, StateStore};
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use pelton_state::MemoryStateStore;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A query and where it stands.
pub(super) struct Query {
    pub(super) flow: Arc<dyn Dataflow>,
    /// For each input its schema as the plan reads it, and the positions of its columns.
    pub(super) inputs: Vec<(String, Vec<usize>)>,
    store: MemoryStateStore,
    batches: u64,
    /// The latest event time of each watermark.
    seen: Vec<Option<i64>>,
    /// The watermark of the last micro-batch.
    pub(super) ran_with: Option<i64>,
    pub(super) threads: usize,
}

/// What a micro-batch made.
pub(super) struct Ran {
    pub(super) batch_id: u64,
    pub(super) rows: Vec<RecordBatch>,
    pub(super) watermark_ms: Option<i64>,
    pub(super) late_rows: u64,
    pub(super) letters: Vec<DeadLetter>,
    pub(super) state_rows: u64,
}

/// The plan of a pipeline file over sources.
pub(super) fn physical(text: &str, sources: &BTreeMap<String, SchemaRef>) -> Result<PhysicalPlan> {
    let file = PipelineFile::read(text, "p.yaml", &[])?;
    let inputs = PlanInputs { sources: sources.clone(), ..PlanInputs::default() };
    PhysicalPlan::build(&LogicalPlan::resolve(&file, &inputs)?)
}

impl Query {
    pub(super) fn new(plan: &PhysicalPlan) -> Result<Self> {
        let mut inputs = Vec::new();
        let mut schemas = Vec::new();
        for input in &plan.inputs {
            let position = |name: &String| input.schema.index_of(name).expect("a column");
            let columns: Vec<usize> = input.required_columns.iter().map(position).collect();
            schemas.push(Arc::new(input.schema.project(&columns).expect("columns")));
            inputs.push((input.name.clone(), columns));
        }
        let flow = QueryDataflow::bind(plan, &schemas)?;
        let seen = vec![None; flow.watermarks().len()];
        let ran_with = (!seen.is_empty()).then_some(0);
        Ok(Self { flow, inputs, store: MemoryStateStore::new(), batches: 0, seen, ran_with, threads: 1 })
    }

    /// The watermark that the next micro-batch runs with, by the policy `min`.
    pub(super) fn next_watermark(&self) -> Option<i64> {
        let of = |(seen, info): (&Option<i64>, &pelton_core::WatermarkInfo)| {
            seen.map_or(0, |ms| ms - info.delay_ms)
        };
        let least = self.seen.iter().zip(self.flow.watermarks()).map(of).min();
        self.ran_with.max(least)
    }

    /// Whether a micro-batch without data is due.
    pub(super) fn wants_more(&self) -> bool {
        self.batches > 0 && self.flow.wants_batch_without_data(self.ran_with, self.next_watermark())
    }

    /// Runs a micro-batch over the parts of each input, in the order of the inputs.
    pub(super) fn run(&mut self, parts: &[Vec<RecordBatch>]) -> Result<Ran> {
        let watermark_ms = self.next_watermark();
        let batch = Arc::new(BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(self.batches),
            time_ms: 1_767_225_600_123,
            watermark_ms,
            late_watermark_ms: self.ran_with,
        });
        let mut ran = Ran {
            batch_id: self.batches,
            rows: vec![],
            watermark_ms,
            late_rows: 0,
            letters: vec![],
            state_rows: 0,
        };
        let mut gather = self.flow.clone().gather(batch.clone());
        let mut partition = 0;
        for ((input, (_, columns)), parts) in self.inputs.iter().enumerate().zip(parts) {
            for rows in parts {
                let rows = rows.project(columns).expect("columns");
                let mut part = self.flow.part(&batch, input, partition, vec![rows])?;
                partition += 1;
                ran.letters.append(&mut part.dead_letters);
                merge(&mut self.seen, &part.event_times);
                gather.add(part)?;
            }
        }
        let gathered = gather.finish(&mut self.store, self.threads)?;
        merge(&mut self.seen, &gathered.event_times);
        futures::executor::block_on(self.store.commit(batch.batch_id))?;
        ran.rows = gathered.rows;
        ran.letters.extend(gathered.dead_letters);
        ran.late_rows = gathered.operators.iter().map(|report| report.late_rows).sum();
        ran.state_rows = gathered.operators.iter().map(|report| report.rows_total).sum();
        self.batches += 1;
        self.ran_with = watermark_ms;
        Ok(ran)
    }
}

fn merge(into: &mut [Option<i64>], from: &[Option<i64>]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = (*into).max(*from));
}
