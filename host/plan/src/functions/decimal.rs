//! Arithmetic of decimals as in Spark: its result types (`DecimalPrecision` with precision loss allowed), exact in between,
//! and rounded half up, where Arrow's has other types and cuts off. `sql::decimals` puts these in the place of operators.

use super::function::{Function, Returns, array, failed};
use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, DecimalType, FieldRef, i256};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use std::sync::Arc;

pub(crate) const ADD: &str = "decimal_add";
pub(crate) const SUBTRACT: &str = "decimal_subtract";
pub(crate) const MULTIPLY: &str = "decimal_multiply";
pub(crate) const DIVIDE: &str = "decimal_divide";
pub(crate) const REMAINDER: &str = "decimal_remainder";
pub(crate) const ROUND: &str = "decimal_round";

/// More digits there are not.
const PRECISION_MAX: i32 = 38;
/// So many digits behind the point are kept if there are too many in all.
const SCALE_KEPT: i32 = 6;

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let function = |name, returns: Returns, invoke| Function::new(name, zone, pair, returns, invoke).udf();
    vec![
        function(ADD, |_, f, _| result(Op::Add, f), |_, args| calculate(Op::Add, args)),
        function(SUBTRACT, |_, f, _| result(Op::Subtract, f), |_, args| calculate(Op::Subtract, args)),
        function(MULTIPLY, |_, f, _| result(Op::Multiply, f), |_, args| calculate(Op::Multiply, args)),
        function(DIVIDE, |_, f, _| result(Op::Divide, f), |_, args| calculate(Op::Divide, args)),
        function(REMAINDER, |_, f, _| result(Op::Remainder, f), |_, args| calculate(Op::Remainder, args)),
        Function::new(
            ROUND,
            zone,
            |_, types| Ok(types.to_vec()),
            |_, fields, constants| rounded_type(fields, constants),
            |_, args| round(args),
        )
        .udf(),
    ]
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// The digits of a decimal or a whole number, and how many of them are behind the point.
pub(crate) fn precision_and_scale(data_type: &DataType) -> Option<(u8, i8)> {
    Some(match data_type {
        DataType::Decimal128(precision, scale) if *scale >= 0 => (*precision, *scale),
        DataType::Int8 => (3, 0),
        DataType::Int16 => (5, 0),
        DataType::Int32 => (10, 0),
        DataType::Int64 => (20, 0),
        _ => return None,
    })
}

fn exact(data_type: &DataType) -> Result<(i32, i32)> {
    let known = precision_and_scale(data_type);
    let (precision, scale) = known.ok_or_else(|| {
        DataFusionError::Plan(format!("{data_type} is neither a decimal nor a whole number"))
    })?;
    Ok((precision.into(), scale.into()))
}

fn pair(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 2..=2)?;
    let decimal = |data_type: &DataType| {
        let (precision, scale) = exact(data_type)?;
        Ok(DataType::Decimal128(precision as u8, scale as i8))
    };
    types.iter().map(decimal).collect()
}

/// As Spark's `DecimalPrecision` and `DecimalType.adjustPrecisionScale`.
fn result(op: Op, fields: &[FieldRef]) -> Result<DataType> {
    let ((p1, s1), (p2, s2)) = (exact(fields[0].data_type())?, exact(fields[1].data_type())?);
    let (precision, scale) = match op {
        Op::Add | Op::Subtract => {
            let scale = s1.max(s2);
            ((p1 - s1).max(p2 - s2) + scale + 1, scale)
        }
        Op::Multiply => (p1 + p2 + 1, s1 + s2),
        Op::Divide => {
            let scale = SCALE_KEPT.max(s1 + p2 + 1);
            (p1 - s1 + s2 + scale, scale)
        }
        Op::Remainder => {
            let scale = s1.max(s2);
            ((p1 - s1).min(p2 - s2) + scale, scale)
        }
    };
    if precision <= PRECISION_MAX {
        return Ok(DataType::Decimal128(precision as u8, scale as i8));
    }
    let scale = (PRECISION_MAX - (precision - scale)).max(scale.min(SCALE_KEPT));
    Ok(DataType::Decimal128(PRECISION_MAX as u8, scale as i8))
}

fn calculate(op: Op, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = *args.return_type() else {
        return failed("a decimal was expected");
    };
    let (left, right) = (array(args, 0)?, array(args, 1)?);
    let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
    let (s1, s2, scale_of) = (i32::from(left.scale()), i32::from(right.scale()), i32::from(scale));
    let one = |(a, b): (Option<i128>, Option<i128>)| -> Result<Option<i128>> {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        if b == 0 && matches!(op, Op::Divide | Op::Remainder) {
            return failed("division by zero; use try_divide() to get NULL instead");
        }
        let value = one_value(op, (a, s1), (b, s2), scale_of);
        let fits = |value: &i128| Decimal128Type::is_valid_decimal_precision(*value, precision);
        match value.filter(fits) {
            Some(value) => Ok(Some(value)),
            None => failed(format!("overflow: the result does not fit into decimal({precision},{scale})")),
        }
    };
    let values = left.iter().zip(right.iter()).map(one).collect::<Result<Decimal128Array>>()?;
    Ok(Arc::new(values.with_precision_and_scale(precision, scale)?))
}

/// A decimal divided by a count, with so many digits behind the point; none: it is out of all bounds.
pub(super) fn quotient(value: i128, value_scale: i32, count: u64, scale: i32) -> Option<i128> {
    one_value(Op::Divide, (value, value_scale), (count.into(), 0), scale)
}

/// The result with so many digits behind the point; none: it is out of all bounds.
fn one_value(op: Op, (a, s1): (i128, i32), (b, s2): (i128, i32), scale: i32) -> Option<i128> {
    let (a, b) = (i256::from_i128(a), i256::from_i128(b));
    // What comes out exactly is a fraction of these, of this scale.
    let common = s1.max(s2);
    let aligned = || Some((scaled(a, common - s1)?, scaled(b, common - s2)?));
    let (value, has) = match op {
        Op::Add => aligned().and_then(|(a, b)| a.checked_add(b)).map(|sum| (sum, common))?,
        Op::Subtract => aligned().and_then(|(a, b)| a.checked_sub(b)).map(|rest| (rest, common))?,
        Op::Multiply => (a.checked_mul(b)?, s1 + s2),
        Op::Remainder => aligned().and_then(|(a, b)| a.checked_rem(b)).map(|rest| (rest, common))?,
        Op::Divide => {
            let shift = scale - s1 + s2;
            return halved_up(scaled(a, shift.max(0))?, scaled(b, (-shift).max(0))?)?.to_i128();
        }
    };
    match scale - has {
        0 => value.to_i128(),
        more if more > 0 => scaled(value, more)?.to_i128(),
        less => halved_up(value, scaled(i256::ONE, -less)?)?.to_i128(),
    }
}

/// With so many zeros behind it.
fn scaled(value: i256, zeros: i32) -> Option<i256> {
    match zeros {
        0 => Some(value),
        zeros => value.checked_mul(i256::from_i128(10).checked_pow(zeros.try_into().ok()?)?),
    }
}

/// The quotient, rounded half up (away from zero).
fn halved_up(value: i256, by: i256) -> Option<i256> {
    let (quotient, rest) = (value.checked_div(by)?, value.checked_rem(by)?);
    let is_half = rest.wrapping_abs() >= by.wrapping_abs().checked_sub(rest.wrapping_abs())?;
    match (is_half, value.is_negative() == by.is_negative()) {
        (false, _) => Some(quotient),
        (true, true) => quotient.checked_add(i256::ONE),
        (true, false) => quotient.checked_sub(i256::ONE),
    }
}

/// As Spark's `RoundBase`.
fn rounded_type(fields: &[FieldRef], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let (precision, scale) = exact(fields[0].data_type())?;
    let Some(ScalarValue::Int32(Some(wanted))) = constants.get(1).copied().flatten() else {
        return Err(DataFusionError::Plan("the second argument of round() must be a constant int".into()));
    };
    let whole = precision - scale + 1;
    let (precision, scale) = match *wanted {
        wanted if wanted < 0 => (whole.max(1 - wanted), 0),
        wanted => (whole + wanted.min(scale), wanted.min(scale)),
    };
    Ok(DataType::Decimal128(precision.min(PRECISION_MAX) as u8, scale as i8))
}

fn round(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = *args.return_type() else {
        return failed("a decimal was expected");
    };
    let (values, wanted) = (array(args, 0)?, array(args, 1)?);
    let (values, wanted) = (values.as_primitive::<Decimal128Type>(), super::arithmetic::int_at(&wanted, 0));
    let (has, wanted) = (i32::from(values.scale()), wanted.unwrap_or(0));
    let one = |value: i128| -> Option<i128> {
        let value = i256::from_i128(value);
        let by = scaled(i256::ONE, (has - wanted).max(0))?;
        let zeros = (-wanted).max(0);
        scaled(halved_up(value, by)?, zeros)?.to_i128()
    };
    let fits = |value: &i128| Decimal128Type::is_valid_decimal_precision(*value, precision);
    let rounded = |value: Option<i128>| match value.map(|value| one(value).filter(fits)) {
        None => Ok(None),
        Some(Some(value)) => Ok(Some(value)),
        Some(None) => failed(format!("overflow: the result does not fit into decimal({precision},{scale})")),
    };
    let values = values.iter().map(rounded).collect::<Result<Decimal128Array>>()?;
    Ok(Arc::new(values.with_precision_and_scale(precision, scale)?))
}
