//! `avg` with Spark's types: of decimals a decimal with four digits more, of all other numbers a double.

use crate::functions::decimal::quotient;
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Decimal128Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, DecimalType, FieldRef, UInt64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use std::sync::Arc;

/// The function: DataFusion's for decimals, that of `datafusion-spark` for the others.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Average {
    signature: Signature,
    decimals: Arc<AggregateUDF>,
    doubles: Arc<AggregateUDF>,
}

impl Average {
    pub(super) fn new() -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { signature, decimals: avg_udaf(), doubles: datafusion_spark::function::aggregate::avg() }
    }

    fn of(&self, result: &DataType) -> &AggregateUDF {
        if result.is_decimal() { &self.decimals } else { &self.doubles }
    }
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        "avg"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [DataType::Decimal128(..)] => Ok(types.to_vec()),
            [number] if number.is_numeric() || matches!(number, DataType::Null | DataType::Utf8) => {
                Ok(vec![DataType::Float64])
            }
            [other] => plan_err!("avg() takes a number, not {}", pelton_core::types::type_name(other)),
            _ => plan_err!("avg() takes 1 argument, not {}", types.len()),
        }
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [decimal @ DataType::Decimal128(..)] => self.decimals.return_type(std::slice::from_ref(decimal)),
            _ => Ok(DataType::Float64),
        }
    }
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.of(args.return_field.data_type()).state_fields(args)
    }
    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let result = args.return_field.data_type().clone();
        let rounds = result.is_decimal() && !args.is_distinct;
        let inner = self.of(&result).accumulator(args)?;
        Ok(if rounds { Box::new(Rounded { inner, result }) } else { inner })
    }
    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.of(args.return_field.data_type()).groups_accumulator_supported(args)
    }
    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let result = args.return_field.data_type().clone();
        let inner = self.of(&result).create_groups_accumulator(args)?;
        Ok(if result.is_decimal() { Box::new(Rounded { inner, result }) } else { inner })
    }
}

/// Averages of decimals, rounded half up as in Spark: DataFusion's cut off, but their states are counts and sums.
#[derive(Debug)]
struct Rounded<A> {
    inner: A,
    result: DataType,
}

impl<A> Rounded<A> {
    fn averages(&self, counts: &ArrayRef, sums: &ArrayRef) -> Result<ArrayRef> {
        let (counts, sums) =
            (counts.as_primitive_opt::<UInt64Type>(), sums.as_primitive_opt::<Decimal128Type>());
        let (Some(counts), Some(sums), DataType::Decimal128(precision, scale)) = (counts, sums, &self.result)
        else {
            return exec_err!("avg() of decimals has another state than a count and a sum");
        };
        let average = |(count, sum): (Option<u64>, Option<i128>)| match (count, sum) {
            (Some(count), Some(sum)) if count > 0 => {
                let fits = |value: &i128| Decimal128Type::is_valid_decimal_precision(*value, *precision);
                match quotient(sum, sums.scale().into(), count, (*scale).into()).filter(fits) {
                    Some(average) => Ok(Some(average)),
                    None => exec_err!("overflow: the average does not fit into decimal({precision},{scale})"),
                }
            }
            _ => Ok(None),
        };
        let averages = counts.iter().zip(sums.iter()).map(average).collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(averages.with_precision_and_scale(*precision, *scale)?))
    }
}

impl GroupsAccumulator for Rounded<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.inner.update_batch(values, groups, filter, count)
    }
    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.inner.merge_batch(values, groups, count)
    }
    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        match self.inner.state(emit_to)?.as_slice() {
            [counts, sums] => self.averages(counts, sums),
            _ => exec_err!("avg() has another state than a count and a sum"),
        }
    }
    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }
    fn size(&self) -> usize {
        self.inner.size()
    }
}

impl Accumulator for Rounded<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.inner.state()?.as_slice() {
            [count, sum] => {
                let averages = self.averages(&count.to_array()?, &sum.to_array()?)?;
                ScalarValue::try_from_array(&averages, 0)
            }
            _ => exec_err!("avg() has another state than a count and a sum"),
        }
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }
    fn size(&self) -> usize {
        self.inner.size()
    }
}
