//! Reaching into arrays, maps and structs the way Spark does: `ar[0]` counts from 0, `m['k']` is NULL if there is no
//! such key, `st.a` does not mind case, `ar.x` is the array of its items' fields.

use super::arithmetic::{int_at, ints};
use super::function::{Function, array, constant_text, failed, unchanged};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, MapArray, StructArray, UInt32Array, make_comparator,
    new_null_array,
};
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::list_of;
use std::sync::Arc;

/// What `st.a` becomes: container and the field's name.
pub(crate) const FIELD: &str = "get_struct_field";
/// What `ar[0]` and `m['k']` become.
pub(crate) const ITEM: &str = "get_item";

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    vec![
        Function::new(FIELD, zone, unchanged, field_type, |_, args| field(args)).udf(),
        Function::new(ITEM, zone, container_and_key, item_type, |_, args| item(args, Count::FromZero, true))
            .udf(),
        Function::new("get", zone, container_and_key, item_type, |_, args| {
            item(args, Count::FromZero, false)
        })
        .udf(),
        Function::new("element_at", zone, container_and_key, item_type, |_, args| {
            item(args, Count::FromOne, true)
        })
        .udf(),
        Function::new("try_element_at", zone, container_and_key, item_type, |_, args| {
            item(args, Count::FromOne, false)
        })
        .udf(),
        Function::new(
            "map_contains_key",
            zone,
            container_and_key,
            |_, _, _| Ok(DataType::Boolean),
            |_, args| contains_key(args),
        )
        .udf(),
        Function::new("array_size", zone, one, |_, _, _| Ok(DataType::Int32), |_, args| size(args)).udf(),
        Function::new(
            POSITIONS,
            zone,
            one,
            |_, _, _| Ok(list_of(DataType::Int32)),
            |_, args| positions(args),
        )
        .udf(),
        Function::new(
            "array_position",
            zone,
            unchanged,
            |_, _, _| Ok(DataType::Int64),
            |_, args| position(args),
        )
        .udf(),
        Function::new(
            "sort_array",
            zone,
            sorting,
            |_, fields, _| Ok(fields[0].data_type().clone()),
            |_, args| sort_array(args),
        )
        .udf(),
    ]
}

/// The positions of an array's items, for `posexplode`.
pub(crate) const POSITIONS: &str = "array_positions_from_zero";

fn one(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    Ok(types.to_vec())
}

fn sorting(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=2)?;
    Ok(types.iter().enumerate().map(|(i, t)| if i == 0 { t.clone() } else { DataType::Boolean }).collect())
}

fn fields_of(data_type: &DataType) -> Option<&Fields> {
    match data_type {
        DataType::Struct(fields) => Some(fields),
        DataType::List(item) => match item.data_type() {
            DataType::Struct(fields) => Some(fields),
            _ => None,
        },
        _ => None,
    }
}

/// The exact name, or else the only one that differs in case alone.
fn find<'a>(fields: &'a Fields, name: &str) -> Option<(usize, &'a FieldRef)> {
    fields.find(name).or_else(|| {
        let mut alike = fields.iter().enumerate().filter(|(_, f)| f.name().eq_ignore_ascii_case(name));
        alike.next().filter(|_| alike.next().is_none())
    })
}

fn field_type(
    function: &Function,
    args: &[FieldRef],
    constants: &[Option<&ScalarValue>],
) -> Result<DataType> {
    function.arguments(args.len(), 2..=2)?;
    let name = constant_text(function, constants, 1)?;
    let container = args[0].data_type();
    if let DataType::Map(entries, _) = container {
        let DataType::Struct(kv) = entries.data_type() else { return failed("not a map") };
        return Ok(kv[1].data_type().clone());
    }
    let Some(fields) = fields_of(container) else {
        let what = format!(
            "there is no field '{name}' in a value of type {}",
            pelton_core::types::type_name(container)
        );
        return Err(DataFusionError::Plan(what));
    };
    let Some((_, field)) = find(fields, name) else {
        let near = did_you_mean(name, fields.iter().map(|f| f.name().as_str()));
        return Err(DataFusionError::Plan(format!("there is no field '{name}'{near}")));
    };
    Ok(match container {
        DataType::List(_) => list_of(field.data_type().clone()),
        _ => field.data_type().clone(),
    })
}

fn field(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let container = array(args, 0)?;
    let name = match args.args.get(1) {
        Some(datafusion::logical_expr::ColumnarValue::Scalar(value)) => {
            value.try_as_str().flatten().unwrap_or_default().to_owned()
        }
        _ => return failed("the name of a field must be a constant"),
    };
    if let Some(map) = container.as_map_opt() {
        let key: ArrayRef = Arc::new(datafusion::arrow::array::StringArray::from(vec![name; map.len()]));
        return map_value(map, &key);
    }
    if let Some(list) = container.as_list_opt::<i32>() {
        let values = member(list.values().as_struct(), &name)?;
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        return Ok(Arc::new(ListArray::try_new(
            item,
            list.offsets().clone(),
            values,
            list.nulls().cloned(),
        )?));
    }
    member(container.as_struct(), &name)
}

/// A struct's column; NULL where the struct itself is.
fn member(of: &StructArray, name: &str) -> Result<ArrayRef> {
    let Some((index, _)) = find(of.fields(), name) else {
        return failed(format!("there is no field '{name}'"));
    };
    let column = of.column(index);
    match of.nulls() {
        None => Ok(column.clone()),
        Some(nulls) => {
            let nulls = datafusion::arrow::buffer::NullBuffer::union(Some(nulls), column.nulls());
            Ok(datafusion::arrow::array::make_array(column.to_data().into_builder().nulls(nulls).build()?))
        }
    }
}

fn container_and_key(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 2..=2)?;
    let key = match &types[0] {
        DataType::List(_) => DataType::Int32,
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) => kv[0].data_type().clone(),
            other => other.clone(),
        },
        DataType::Struct(_) => types[1].clone(),
        other => {
            let what = format!(
                "a value of type {} has no items: only arrays, maps and structs have",
                pelton_core::types::type_name(other)
            );
            return Err(DataFusionError::Plan(what));
        }
    };
    Ok(vec![types[0].clone(), key])
}

fn item_type(function: &Function, args: &[FieldRef], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    match args[0].data_type() {
        DataType::List(item) => Ok(item.data_type().clone()),
        _ => field_type_or_value(function, args, constants),
    }
}

fn field_type_or_value(
    f: &Function,
    args: &[FieldRef],
    constants: &[Option<&ScalarValue>],
) -> Result<DataType> {
    match args[0].data_type() {
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) => Ok(kv[1].data_type().clone()),
            _ => failed("not a map"),
        },
        _ => field_type(f, args, constants),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Count {
    FromZero,
    FromOne,
}

fn item(args: &ScalarFunctionArgs, count: Count, strict: bool) -> Result<ArrayRef> {
    let (container, key) = (array(args, 0)?, array(args, 1)?);
    if let Some(map) = container.as_map_opt() {
        return map_value(map, &key);
    }
    let Some(list) = container.as_list_opt::<i32>() else { return field(args) };
    let mut indices = Vec::with_capacity(list.len());
    for row in 0..list.len() {
        let (true, Some(index)) = (list.is_valid(row), int_at(&key, row)) else {
            indices.push(None);
            continue;
        };
        let length = list.value_length(row);
        let found = match (count, index) {
            (Count::FromOne, 0) => return failed("element_at() counts from 1; there is no element 0"),
            (Count::FromOne, 1..) => index - 1,
            (Count::FromOne, _) => length + index,
            (Count::FromZero, _) => index,
        };
        let inside = (0..length).contains(&found);
        if !inside && strict {
            return failed(format!(
                "there is no element {index} in an array of {length}; use get() or try_element_at() to get NULL instead"
            ));
        }
        let at = list.value_offsets()[row] + found;
        indices.push(if inside { u32::try_from(at).ok() } else { None });
    }
    Ok(take(list.values(), &UInt32Array::from(indices), None)?)
}

/// For every row the index of its key's entry.
fn entries_of(map: &MapArray, key: &ArrayRef) -> Result<Vec<Option<u32>>> {
    let keys = map.keys();
    if keys.data_type() != key.data_type() {
        return failed(format!("the keys are {}, not {}", keys.data_type(), key.data_type()));
    }
    let compare = make_comparator(keys, key, SortOptions::default())?;
    let find = |row: usize| {
        if map.is_null(row) || key.is_null(row) {
            return None;
        }
        let range = map.value_offsets()[row] as usize..map.value_offsets()[row + 1] as usize;
        range.into_iter().find(|at| compare(*at, row).is_eq()).and_then(|at| u32::try_from(at).ok())
    };
    Ok((0..map.len()).map(find).collect())
}

fn map_value(map: &MapArray, key: &ArrayRef) -> Result<ArrayRef> {
    let indices = entries_of(map, key)?;
    if map.values().is_empty() {
        return Ok(new_null_array(map.values().data_type(), map.len()));
    }
    Ok(take(map.values(), &UInt32Array::from(indices), None)?)
}

fn contains_key(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (container, key) = (array(args, 0)?, array(args, 1)?);
    let Some(map) = container.as_map_opt() else { return failed("map_contains_key() takes a map") };
    let found = entries_of(map, &key)?;
    let rows = found.iter().enumerate().map(|(row, at)| map.is_valid(row).then_some(at.is_some()));
    Ok(Arc::new(rows.collect::<BooleanArray>()))
}

fn list(values: &ArrayRef) -> Result<&ListArray> {
    match values.as_list_opt::<i32>() {
        Some(list) => Ok(list),
        None => failed(format!("expected an array, not {}", values.data_type())),
    }
}

fn size(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let list = list(&values)?;
    Ok(ints((0..list.len()).map(|row| list.is_valid(row).then(|| list.value_length(row)))))
}

fn positions(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let (offsets, nulls) = match values.as_map_opt() {
        Some(map) => (map.offsets().clone(), map.nulls().cloned()),
        None => (list(&values)?.offsets().clone(), values.nulls().cloned()),
    };
    let lengths: Vec<usize> = offsets.lengths().collect();
    let counted = ints(lengths.iter().flat_map(|length| (0..*length).map(|at| i32::try_from(at).ok())));
    let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths(lengths);
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    Ok(Arc::new(ListArray::try_new(item, offsets, counted, nulls)?))
}

/// From 1; 0 if it is not there.
fn position(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (values, wanted) = (array(args, 0)?, array(args, 1)?);
    let list = list(&values)?;
    let wanted = datafusion::arrow::compute::cast(&wanted, list.values().data_type())?;
    let compare = make_comparator(list.values(), &wanted, SortOptions::default())?;
    let find = |row: usize| {
        if list.is_null(row) || wanted.is_null(row) {
            return None;
        }
        let start = list.value_offsets()[row] as usize;
        let found = (start..list.value_offsets()[row + 1] as usize).position(|at| compare(at, row).is_eq());
        Some(found.map_or(0, |at| at as i64 + 1))
    };
    Ok(Arc::new((0..list.len()).map(find).collect::<datafusion::arrow::array::Int64Array>()))
}

/// Ascending with NULLs first, or descending with NULLs last.
fn sort_array(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let list = list(&values)?;
    let directions = if args.args.len() > 1 { Some(array(args, 1)?) } else { None };
    let compare =
        make_comparator(list.values(), list.values(), SortOptions { descending: false, nulls_first: true })?;
    let mut indices = Vec::with_capacity(list.values().len());
    let mut lengths = Vec::with_capacity(list.len());
    for row in 0..list.len() {
        let mut range: Vec<u32> = (list.value_offsets()[row]..list.value_offsets()[row + 1])
            .filter_map(|at| u32::try_from(at).ok())
            .collect();
        let ascending = directions.as_ref().is_none_or(|d| d.as_boolean().value(row));
        range.sort_by(|a, b| {
            let order = compare(*a as usize, *b as usize);
            if ascending { order } else { order.reverse() }
        });
        lengths.push(range.len());
        indices.extend(range);
    }
    let sorted = take(list.values(), &UInt32Array::from(indices), None)?;
    let DataType::List(item) = list.data_type() else { return failed("expected an array") };
    let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(item.clone(), offsets, sorted, list.nulls().cloned())?))
}
