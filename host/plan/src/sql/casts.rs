//! Casts and literals with Spark's meaning, on the planned expressions.
//!
//! A timestamp counts seconds in Spark and microseconds in Arrow; its text has a space and no zone; text becomes a
//! timestamp in more forms than Arrow reads. Whole-number literals are `int` if they fit.

use super::session::Session;
use datafusion::arrow::compute::can_cast_types;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::{BinaryExpr, Cast, InList, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Between, Expr, ExprSchemable, LogicalPlan, Operator, cast};
use pelton_core::types::type_name;

/// Applies `change` to every expression of the plan and keeps the names of columns.
pub(super) fn each_expression(
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

/// Whether values of these types meet as doubles.
fn become_doubles(types: &[DataType]) -> bool {
    let any = |is: fn(&DataType) -> bool| types.iter().any(is);
    any(DataType::is_decimal) && any(DataType::is_floating)
        || any(|data_type| *data_type == DataType::Float32) && any(DataType::is_integer)
}

/// Whether a decimal is compared with a text.
fn compares_with_text(op: Operator, left: &DataType, right: &DataType) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
        && (left.is_decimal() && *right == DataType::Utf8 || *left == DataType::Utf8 && right.is_decimal())
}

/// Functions whose arguments become one type.
const OF_ONE_TYPE: [&str; 9] =
    ["coalesce", "nvl", "ifnull", "nullif", "greatest", "least", "if", "make_array", "array"];

/// A decimal beside a double becomes a double, as in Spark (DataFusion would make the double a decimal, which it may not
/// fit), and so do a float and a whole number beside each other; a decimal beside text makes doubles of both.
pub(super) fn doubles_over_decimals(plan: LogicalPlan) -> Result<LogicalPlan> {
    each_expression(plan, |expr, schema| {
        let type_of = |e: &Expr| e.get_type(schema).unwrap_or(DataType::Null);
        let mixed = |exprs: &[&Expr]| {
            let types: Vec<DataType> = exprs.iter().map(|e| type_of(e)).collect();
            become_doubles(&types)
        };
        let double = |e: Expr| match type_of(&e) {
            number if number.is_numeric() && number != DataType::Float64 => cast(e, DataType::Float64),
            _ => e,
        };
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if op != Operator::StringConcat && mixed(&[&left, &right]) =>
            {
                let (left, right) = (Box::new(double(*left)), Box::new(double(*right)));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if compares_with_text(op, &type_of(&left), &type_of(&right)) =>
            {
                let (left, right) = (cast(*left, DataType::Float64), cast(*right, DataType::Float64));
                let (left, right) = (Box::new(left), Box::new(right));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::Between(between) if mixed(&[&between.expr, &between.low, &between.high]) => {
                Transformed::yes(Expr::Between(Between {
                    expr: Box::new(double(*between.expr)),
                    negated: between.negated,
                    low: Box::new(double(*between.low)),
                    high: Box::new(double(*between.high)),
                }))
            }
            Expr::InList(list)
                if mixed(&list.list.iter().chain([list.expr.as_ref()]).collect::<Vec<_>>()) =>
            {
                Transformed::yes(Expr::InList(InList {
                    expr: Box::new(double(*list.expr)),
                    list: list.list.into_iter().map(double).collect(),
                    negated: list.negated,
                }))
            }
            Expr::Case(mut case) => {
                let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
                let results: Vec<&Expr> = results.chain(case.else_expr.as_deref()).collect();
                if !mixed(&results) {
                    return Ok(Transformed::no(Expr::Case(case)));
                }
                let whens = case.when_then_expr.into_iter();
                case.when_then_expr = whens.map(|(when, then)| (when, Box::new(double(*then)))).collect();
                case.else_expr = case.else_expr.map(|other| Box::new(double(*other)));
                Transformed::yes(Expr::Case(case))
            }
            Expr::ScalarFunction(mut call)
                if OF_ONE_TYPE.contains(&call.func.name())
                    && mixed(&call.args.iter().collect::<Vec<_>>()) =>
            {
                call.args = call.args.into_iter().map(double).collect();
                Transformed::yes(Expr::ScalarFunction(call))
            }
            other => Transformed::no(other),
        })
    })
}

/// Casts from and to timestamps, and from floating-point numbers and nested values to text, become Spark's; the plan's
/// types are known already.
pub(super) fn spark_casts(plan: LogicalPlan, session: &Session) -> Result<LogicalPlan> {
    each_expression(plan, |expr, schema| {
        let (inner, to, lenient) = match &expr {
            Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
            Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
            _ => return Ok(Transformed::no(expr)),
        };
        let Ok(from) = inner.get_type(schema) else { return Ok(Transformed::no(expr)) };
        let Some((function, argument, exact)) = replacement(&from, to, lenient) else {
            return match can_cast_types(&from, to) {
                true => Ok(Transformed::no(expr)),
                false => Err(impossible(&from, to)),
            };
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

fn impossible(from: &DataType, to: &DataType) -> DataFusionError {
    let what = format!("{} cannot be cast to {}", type_name(from), type_name(to));
    DataFusionError::External(Box::new(pelton_core::Error::invalid(what)))
}

/// The function that does the cast, the type that it takes, and whether its result has the wanted type already.
fn replacement(
    from: &DataType,
    to: &DataType,
    lenient: bool,
) -> Option<(&'static str, Option<DataType>, bool)> {
    use DataType::{Float64, Int64, Timestamp, Utf8};
    match (from, to) {
        (number, Utf8) if number.is_floating() => Some((crate::functions::FLOAT_TEXT, None, true)),
        (nested, Utf8) if nested.is_nested() => Some((crate::functions::NESTED_TEXT, None, true)),
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
        (Timestamp(_, Some(_)), number) if number.is_floating() || number.is_decimal() => {
            Some((crate::functions::FRACTIONAL_SECONDS, None, *number == Float64))
        }
        _ => None,
    }
}
