//! Core's `Dataflow` over a physical plan: lanes of stateless steps between sources, stateful operators and sink.
//!
//! The engine drives it: [`Dataflow::part`] from many threads, then one [`Gather`] a micro-batch. It keeps nothing
//! between micro-batches; state is the operators', in the store that the engine hands in.

mod gather;

use crate::segment::LaneSteps;
use crate::stateful::{NodeScope, Operator, Piece, Prepared, operator};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use gather::QueryGather;
use pelton_core::failure::add_reports;
use pelton_core::{
    BatchInfo, Dataflow, DeadLetter, Error, Gather, OperatorInfo, Part, PoisonReport, Result, StateLayout,
    WatermarkInfo,
};
use pelton_plan::PhysicalPlan;
use pelton_plan::scope::{EvaluationScope, within};
use pelton_plan::stateful::{Lane, Origin, StatefulNode, Target};
use std::sync::Arc;

/// The operators of a query, bound to each other. Called from many threads at once.
pub struct QueryDataflow {
    schema: SchemaRef,
    watermarks: Vec<WatermarkInfo>,
    operators: Vec<OperatorInfo>,
    lanes: Vec<LaneRunner>,
    nodes: Vec<Node>,
}

struct LaneRunner {
    origin: Origin,
    target: Target,
    steps: LaneSteps,
}

struct Node {
    name: Arc<str>,
    operator: Box<dyn Operator>,
    /// The tables that hold its rows of state.
    tables: Vec<String>,
    watermark_offset_ms: Option<i64>,
    keep_late_rows: bool,
}

/// What became of rows on one lane, the first half of the operator at its end included.
#[derive(Default)]
struct Flowed {
    lane: usize,
    /// If the lane ends at the sink.
    rows: Vec<RecordBatch>,
    /// If it ends at an operator.
    pieces: Vec<(usize, Piece)>,
    late_rows: u64,
    dead_letters: Vec<DeadLetter>,
    poison: Vec<PoisonReport>,
    event_times: Vec<Option<i64>>,
}

/// What a part hands to the second stage: the lanes that it went through.
struct Exchange(Vec<Flowed>);

impl QueryDataflow {
    /// Binds a plan. `inputs` are the schemas of the batches that the sources really give: all of their columns, or
    /// those that the plan requires.
    pub fn bind(plan: &PhysicalPlan, inputs: &[SchemaRef]) -> Result<Arc<dyn Dataflow>> {
        let nodes = plan.nodes.iter().map(Node::new).collect::<Result<Vec<_>>>()?;
        let lanes = plan.lanes.iter().map(|lane| LaneRunner::new(lane, plan, inputs));
        let lanes = lanes.collect::<Result<Vec<_>>>()?;
        let operators = nodes.iter().zip(&plan.nodes).map(|(node, planned)| OperatorInfo {
            name: planned.name.clone(),
            kind: planned.operator.kind(),
            waits_for: node.operator.waits_for(),
            watches_clock: node.operator.watches_clock(),
            layout: planned
                .layout
                .clone()
                .map(|layout| StateLayout { form: node.operator.state_form(), ..layout }),
        });
        Ok(Arc::new(Self {
            schema: plan.schema.clone(),
            watermarks: plan.watermarks.clone(),
            operators: operators.collect(),
            lanes,
            nodes,
        }))
    }

    /// Takes rows along a lane and, at its end, through the first half of the operator there.
    fn flow(
        &self,
        batch: &Arc<BatchInfo>,
        lane: usize,
        partition: u64,
        rows: Vec<RecordBatch>,
    ) -> Result<Flowed> {
        let runner = &self.lanes[lane];
        let output = runner.steps.process(batch, partition, self.watermarks.len(), rows)?;
        let flowed = Flowed {
            lane,
            dead_letters: output.dead_letters,
            poison: output.poison,
            event_times: output.event_times,
            ..Flowed::default()
        };
        match runner.target {
            Target::Sink => Ok(Flowed { rows: output.rows, ..flowed }),
            Target::Port { .. } if output.rows.is_empty() => Ok(flowed),
            Target::Port { node, port } => {
                // Lanes count their calls apart, so that two of them at one operator are not the same place.
                let call = (lane as u64) << 32;
                let prepared = self.nodes[node].within(batch, partition, call, |operator, scope| {
                    operator.prepare(scope, port, &output.rows)
                })?;
                Ok(flowed.with(prepared))
            }
        }
    }
}

impl Flowed {
    fn with(mut self, prepared: Prepared) -> Self {
        self.pieces = prepared.pieces;
        self.late_rows = prepared.late_rows;
        self.dead_letters.extend(prepared.dead_letters);
        self
    }
}

impl LaneRunner {
    fn new(lane: &Lane, plan: &PhysicalPlan, inputs: &[SchemaRef]) -> Result<Self> {
        let input = match lane.origin {
            Origin::Source(input) => inputs.get(input),
            Origin::Node(node) => plan.nodes.get(node).map(|node| &node.schema),
        };
        let wanted = match lane.target {
            Target::Sink => Some(&plan.schema),
            Target::Port { node, port } => plan.nodes.get(node).and_then(|node| node.inputs.get(port)),
        };
        let (Some(input), Some(wanted)) = (input, wanted) else {
            return Err(Error::internal("a lane from or to what is not in the plan"));
        };
        let steps = LaneSteps::new(&lane.steps, input, wanted)?;
        Ok(Self { origin: lane.origin, target: lane.target, steps })
    }
}

impl Node {
    fn new(node: &StatefulNode) -> Result<Self> {
        let operator = operator(node)?;
        if operator.ports() != node.inputs.len() {
            return Err(Error::internal(format!(
                "operator '{}' has {} inputs",
                node.name,
                node.inputs.len()
            )));
        }
        Ok(Self {
            name: node.name.as_str().into(),
            tables: operator.counted_tables(&node.name),
            operator,
            watermark_offset_ms: node.watermark_offset_ms,
            keep_late_rows: node.keep_late_rows,
        })
    }

    /// The operator's watermark when the query's is `watermark_ms`. Like that one it never is before 1970.
    fn watermark(&self, watermark_ms: Option<i64>) -> Option<i64> {
        let offset_ms = self.watermark_offset_ms?;
        watermark_ms.map(|watermark_ms| watermark_ms.saturating_add(offset_ms).max(watermark_ms.min(0)))
    }

    /// Calls into the operator; its expressions find where they are.
    fn within<T>(
        &self,
        batch: &Arc<BatchInfo>,
        partition: u64,
        call: u64,
        body: impl FnOnce(&dyn Operator, &NodeScope<'_>) -> Result<T>,
    ) -> Result<T> {
        let evaluation =
            EvaluationScope { batch: batch.clone(), operator: self.name.clone(), partition, call };
        let scope = NodeScope {
            batch,
            name: &self.name,
            late_ms: self.watermark(batch.late_watermark_ms),
            watermark_ms: self.watermark(batch.watermark_ms),
            keep_late_rows: self.keep_late_rows,
        };
        let (result, _) = within(evaluation, || body(self.operator.as_ref(), &scope));
        result.map_err(|e| e.context(format!("operator '{}'", self.name)))
    }
}

impl Dataflow for QueryDataflow {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn watermarks(&self) -> &[WatermarkInfo] {
        &self.watermarks
    }

    fn operators(&self) -> &[OperatorInfo] {
        &self.operators
    }

    fn part(&self, batch: &BatchInfo, input: usize, partition: u64, rows: Vec<RecordBatch>) -> Result<Part> {
        let batch = Arc::new(batch.clone());
        let mut part = Part { event_times: vec![None; self.watermarks.len()], ..Part::default() };
        let mut flows = Vec::new();
        for (lane, runner) in self.lanes.iter().enumerate() {
            if runner.origin != Origin::Source(input) {
                continue;
            }
            let mut flowed = self.flow(&batch, lane, partition, rows.clone())?;
            part.dead_letters.append(&mut flowed.dead_letters);
            add_reports(&mut part.poison, std::mem::take(&mut flowed.poison));
            merge_times(&mut part.event_times, &flowed.event_times);
            flows.push(flowed);
        }
        if self.nodes.is_empty() {
            part.rows = flows.into_iter().flat_map(|flowed| flowed.rows).collect();
        } else {
            part.exchange = Some(Box::new(Exchange(flows)));
        }
        Ok(part)
    }

    fn gather(self: Arc<Self>, batch: Arc<BatchInfo>) -> Box<dyn Gather> {
        Box::new(QueryGather::new(self, batch))
    }

    fn wants_batch_without_data(&self, ran_with: Option<i64>, next: Option<i64>) -> bool {
        let moved = |node: &Node| node.watermark(next) > node.watermark(ran_with);
        next.is_some() && self.nodes.iter().any(|node| node.operator.watches_watermark() && moved(node))
    }
}

/// Later times win.
fn merge_times(into: &mut [Option<i64>], from: &[Option<i64>]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into = (*into).max(*from);
    }
}
