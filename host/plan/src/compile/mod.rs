//! Cuts the tree of a query into lanes of stateless work and stateful operators between them.
//!
//! Called by [`crate::PhysicalPlan::build`] when [`crate::check()`] has nothing against the plan. From the sink down:
//! stateless nodes are put on top of what their lane has so far, a stateful one ends the lanes of its inputs and begins
//! a new one. Nothing here touches rows.

mod aggregate;
mod groups;
mod join;
mod lane;
mod meaning;
mod state;
mod static_table;

use crate::logical::{LogicalPlan, Operation};
use crate::physical::{
    PhysicalInput, PhysicalPlan, PhysicalStep, PluginFilter, PluginTransform, Stretch, leaf_schemas,
};
use crate::stateful::{
    Dedup, DedupExpiry, EventTimeColumn, Lane, Limit, Origin, Sort, StatefulNode, StatefulOperator, Target,
    WatermarkStep,
};
use crate::tree::event_time::event_times;
use crate::tree::{self, StreamNode, StreamOp, filters, stream_node};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan as SqlPlan, LogicalPlanBuilder};
use datafusion::physical_expr::create_physical_sort_exprs;
use lane::{OpenLane, unique_schema};
use pelton_core::{Error, OutputMode, Result};
use std::sync::Arc;

/// Makes the plan.
pub(crate) fn compile(logical: &LogicalPlan) -> Result<PhysicalPlan> {
    let mut compiler = Compiler { logical, lanes: Vec::new(), nodes: Vec::new() };
    let root = compiler.prepared().map_err(|e| crate::sql::planning_error(&e))?;
    let lanes = compiler.lanes(&root, None)?;
    let schema = logical.schema.clone();
    for lane in lanes {
        compiler.finish(lane, Target::Sink, &schema)?;
    }
    let Compiler { lanes, nodes, .. } = compiler;
    let inputs = logical.sources.iter().enumerate().map(|(index, source)| PhysicalInput {
        name: source.name.clone(),
        connector: source.connector,
        required_columns: required_columns(&lanes, index, &source.schema),
        schema: source.schema.clone(),
    });
    Ok(PhysicalPlan {
        name: logical.name.clone(),
        inputs: inputs.collect(),
        lanes,
        nodes,
        watermarks: logical.watermarks.clone(),
        watermark_policy: logical.watermark_policy,
        schema,
        output_mode: logical.output_mode,
        trigger: logical.trigger,
        sink: logical.sink,
        time_zone: logical.time_zone.clone(),
        warnings: crate::warnings(logical),
    })
}

/// What the lanes of a source read of it. A plugin that sees the source's rows sees all of them, and a refused row goes
/// to the dead letters whole.
fn required_columns(lanes: &[Lane], source: usize, schema: &SchemaRef) -> Vec<String> {
    let all = || schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let mut read: Vec<String> = Vec::new();
    for lane in lanes.iter().filter(|lane| lane.origin == Origin::Source(source)) {
        let mut steps = lane.steps.iter();
        let native = loop {
            match steps.next() {
                Some(PhysicalStep::Watermark(watermark)) => read.push(watermark.column.clone()),
                Some(PhysicalStep::Native(run)) => break Some(run),
                _ => break None,
            }
        };
        let Some(run) = native else { return all() };
        let leaves = leaf_schemas(&run.plan);
        read.extend(leaves.iter().flat_map(|leaf| leaf.fields()).map(|field| field.name().clone()));
    }
    let mut required: Vec<String> = all().into_iter().filter(|name| read.contains(name)).collect();
    if required.is_empty() {
        // Rows without columns cannot be counted by every format.
        required.extend(all().into_iter().next());
    }
    required
}

/// What is made so far.
pub(crate) struct Compiler<'a> {
    pub(crate) logical: &'a LogicalPlan,
    lanes: Vec<Lane>,
    nodes: Vec<StatefulNode>,
}

/// A position among the plan's steps.
type At = Option<usize>;

impl Compiler<'_> {
    /// The tree with subqueries as joins and conditions where Spark evaluates them.
    fn prepared(&self) -> DfResult<SqlPlan> {
        let root = tree::subqueries::as_joins(self.logical.root.clone())?;
        if filters::shows(&root) { filters::push_down(root) } else { Ok(root) }
    }

    /// What is wrong with a step, pointing at it in the file.
    fn placed(&self, refused: Error, at: At) -> Error {
        let Some(step) = at.and_then(|at| self.logical.steps.get(at)) else { return refused };
        let text = self.logical.file.located(step.span, &format!("{}: {}", step.name, refused.message()));
        let placed = Error::new(refused.kind(), text);
        match refused.hint_text() {
            Some(hint) => placed.hint(hint),
            None => placed,
        }
    }

    fn is_streaming(&self, plan: &SqlPlan) -> bool {
        tree::is_streaming(plan, &|name| self.logical.is_source(name))
    }

    /// The lanes that end in a node's result.
    fn lanes(&mut self, plan: &SqlPlan, at: At) -> Result<Vec<OpenLane>> {
        match plan {
            SqlPlan::TableScan(scan) => {
                let name = scan.table_name.table();
                let source = self.logical.sources.iter().position(|source| source.name == name);
                let source = source.ok_or_else(|| Error::internal(format!("'{name}' is no source")))?;
                Ok(vec![OpenLane::begin(Origin::Source(source), plan.clone(), None)])
            }
            SqlPlan::Extension(_) => self.stream_node(plan, at),
            SqlPlan::Union(union) => {
                let mut lanes = Vec::new();
                for input in &union.inputs {
                    for mut lane in self.lanes(input, at)? {
                        let columns = tree::columns(&lane.plan).into_iter().zip(union.schema.iter());
                        let renamed = columns.map(|(column, (qualifier, field))| {
                            column.alias_qualified(qualifier.cloned(), field.name())
                        });
                        let plan =
                            LogicalPlanBuilder::from(lane.plan.clone()).project(renamed.collect::<Vec<_>>());
                        lane.grow(plan.and_then(LogicalPlanBuilder::build).map_err(|e| internal(&e))?, at);
                        lanes.push(lane);
                    }
                }
                Ok(lanes)
            }
            SqlPlan::Aggregate(aggregate) => self.aggregate(aggregate, at),
            SqlPlan::Distinct(Distinct::All(input)) => {
                let keys = tree::columns(input);
                let aggregate =
                    LogicalPlanBuilder::from(input.as_ref().clone()).aggregate(keys, Vec::<Expr>::new());
                match aggregate.and_then(LogicalPlanBuilder::build).map_err(|e| internal(&e))? {
                    SqlPlan::Aggregate(aggregate) => self.aggregate(&aggregate, at),
                    other => self.lanes(&other, at),
                }
            }
            SqlPlan::Distinct(Distinct::On(on)) => self.distinct_on(on, at),
            SqlPlan::Join(join) => self.join(join, at),
            SqlPlan::Sort(sort) => self.sort(sort, at),
            SqlPlan::Limit(limit) => {
                let lanes = self.lanes(&limit.input, at)?;
                match limit_count(limit) {
                    Some(count) => {
                        let complete = self.gives_all(&limit.input);
                        self.limit(lanes, plan.schema(), count, complete, at)
                    }
                    None => Ok(lanes),
                }
            }
            _ => {
                let [input] = plan.inputs()[..] else {
                    return Err(Error::internal(format!("a node without one input: {}", plan.display())));
                };
                let lanes = self.lanes(input, at)?;
                let grown = lanes.into_iter().map(|mut lane| {
                    let node = plan.with_new_exprs(plan.expressions(), vec![lane.plan.clone()]);
                    lane.grow(node.map_err(|e| internal(&e))?, at);
                    Ok(lane)
                });
                grown.collect()
            }
        }
    }

    fn stream_node(&mut self, plan: &SqlPlan, at: At) -> Result<Vec<OpenLane>> {
        let Some(node) = stream_node(plan) else {
            return Err(Error::internal("an unknown node of the plan"));
        };
        match &node.op {
            StreamOp::Step(step) => self.lanes(&node.input, Some(*step)),
            StreamOp::Watermark { index, column, .. } => {
                let mut lanes = self.lanes(&node.input, at)?;
                for lane in &mut lanes {
                    let schema = lane.close(self)?;
                    let column = schema.field(*column).name().clone();
                    lane.steps.push(PhysicalStep::Watermark(WatermarkStep { index: *index, column }));
                    lane.watermark_ms = Some(0);
                    lane.reopen(&schema, &node.schema)?;
                }
                Ok(lanes)
            }
            StreamOp::Dedup { keys, within_watermark } => {
                let lanes = self.lanes(&node.input, at)?;
                self.dedup(lanes, node, keys.clone(), *within_watermark, at)
            }
            StreamOp::GroupState(step) => {
                let lanes = self.lanes(&node.input, at)?;
                self.group_state(lanes, node, *step, at)
            }
            StreamOp::PluginFilter(step) | StreamOp::PluginTransform(step) => {
                let lanes = self.lanes(&node.input, at)?;
                lanes.into_iter().map(|lane| self.plugin(lane, node, *step)).collect()
            }
        }
    }

    fn plugin(&self, mut lane: OpenLane, node: &StreamNode, step: usize) -> Result<OpenLane> {
        let schema = lane.close(self)?;
        let known = self.logical.steps.get(step).ok_or_else(|| Error::internal("a step is not there"))?;
        let (physical, schema) = match &known.operation {
            Operation::PluginFilter { function, arguments, scalar } => {
                let stretch = Stretch {
                    operators: vec![known.name.clone()],
                    texts: vec![String::new()],
                    schema: Arc::new(arguments.schema().as_arrow().clone()),
                    plan: arguments.as_ref().clone(),
                };
                let filter = PluginFilter {
                    operator: known.name.clone(),
                    function: function.clone(),
                    arguments: stretch.native(&self.logical.session)?,
                    scalar: scalar.clone(),
                    schema: schema.clone(),
                };
                (PhysicalStep::PluginFilter(filter), schema)
            }
            Operation::PluginTransform { function, transform } => {
                let schema = Arc::new(node.schema.as_arrow().clone());
                let transform = PluginTransform {
                    operator: known.name.clone(),
                    function: function.clone(),
                    transform: transform.clone(),
                    schema: schema.clone(),
                };
                (PhysicalStep::PluginTransform(transform), schema)
            }
            _ => return Err(Error::internal("a step that calls no plugin")),
        };
        lane.steps.push(physical);
        lane.reopen(&schema, &node.schema)?;
        Ok(lane)
    }

    fn dedup(
        &mut self,
        lanes: Vec<OpenLane>,
        node: &StreamNode,
        keys: Vec<usize>,
        within_watermark: bool,
        at: At,
    ) -> Result<Vec<OpenLane>> {
        let times = event_times(&node.input);
        let time = times.iter().position(Option::is_some);
        let delay_ms = times.iter().flatten().next().map(|time| time.delay_ms);
        let expiry = match (time, delay_ms) {
            (Some(_), Some(delay_ms)) if within_watermark => DedupExpiry::Within { delay_ms },
            (Some(time), _) if keys.contains(&time) => DedupExpiry::EventTime,
            _ => DedupExpiry::Never,
        };
        let dedup = Dedup { keys, event_time: time.map(|column| EventTimeColumn { column }), expiry };
        let layout = self.state_of_dedup(node, &dedup);
        let operator = StatefulOperator::Dedup(dedup);
        let schema = unique_schema(&node.schema);
        let lanes =
            self.node(vec![(lanes, schema.clone())], operator, "dedup", schema, &node.schema, 0, at)?;
        self.describe(layout);
        Ok(lanes)
    }

    /// DISTINCT ON keeps the first row of each key, and of that row the selected columns.
    fn distinct_on(&mut self, on: &datafusion::logical_expr::DistinctOn, at: At) -> Result<Vec<OpenLane>> {
        let keys =
            on.on_expr.iter().enumerate().map(|(index, key)| key.clone().alias(format!("__key{index}")));
        let mut all: Vec<Expr> = keys.collect();
        let width = all.len();
        all.extend(on.select_expr.iter().cloned());
        let below = LogicalPlanBuilder::from(on.input.as_ref().clone()).project(all);
        let below = below.and_then(LogicalPlanBuilder::build).map_err(|e| internal(&e))?;
        let dedup =
            StreamNode::over(below, StreamOp::Dedup { keys: (0..width).collect(), within_watermark: false });
        let selected: Vec<Expr> = tree::columns(&dedup).split_off(width);
        let above = LogicalPlanBuilder::from(dedup).project(selected).and_then(LogicalPlanBuilder::build);
        let above = above.map_err(|e| internal(&e))?;
        self.lanes(&above, at)
    }

    fn sort(&mut self, sort: &datafusion::logical_expr::Sort, at: At) -> Result<Vec<OpenLane>> {
        let lanes = self.lanes(&sort.input, at)?;
        let schema = sort.input.schema();
        let by = create_physical_sort_exprs(
            &sort.expr,
            schema,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )
        .map_err(|e| internal(&e))?;
        let operator = StatefulOperator::Sort(Sort { by });
        let unique = unique_schema(schema);
        let lanes = self.node(vec![(lanes, unique.clone())], operator, "sort", unique, schema, 0, at)?;
        match sort.fetch {
            Some(count) => self.limit(lanes, schema, count as u64, true, at),
            None => Ok(lanes),
        }
    }

    /// Whether a subtree gives its whole result in each micro-batch: it aggregates, in complete mode.
    fn gives_all(&self, plan: &SqlPlan) -> bool {
        let aggregates = plan
            .exists(|node| Ok(matches!(node, SqlPlan::Aggregate(_) | SqlPlan::Distinct(Distinct::All(_)))));
        self.logical.output_mode == OutputMode::Complete && aggregates.unwrap_or(false)
    }

    fn limit(
        &mut self,
        lanes: Vec<OpenLane>,
        schema: &DFSchema,
        count: u64,
        complete: bool,
        at: At,
    ) -> Result<Vec<OpenLane>> {
        let over_all_batches = !complete;
        let operator = StatefulOperator::Limit(Limit { count, over_all_batches });
        let unique = unique_schema(schema);
        let lanes = self.node(vec![(lanes, unique.clone())], operator, "limit", unique, schema, 0, at)?;
        if over_all_batches {
            self.describe(state::state_of_limit(count));
        }
        Ok(lanes)
    }

    /// Ends lanes in a stateful operator, port by port, and begins its own.
    #[allow(clippy::too_many_arguments, reason = "an operator and its whole surroundings")]
    fn node(
        &mut self,
        ports: Vec<(Vec<OpenLane>, SchemaRef)>,
        operator: StatefulOperator,
        kind: &str,
        schema: SchemaRef,
        logical_schema: &DFSchema,
        output_offset_ms: i64,
        at: At,
    ) -> Result<Vec<OpenLane>> {
        let watermark_offset_ms =
            ports.iter().flat_map(|(lanes, _)| lanes).filter_map(|lane| lane.watermark_ms).min();
        let inputs = ports.iter().map(|(_, schema)| schema.clone()).collect();
        let node = self.nodes.len();
        for (port, (lanes, schema)) in ports.into_iter().enumerate() {
            for lane in lanes {
                self.finish(lane, Target::Port { node, port }, &schema)?;
            }
        }
        let name = self.node_name(kind, at);
        self.nodes.push(StatefulNode {
            name,
            operator,
            inputs,
            schema: schema.clone(),
            watermark_offset_ms,
            keep_late_rows: self.keeps_late_rows(),
            layout: None,
        });
        let mut lane = OpenLane::begin(Origin::Node(node), lane::leaf(&schema, logical_schema)?, None);
        lane.watermark_ms = watermark_offset_ms.map(|offset| offset + output_offset_ms);
        lane.leaf_schema = Some(schema);
        Ok(vec![lane])
    }

    fn keeps_late_rows(&self) -> bool {
        self.logical.on_late == crate::file::LatePolicy::DeadLetter
    }

    /// The step's name, and what the operator is if the step is more than it.
    fn node_name(&self, kind: &str, at: At) -> String {
        let step = at.and_then(|step| self.logical.steps.get(step));
        let base = match step {
            Some(step) if matches!(step.operation, Operation::Dedup | Operation::GroupState(_)) => {
                step.name.clone()
            }
            Some(step) => format!("{}.{kind}", step.name),
            None => kind.to_owned(),
        };
        let taken = |name: &str| self.nodes.iter().any(|node| node.name == name);
        if !taken(&base) {
            return base;
        }
        (2..).map(|n| format!("{base}-{n}")).find(|name| !taken(name)).unwrap_or(base)
    }

    fn finish(&mut self, mut lane: OpenLane, target: Target, schema: &SchemaRef) -> Result<()> {
        lane.close_to(schema, self)?;
        self.lanes.push(Lane { origin: lane.origin, steps: lane.steps, target, schema: schema.clone() });
        Ok(())
    }
}

/// The number of a LIMIT; `None` if it is none.
pub(crate) fn limit_count(limit: &datafusion::logical_expr::Limit) -> Option<u64> {
    let literal = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int64(Some(count)), _) => u64::try_from(*count).ok(),
        Expr::Literal(ScalarValue::Int32(Some(count)), _) => u64::try_from(*count).ok(),
        _ => None,
    };
    match limit.fetch.as_deref()? {
        Expr::Cast(cast) => literal(&cast.expr),
        expr => literal(expr),
    }
}

fn internal(error: &datafusion::error::DataFusionError) -> Error {
    Error::internal(format!("the plan cannot be put together: {}", error.strip_backtrace()))
}
