//! Which columns carry the event time. Spark marks them in the metadata of attributes; here it is read off the tree.

use super::nodes::{StreamOp, stream_node};
use crate::functions::window::{SESSION_WINDOW, WINDOW, WINDOW_TIME, WINDOWS};
use datafusion::common::DFSchemaRef;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan as SqlPlan};

/// That a column is the event time, or a window of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTime {
    /// The delay of the watermark that declared it.
    pub(crate) delay_ms: i64,
}

/// For each column of the result whether it carries the event time.
pub(crate) fn event_times(plan: &SqlPlan) -> Vec<Option<EventTime>> {
    let width = plan.schema().fields().len();
    match plan {
        SqlPlan::Extension(_) => of_stream_node(plan),
        SqlPlan::Projection(node) => of_expressions(&node.expr, &node.input),
        SqlPlan::Aggregate(node) => {
            let mut times = of_expressions(&group_expressions(&node.group_expr), &node.input);
            times.resize(width, None);
            times
        }
        SqlPlan::Filter(node) => event_times(&node.input),
        SqlPlan::Sort(node) => event_times(&node.input),
        SqlPlan::Limit(node) => event_times(&node.input),
        SqlPlan::SubqueryAlias(node) => event_times(&node.input),
        SqlPlan::Distinct(Distinct::All(input)) => event_times(input),
        SqlPlan::Distinct(Distinct::On(node)) => of_expressions(&node.select_expr, &node.input),
        SqlPlan::Union(node) => node.inputs.first().map_or_else(Vec::new, |input| event_times(input)),
        SqlPlan::Join(node) => match node.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => event_times(&node.left),
            JoinType::RightSemi | JoinType::RightAnti => event_times(&node.right),
            _ => [event_times(&node.left), event_times(&node.right)].concat(),
        },
        SqlPlan::Unnest(node) => {
            let input = event_times(&node.input);
            node.dependency_indices.iter().map(|index| input.get(*index).copied().flatten()).collect()
        }
        _ => vec![None; width],
    }
}

fn of_stream_node(plan: &SqlPlan) -> Vec<Option<EventTime>> {
    let Some(node) = stream_node(plan) else { return vec![None; plan.schema().fields().len()] };
    match &node.op {
        // What a function makes of a time is its own affair: no column that it gives is marked, as in Spark.
        StreamOp::PluginTransform(_) | StreamOp::GroupState(_) => vec![None; node.schema.fields().len()],
        StreamOp::Watermark { column, delay_ms, .. } => {
            let mut times = vec![None; node.schema.fields().len()];
            if let Some(time) = times.get_mut(*column) {
                *time = Some(EventTime { delay_ms: *delay_ms });
            }
            times
        }
        _ => event_times(&node.input),
    }
}

fn of_expressions(exprs: &[Expr], input: &SqlPlan) -> Vec<Option<EventTime>> {
    let times = event_times(input);
    exprs.iter().map(|expr| of_expression(expr, input.schema(), &times)).collect()
}

/// Whether an expression over a plan's columns carries the event time: the column itself, or a window of it.
pub(crate) fn of_expression(
    expr: &Expr,
    schema: &DFSchemaRef,
    times: &[Option<EventTime>],
) -> Option<EventTime> {
    match expr {
        Expr::Alias(alias) => of_expression(&alias.expr, schema, times),
        Expr::Column(column) => {
            schema.maybe_index_of_column(column).and_then(|index| times.get(index).copied().flatten())
        }
        Expr::ScalarFunction(call) => match call.func.name() {
            WINDOW | WINDOWS | WINDOW_TIME | SESSION_WINDOW => {
                call.args.first().and_then(|time| of_expression(time, schema, times))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The keys of a GROUP BY; of ROLLUP and the like all that occur.
pub(crate) fn group_expressions(exprs: &[Expr]) -> Vec<Expr> {
    match exprs {
        [Expr::GroupingSet(sets)] => sets.distinct_expr().into_iter().cloned().collect(),
        plain => plain.to_vec(),
    }
}
