//! Arithmetic as Spark's ANSI mode has it: `/` of whole numbers is a double, division by zero is an error, and the
//! `try_` functions give NULL where the others fail.

use super::function::{Function, Returns, array, failed};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array};
use datafusion::arrow::compute::kernels::{cast, numeric};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{Operator, ScalarFunctionArgs, ScalarUDF};
use std::sync::Arc;

/// What `/` becomes for numbers that are not decimals.
pub(crate) const DIVIDE: &str = "divide";
/// What `div` becomes.
pub(crate) const DIV: &str = "div";
/// What `%` becomes for floating-point numbers.
pub(crate) const REMAINDER: &str = "remainder";

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let float: Returns = |_, _, _| Ok(DataType::Float64);
    let long: Returns = |_, _, _| Ok(DataType::Int64);
    let first: Returns = |_, fields, _| Ok(fields[0].data_type().clone());
    let mut functions = vec![
        Function::new(DIVIDE, zone, doubles, float, |_, args| divide(args, true)).udf(),
        Function::new("try_divide", zone, doubles, float, |_, args| divide(args, false)).udf(),
        Function::new(REMAINDER, zone, doubles, float, |_, args| remainder(args)).udf(),
        Function::new(DIV, zone, longs, long, |_, args| whole_division(args)).udf(),
        Function::new("try_mod", zone, same, first, |_, args| attempt(args, numeric::rem)).udf(),
        Function::new("try_add", zone, same, first, |_, args| attempt(args, numeric::add)).udf(),
        Function::new("try_subtract", zone, same, first, |_, args| attempt(args, numeric::sub)).udf(),
        Function::new("try_multiply", zone, same, first, |_, args| attempt(args, numeric::mul)).udf(),
        Function::new("log", zone, one_or_two_doubles, float, |_, args| logarithm(args)).udf(),
        Function::new("log1p", zone, one_double, float, |_, args| logarithm_of_one_more(args)).udf(),
    ];
    functions
        .push(Function::new("e", zone, nothing, float, |_, args| constant(args, std::f64::consts::E)).udf());
    functions
}

fn nothing(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 0..=0)?;
    Ok(Vec::new())
}

fn doubles(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 2..=2)?;
    Ok(vec![DataType::Float64; 2])
}

fn one_double(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    Ok(vec![DataType::Float64])
}

fn one_or_two_doubles(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=2)?;
    Ok(vec![DataType::Float64; types.len()])
}

fn longs(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 2..=2)?;
    Ok(vec![DataType::Int64; 2])
}

/// Both as the wider of the two.
fn same(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 2..=2)?;
    let (left, right) = BinaryTypeCoercer::new(&types[0], &Operator::Plus, &types[1]).get_input_types()?;
    Ok(vec![left, right])
}

fn constant(args: &ScalarFunctionArgs, value: f64) -> Result<ArrayRef> {
    Ok(Arc::new(Float64Array::from(vec![value; args.number_rows])))
}

fn float_pairs(args: &ScalarFunctionArgs) -> Result<(Float64Array, Float64Array)> {
    let pair = (array(args, 0)?, array(args, 1)?);
    Ok((pair.0.as_primitive::<Float64Type>().clone(), pair.1.as_primitive::<Float64Type>().clone()))
}

fn divide(args: &ScalarFunctionArgs, strict: bool) -> Result<ArrayRef> {
    let (left, right) = float_pairs(args)?;
    let zero = |row: usize| right.is_valid(row) && right.value(row) == 0.0 && left.is_valid(row);
    if strict && (0..right.len()).any(zero) {
        return failed("division by zero; use try_divide() to get NULL instead");
    }
    if right.values().contains(&0.0) {
        let quotients: Float64Array =
            left.iter().zip(&right).map(|(l, r)| Some(l? / r.filter(|r| *r != 0.0)?)).collect();
        return Ok(Arc::new(quotients));
    }
    Ok(numeric::div(&left, &right)?)
}

fn remainder(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (left, right) = float_pairs(args)?;
    if (0..right.len()).any(|row| right.is_valid(row) && right.value(row) == 0.0 && left.is_valid(row)) {
        return failed("division by zero; use try_mod() to get NULL instead");
    }
    Ok(numeric::rem(&left, &right)?)
}

fn whole_division(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (left, right) = (array(args, 0)?, array(args, 1)?);
    let (left, right) = (left.as_primitive::<Int64Type>(), right.as_primitive::<Int64Type>());
    let quotient = |(l, r): (Option<i64>, Option<i64>)| match (l, r) {
        (Some(_), Some(0)) => failed("division by zero; use try_divide() to get NULL instead"),
        (Some(l), Some(r)) => match l.checked_div(r) {
            Some(quotient) => Ok(Some(quotient)),
            None => failed(format!("{l} div {r} is out of range")),
        },
        _ => Ok(None),
    };
    Ok(Arc::new(left.iter().zip(right.iter()).map(quotient).collect::<Result<Int64Array>>()?))
}

type Kernel = fn(
    &dyn datafusion::arrow::array::Datum,
    &dyn datafusion::arrow::array::Datum,
) -> Result<ArrayRef, datafusion::arrow::error::ArrowError>;

/// The whole batch at once; only if that fails, row by row with NULL where it fails.
fn attempt(args: &ScalarFunctionArgs, kernel: Kernel) -> Result<ArrayRef> {
    let (left, right) = (array(args, 0)?, array(args, 1)?);
    let exact = |result: ArrayRef| Ok(cast::cast(&result, args.return_type())?);
    if let Ok(result) = kernel(&left, &right) {
        return exact(result);
    }
    let one = |row: usize| {
        let result = kernel(&left.slice(row, 1), &right.slice(row, 1));
        result.unwrap_or_else(|_| datafusion::arrow::array::new_null_array(args.return_type(), 1))
    };
    let rows: Vec<ArrayRef> = (0..left.len()).map(one).map(exact).collect::<Result<_>>()?;
    let parts: Vec<&dyn Array> = rows.iter().map(AsRef::as_ref).collect();
    Ok(datafusion::arrow::compute::concat(&parts)?)
}

/// `log(x)` is natural, `log(base, x)` has its base first; NULL outside its domain, as in Spark.
fn logarithm(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let first = array(args, 0)?;
    let first = first.as_primitive::<Float64Type>();
    if args.args.len() == 1 {
        let natural: Float64Array = first.iter().map(|x| x.filter(|x| *x > 0.0).map(f64::ln)).collect();
        return Ok(Arc::new(natural));
    }
    let second = array(args, 1)?;
    let second = second.as_primitive::<Float64Type>();
    let log = |(base, x): (Option<f64>, Option<f64>)| {
        Some(x.filter(|x| *x > 0.0)?.ln() / base.filter(|b| *b > 0.0)?.ln())
    };
    Ok(Arc::new(first.iter().zip(second.iter()).map(log).collect::<Float64Array>()))
}

/// Exact for small numbers, too; NULL outside its domain, as in Spark.
fn logarithm_of_one_more(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let one = |x: Option<f64>| x.filter(|x| *x > -1.0).map(f64::ln_1p);
    Ok(Arc::new(values.as_primitive::<Float64Type>().iter().map(one).collect::<Float64Array>()))
}

/// The types of the whole numbers that `/` makes a double of; for the planner.
pub(crate) fn is_plain_number(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_floating() || *data_type == DataType::Null
}

/// Positions as Spark counts them fit into an int.
pub(super) fn ints(values: impl Iterator<Item = Option<i32>>) -> ArrayRef {
    Arc::new(values.collect::<Int32Array>())
}

/// A whole-number argument of a function that coerced it to `int`.
pub(super) fn int_at(values: &ArrayRef, row: usize) -> Option<i32> {
    let values = values.as_primitive_opt::<Int32Type>()?;
    values.is_valid(row).then(|| values.value(row))
}
