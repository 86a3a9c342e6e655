//! Rows and values as JSON text, the way Spark's `to_json` prints them.
//!
//! `to_json()` and the payload of dead letters use it.

use chrono::{DateTime, SecondsFormat};
use chrono_tz::Tz;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use datafusion::arrow::temporal_conversions::date32_to_datetime;
use pelton_core::{Error, Result};
use serde_json::{Map, Number, Value, json};

/// What becomes of NULL fields of structs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// They are left out, as Spark does unless asked otherwise.
    LeftOut,
    /// They are written as `null`.
    Written,
}

/// One row of a batch as a JSON object.
pub fn row_json(rows: &RecordBatch, row: usize, nulls: Nulls) -> Result<Value> {
    let mut object = Map::new();
    for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
        put(&mut object, field.name(), value_json(column, row, nulls)?, nulls);
    }
    Ok(Value::Object(object))
}

fn put(object: &mut Map<String, Value>, name: &str, value: Value, nulls: Nulls) {
    if !value.is_null() || nulls == Nulls::Written {
        object.insert(name.to_owned(), value);
    }
}

/// One value. Timestamps are ISO 8601 with the offset of the column's time zone, binary is base64, decimals are
/// numbers, floats that JSON cannot write are the texts `NaN`, `Infinity`, `-Infinity`.
pub fn value_json(values: &dyn Array, row: usize, nulls: Nulls) -> Result<Value> {
    if values.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match values.data_type() {
        DataType::Boolean => json!(values.as_boolean().value(row)),
        DataType::Int8 => json!(values.as_primitive::<Int8Type>().value(row)),
        DataType::Int16 => json!(values.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => json!(values.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => json!(values.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => {
            let value = values.as_primitive::<Float32Type>().value(row);
            // The shortest text that reads back as this float, not the digits of its double.
            value.to_string().parse::<f64>().map_or(Value::Null, float)
        }
        DataType::Float64 => float(values.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(..) => decimal(values.as_primitive::<Decimal128Type>().value_as_string(row)),
        DataType::Utf8 => json!(values.as_string::<i32>().value(row)),
        DataType::Binary => json!(base64(values.as_binary::<i32>().value(row))),
        DataType::Date32 => {
            let date = date32_to_datetime(values.as_primitive::<Date32Type>().value(row));
            json!(date.map(|at| at.format("%Y-%m-%d").to_string()))
        }
        DataType::Timestamp(_, zone) => {
            moment(values.as_primitive::<TimestampMicrosecondType>().value(row), zone.as_deref())
        }
        DataType::Struct(fields) => {
            let mut object = Map::new();
            for (field, column) in fields.iter().zip(values.as_struct().columns()) {
                put(&mut object, field.name(), value_json(column, row, nulls)?, nulls);
            }
            Value::Object(object)
        }
        DataType::List(_) => {
            let items = values.as_list::<i32>().value(row);
            Value::Array((0..items.len()).map(|at| value_json(&items, at, nulls)).collect::<Result<_>>()?)
        }
        DataType::Map(..) => {
            let entries = values.as_map().value(row);
            let mut object = Map::new();
            for at in 0..entries.len() {
                let key = match value_json(entries.column(0), at, nulls)? {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                object.insert(key, value_json(entries.column(1), at, nulls)?);
            }
            Value::Object(object)
        }
        other => return Err(Error::invalid(format!("a value of type {other} cannot be written as JSON"))),
    })
}

fn float(value: f64) -> Value {
    match Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => json!("NaN"),
        None => json!(if value > 0.0 { "Infinity" } else { "-Infinity" }),
    }
}

/// A number if JSON's readers keep all of its digits, else text.
fn decimal(text: String) -> Value {
    let exact = text.parse::<f64>().ok().filter(|value| value.to_string() == text);
    match (text.parse::<i64>(), exact) {
        (Ok(whole), _) => json!(whole),
        (_, Some(value)) => json!(value),
        _ => text.parse::<Number>().map_or(Value::String(text), Value::Number),
    }
}

fn moment(micros: i64, zone: Option<&str>) -> Value {
    let Some(utc) = DateTime::from_timestamp_micros(micros) else { return Value::Null };
    let digits = if micros % 1000 == 0 { SecondsFormat::Millis } else { SecondsFormat::Micros };
    json!(match zone {
        None => {
            let fraction = if micros % 1000 == 0 { "%Y-%m-%dT%H:%M:%S%.3f" } else { "%Y-%m-%dT%H:%M:%S%.6f" };
            utc.naive_utc().format(fraction).to_string()
        }
        Some(zone) => {
            let zone: Tz = zone.parse().unwrap_or(Tz::UTC);
            utc.with_timezone(&zone).to_rfc3339_opts(digits, true)
        }
    })
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            out.push(if digit > chunk.len() { '=' } else { DIGITS[index as usize] as char });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_its_padding() {
        assert_eq!([b"".as_slice(), b"h", b"hi", b"hi!"].map(base64), ["", "aA==", "aGk=", "aGkh"]);
    }

    #[test]
    fn moments_show_their_zone() {
        assert_eq!(moment(0, Some("UTC")), json!("1970-01-01T00:00:00.000Z"));
        assert_eq!(moment(1, Some("Europe/Berlin")), json!("1970-01-01T01:00:00.000001+01:00"));
        assert_eq!(moment(0, None), json!("1970-01-01T00:00:00.000"));
    }
}
