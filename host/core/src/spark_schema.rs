//! Schemas as Spark's JSON (`StructType.json`): what a plugin with JSON encoding is given and what the
//! command line prints.

use crate::types::{list_of, map_of, parse_type, type_name};
use crate::{Error, Result};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use serde_json::{Value, json};

/// `{"type": "struct", "fields": [{"name", "type", "nullable", "metadata"}, …]}`
pub fn to_json(schema: &Schema) -> Value {
    struct_json(schema.fields())
}

/// Reads what [`to_json`] writes, and what Spark writes. `metadata` may be absent, `nullable` is true unless said.
pub fn from_json(value: &Value, time_zone: &str) -> Result<Schema> {
    match type_of(value, time_zone)? {
        DataType::Struct(fields) => Ok(Schema::new(fields)),
        other => Err(bad(&format!("a schema must be a struct, not {}", type_name(&other)))),
    }
}

fn struct_json(fields: &Fields) -> Value {
    let field = |f: &FieldRef| json!({"name": f.name(), "type": type_json(f.data_type()), "nullable": f.is_nullable(), "metadata": {}});
    json!({"type": "struct", "fields": fields.iter().map(field).collect::<Vec<_>>()})
}

fn type_json(data_type: &DataType) -> Value {
    match data_type {
        DataType::Struct(fields) => struct_json(fields),
        DataType::List(item) => {
            json!({"type": "array", "elementType": type_json(item.data_type()), "containsNull": item.is_nullable()})
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) => json!({
                "type": "map", "keyType": type_json(kv[0].data_type()),
                "valueType": type_json(kv[1].data_type()), "valueContainsNull": kv[1].is_nullable()
            }),
            other => type_json(other),
        },
        DataType::Int32 => json!("integer"),
        other => json!(type_name(other)),
    }
}

fn type_of(value: &Value, time_zone: &str) -> Result<DataType> {
    if let Value::String(name) = value {
        return parse_type(name, time_zone).map_err(|e| bad(&e.to_string()));
    }
    match value.get("type").and_then(Value::as_str) {
        Some("struct") => {
            let fields = value
                .get("fields")
                .and_then(Value::as_array)
                .ok_or_else(|| bad("'fields' must be a list"))?;
            Ok(DataType::Struct(
                fields.iter().map(|f| field_of(f, time_zone)).collect::<Result<Vec<_>>>()?.into(),
            ))
        }
        Some("array") => Ok(list_of(type_of(part(value, "elementType")?, time_zone)?)),
        Some("map") => Ok(map_of(
            type_of(part(value, "keyType")?, time_zone)?,
            type_of(part(value, "valueType")?, time_zone)?,
        )),
        other => Err(bad(&format!("there is no type {other:?}; a nested type is struct, array or map"))),
    }
}

fn field_of(value: &Value, time_zone: &str) -> Result<Field> {
    let name = part(value, "name")?.as_str().ok_or_else(|| bad("'name' must be a string"))?;
    let nullable = value.get("nullable").and_then(Value::as_bool).unwrap_or(true);
    Ok(Field::new(name, type_of(part(value, "type")?, time_zone)?, nullable))
}

fn part<'a>(value: &'a Value, key: &str) -> Result<&'a Value> {
    value.get(key).ok_or_else(|| bad(&format!("'{key}' is missing")))
}

fn bad(what: &str) -> Error {
    Error::invalid(format!("not a schema in Spark's JSON form: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::parse_columns;

    #[test]
    fn reads_back_what_it_writes() {
        let columns =
            "a: int NOT NULL, b: struct<x: array<string>, m: map<string, decimal(5,2)>>, t: timestamp";
        let schema = Schema::new(parse_columns(columns, "UTC").expect("parses"));
        assert_eq!(from_json(&to_json(&schema), "UTC").expect("reads"), schema);
    }

    #[test]
    fn names_what_is_missing() {
        let message =
            from_json(&json!({"type": "struct", "fields": [{"name": "a"}]}), "UTC").expect_err("refused");
        assert_eq!(message.message(), "not a schema in Spark's JSON form: 'type' is missing");
    }
}
