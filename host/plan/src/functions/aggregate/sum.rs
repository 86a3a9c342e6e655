//! `sum` as in Spark's ANSI mode: whole numbers to a long, decimals with ten digits more, and overflow is an error.

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::kernels::boolean::not;
use datafusion::arrow::compute::kernels::nullif::nullif;
use datafusion::arrow::compute::{cast, prep_null_mask_filter};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    signature: Signature,
}

impl Sum {
    pub(super) fn new() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        "sum"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = types else { return plan_err!("sum() takes 1 argument, not {}", types.len()) };
        Ok(vec![match argument {
            DataType::Decimal128(..) => argument.clone(),
            DataType::Null => DataType::Float64,
            number if number.is_integer() => DataType::Int64,
            number if number.is_floating() => DataType::Float64,
            DataType::Utf8 => DataType::Float64,
            other => {
                return plan_err!("sum() takes a number, not {}", pelton_core::types::type_name(other));
            }
        }])
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Decimal128(precision, scale)] => {
                Ok(DataType::Decimal128((precision + 10).min(DECIMAL128_MAX_PRECISION), *scale))
            }
            [other] => Ok(other.clone()),
            _ => plan_err!("sum() takes 1 argument"),
        }
    }
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new("sum", args.return_field.data_type().clone(), true))])
    }
    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(One::new(sums(args.return_field.data_type())?)))
    }
    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }
    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        sums(args.return_field.data_type())
    }
}

fn sums(data_type: &DataType) -> Result<Box<dyn GroupsAccumulator>> {
    let data_type = data_type.clone();
    Ok(match data_type {
        DataType::Int64 => Box::new(Sums::<Int64Type, _>::new(data_type, 0, i64::checked_add)),
        DataType::Float64 => Box::new(Sums::<Float64Type, _>::new(data_type, 0.0, |a, b| Some(a + b))),
        DataType::Decimal128(precision, _) => {
            let limit = 10_i128.pow(u32::from(precision)) - 1;
            let add = move |a: i128, b: i128| a.checked_add(b).filter(|sum| sum.abs() <= limit);
            Box::new(Sums::<Decimal128Type, _>::new(data_type, 0, add))
        }
        other => return exec_err!("sum() of {other}"),
    })
}

/// The sums of many groups, or what else comes of adding one value to another.
pub(super) struct Sums<T: ArrowPrimitiveType, F> {
    data_type: DataType,
    /// What changes no value when it is added to.
    start: T::Native,
    add: F,
    values: Vec<T::Native>,
    /// Whether a group has had a value.
    seen: Vec<bool>,
}

impl<T: ArrowPrimitiveType, F: Fn(T::Native, T::Native) -> Option<T::Native>> Sums<T, F> {
    pub(super) fn new(data_type: DataType, start: T::Native, add: F) -> Self {
        Self { data_type, start, add, values: Vec::new(), seen: Vec::new() }
    }

    fn overflow(&self) -> DataFusionError {
        let what = match self.data_type {
            DataType::Decimal128(..) => "overflow in sum of decimals; use try_sum() to get NULL instead",
            _ => "overflow in sum of longs; use try_sum() to get NULL instead, or sum decimals",
        };
        DataFusionError::Execution(format!("ARITHMETIC_OVERFLOW: {what}"))
    }

    fn grow(&mut self, groups: usize) {
        self.values.resize(groups, self.start);
        self.seen.resize(groups, false);
    }

    fn put(&mut self, group: usize, value: T::Native) -> Result<()> {
        self.values[group] = (self.add)(self.values[group], value).ok_or_else(|| self.overflow())?;
        self.seen[group] = true;
        Ok(())
    }
}

impl<T, F> GroupsAccumulator for Sums<T, F>
where
    T: ArrowPrimitiveType + Send,
    F: Fn(T::Native, T::Native) -> Option<T::Native> + Send + Sync + 'static,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.grow(count);
        let Some(values) = values.first().and_then(|values| values.as_primitive_opt::<T>()) else {
            return exec_err!("sum() got another type than it was bound to");
        };
        if filter.is_none() && values.null_count() == 0 {
            return groups
                .iter()
                .zip(values.values())
                .try_for_each(|(group, value)| self.put(*group, *value));
        }
        for (row, group) in groups.iter().enumerate() {
            let kept = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if kept && values.is_valid(row) {
                self.put(*group, values.value(row))?;
            }
        }
        Ok(())
    }
    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.update_batch(values, groups, None, count)
    }
    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let values = emit_to.take_needed(&mut self.values);
        let seen = emit_to.take_needed(&mut self.seen);
        let nulls = Some(NullBuffer::from(seen)).filter(|nulls| nulls.null_count() > 0);
        let sums = PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(self.data_type.clone());
        Ok(Arc::new(sums))
    }
    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }
    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let Some(values) = values.first() else { return exec_err!("sum() got no argument") };
        let kept = match filter {
            Some(filter) if filter.null_count() > 0 => nullif(values, &not(&prep_null_mask_filter(filter))?)?,
            Some(filter) => nullif(values, &not(filter)?)?,
            None => values.clone(),
        };
        Ok(vec![cast(&kept, &self.data_type)?])
    }
    fn size(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.seen.capacity()
    }
}

/// One group alone.
pub(super) struct One(Mutex<Box<dyn GroupsAccumulator>>);

impl One {
    pub(super) fn new(group: Box<dyn GroupsAccumulator>) -> Self {
        Self(Mutex::new(group))
    }
}

impl Debug for One {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sum")
    }
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, |values| values.len());
        self.0.get_mut().update_batch(values, &vec![0; rows], None, 1)
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        // Evaluation takes the group away, so it is put back.
        let sums = self.0.get_mut();
        let value = sums.evaluate(EmitTo::All)?;
        sums.merge_batch(std::slice::from_ref(&value), &vec![0; value.len()], 1)?;
        match value.is_empty() {
            true => ScalarValue::try_from(value.data_type()),
            false => ScalarValue::try_from_array(&value, 0),
        }
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }
    fn size(&self) -> usize {
        self.0.lock().size()
    }
}
