//! The default of a field, which schemas have as JSON, as the bytes of a value.

use super::wire::{push_bytes, push_long};
use super::{AvroSchema, Node};
use serde_json::Value;

/// Appends the value; the error says why the default does not have the field's type.
pub(crate) fn push_default(
    schema: &AvroSchema,
    node: &Node,
    json: &Value,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let node = schema.resolve(node)?;
    let wrong = || format!("the default {json} is no {}", node.kind());
    match node {
        Node::Null if json.is_null() => {}
        Node::Null | Node::Named(_) => return Err(wrong()),
        Node::Boolean => out.push(json.as_bool().ok_or_else(wrong)?.into()),
        Node::Int(_) => {
            let value = json.as_i64().and_then(|value| i32::try_from(value).ok());
            push_long(out, value.ok_or_else(wrong)?.into());
        }
        Node::Long(_) => push_long(out, json.as_i64().ok_or_else(wrong)?),
        Node::Float => out.extend_from_slice(&(float(json).ok_or_else(wrong)? as f32).to_le_bytes()),
        Node::Double => out.extend_from_slice(&float(json).ok_or_else(wrong)?.to_le_bytes()),
        Node::String => push_bytes(out, json.as_str().ok_or_else(wrong)?.as_bytes()),
        Node::Bytes(_) => push_bytes(out, &latin1(json).ok_or_else(wrong)?),
        Node::Fixed(fixed) => {
            let bytes = latin1(json).filter(|bytes| bytes.len() == fixed.size);
            out.extend_from_slice(&bytes.ok_or_else(wrong)?);
        }
        Node::Enum(symbols) => {
            let symbol = json.as_str().ok_or_else(wrong)?;
            let index = symbols.symbols.iter().position(|s| &**s == symbol).ok_or_else(wrong)?;
            push_long(out, i64::try_from(index).unwrap_or(i64::MAX));
        }
        Node::Array(item) => {
            let items = json.as_array().ok_or_else(wrong)?;
            push_count(out, items.len());
            items.iter().try_for_each(|value| push_default(schema, item, value, out))?;
            push_end(out, items.len());
        }
        Node::Map(value) => {
            let entries = json.as_object().ok_or_else(wrong)?;
            push_count(out, entries.len());
            for (key, entry) in entries {
                push_bytes(out, key.as_bytes());
                push_default(schema, value, entry, out)?;
            }
            push_end(out, entries.len());
        }
        Node::Record(record) => {
            for field in &record.fields {
                let value = json.get(&*field.name).or(field.default.as_ref()).ok_or_else(wrong)?;
                push_default(schema, &field.node, value, out)?;
            }
        }
        // The first branch by the specification; later ones are met in the wild.
        Node::Union(branches) => {
            for (index, branch) in branches.iter().enumerate() {
                let mut value = Vec::new();
                if push_default(schema, branch, json, &mut value).is_ok() {
                    push_long(out, i64::try_from(index).unwrap_or(i64::MAX));
                    out.append(&mut value);
                    return Ok(());
                }
            }
            return Err(wrong());
        }
    }
    Ok(())
}

fn float(json: &Value) -> Option<f64> {
    match json.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => json.as_f64(),
    }
}

/// Bytes are written as the characters of the same numbers.
fn latin1(json: &Value) -> Option<Vec<u8>> {
    json.as_str()?.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

fn push_count(out: &mut Vec<u8>, count: usize) {
    push_long(out, i64::try_from(count).unwrap_or(i64::MAX));
}

/// A count of 0 is the end already.
fn push_end(out: &mut Vec<u8>, count: usize) {
    if count > 0 {
        push_long(out, 0);
    }
}
