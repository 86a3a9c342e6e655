//! Batches to JSON, for plugins that asked for it: an array of objects, one a row. `codec` calls it for every
//! batch. `json_read` reads the same forms; nothing is lost on the way there and back:
//!
//! | type | form |
//! |---|---|
//! | `boolean`, whole numbers | JSON's own |
//! | `float`, `double` | a number; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | `decimal` | a string: `"12.50"` |
//! | `string` | a string |
//! | `binary` | a string, base64 with padding |
//! | `date` | `"2024-02-29"` |
//! | `timestamp` | `"2024-02-29T12:30:00.000000Z"`, always UTC |
//! | `timestamp_ntz` | the same without `Z` |
//! | `array` | an array |
//! | `map` | an array of `{"key": …, "value": …}` |
//! | `struct` | an object |
//! | a null | `null`, never left out |

use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Fields};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Days, NaiveDate};
use pelton_core::{Error, Result};
use std::io::Write;

/// Appends the rows to `out`.
pub(crate) fn encode(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
    let schema = batch.schema();
    out.push(b'[');
    for row in 0..batch.num_rows() {
        separate(row, out);
        object(schema.fields(), batch.columns(), row, out)?;
    }
    out.push(b']');
    Ok(())
}

fn separate(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

fn object(fields: &Fields, columns: &[ArrayRef], row: usize, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'{');
    for (index, (field, column)) in fields.iter().zip(columns).enumerate() {
        separate(index, out);
        text(field.name(), out)?;
        out.push(b':');
        value(column, row, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn array(values: &ArrayRef, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'[');
    for row in 0..values.len() {
        separate(row, out);
        value(values, row, out)?;
    }
    out.push(b']');
    Ok(())
}

fn value(array_: &ArrayRef, row: usize, out: &mut Vec<u8>) -> Result<()> {
    fn at<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> T::Native {
        array.as_primitive::<T>().value(row)
    }
    if array_.is_null(row) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match array_.data_type() {
        DataType::Boolean => write(out, format_args!("{}", array_.as_boolean().value(row))),
        DataType::Int8 => write(out, format_args!("{}", at::<Int8Type>(array_, row))),
        DataType::Int16 => write(out, format_args!("{}", at::<Int16Type>(array_, row))),
        DataType::Int32 => write(out, format_args!("{}", at::<Int32Type>(array_, row))),
        DataType::Int64 => write(out, format_args!("{}", at::<Int64Type>(array_, row))),
        DataType::Float32 => {
            let float = at::<Float32Type>(array_, row);
            match float.is_finite() {
                true => json(&float, out)?,
                false => text(not_finite(float.into()), out)?,
            }
        }
        DataType::Float64 => {
            let float = at::<Float64Type>(array_, row);
            match float.is_finite() {
                true => json(&float, out)?,
                false => text(not_finite(float), out)?,
            }
        }
        DataType::Decimal128(..) => {
            text(&array_.as_primitive::<Decimal128Type>().value_as_string(row), out)?;
        }
        DataType::Utf8 => text(array_.as_string::<i32>().value(row), out)?,
        DataType::Binary => text(&STANDARD.encode(array_.as_binary::<i32>().value(row)), out)?,
        DataType::Date32 => text(&date(at::<Date32Type>(array_, row))?, out)?,
        DataType::Timestamp(_, zone) => {
            let zulu = if zone.is_some() { "Z" } else { "" };
            text(&format!("{}{zulu}", timestamp(at::<TimestampMicrosecondType>(array_, row))?), out)?;
        }
        DataType::List(_) => array(&array_.as_list::<i32>().value(row), out)?,
        DataType::Map(..) => {
            let entries: ArrayRef = std::sync::Arc::new(array_.as_map().value(row));
            array(&entries, out)?;
        }
        DataType::Struct(fields) => object(fields, array_.as_struct().columns(), row, out)?,
        other => return Err(Error::internal(format!("no plugin takes values of type {other}"))),
    }
    Ok(())
}

fn write(out: &mut Vec<u8>, what: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = out.write_fmt(what);
}

fn json(value: &impl serde::Serialize, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(out, value).map_err(|e| Error::internal(format!("a value has no JSON form: {e}")))
}

fn text(text: &str, out: &mut Vec<u8>) -> Result<()> {
    json(&text, out)
}

fn not_finite(value: f64) -> &'static str {
    match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

/// What chrono's calendar ends at (years ±262,000) a plugin with JSON encoding does not get.
fn beyond(value: i64) -> Error {
    Error::data(format!("the date or timestamp {value} is outside the calendar and has no JSON form"))
}

fn date(days: i32) -> Result<String> {
    let epoch = NaiveDate::default();
    let distance = Days::new(days.unsigned_abs().into());
    let date = if days < 0 { epoch.checked_sub_days(distance) } else { epoch.checked_add_days(distance) };
    Ok(date.ok_or_else(|| beyond(days.into()))?.format("%Y-%m-%d").to_string())
}

fn timestamp(micros: i64) -> Result<String> {
    let time = DateTime::from_timestamp_micros(micros).ok_or_else(|| beyond(micros))?;
    Ok(time.format("%Y-%m-%dT%H:%M:%S%.6f").to_string())
}
