//! Subqueries in expressions over static tables, as joins.
//!
//! `IN`, `EXISTS` and correlated ones are DataFusion's rules; what is left are scalar subqueries that read nothing of
//! their surroundings: one row, joined to every row.

use super::conjuncts;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, plan_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan as SqlPlan, LogicalPlanBuilder, Subquery, lit};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::{Optimizer, OptimizerContext, OptimizerRule};
use std::sync::Arc;

/// The plan without subqueries in expressions.
pub(crate) fn as_joins(plan: SqlPlan) -> Result<SqlPlan> {
    if !has_subquery(&plan)? {
        return Ok(plan);
    }
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
        vec![Arc::new(DecorrelatePredicateSubquery::new()), Arc::new(ScalarSubqueryToJoin::new())];
    let plan = Optimizer::with_rules(rules).optimize(plan, &OptimizerContext::new(), |_, _| {})?;
    let mut count = 0;
    let joined = plan.transform_up(|node| {
        let mut subqueries: Vec<Subquery> = Vec::new();
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Expr::ScalarSubquery(subquery) = e
                    && !subqueries.contains(subquery)
                {
                    subqueries.push(subquery.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if subqueries.is_empty() {
            return Ok(Transformed::no(node));
        }
        scalars(node, &subqueries, &mut count).map(Transformed::yes)
    })?;
    Ok(joined.data)
}

fn has_subquery(plan: &SqlPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|e| {
                Ok(matches!(e, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

fn scalars(node: SqlPlan, subqueries: &[Subquery], count: &mut usize) -> Result<SqlPlan> {
    let [input] = node.inputs()[..] else { return plan_err!("a subquery is not possible here") };
    let mut below = LogicalPlanBuilder::from(input.clone());
    let mut values = Vec::with_capacity(subqueries.len());
    for subquery in subqueries {
        let inner = subquery.subquery.as_ref();
        if !subquery.outer_ref_columns.is_empty() || inner.max_rows() != Some(1) {
            return plan_err!(
                "a subquery that is a value must give one row: aggregate in it, without GROUP BY"
            );
        }
        *count += 1;
        let alias = format!("__scalar_{count}");
        let name = inner.schema().field(0).name().clone();
        let table = LogicalPlanBuilder::from(inner.clone()).alias(alias.clone())?.build()?;
        below = below.join_on(table, JoinType::Left, [lit(true)])?;
        values.push(Expr::Column(Column::new(Some(alias), name)));
    }
    let below = below.build()?;
    let names = NamePreserver::new(&node);
    let exprs = node.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        let replaced = expr.transform_up(|e| match &e {
            Expr::ScalarSubquery(subquery) => {
                let value =
                    subqueries.iter().position(|known| known == subquery).map(|at| values[at].clone());
                Ok(value.map_or_else(|| Transformed::no(e.clone()), Transformed::yes))
            }
            _ => Ok(Transformed::no(e)),
        })?;
        Ok(name.restore(replaced.data))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    match &node {
        // A filter passes its input's columns on; those of the subquery end here.
        SqlPlan::Filter(filter) => {
            let kept = super::columns(&filter.input);
            let predicates = exprs.iter().flat_map(conjuncts);
            let mut plan = LogicalPlanBuilder::from(below);
            for predicate in predicates {
                plan = plan.filter(predicate)?;
            }
            plan.project(kept)?.build()
        }
        _ => node.with_new_exprs(exprs, vec![below]),
    }
}
