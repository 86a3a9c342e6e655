//! The whole query as one tree: DataFusion's relational nodes, and nodes of our own for what SQL does not know.
//!
//! `logical` builds it step by step, [`check`](crate::check()) judges it, `compile` cuts it into lanes and stateful
//! operators. Here are the nodes and what can be read off the tree without changing its meaning.

pub(crate) mod event_time;
pub(crate) mod filters;
pub(crate) mod joins;
pub(crate) mod nodes;
pub(crate) mod subqueries;
#[cfg(test)]
mod tests;
pub(crate) mod windows;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan as SqlPlan, LogicalPlanBuilder, Operator, binary_expr};
pub(crate) use nodes::{StreamNode, StreamOp, stream_node};

/// Puts what the names stand for in the place of the tables that a step reads.
pub(crate) fn compose(step: SqlPlan, meaning: &dyn Fn(&str) -> Option<SqlPlan>) -> Result<SqlPlan> {
    let composed = step.transform_up_with_subqueries(|node| match &node {
        SqlPlan::TableScan(scan) => match meaning(scan.table_name.table()) {
            Some(plan) => {
                let name = TableReference::bare(scan.table_name.table());
                Ok(Transformed::yes(LogicalPlanBuilder::from(plan).alias(name)?.build()?))
            }
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(composed.data)
}

/// The names of the tables that a subtree reads, once each, in order.
pub(crate) fn scans(plan: &SqlPlan) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let _ = plan.apply(|node| {
        if let SqlPlan::TableScan(scan) = node
            && !names.iter().any(|name| name == scan.table_name.table())
        {
            names.push(scan.table_name.table().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    names
}

/// Whether a subtree reads a stream; `is_source` tells sources from static tables.
pub(crate) fn is_streaming(plan: &SqlPlan, is_source: &dyn Fn(&str) -> bool) -> bool {
    scans(plan).iter().any(|name| is_source(name))
}

/// All columns of a plan as expressions.
pub(crate) fn columns(plan: &SqlPlan) -> Vec<Expr> {
    plan.schema().iter().map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field)))).collect()
}

/// The conjuncts of a condition, in order. `x BETWEEN a AND b` is two, as in Spark.
pub(crate) fn conjuncts(condition: &Expr) -> Vec<Expr> {
    let split = datafusion::logical_expr::utils::split_conjunction(condition).into_iter();
    let conjuncts = split.flat_map(|conjunct| match conjunct {
        Expr::Between(between) if !between.negated && !conjunct.is_volatile() => {
            let bound = |op, bound: &Expr| binary_expr(between.expr.as_ref().clone(), op, bound.clone());
            vec![bound(Operator::GtEq, &between.low), bound(Operator::LtEq, &between.high)]
        }
        other => vec![other.clone()],
    });
    conjuncts.collect()
}
