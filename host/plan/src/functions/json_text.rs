//! `to_json`, `get_json_object` and `json_array_length`.

use super::function::{Function, array, at, text, texts};
use crate::json::{Nulls, value_json};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use pelton_core::number::{push_decimal, push_f32, push_f64};
use pelton_core::types::{normalize, type_name};
use serde_json::Value;
use std::sync::Arc;

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let two_texts = |f: &Function, types: &[DataType]| {
        f.arguments(types.len(), 2..=2)?;
        texts(f, types)
    };
    let one_text = |f: &Function, types: &[DataType]| {
        f.arguments(types.len(), 1..=1)?;
        texts(f, types)
    };
    vec![
        Function::new("to_json", zone, nested, |_, _, _| Ok(DataType::Utf8), |_, args| to_json(args)).udf(),
        Function::new(
            "get_json_object",
            zone,
            two_texts,
            |_, _, _| Ok(DataType::Utf8),
            |_, args| get_json_object(args),
        )
        .udf(),
        Function::new(
            "json_array_length",
            zone,
            one_text,
            |_, _, _| Ok(DataType::Int32),
            |_, args| length(args),
        )
        .udf(),
    ]
}

fn nested(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    match normalize(&types[0], &function.time_zone) {
        Some(t @ (DataType::Struct(_) | DataType::Map(..) | DataType::List(_))) => Ok(vec![t]),
        _ => Err(DataFusionError::Plan(format!(
            "to_json() takes a struct, a map or an array, not {}",
            type_name(&types[0])
        ))),
    }
}

fn to_json(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let one = |row: usize| -> Result<Option<String>> {
        if values.is_null(row) {
            return Ok(None);
        }
        let mut out = Vec::new();
        write(&mut out, &values, row)?;
        Ok(Some(String::from_utf8_lossy(&out).into_owned()))
    };
    Ok(Arc::new((0..values.len()).map(one).collect::<Result<StringArray>>()?))
}

/// One value as Spark's `to_json` has it: numbers as Java prints them, times to the millisecond.
fn write(out: &mut Vec<u8>, values: &ArrayRef, row: usize) -> Result<()> {
    if values.is_null(row) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match values.data_type() {
        DataType::Float64 => {
            let value = values.as_primitive::<Float64Type>().value(row);
            quoted_unless(out, value.is_finite(), |out| push_f64(out, value));
        }
        DataType::Float32 => {
            let value = values.as_primitive::<Float32Type>().value(row);
            quoted_unless(out, value.is_finite(), |out| push_f32(out, value));
        }
        DataType::Decimal128(_, scale) => {
            push_decimal(out, values.as_primitive::<Decimal128Type>().value(row), *scale)
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = values.as_primitive::<TimestampMicrosecondType>().value(row);
            let millis = TimestampMicrosecondArray::from(vec![micros - micros.rem_euclid(1000)]);
            let millis: ArrayRef = Arc::new(millis.with_timezone_opt(zone.clone()));
            out.extend_from_slice(plain(&millis, 0)?.to_string().as_bytes());
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(values.as_struct().columns());
            let there = columns.filter(|(_, column)| column.is_valid(row));
            enclosed(out, b"{}", ",", there, |out, (field, column)| {
                out.extend_from_slice(Value::from(field.name().as_str()).to_string().as_bytes());
                out.push(b':');
                write(out, column, row)
            })?;
        }
        DataType::List(_) => {
            let items = values.as_list::<i32>().value(row);
            enclosed(out, b"[]", ",", 0..items.len(), |out, at| write(out, &items, at))?;
        }
        DataType::Map(..) => {
            let entries = values.as_map().value(row);
            enclosed(out, b"{}", ",", 0..entries.len(), |out, at| {
                let mut key = Vec::new();
                write(&mut key, entries.column(0), at)?;
                let is_text = key.first() == Some(&b'"');
                quoted_unless(out, is_text, |out| out.extend_from_slice(&key));
                out.push(b':');
                write(out, entries.column(1), at)
            })?;
        }
        _ => out.extend_from_slice(plain(values, row)?.to_string().as_bytes()),
    }
    Ok(())
}

fn plain(values: &ArrayRef, row: usize) -> Result<Value> {
    value_json(values, row, Nulls::LeftOut).map_err(|e| DataFusionError::Execution(e.to_string()))
}

fn quoted_unless(out: &mut Vec<u8>, bare: bool, push: impl FnOnce(&mut Vec<u8>)) {
    let quote: &[u8] = if bare { b"" } else { b"\"" };
    out.extend_from_slice(quote);
    push(out);
    out.extend_from_slice(quote);
}

/// The items with something between them, in a pair of brackets.
pub(super) fn enclosed<T>(
    out: &mut Vec<u8>,
    brackets: &[u8; 2],
    between: &str,
    items: impl Iterator<Item = T>,
    mut push: impl FnMut(&mut Vec<u8>, T) -> Result<()>,
) -> Result<()> {
    out.push(brackets[0]);
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.extend_from_slice(between.as_bytes());
        }
        push(out, item)?;
    }
    out.push(brackets[1]);
    Ok(())
}

fn get_json_object(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (documents, paths) = (text(args, 0)?, text(args, 1)?);
    let one = |row: usize| {
        let document: Value = serde_json::from_str(at(&documents, row)?).ok()?;
        match follow(&document, at(&paths, row)?.strip_prefix('$')?)? {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    };
    Ok(Arc::new((0..documents.len()).map(one).collect::<StringArray>()))
}

/// The value at a path of `.name`, `['name']`, `[0]`, `.*` and `[*]`; several matches become an array.
fn follow(value: &Value, path: &str) -> Option<Value> {
    if path.is_empty() {
        return Some(value.clone());
    }
    let (step, rest) = match path.strip_prefix('.') {
        Some(path) => path.split_at(path.find(['.', '[']).unwrap_or(path.len())),
        None => {
            let (inside, rest) = path.strip_prefix('[')?.split_once(']')?;
            let name = inside.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
            match (name, inside.parse::<usize>()) {
                (Some(name), _) => (name, rest),
                (None, Ok(index)) => return follow(value.as_array()?.get(index)?, rest),
                (None, Err(_)) if inside == "*" => ("*", rest),
                _ => return None,
            }
        }
    };
    if step != "*" {
        return follow(value.as_object()?.get(step)?, rest);
    }
    let items: Vec<Value> = match value {
        Value::Array(items) => items.iter().filter_map(|item| follow(item, rest)).collect(),
        Value::Object(members) => members.values().filter_map(|member| follow(member, rest)).collect(),
        _ => return None,
    };
    match items.len() {
        0 => None,
        1 => items.into_iter().next(),
        _ => Some(Value::Array(items)),
    }
}

fn length(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let documents = text(args, 0)?;
    let one = |row: usize| {
        let document: Value = serde_json::from_str(at(&documents, row)?).ok()?;
        i32::try_from(document.as_array()?.len()).ok()
    };
    Ok(Arc::new((0..documents.len()).map(one).collect::<Int32Array>()))
}
