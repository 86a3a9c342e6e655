//! Casts and literals with Spark's meaning, on the planned expressions.
//!
//! A timestamp counts seconds in Spark and microseconds in Arrow; its text has a space and no zone; text becomes a
//! timestamp in more forms than Arrow reads. Whole-number literals are `int` if they fit.

use super::session::Session;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::{BinaryExpr, Cast, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, cast};

/// Applies `change` to every expression of the plan and keeps the names of columns.
fn each_expression(
    plan: LogicalPlan,
    mut change: impl FnMut(Expr, &datafusion::common::DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        let schema = merge_schema(&node.inputs());
        let changed = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = expr.transform_up(|e| change(e, &schema))?;
            Ok(expr.update_data(|expr| name.restore(expr)))
        })?;
        match changed.transformed {
            true => changed.map_data(LogicalPlan::recompute_schema),
            false => Ok(changed),
        }
    })?;
    Ok(rewritten.data)
}

/// Whole-number literals become `int` where they fit, and sums and products of literals are computed here: DataFusion
/// would fold them without looking at overflow.
pub(super) fn spark_literals(plan: LogicalPlan) -> Result<LogicalPlan> {
    each_expression(plan, |expr, _| {
        let literal = match &expr {
            Expr::Literal(ScalarValue::Int64(Some(number)), _) => {
                i32::try_from(*number).ok().map(|number| ScalarValue::Int32(Some(number)))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => folded(left, *op, right)?,
            _ => None,
        };
        Ok(match literal {
            Some(value) => Transformed::yes(Expr::Literal(value, None)),
            None => Transformed::no(expr),
        })
    })
}

fn folded(left: &Expr, op: Operator, right: &Expr) -> Result<Option<ScalarValue>> {
    use ScalarValue::{Int32, Int64};
    let (Expr::Literal(left, _), Expr::Literal(right, _)) = (left, right) else { return Ok(None) };
    let (a, b, long) = match (left, right) {
        (Int32(Some(a)), Int32(Some(b))) => (i64::from(*a), i64::from(*b), false),
        (Int64(Some(a)), Int32(Some(b))) => (*a, i64::from(*b), true),
        (Int32(Some(a)), Int64(Some(b))) => (i64::from(*a), *b, true),
        (Int64(Some(a)), Int64(Some(b))) => (*a, *b, true),
        _ => return Ok(None),
    };
    let result = match op {
        Operator::Plus => a.checked_add(b),
        Operator::Minus => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        _ => return Ok(None),
    };
    let value = match (result, long) {
        (Some(result), true) => Some(Int64(Some(result))),
        (Some(result), false) => i32::try_from(result).ok().map(|result| Int32(Some(result))),
        (None, _) => None,
    };
    let hint = if long { "use decimals" } else { "write one of them as a long, for example 10L" };
    let overflow = || {
        let what = format!(
            "overflow: {a} {op} {b} does not fit into {}; {hint}",
            if long { "a long" } else { "an int" }
        );
        DataFusionError::External(Box::new(pelton_core::Error::invalid(what)))
    };
    value.map(Some).ok_or_else(overflow)
}

/// Casts from and to timestamps become Spark's; the plan's types are known already.
pub(super) fn spark_casts(plan: LogicalPlan, session: &Session) -> Result<LogicalPlan> {
    each_expression(plan, |expr, schema| {
        let (inner, to, lenient) = match &expr {
            Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
            Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
            _ => return Ok(Transformed::no(expr)),
        };
        let Ok(from) = inner.get_type(schema) else { return Ok(Transformed::no(expr)) };
        let Some((function, argument, exact)) = replacement(&from, to, lenient) else {
            return Ok(Transformed::no(expr));
        };
        let Some(function) = session.scalar(function) else { return Ok(Transformed::no(expr)) };
        let argument = match argument {
            Some(data_type) if data_type != from => cast(inner.as_ref().clone(), data_type),
            _ => inner.as_ref().clone(),
        };
        let call = function.call(vec![argument]);
        Ok(Transformed::yes(if exact { call } else { cast(call, to.clone()) }))
    })
}

/// The function that does the cast, the type that it takes, and whether its result has the wanted type already.
fn replacement(
    from: &DataType,
    to: &DataType,
    lenient: bool,
) -> Option<(&'static str, Option<DataType>, bool)> {
    use DataType::{Float64, Int64, Timestamp, Utf8};
    match (from, to) {
        (Utf8, Timestamp(_, Some(_))) if lenient => Some(("try_to_timestamp", None, true)),
        (Utf8, Timestamp(_, Some(_))) => Some(("to_timestamp", None, true)),
        (number, Timestamp(_, Some(_))) if number.is_integer() => {
            Some(("timestamp_seconds", Some(Int64), true))
        }
        (number, Timestamp(_, Some(_))) if number.is_floating() || number.is_decimal() => {
            Some(("timestamp_seconds", Some(Float64), true))
        }
        (Timestamp(_, Some(_)), Utf8) => Some((crate::functions::TIMESTAMP_TEXT, None, true)),
        (Timestamp(_, Some(_)), number) if number.is_integer() => {
            Some(("unix_seconds", None, *number == Int64))
        }
        (Timestamp(_, Some(_)), number) if number.is_floating() => {
            Some((crate::functions::FRACTIONAL_SECONDS, None, *number == Float64))
        }
        _ => None,
    }
}
