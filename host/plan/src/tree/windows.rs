//! Time windows outside of a GROUP BY's keys: a row has as many rows as windows, and none without a time.

use super::columns;
use crate::functions::window::{SESSION_WINDOW, WINDOW, WindowSpec};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan as SqlPlan, LogicalPlanBuilder, ScalarUDF, col};
use std::sync::Arc;

/// The call of `window` or `session_window` that an expression is, whatever it is called.
pub(crate) fn window_call(expr: &Expr) -> Option<&ScalarFunction> {
    match expr {
        Expr::Alias(alias) => window_call(&alias.expr),
        Expr::ScalarFunction(call) if [WINDOW, SESSION_WINDOW].contains(&call.func.name()) => Some(call),
        _ => None,
    }
}

/// All different window calls inside of expressions.
pub(crate) fn calls_in(exprs: &[Expr]) -> Vec<Expr> {
    let mut found: Vec<Expr> = Vec::new();
    for expr in exprs {
        let _ = expr.apply(|e| {
            if matches!(e, Expr::ScalarFunction(_)) && window_call(e).is_some() && !found.contains(e) {
                found.push(e.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }
    found
}

const COLUMN: &str = "__window";

/// Makes rows of the windows that stand in a SELECT list, or inside of a key.
pub(crate) fn expand(plan: SqlPlan, list_of_windows: &Arc<ScalarUDF>) -> Result<SqlPlan> {
    let expanded = plan.transform_up(|node| {
        let calls = match &node {
            SqlPlan::Projection(projection) => calls_in(&projection.expr),
            SqlPlan::Aggregate(aggregate) => {
                let keys = super::event_time::group_expressions(&aggregate.group_expr);
                let whole: Vec<Expr> =
                    keys.iter().filter_map(window_call).cloned().map(Expr::ScalarFunction).collect();
                calls_in(&keys).into_iter().filter(|call| !whole.contains(call)).collect()
            }
            _ => Vec::new(),
        };
        match calls.as_slice() {
            [] => Ok(Transformed::no(node)),
            [call] => over_windows(node, call, list_of_windows).map(Transformed::yes),
            _ => plan_err!("two different time windows in one SELECT would multiply the rows; use one"),
        }
    })?;
    Ok(expanded.data)
}

fn over_windows(node: SqlPlan, call: &Expr, list_of_windows: &Arc<ScalarUDF>) -> Result<SqlPlan> {
    let Some(window) = window_call(call).cloned() else { return Ok(node) };
    if window.func.name() == SESSION_WINDOW {
        return plan_err!("session_window() is a key of GROUP BY and nothing else");
    }
    let [input] = node.inputs()[..] else { return Ok(node) };
    let spec = WindowSpec::of(&window.args[1..])?;
    let input = input.clone();
    let mut all = columns(&input);
    let below = if spec.size_us == spec.slide_us {
        let Some(time) = window.args.first().cloned() else { return Ok(node) };
        all.push(call.clone().alias(COLUMN));
        LogicalPlanBuilder::from(input).filter(time.is_not_null())?.project(all)?
    } else {
        all.push(list_of_windows.call(window.args.clone()).alias(COLUMN));
        LogicalPlanBuilder::from(input).project(all)?.unnest_column(COLUMN)?
    };
    let below = below.build()?;
    let names = NamePreserver::new(&node);
    let exprs = node.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        let replaced = expr.transform_up(|e| match e == *call {
            true => Ok(Transformed::yes(col(Column::from_name(COLUMN)))),
            false => Ok(Transformed::no(e)),
        })?;
        Ok(name.restore(replaced.data))
    });
    node.with_new_exprs(exprs.collect::<Result<Vec<_>>>()?, vec![below])
}
