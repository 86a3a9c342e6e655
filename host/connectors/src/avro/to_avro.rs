//! Spark's types as Avro's, as its `SchemaConverters.toAvroType` has them.

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use pelton_core::types::type_name;
use pelton_core::{Error, Result};
use serde_json::{Value, json};

/// The schema that Spark writes for these columns.
pub(crate) fn schema_text(schema: &Schema, record_name: &str, namespace: &str) -> Result<String> {
    check_name(record_name, "record_name")?;
    Ok(record(schema.fields(), record_name, namespace)?.to_string())
}

fn check_name(name: &str, what: &str) -> Result<()> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} '{name}' is no name in Avro, which has letters, digits and _ alone"))
        .hint("name it otherwise in the last step"))
}

fn record(fields: &Fields, name: &str, namespace: &str) -> Result<Value> {
    let within = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") };
    let field = |field: &FieldRef| {
        check_name(field.name(), "column")?;
        let node = nullable(field, field.name(), &within)?;
        Ok(json!({"name": field.name(), "type": node}))
    };
    let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok(match namespace.is_empty() {
        true => json!({"type": "record", "name": name, "fields": fields}),
        false => json!({"type": "record", "name": name, "namespace": namespace, "fields": fields}),
    })
}

/// The type, then null: the order in which Spark has them.
fn nullable(field: &Field, name: &str, namespace: &str) -> Result<Value> {
    let node = node(field.data_type(), name, namespace)?;
    Ok(if field.is_nullable() { json!([node, "null"]) } else { node })
}

fn node(data_type: &DataType, name: &str, namespace: &str) -> Result<Value> {
    Ok(match data_type {
        DataType::Boolean => json!("boolean"),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => json!("int"),
        DataType::Int64 => json!("long"),
        DataType::Float32 => json!("float"),
        DataType::Float64 => json!("double"),
        DataType::Utf8 => json!("string"),
        DataType::Binary => json!("bytes"),
        DataType::Date32 => json!({"type": "int", "logicalType": "date"}),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            json!({"type": "long", "logicalType": "timestamp-micros"})
        }
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            json!({"type": "long", "logicalType": "local-timestamp-micros"})
        }
        DataType::Decimal128(precision, scale) => json!({
            "type": "fixed", "name": "fixed", "namespace": format!("{namespace}.{name}"),
            "size": decimal_bytes(*precision), "logicalType": "decimal", "precision": precision, "scale": scale
        }),
        DataType::List(item) => json!({"type": "array", "items": nullable(item, name, namespace)?}),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 && kv[0].data_type() == &DataType::Utf8 => {
                json!({"type": "map", "values": nullable(&kv[1], name, namespace)?})
            }
            _ => return Err(no_place(data_type, name).hint("Avro's maps have strings as keys: cast them")),
        },
        DataType::Struct(fields) => record(fields, name, namespace)?,
        _ => return Err(no_place(data_type, name)),
    })
}

fn no_place(data_type: &DataType, name: &str) -> Error {
    Error::invalid(format!("column '{name}' is {}, which Avro has no type for", type_name(data_type)))
}

/// The fewest bytes that hold all decimals of a precision; Spark's `minBytesForPrecision`.
fn decimal_bytes(precision: u8) -> usize {
    let largest = 10_i128.pow(u32::from(precision)) - 1;
    (1..16).find(|bytes| largest >> (8 * bytes - 1) == 0).unwrap_or(16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::types::parse_columns;

    fn of(columns: &str) -> Result<String> {
        schema_text(&Schema::new(parse_columns(columns, "UTC").unwrap()), "topLevelRecord", "")
    }

    #[test]
    fn schemas_are_those_that_spark_writes() {
        assert_eq!(
            of("a: long, s: struct<d: decimal(10,2) NOT NULL> NOT NULL").unwrap(),
            r#"{"type":"record","name":"topLevelRecord","fields":[{"name":"a","type":["long","null"]},{"name":"s","type":{"type":"record","name":"s","namespace":"topLevelRecord","fields":[{"name":"d","type":{"type":"fixed","name":"fixed","namespace":"topLevelRecord.s.d","size":5,"logicalType":"decimal","precision":10,"scale":2}}]}}]}"#
        );
        let sizes = [1, 2, 3, 9, 10, 18, 19, 38].map(decimal_bytes);
        assert_eq!(sizes, [1, 1, 2, 4, 5, 8, 9, 16]);
    }

    #[test]
    fn names_and_keys_that_avro_lacks_are_refused() {
        let error = of("`a b`: long").unwrap_err();
        assert!(error.message().starts_with("column 'a b' is no name in Avro"), "{error}");
        let error = of("m: map<int, long>").unwrap_err();
        assert_eq!(error.message(), "column 'm' is map<int, long>, which Avro has no type for");
    }
}
