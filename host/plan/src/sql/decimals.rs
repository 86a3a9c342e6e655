//! Arithmetic of decimals, and of decimals with whole numbers, on the planned expressions: it becomes functions that have
//! Spark's types and round as Spark does.

use super::casts::each_expression;
use super::session::Session;
use crate::functions::decimal;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};

/// `+`, `-`, `*`, `/`, `%` and `round`, where a decimal is among the operands. Types need not be coerced yet.
pub(super) fn spark_decimals(plan: LogicalPlan, session: &Session) -> Result<LogicalPlan> {
    each_expression(plan, |expr, schema| {
        let call = match &expr {
            Expr::BinaryExpr(binary) => arithmetic(binary, schema),
            Expr::ScalarFunction(call) if call.name() == "round" => rounding(call, schema),
            _ => None,
        };
        let call = call.and_then(|(name, args)| Some(session.scalar(name)?.call(args)));
        Ok(call.map_or_else(|| Transformed::no(expr), Transformed::yes))
    })
}

type Call = (&'static str, Vec<Expr>);

fn arithmetic(BinaryExpr { left, op, right }: &BinaryExpr, schema: &DFSchema) -> Option<Call> {
    let name = match op {
        Operator::Plus => decimal::ADD,
        Operator::Minus => decimal::SUBTRACT,
        Operator::Multiply => decimal::MULTIPLY,
        Operator::Divide => decimal::DIVIDE,
        Operator::Modulo => decimal::REMAINDER,
        _ => return None,
    };
    let types = [left.get_type(schema).ok()?, right.get_type(schema).ok()?];
    let exact = types.iter().all(|of| decimal::precision_and_scale(of).is_some());
    let is_decimal = types.iter().any(DataType::is_decimal);
    (exact && is_decimal).then(|| (name, vec![shortest(left), shortest(right)]))
}

/// A whole-number literal counts with the digits that it has.
fn shortest(expr: &Expr) -> Expr {
    let number = match expr {
        Expr::Literal(ScalarValue::Int32(Some(number)), _) => i64::from(*number),
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => *number,
        _ => return expr.clone(),
    };
    let digits = number.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
    Expr::Literal(ScalarValue::Decimal128(Some(number.into()), digits as u8, 0), None)
}

fn rounding(call: &ScalarFunction, schema: &DFSchema) -> Option<Call> {
    let (number, scale) = match call.args.as_slice() {
        [number] => (number, 0),
        [number, Expr::Literal(ScalarValue::Int32(Some(scale)), _)] => (number, *scale),
        [number, Expr::Literal(ScalarValue::Int64(Some(scale)), _)] => (number, i32::try_from(*scale).ok()?),
        [number, Expr::Negative(scale)] => match scale.as_ref() {
            Expr::Literal(ScalarValue::Int32(Some(scale)), _) => (number, -*scale),
            Expr::Literal(ScalarValue::Int64(Some(scale)), _) => (number, i32::try_from(-*scale).ok()?),
            _ => return None,
        },
        _ => return None,
    };
    let scale = Expr::Literal(ScalarValue::Int32(Some(scale)), None);
    number.get_type(schema).ok()?.is_decimal().then(|| (decimal::ROUND, vec![number.clone(), scale]))
}
