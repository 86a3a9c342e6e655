//! `max` and `min` with Spark's order of floating-point numbers: NaN is greater than all others. DataFusion's answer depends on
//! the order of the rows if there is a NaN, and knows no infinity.

use super::sum::{One, Sums};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::common::{Result, plan_err};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature};
use std::sync::Arc;

/// One of the two functions: DataFusion's for all but floating-point numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Extreme {
    others: Arc<AggregateUDF>,
}

impl Extreme {
    pub(super) fn max() -> Self {
        Self { others: max_udaf() }
    }

    pub(super) fn min() -> Self {
        Self { others: min_udaf() }
    }

    fn floats(&self, data_type: &DataType) -> Option<Box<dyn GroupsAccumulator>> {
        let of = data_type.clone();
        Some(match (data_type, self.name() == "max") {
            (DataType::Float64, true) => {
                Box::new(Sums::<Float64Type, _>::new(of, f64::NEG_INFINITY, |a, b| Some(greater(a, b))))
            }
            (DataType::Float64, false) => {
                Box::new(Sums::<Float64Type, _>::new(of, f64::NAN, |a, b| Some(lesser(a, b))))
            }
            (DataType::Float32, true) => {
                let greater = |a: f32, b: f32| Some(greater(a.into(), b.into()) as f32);
                Box::new(Sums::<Float32Type, _>::new(of, f32::NEG_INFINITY, greater))
            }
            (DataType::Float32, false) => {
                let lesser = |a: f32, b: f32| Some(lesser(a.into(), b.into()) as f32);
                Box::new(Sums::<Float32Type, _>::new(of, f32::NAN, lesser))
            }
            _ => return None,
        })
    }
}

/// Of equals (0.0 and -0.0) the first.
fn greater(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

fn lesser(a: f64, b: f64) -> f64 {
    if b < a || a.is_nan() { b } else { a }
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.others.name()
    }
    fn signature(&self) -> &Signature {
        self.others.signature()
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [_] => self.others.coerce_types(types),
            _ => plan_err!("{}() takes 1 argument, not {}", self.name(), types.len()),
        }
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.others.return_type(types)
    }
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.others.state_fields(args)
    }
    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.floats(args.return_field.data_type()) {
            Some(floats) => Ok(Box::new(One::new(floats))),
            None => self.others.accumulator(args),
        }
    }
    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.others.groups_accumulator_supported(args)
    }
    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match self.floats(args.return_field.data_type()) {
            Some(floats) => Ok(floats),
            None => self.others.create_groups_accumulator(args),
        }
    }
}
