//! `to_json`, `get_json_object` and `json_array_length`.

use super::function::{Function, array, at, text, texts};
use crate::json::{Nulls, value_json};
use datafusion::arrow::array::{Array, ArrayRef, Int32Array, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
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
        let value = value_json(&values, row, Nulls::LeftOut)
            .map_err(|e| DataFusionError::Execution(e.to_string()))?;
        Ok(Some(value.to_string()))
    };
    Ok(Arc::new((0..values.len()).map(one).collect::<Result<StringArray>>()?))
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
