//! Arrays put together, cut down and counted the way Spark does: NULL in, NULL out, and every occurrence counts.

use super::arithmetic::ints;
use super::function::{Function, Returns, array, failed, text, unchanged};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, StringArray, UInt32Array, make_comparator,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{SortOptions, cast, concat, take};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};
use datafusion_spark::function::string;
use pelton_core::types::{list_of, type_name};
use std::ops::Range;
use std::sync::Arc;

/// What `arr || arr` becomes, too.
pub(crate) const CONCAT: &str = "concat";

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let as_first: Returns = |_, fields, _| Ok(fields[0].data_type().clone());
    let int: Returns = |_, _, _| Ok(DataType::Int32);
    let boolean: Returns = |_, _, _| Ok(DataType::Boolean);
    vec![
        Function::new(CONCAT, zone, all_arrays_or_texts, concat_type, |_, args| concatenate(args)).udf(),
        Function::new("reverse", zone, array_or_text, as_first, |_, args| reverse(args)).udf(),
        Function::new("array_remove", zone, array_and_item, as_first, |_, args| remove(args)).udf(),
        Function::new("array_sort", zone, one_array, as_first, |_, args| sort(args)).udf(),
        Function::new("array_append", zone, array_and_item, as_first, |_, args| add(args, false)).udf(),
        Function::new("array_prepend", zone, array_and_item, as_first, |_, args| add(args, true)).udf(),
        Function::new(
            "flatten",
            zone,
            array_of_arrays,
            |_, f, _| item_of(f[0].data_type()),
            |_, args| flatten(args),
        )
        .udf(),
        Function::new("size", zone, countable, int, |_, args| size(args)).also(&["cardinality"]).udf(),
        Function::new("isnan", zone, one_double, boolean, |_, args| is_nan(args)).udf(),
    ]
}

fn refused<T>(function: &Function, wanted: &str, given: &DataType) -> Result<T> {
    let what = format!("{}() takes {wanted}, not {}; CAST the argument", function.name, type_name(given));
    Err(DataFusionError::Plan(what))
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_))
}

fn item_of(list: &DataType) -> Result<DataType> {
    match list {
        DataType::List(item) => Ok(item.data_type().clone()),
        other => failed(format!("expected an array, not {other}")),
    }
}

fn one_array(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    if is_list(&types[0]) { unchanged(function, types) } else { refused(function, "an array", &types[0]) }
}

fn array_of_arrays(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    one_array(function, types)?;
    if is_list(&item_of(&types[0])?) {
        return unchanged(function, types);
    }
    refused(function, "an array of arrays", &types[0])
}

fn countable(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    match &types[0] {
        DataType::List(_) | DataType::Map(..) => unchanged(function, types),
        DataType::Null => Ok(vec![list_of(DataType::Null)]),
        other => refused(function, "an array or a map", other),
    }
}

fn one_double(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    Ok(vec![DataType::Float64])
}

fn array_or_text(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    Ok(vec![if is_list(&types[0]) { types[0].clone() } else { DataType::Utf8 }])
}

/// Both as their common type.
fn array_and_item(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 2..=2)?;
    if !is_list(&types[0]) {
        return refused(function, "an array", &types[0]);
    }
    let (item, given) = (item_of(&types[0])?, &types[1]);
    let common = match item == *given {
        true => Some(item),
        false => type_union_resolution(&[item, given.clone()]),
    };
    match common {
        Some(common) => Ok(vec![list_of(common.clone()), common]),
        None => refused(function, "an item of the array's type", given),
    }
}

fn all_arrays_or_texts(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    if !types.iter().any(is_list) {
        return string::concat().coerce_types(types);
    }
    if let Some(other) = types.iter().find(|t| !is_list(t) && **t != DataType::Null) {
        return refused(function, "arrays alone or texts alone", other);
    }
    let items: Vec<DataType> = types.iter().filter(|t| is_list(t)).map(item_of).collect::<Result<_>>()?;
    let common = match items.iter().all(|item| *item == items[0]) {
        true => Some(items[0].clone()),
        false => type_union_resolution(&items),
    };
    match common {
        Some(common) => Ok(vec![list_of(common); types.len()]),
        None => refused(function, "arrays of one type", &types[types.len() - 1]),
    }
}

fn concat_type(
    _: &Function,
    fields: &[datafusion::arrow::datatypes::FieldRef],
    constants: &[Option<&datafusion::common::ScalarValue>],
) -> Result<DataType> {
    match fields.first().map(|field| field.data_type()) {
        Some(first) if is_list(first) => Ok(first.clone()),
        _ => {
            let args = ReturnFieldArgs { arg_fields: fields, scalar_arguments: constants };
            Ok(string::concat().return_field_from_args(args)?.data_type().clone())
        }
    }
}

fn list(values: &ArrayRef) -> Result<&ListArray> {
    match values.as_list_opt::<i32>() {
        Some(list) => Ok(list),
        None => failed(format!("expected an array, not {}", values.data_type())),
    }
}

/// Where a row's items are among all items.
fn range(list: &ListArray, row: usize) -> Range<usize> {
    list.value_offsets()[row] as usize..list.value_offsets()[row + 1] as usize
}

/// A list whose rows hold the items at these places of `values`; `None` is NULL.
fn picked(values: &ArrayRef, rows: impl Iterator<Item = Option<Vec<usize>>>) -> Result<ArrayRef> {
    let (mut indices, mut lengths, mut valid) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        valid.push(row.is_some());
        let places = row.unwrap_or_default();
        lengths.push(places.len());
        indices.extend(places.into_iter().map(|at| u32::try_from(at).ok()));
    }
    let items = take(values, &UInt32Array::from(indices), None)?;
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let nulls = NullBuffer::from(valid);
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), items, Some(nulls))?))
}

fn concatenate(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    if !args.arg_fields.iter().any(|field| is_list(field.data_type())) {
        return string::concat().invoke_with_args(args.clone())?.into_array(args.number_rows);
    }
    let arrays: Vec<ArrayRef> = (0..args.args.len()).map(|at| array(args, at)).collect::<Result<_>>()?;
    let lists: Vec<&ListArray> = arrays.iter().map(list).collect::<Result<_>>()?;
    let parts: Vec<&dyn Array> = lists.iter().map(|list| list.values().as_ref()).collect();
    let values = concat(&parts)?;
    let row = |row: usize| {
        let (mut before, mut places) = (0, Vec::new());
        for list in &lists {
            if list.is_null(row) {
                return None;
            }
            places.extend(range(list, row).map(|at| before + at));
            before += list.values().len();
        }
        Some(places)
    };
    picked(&values, (0..args.number_rows).map(row))
}

fn reverse(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    if values.as_list_opt::<i32>().is_none() {
        let texts = text(args, 0)?;
        let reversed = texts.iter().map(|text| text.map(|text| text.chars().rev().collect::<String>()));
        return Ok(Arc::new(reversed.collect::<StringArray>()));
    }
    let list = list(&values)?;
    let row = |row| list.is_valid(row).then(|| range(list, row).rev().collect());
    picked(list.values(), (0..list.len()).map(row))
}

/// Without any of the items that are equal; NULL items stay.
fn remove(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (values, unwanted) = (array(args, 0)?, array(args, 1)?);
    let list = list(&values)?;
    let compare = make_comparator(list.values(), &unwanted, SortOptions::default())?;
    let row = |row: usize| {
        let known = list.is_valid(row) && unwanted.is_valid(row);
        known.then(|| range(list, row).filter(|at| !compare(*at, row).is_eq()).collect())
    };
    picked(list.values(), (0..list.len()).map(row))
}

/// Ascending, NULLs last.
fn sort(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let list = list(&values)?;
    let options = SortOptions { descending: false, nulls_first: false };
    let compare = make_comparator(list.values(), list.values(), options)?;
    let row = |row: usize| {
        let mut places: Vec<usize> = list.is_valid(row).then(|| range(list, row).collect())?;
        places.sort_by(|a, b| compare(*a, *b));
        Some(places)
    };
    picked(list.values(), (0..list.len()).map(row))
}

fn add(args: &ScalarFunctionArgs, before: bool) -> Result<ArrayRef> {
    let (values, added) = (array(args, 0)?, array(args, 1)?);
    let list = list(&values)?;
    let added = cast(&added, list.values().data_type())?;
    let all = concat(&[list.values().as_ref(), added.as_ref()])?;
    let row = |row: usize| {
        let new = list.values().len() + row;
        let mut places: Vec<usize> = list.is_valid(row).then(|| range(list, row).collect())?;
        if before {
            places.insert(0, new)
        } else {
            places.push(new)
        }
        Some(places)
    };
    picked(&all, (0..list.len()).map(row))
}

/// NULL if one of the inner arrays is.
fn flatten(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let outer = list(&values)?;
    let inner = list(outer.values())?;
    let row = |row: usize| {
        let known = outer.is_valid(row) && range(outer, row).all(|at| inner.is_valid(at));
        known.then(|| range(outer, row).flat_map(|at| range(inner, at)).collect())
    };
    picked(inner.values(), (0..outer.len()).map(row))
}

fn size(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let lengths: Vec<usize> = match values.as_map_opt() {
        Some(map) => map.offsets().lengths().collect(),
        None => list(&values)?.offsets().lengths().collect(),
    };
    let known = |(row, length): (usize, usize)| {
        if values.is_valid(row) { i32::try_from(length).ok() } else { None }
    };
    Ok(ints(lengths.into_iter().enumerate().map(known)))
}

/// NULL is not NaN.
fn is_nan(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let values = values.as_primitive::<Float64Type>();
    Ok(Arc::new(values.iter().map(|x| Some(x.is_some_and(f64::is_nan))).collect::<BooleanArray>()))
}
