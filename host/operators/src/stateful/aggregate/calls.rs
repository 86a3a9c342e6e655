//! The aggregate functions of a GROUP BY: DataFusion's accumulators over groups, and their states as bytes.
//!
//! A state is a fixed number of columns a function; here they always stand side by side, one row a group.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, prep_null_mask_filter, take_arrays};
use arrow::datatypes::DataType;
use datafusion::common::DataFusionError;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{GroupsAccumulatorAdapter, PhysicalExpr};
use pelton_core::Result;
use pelton_plan::evaluation_error;
use pelton_plan::stateful::AggregateCall;
use pelton_state::{EncodedRows, RowCodec};
use std::sync::Arc;

/// Functions whose result depends on the order of the rows.
const ORDERED: [&str; 11] = [
    "any_value",
    "array_agg",
    "collect_list",
    "first",
    "first_value",
    "last",
    "last_value",
    "list_agg",
    "listagg",
    "nth_value",
    "string_agg",
];

/// The functions, bound to the input.
pub(in crate::stateful) struct Calls {
    calls: Vec<Call>,
    /// The types of the states' columns.
    state_types: Vec<DataType>,
    /// None if there is nothing to store.
    codec: Option<RowCodec>,
}

struct Call {
    function: Arc<AggregateFunctionExpr>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    /// The arguments cannot fail, so that they may be evaluated for rows that the filter leaves out.
    harmless: bool,
    /// How many columns its state has.
    state_width: usize,
}

/// What the functions know of some groups. As many groups as the last call said.
pub(in crate::stateful) struct Accumulators<'a> {
    calls: &'a Calls,
    of_calls: Vec<Box<dyn GroupsAccumulator>>,
    /// How many groups there are.
    groups: usize,
}

impl Calls {
    pub(in crate::stateful) fn new(calls: &[AggregateCall]) -> Result<Self> {
        let mut types: Vec<DataType> = Vec::new();
        let mut bound = Vec::with_capacity(calls.len());
        for call in calls {
            let function = call.function.clone();
            let state = function.state_fields().map_err(|e| evaluation_error(&e))?;
            types.extend(state.iter().map(|field| field.data_type().clone()));
            let mut arguments = function.expressions();
            arguments.extend(function.order_bys().iter().map(|sort| sort.expr.clone()));
            let harmless = |expr: &Arc<dyn PhysicalExpr>| {
                expr.downcast_ref::<Column>().is_some() || expr.downcast_ref::<Literal>().is_some()
            };
            bound.push(Call {
                harmless: arguments.iter().all(harmless),
                state_width: state.len(),
                filter: call.filter.clone(),
                function,
                arguments,
            });
        }
        let codec = (!types.is_empty()).then(|| RowCodec::new(types.clone())).transpose()?;
        Ok(Self { calls: bound, state_types: types, codec })
    }

    pub(in crate::stateful) fn accumulators(&self) -> Result<Accumulators<'_>> {
        let of_calls = self.calls.iter().map(Call::accumulator).collect::<Result<_, _>>();
        Ok(Accumulators { calls: self, of_calls: of_calls.map_err(|e| evaluation_error(&e))?, groups: 0 })
    }

    /// Whether a function's result depends on the order of the rows, as that of `first` does.
    pub(in crate::stateful) fn in_order(&self) -> bool {
        self.calls.iter().any(|call| ORDERED.contains(&call.function.fun().name()))
    }

    /// States as bytes. None if there is nothing to store.
    pub(in crate::stateful) fn encode(&self, states: &[ArrayRef]) -> Result<Option<EncodedRows>> {
        self.codec.as_ref().map(|codec| codec.encode(states)).transpose()
    }

    /// States from bytes.
    pub(in crate::stateful) fn decode<'a>(
        &self,
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<ArrayRef>> {
        match &self.codec {
            Some(codec) => codec.decode(values),
            None => Ok(Vec::new()),
        }
    }

    /// The results of the states, one row a state.
    pub(in crate::stateful) fn results(&self, states: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
        let mut accumulators = self.accumulators()?;
        accumulators.merge(states, &(0..rows).collect::<Vec<_>>(), rows)?;
        accumulators.results()
    }
}

impl Call {
    fn accumulator(&self) -> Result<Box<dyn GroupsAccumulator>, DataFusionError> {
        if self.function.groups_accumulator_supported() {
            return self.function.create_groups_accumulator();
        }
        let function = self.function.clone();
        Ok(Box::new(GroupsAccumulatorAdapter::new(move || function.create_accumulator())))
    }

    fn update(
        &self,
        accumulator: &mut dyn GroupsAccumulator,
        rows: &RecordBatch,
        groups: &[usize],
        total: usize,
    ) -> Result<(), DataFusionError> {
        let Some(filter) = &self.filter else {
            return accumulator.update_batch(&evaluate(&self.arguments, rows)?, groups, None, total);
        };
        let passes = mask(filter, rows)?;
        if self.harmless {
            return accumulator.update_batch(&evaluate(&self.arguments, rows)?, groups, Some(&passes), total);
        }
        let rows = filter_record_batch(rows, &passes)?;
        let groups: Vec<usize> = groups
            .iter()
            .zip(passes.values())
            .filter(|(_, passes)| *passes)
            .map(|(group, _)| *group)
            .collect();
        accumulator.update_batch(&evaluate(&self.arguments, &rows)?, &groups, None, total)
    }
}

impl Accumulators<'_> {
    /// Adds rows to their groups.
    pub(in crate::stateful) fn update(
        &mut self,
        rows: &RecordBatch,
        groups: &[usize],
        total: usize,
    ) -> Result<()> {
        self.groups = total;
        for (call, accumulator) in self.calls.calls.iter().zip(&mut self.of_calls) {
            call.update(accumulator.as_mut(), rows, groups, total).map_err(|e| evaluation_error(&e))?;
        }
        Ok(())
    }

    /// Adds states to their groups.
    pub(in crate::stateful) fn merge(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        total: usize,
    ) -> Result<()> {
        self.groups = total;
        let mut rest = states;
        for (call, accumulator) in self.calls.calls.iter().zip(&mut self.of_calls) {
            let (state, others) = rest.split_at(call.state_width);
            rest = others;
            accumulator.merge_batch(state, groups, total).map_err(|e| evaluation_error(&e))?;
        }
        Ok(())
    }

    /// Makes sure that there are that many groups, the new ones without rows.
    pub(in crate::stateful) fn cover(&mut self, total: usize) -> Result<()> {
        let empty = self.calls.state_types.iter().map(arrow::array::new_empty_array).collect::<Vec<_>>();
        self.merge(&empty, &[], total)
    }

    /// The states of all groups.
    pub(in crate::stateful) fn states(mut self) -> Result<Vec<ArrayRef>> {
        // Some functions cannot give the states of no group.
        if self.groups == 0 {
            return Ok(self.calls.state_types.iter().map(arrow::array::new_empty_array).collect());
        }
        let mut states = Vec::new();
        for accumulator in &mut self.of_calls {
            states.extend(accumulator.state(EmitTo::All).map_err(|e| evaluation_error(&e))?);
        }
        Ok(states)
    }

    /// The results of all groups.
    pub(in crate::stateful) fn results(mut self) -> Result<Vec<ArrayRef>> {
        if self.groups == 0 {
            let types = self.calls.calls.iter().map(|call| call.function.field());
            return Ok(types.map(|field| arrow::array::new_empty_array(field.data_type())).collect());
        }
        let results = self.of_calls.iter_mut().map(|accumulator| accumulator.evaluate(EmitTo::All));
        results.collect::<Result<_, _>>().map_err(|e| evaluation_error(&e))
    }
}

/// Rows of states, picked by position.
pub(in crate::stateful) fn pick(states: &[ArrayRef], rows: Vec<u32>) -> Result<Vec<ArrayRef>> {
    Ok(take_arrays(states, &arrow::array::UInt32Array::from(rows), None)?)
}

/// The values of expressions, each as long as the rows.
pub(in crate::stateful) fn evaluate(
    exprs: &[Arc<dyn PhysicalExpr>],
    rows: &RecordBatch,
) -> Result<Vec<ArrayRef>, DataFusionError> {
    exprs.iter().map(|expr| expr.evaluate(rows)?.into_array(rows.num_rows())).collect()
}

/// The rows for which a condition is true; NULL is not.
fn mask(condition: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<BooleanArray, DataFusionError> {
    let mask = condition.evaluate(rows)?.into_array(rows.num_rows())?;
    let Some(mask) = mask.as_boolean_opt() else {
        return Err(DataFusionError::Internal("a FILTER that is neither true nor false".to_owned()));
    };
    Ok(if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() })
}
