//! `mode`: the value that occurs most often; NULL does not count. Of several the smallest, so that the order of rows
//! does not matter (Spark gives any of them).

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use std::collections::HashMap;
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Mode {
    signature: Signature,
}

impl Mode {
    pub(super) fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &str {
        "mode"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [one] => Ok(one.clone()),
            _ => plan_err!("mode() takes 1 argument"),
        }
    }
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list = |of: DataType| DataType::List(Arc::new(Field::new_list_field(of, true)));
        Ok(vec![
            Arc::new(Field::new("values", list(args.return_field.data_type().clone()), true)),
            Arc::new(Field::new("counts", list(DataType::Int64), true)),
        ])
    }
    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counts { data_type: args.return_field.data_type().clone(), counts: HashMap::new() }))
    }
}

#[derive(Debug)]
struct Counts {
    data_type: DataType,
    counts: HashMap<ScalarValue, i64>,
}

impl Counts {
    fn add(&mut self, values: &ArrayRef, count: impl Fn(usize) -> i64) -> Result<()> {
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            *self.counts.entry(ScalarValue::try_from_array(values, row)?).or_default() += count(row);
        }
        Ok(())
    }

    /// In the order of the values: state must not depend on hashes.
    fn sorted(&self) -> Vec<(&ScalarValue, i64)> {
        let mut all: Vec<_> = self.counts.iter().map(|(value, count)| (value, *count)).collect();
        all.sort_by(|a, b| a.0.partial_cmp(b.0).unwrap_or(std::cmp::Ordering::Equal));
        all
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().try_for_each(|values| self.add(values, |_| 1))
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else { return exec_err!("a state of mode() has two parts") };
        let lists = |array: &ArrayRef| -> Result<ListArray> {
            array.as_list_opt::<i32>().cloned().map_or_else(|| exec_err!("a state of mode() is no list"), Ok)
        };
        let (values, counts) = (lists(values)?, lists(counts)?);
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let of_row = counts.value(row);
            let Some(of_row) = of_row.as_primitive_opt::<Int64Type>() else {
                return exec_err!("a state of mode() has no counts");
            };
            self.add(&values.value(row), |at| of_row.value(at))?;
        }
        Ok(())
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let best = self.sorted().into_iter().rev().max_by_key(|(_, count)| *count);
        best.map_or_else(|| ScalarValue::try_from(&self.data_type), |(value, _)| Ok(value.clone()))
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sorted = self.sorted();
        let values: Vec<ScalarValue> = sorted.iter().map(|(value, _)| (*value).clone()).collect();
        let counts = Int64Array::from_iter_values(sorted.iter().map(|(_, count)| *count));
        let counts = ListArray::try_new(
            Arc::new(Field::new_list_field(DataType::Int64, true)),
            datafusion::arrow::buffer::OffsetBuffer::from_lengths([counts.len()]),
            Arc::new(counts),
            None,
        )?;
        let values = ScalarValue::new_list(&values, &self.data_type, true);
        Ok(vec![ScalarValue::List(values), ScalarValue::List(Arc::new(counts))])
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.counts.len() * 64
    }
}
