//! Rows as JSON values: how a script's rows are shown and compared.
//!
//! Timestamps are ISO 8601 in UTC, with three digits of the second, or six where there are microseconds; dates are
//! `YYYY-MM-DD`, decimals text, binary base64, numbers that JSON cannot hold the texts `NaN`, `Infinity` and
//! `-Infinity`, a struct an object, a map `{"map": [[key, value], …]}` sorted by key. Used by `test` alone.

use arrow::array::{Array, AsArray, RecordBatch, StructArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{DateTime, Days, NaiveDate};
use pelton_core::types::type_name;
use pelton_core::{Error, Result};
use serde_json::{Map, Number, Value};

/// Every row as an object, nulls included.
pub(super) fn rows(batches: &[RecordBatch]) -> Result<Vec<Value>> {
    let of_batch = |batch: &RecordBatch| {
        let rows = StructArray::from(batch.clone());
        (0..batch.num_rows()).map(|row| object(&rows, row)).collect::<Result<Vec<_>>>()
    };
    Ok(batches.iter().map(of_batch).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn object(fields: &StructArray, row: usize) -> Result<Value> {
    let pairs = fields.fields().iter().zip(fields.columns());
    let pairs = pairs.map(|(field, column)| Ok((field.name().clone(), value(column.as_ref(), row)?)));
    Ok(Value::Object(pairs.collect::<Result<Map<_, _>>>()?))
}

fn value(array: &dyn Array, row: usize) -> Result<Value> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::Float32 => float32(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(..) => array.as_primitive::<Decimal128Type>().value_as_string(row).into(),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::Binary => BASE64.encode(array.as_binary::<i32>().value(row)).into(),
        DataType::Date32 => date(array.as_primitive::<Date32Type>().value(row)).into(),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            timestamp(micros, zone.is_some()).into()
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            Value::Array((0..items.len()).map(|at| value(items.as_ref(), at)).collect::<Result<_>>()?)
        }
        DataType::Map(..) => map(&array.as_map().value(row))?,
        DataType::Struct(_) => object(array.as_struct(), row)?,
        DataType::Null => Value::Null,
        other => {
            let name = type_name(other);
            return Err(Error::internal(format!("a value of type {name} cannot be shown as JSON")));
        }
    })
}

fn map(entries: &StructArray) -> Result<Value> {
    let pair = |at| Ok(vec![value(entries.column(0).as_ref(), at)?, value(entries.column(1).as_ref(), at)?]);
    let mut pairs = (0..entries.len()).map(pair).collect::<Result<Vec<_>>>()?;
    pairs.sort_by_cached_key(|pair| pair[0].to_string());
    Ok(Value::Object(Map::from_iter([("map".to_owned(), Value::from(pairs))])))
}

/// A number, or its name.
pub(super) fn float(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// As the double that it is: 0.1 as a float is 0.10000000149011612.
pub(super) fn float32(number: f32) -> Value {
    float(f64::from(number))
}

/// `2026-01-01`.
pub(super) fn date(days: i32) -> String {
    let distance = Days::new(u64::from(days.unsigned_abs()));
    let epoch = NaiveDate::default();
    let date = if days < 0 { epoch.checked_sub_days(distance) } else { epoch.checked_add_days(distance) };
    date.map_or_else(|| days.to_string(), |date| date.format("%Y-%m-%d").to_string())
}

/// `2026-01-01T00:00:00.000Z`; without the `Z` if it belongs to no zone.
pub(super) fn timestamp(micros: i64, has_zone: bool) -> String {
    let Some(time) = DateTime::from_timestamp_micros(micros) else { return micros.to_string() };
    let text = match micros % 1000 {
        0 => time.format("%Y-%m-%dT%H:%M:%S%.3f"),
        _ => time.format("%Y-%m-%dT%H:%M:%S%.6f"),
    };
    format!("{text}{}", if has_zone { "Z" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Schema;
    use pelton_core::types::parse_columns;
    use std::sync::Arc;

    fn shown(columns: &str, row: &str) -> Result<String> {
        let schema = Arc::new(Schema::new(parse_columns(columns, "UTC").expect("columns")));
        let batch = crate::json::one_batch(format!("{row}\n").as_bytes(), &schema)?;
        Ok(rows(&[batch])?.first().map(ToString::to_string).unwrap_or_default())
    }

    #[test]
    fn every_type_has_its_form() -> Result<()> {
        let columns = "t timestamp, u timestamp, n timestamp_ntz, d date, m decimal(10,2), f float, x double, \
                       b binary, l array<int>, s struct<a: long, c: string>, k map<string, int>, z boolean";
        let row = r#"{"t":"2026-01-01T01:00:00+01:00","u":"2026-01-01T00:00:00.123456Z","n":"2026-01-01T00:00:00",
            "d":"1969-12-31","m":1.5,"f":0.1,"x":"NaN","b":"AQI=","l":[1,null],"s":{"a":1},"k":{"b":2,"a":1}}"#;
        let expected = r#"{"t":"2026-01-01T00:00:00.000Z","u":"2026-01-01T00:00:00.123456Z","n":"2026-01-01T00:00:00.000","d":"1969-12-31","m":"1.50","f":0.10000000149011612,"x":"NaN","b":"AQI=","l":[1,null],"s":{"a":1,"c":null},"k":{"map":[["a",1],["b",2]]},"z":null}"#;
        assert_eq!(shown(columns, &row.replace('\n', ""))?, expected);
        Ok(())
    }
}
