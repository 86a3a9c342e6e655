//! `max_by(x, y)` and `min_by(x, y)`: the `x` of the row with the greatest or least `y`. Rows whose `y` is NULL do not
//! count; of several the first.

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use std::cmp::Ordering;
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ExtremeBy {
    name: &'static str,
    /// How a new `y` must compare with the one so far to take its place.
    wins: Ordering,
    signature: Signature,
}

impl ExtremeBy {
    pub(super) fn max() -> Self {
        Self { name: "max_by", wins: Ordering::Greater, signature: Signature::any(2, Volatility::Immutable) }
    }
    pub(super) fn min() -> Self {
        Self { name: "min_by", wins: Ordering::Less, signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for ExtremeBy {
    fn name(&self) -> &str {
        self.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [value, _] => Ok(value.clone()),
            _ => plan_err!("{}() takes 2 arguments, not {}", self.name, types.len()),
        }
    }
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let [value, by] = args.input_fields else { return exec_err!("{}() takes 2 arguments", self.name) };
        let field = |name: &str, of: &FieldRef| Arc::new(Field::new(name, of.data_type().clone(), true));
        Ok(vec![field("value", value), field("by", by)])
    }
    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let [value, by] = args.expr_fields else { return exec_err!("{}() takes 2 arguments", self.name) };
        Ok(Box::new(Best {
            wins: self.wins,
            value: ScalarValue::try_from(value.data_type())?,
            by: ScalarValue::try_from(by.data_type())?,
        }))
    }
}

/// The best row so far.
#[derive(Debug)]
struct Best {
    wins: Ordering,
    value: ScalarValue,
    /// NULL: there is none.
    by: ScalarValue,
}

impl Accumulator for Best {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values, by] = values else { return exec_err!("two columns are wanted") };
        for row in (0..by.len()).filter(|row| by.is_valid(*row)) {
            let candidate = ScalarValue::try_from_array(by, row)?;
            if self.by.is_null() || candidate.partial_cmp(&self.by) == Some(self.wins) {
                self.value = ScalarValue::try_from_array(values, row)?;
                self.by = candidate;
            }
        }
        Ok(())
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), self.by.clone()])
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() + self.by.size()
    }
}
