//! The plan that runs: operators with names, native runs as DataFusion plans made once.
//!
//! The binary makes it from a checked [`LogicalPlan`] and gives it to `operators`. Nothing here touches rows.

use crate::file::WatermarkPolicySpec;
use crate::input::InputExec;
use crate::logical::{FunctionRef, LogicalPlan};
use crate::sql::Session;
use crate::stateful::{Lane, StatefulNode, StaticJoin, WatermarkStep};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionConfig;
use datafusion::logical_expr::LogicalPlan as SqlPlan;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use pelton_core::{
    Error, ErrorKind, OutputMode, Result, ScalarFunction, TransformFunction, Trigger, WatermarkInfo,
};
use std::sync::Arc;

/// A query made ready to run.
pub struct PhysicalPlan {
    /// The query's name.
    pub name: String,
    /// The sources.
    pub inputs: Vec<PhysicalInput>,
    /// The ways of rows between sources, stateful operators and sink.
    pub lanes: Vec<Lane>,
    /// The stateful operators, upstream first.
    pub nodes: Vec<StatefulNode>,
    /// The query's watermarks.
    pub watermarks: Vec<WatermarkInfo>,
    /// How they make the query's.
    pub watermark_policy: WatermarkPolicySpec,
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
    /// What its user should know before it starts.
    pub warnings: Vec<String>,
}

/// A source of a plan.
#[derive(Debug, Clone)]
pub struct PhysicalInput {
    /// Its name in the file.
    pub name: String,
    /// Its connector.
    pub connector: &'static str,
    /// All of its columns.
    pub schema: SchemaRef,
    /// The columns that are read, in the source's order. A source that gives only these is enough.
    pub required_columns: Vec<String>,
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
        crate::compile::compile(logical)
    }
}

/// Schemas of the plan's leaves.
pub fn leaf_schemas(plan: &Arc<dyn ExecutionPlan>) -> Vec<SchemaRef> {
    match plan.children().as_slice() {
        [] => vec![plan.schema()],
        children => children.iter().flat_map(|child| leaf_schemas(child)).collect(),
    }
}

/// A stretch of SQL to be run as one plan.
pub(crate) struct Stretch {
    /// The steps that it does the work of.
    pub(crate) operators: Vec<String>,
    /// What the user wrote.
    pub(crate) texts: Vec<String>,
    /// The plan; its leaves are scans.
    pub(crate) plan: SqlPlan,
    /// What its result is to look like: names, types and nullability.
    pub(crate) schema: SchemaRef,
}

impl Stretch {
    /// Optimises and plans it.
    pub(crate) fn native(self, session: &Session) -> Result<NativeRun> {
        let state = session.state();
        let planned = state
            .optimize(&self.plan)
            .and_then(|plan| {
                // Planning awaits nothing here: the only table needs no I/O.
                futures::executor::block_on(state.query_planner().create_physical_plan(&plan, state))
            })
            .and_then(strict_arithmetic);
        let plan = planned.map_err(|e| {
            let told = crate::sql::evaluation_error(&e);
            match told.kind() {
                // There are no rows yet.
                ErrorKind::Data => {
                    Error::invalid(format!("{}: {}", self.operators.join(", "), told.message()))
                }
                _ => told,
            }
        })?;
        Ok(NativeRun {
            operators: self.operators,
            texts: self.texts,
            simple: simple(&plan),
            plan,
            config: state.config().clone(),
            runtime: state.task_ctx(),
            schema: self.schema,
        })
    }
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

pub(crate) fn strict_expr(expr: Arc<dyn PhysicalExpr>) -> DfResult<Arc<dyn PhysicalExpr>> {
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
