//! `avg` with Spark's types: of decimals a decimal with four digits more, of all other numbers a double.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
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
        self.of(args.return_field.data_type()).accumulator(args)
    }
    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.of(args.return_field.data_type()).groups_accumulator_supported(args)
    }
    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.of(args.return_field.data_type()).create_groups_accumulator(args)
    }
}
