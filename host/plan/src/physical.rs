//! The plan that runs: operators with names, native runs as DataFusion plans made once.
//!
//! The binary makes it from a checked [`LogicalPlan`] and gives it to `operators`. Nothing here touches rows.

use crate::input::InputExec;
use crate::logical::{FunctionRef, LogicalPlan, Operation};
use crate::sql::{INPUT, Session};
use crate::stateful::{Lane, Origin, StatefulNode, StaticJoin, Target, WatermarkStep};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionConfig;
use datafusion::logical_expr::{LogicalPlan as SqlPlan, LogicalPlanBuilder};
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use pelton_core::{Error, OutputMode, Result, ScalarFunction, TransformFunction, Trigger, WatermarkInfo};
use std::sync::Arc;

/// A query made ready to run.
pub struct PhysicalPlan {
    /// The query's name.
    pub name: String,
    /// The source's name in the file.
    pub source: String,
    /// The source's connector.
    pub connector: &'static str,
    /// Schema of the source with all of its columns.
    pub source_schema: SchemaRef,
    /// The source's columns that are read, in the source's order. A source that gives only these is enough.
    pub required_columns: Vec<String>,
    /// The ways of rows between sources, stateful operators and sink.
    pub lanes: Vec<Lane>,
    /// The stateful operators, upstream first.
    pub nodes: Vec<StatefulNode>,
    /// The query's watermarks.
    pub watermarks: Vec<WatermarkInfo>,
    /// Schema of the rows that reach the sink.
    pub schema: SchemaRef,
    /// What goes to the sink.
    pub output_mode: OutputMode,
    /// When micro-batches start.
    pub trigger: Trigger,
    /// The sink's connector.
    pub sink: &'static str,
    /// The session time zone.
    pub time_zone: String,
}

/// One operator.
pub enum PhysicalStep {
    /// A run of SQL steps.
    Native(NativeRun),
    /// A plugin's boolean scalar function.
    PluginFilter(PluginFilter),
    /// A plugin's transform function.
    PluginTransform(PluginTransform),
    /// Takes note of event times.
    Watermark(WatermarkStep),
    /// Joins with a static table.
    StaticJoin(StaticJoin),
}

/// Consecutive SQL steps as one DataFusion plan.
#[derive(Clone)]
pub struct NativeRun {
    /// The operators that it does the work of, in order; the first one's name stands for the run.
    pub operators: Vec<String>,
    /// What the user wrote for each of them, for `explain`.
    pub texts: Vec<String>,
    /// The plan; its leaves are [`InputExec`]s.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The same as a row of filters and projections, if it is no more than that.
    pub simple: Option<Vec<RowOperation>>,
    /// The settings to run the plan with.
    pub config: SessionConfig,
    /// Where the plan's memory comes from.
    pub runtime: Arc<TaskContext>,
    /// Schema of the result.
    pub schema: SchemaRef,
}

/// A filter or a projection that needs no plan around it.
#[derive(Clone)]
pub enum RowOperation {
    /// Keeps the input's columns by position.
    Columns(Vec<usize>),
    /// Keeps rows.
    Filter(Arc<dyn PhysicalExpr>),
    /// Computes columns.
    Project(Vec<Arc<dyn PhysicalExpr>>, SchemaRef),
}

/// A filter by a plugin's function.
pub struct PluginFilter {
    /// The operator's name.
    pub operator: String,
    /// Which function.
    pub function: FunctionRef,
    /// Computes the function's arguments; gives as many rows as it takes.
    pub arguments: NativeRun,
    /// The function, bound to them.
    pub scalar: Arc<dyn ScalarFunction>,
    /// Schema of the rows, which it does not change.
    pub schema: SchemaRef,
}

/// A transformation by a plugin's function.
pub struct PluginTransform {
    /// The operator's name.
    pub operator: String,
    /// Which function.
    pub function: FunctionRef,
    /// The function, opened.
    pub transform: Arc<dyn TransformFunction>,
    /// Schema of the rows that go on.
    pub schema: SchemaRef,
}

impl PhysicalPlan {
    /// Makes the plan. It refuses with the first of [`crate::check()`]'s refusals.
    pub fn build(logical: &LogicalPlan) -> Result<Self> {
        if let Some(refusal) = crate::check(logical).first() {
            return Err(refusal.error(logical));
        }
        let mut steps = Vec::new();
        let mut run: Option<PendingRun> = None;
        for step in &logical.steps {
            match &step.operation {
                Operation::Sql { kind, text, plan } => {
                    let text = format!("{kind}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
                    run = Some(match run.take() {
                        None => PendingRun::new(step.name.clone(), text, plan.as_ref().clone()),
                        Some(run) => run.then(step.name.clone(), text, plan.as_ref().clone())?,
                    });
                }
                Operation::PluginFilter { function, arguments, scalar } => {
                    steps.extend(run.take().map(|run| run.finish(&logical.session)).transpose()?);
                    let arguments =
                        PendingRun::new(step.name.clone(), String::new(), arguments.as_ref().clone());
                    steps.push(PhysicalStep::PluginFilter(PluginFilter {
                        operator: step.name.clone(),
                        function: function.clone(),
                        arguments: arguments.native(&logical.session)?,
                        scalar: scalar.clone(),
                        schema: step.schema.clone(),
                    }));
                }
                Operation::PluginTransform { function, transform } => {
                    steps.extend(run.take().map(|run| run.finish(&logical.session)).transpose()?);
                    steps.push(PhysicalStep::PluginTransform(PluginTransform {
                        operator: step.name.clone(),
                        function: function.clone(),
                        transform: transform.clone(),
                        schema: step.schema.clone(),
                    }));
                }
            }
        }
        steps.extend(run.take().map(|run| run.finish(&logical.session)).transpose()?);
        Ok(Self {
            name: logical.name.clone(),
            source: logical.source.clone(),
            connector: logical.connector,
            source_schema: logical.source_schema.clone(),
            required_columns: required_columns(&steps, &logical.source_schema),
            lanes: vec![Lane {
                origin: Origin::Source(0),
                steps,
                target: Target::Sink,
                schema: logical.schema().clone(),
            }],
            nodes: Vec::new(),
            watermarks: Vec::new(),
            schema: logical.schema().clone(),
            output_mode: logical.output_mode,
            trigger: logical.trigger,
            sink: logical.sink,
            time_zone: logical.time_zone.clone(),
        })
    }
}

/// What the first run reads. A plugin that sees the source's rows sees all of them, and a refused row goes to the dead
/// letters whole.
fn required_columns(steps: &[PhysicalStep], source: &SchemaRef) -> Vec<String> {
    let all = || source.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let Some(PhysicalStep::Native(run)) = steps.first() else { return all() };
    let leaves = leaf_schemas(&run.plan);
    let is_read = |name: &String| leaves.iter().any(|schema| schema.column_with_name(name).is_some());
    let mut read: Vec<String> = all().into_iter().filter(is_read).collect();
    if read.is_empty() {
        // Rows without columns cannot be counted by every format.
        read.extend(all().into_iter().next());
    }
    read
}

/// Schemas of the plan's leaves.
pub fn leaf_schemas(plan: &Arc<dyn ExecutionPlan>) -> Vec<SchemaRef> {
    match plan.children().as_slice() {
        [] => vec![plan.schema()],
        children => children.iter().flat_map(|child| leaf_schemas(child)).collect(),
    }
}

struct PendingRun {
    operators: Vec<String>,
    texts: Vec<String>,
    plan: SqlPlan,
}

impl PendingRun {
    fn new(operator: String, text: String, plan: SqlPlan) -> Self {
        Self { operators: vec![operator], texts: vec![text], plan }
    }

    /// Puts `next` on top: its `input` is what this run gives.
    fn then(mut self, operator: String, text: String, next: SqlPlan) -> Result<Self> {
        self.operators.push(operator);
        self.texts.push(text);
        let below = self.plan;
        let joined = next.transform_up(|node| match &node {
            SqlPlan::TableScan(scan) if scan.table_name.table() == INPUT => {
                let plan = LogicalPlanBuilder::from(below.clone()).alias(INPUT)?.build()?;
                Ok(Transformed::yes(plan))
            }
            _ => Ok(Transformed::no(node)),
        });
        let plan = joined.and_then(|joined| joined.data.recompute_schema()).map_err(internal)?;
        Ok(Self { plan, ..self })
    }

    fn finish(self, session: &Session) -> Result<PhysicalStep> {
        self.native(session).map(PhysicalStep::Native)
    }

    fn native(self, session: &Session) -> Result<NativeRun> {
        let state = session.state();
        let schema = Arc::new(self.plan.schema().as_arrow().clone());
        let planned = state
            .optimize(&self.plan)
            .and_then(|plan| {
                // Planning awaits nothing here: the only table needs no I/O.
                futures::executor::block_on(state.query_planner().create_physical_plan(&plan, state))
            })
            .and_then(strict_arithmetic);
        let plan = planned.map_err(|e| crate::sql::evaluation_error(&e))?;
        Ok(NativeRun {
            operators: self.operators,
            texts: self.texts,
            simple: simple(&plan),
            plan,
            config: state.config().clone(),
            runtime: state.task_ctx(),
            schema,
        })
    }
}

fn internal(error: datafusion::error::DataFusionError) -> Error {
    Error::internal(format!("the plan cannot be put together: {}", error.strip_backtrace()))
}

/// Makes `+`, `-` and `*` of whole numbers fail on overflow, as in Spark's ANSI mode.
fn strict_arithmetic(plan: Arc<dyn ExecutionPlan>) -> DfResult<Arc<dyn ExecutionPlan>> {
    let strict = plan.transform_up(|node| {
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let exprs = projection
                .expr()
                .iter()
                .map(|p| Ok(ProjectionExpr { expr: strict_expr(p.expr.clone())?, alias: p.alias.clone() }));
            let exprs = exprs.collect::<DfResult<Vec<_>>>()?;
            let strict = ProjectionExec::try_new(exprs, projection.input().clone())?;
            return Ok(Transformed::yes(Arc::new(strict) as Arc<dyn ExecutionPlan>));
        }
        if let Some(filter) = node.downcast_ref::<FilterExec>() {
            let predicate = strict_expr(filter.predicate().clone())?;
            let strict = FilterExecBuilder::from(filter).with_predicate(predicate).build()?;
            return Ok(Transformed::yes(Arc::new(strict) as Arc<dyn ExecutionPlan>));
        }
        Ok(Transformed::no(node))
    })?;
    Ok(strict.data)
}

fn strict_expr(expr: Arc<dyn PhysicalExpr>) -> DfResult<Arc<dyn PhysicalExpr>> {
    let strict = expr.transform_up(|e| match e.downcast_ref::<BinaryExpr>() {
        Some(binary) => {
            let strict = binary.clone().with_fail_on_overflow(true);
            Ok(Transformed::yes(Arc::new(strict) as Arc<dyn PhysicalExpr>))
        }
        None => Ok(Transformed::no(e)),
    })?;
    Ok(strict.data)
}

/// The filters and projections from the leaf up, if there is nothing else in the plan.
fn simple(plan: &Arc<dyn ExecutionPlan>) -> Option<Vec<RowOperation>> {
    if plan.downcast_ref::<InputExec>().is_some() {
        return Some(Vec::new());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let mut operations = simple(projection.input())?;
        let exprs = projection.expr().iter().map(|p| p.expr.clone()).collect();
        operations.push(RowOperation::Project(exprs, projection.schema()));
        return Some(operations);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        if filter.fetch().is_some() {
            return None;
        }
        let mut operations = simple(filter.input())?;
        // One by one, so that a later condition sees only the rows that the earlier ones let through.
        let conditions = split_conjunction(filter.predicate());
        operations.extend(conditions.into_iter().map(|condition| RowOperation::Filter(condition.clone())));
        if let Some(columns) = filter.projection() {
            operations.push(RowOperation::Columns(columns.to_vec()));
        }
        return Some(operations);
    }
    match plan.children().as_slice() {
        [child] if PASS_THROUGH.contains(&plan.name()) => simple(child),
        _ => None,
    }
}

/// Nodes that change nothing about rows that come one batch at a time.
const PASS_THROUGH: [&str; 3] = ["CoalesceBatchesExec", "CooperativeExec", "CoalescePartitionsExec"];
