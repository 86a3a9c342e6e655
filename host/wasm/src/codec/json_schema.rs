//! Schemas from JSON, for plugins that asked for it: Spark's `StructType.json`. `codec` calls it when a function
//! is opened. Writing them needs no code of its own (`core::spark_schema`).

use crate::limits::{Limits, clean_text};
use arrow::datatypes::Schema;
use pelton_core::spark_schema;
use serde_json::Value;

/// Reads a guest's schema.
pub(crate) fn decode(message: &[u8], zone: &str, limits: &Limits) -> Result<Schema, String> {
    let value: Value = serde_json::from_slice(message).map_err(|e| format!("its schema is not JSON: {e}"))?;
    check_type_names(&value, limits.schema_depth)?;
    spark_schema::from_json(&value, zone).map_err(|e| clean_text(e.message(), 400))
}

/// A type may be nested by its name alone (`array<array<…`); the reader of such names is recursive.
fn check_type_names(value: &Value, depth_max: usize) -> Result<(), String> {
    match value {
        Value::String(text) if text.matches('<').count() > depth_max => {
            Err("its schema is nested too deeply (limit schema_depth)".into())
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_type_names(value, depth_max)),
        Value::Object(members) => members.values().try_for_each(|value| check_type_names(value, depth_max)),
        _ => Ok(()),
    }
}
