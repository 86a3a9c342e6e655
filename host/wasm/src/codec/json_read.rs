//! JSON rows to batches, for plugins that asked for JSON. `codec` calls it for every answer. The forms are those
//! of `json_write`; more is understood where nothing can be mistaken: decimals and whole numbers either as numbers
//! or as strings, maps with text keys as objects, times with any offset, fields left out as nulls. Fields that the
//! schema does not have, fields that come twice and numbers that do not fit are faults.
//!
//! Values go straight into columns while the text is read: a hostile text costs about its own length.

use super::json_columns::{Column, Structs};
use crate::limits::{Limits, clean_text};
use arrow::array::{ArrowPrimitiveType, PrimitiveBuilder, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Unexpected, Visitor};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// Reads a guest's rows.
pub(crate) fn decode(schema: &SchemaRef, message: &[u8], limits: &Limits) -> Result<RecordBatch, String> {
    let wrong = |e: sonic_rs::Error| {
        // What follows the first line shows the place in the text.
        let error = e.to_string();
        format!("its JSON rows are wrong: {}", clean_text(error.lines().next().unwrap_or_default(), 400))
    };
    let message = std::str::from_utf8(message).map_err(|e| format!("its JSON rows are not UTF-8: {e}"))?;
    let cells_left = Rc::new(Cell::new(limits.output_bytes / CELL_BYTES));
    let mut rows = Structs::new(schema.fields(), &cells_left);
    // This reader, and not serde_json's, because it reads floats to the last bit.
    let mut deserializer = sonic_rs::Deserializer::from_str(message);
    let seed = Rows { structs: &mut rows, rows_max: limits.output_rows };
    let length = seed.deserialize(&mut deserializer).map_err(wrong)?;
    deserializer.end().map_err(wrong)?;
    let columns = rows.finish_columns().map_err(|e| told(&e))?;
    let options = RecordBatchOptions::new().with_row_count(Some(length));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(|e| told(&e))
}

/// A row may leave all its fields out (`{}`): so the cells that a text makes are counted, at so many bytes each.
const CELL_BYTES: u64 = 4;

fn told(e: &arrow::error::ArrowError) -> String {
    format!("its rows do not have its schema: {}", clean_text(&e.to_string(), 300))
}

/// The rows: the outer array.
struct Rows<'a> {
    structs: &'a mut Structs,
    rows_max: u64,
}

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = usize;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = usize;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of rows")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<usize, A::Error> {
        let mut rows = 0_usize;
        while seq.next_element_seed(Row(self.structs))?.is_some() {
            rows += 1;
            if rows as u64 > self.rows_max {
                let limit = self.rows_max;
                return Err(A::Error::custom(format!("more than {limit} rows (limit output_rows)")));
            }
        }
        Ok(rows)
    }
}

/// One row: an object.
struct Row<'a>(&'a mut Structs);

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row as an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        self.0.read(object)
    }
}

impl<'de> DeserializeSeed<'de> for &mut Column {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Column {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Column::Boolean(_) => "true or false",
            Column::Int8(_) => "a whole number from -128 to 127",
            Column::Int16(_) => "a whole number of 16 bits",
            Column::Int32(_) => "a whole number of 32 bits",
            Column::Int64(_) => "a whole number of 64 bits",
            Column::Float32(_) | Column::Float64(_) => "a number, \"NaN\", \"Infinity\" or \"-Infinity\"",
            Column::Decimal(..) => "a decimal as a string or a number",
            Column::Date(_) => "a date like \"2024-02-29\"",
            Column::Timestamp(_, Some(_)) => "a timestamp like \"2024-02-29T12:30:00.000000Z\"",
            Column::Timestamp(_, None) => "a timestamp like \"2024-02-29T12:30:00.000000\"",
            Column::Text(_) => "a string",
            Column::Binary(_) => "base64 as a string",
            Column::List(lists) if lists.is_map.is_some() => "an array of {\"key\", \"value\"} or an object",
            Column::List(_) => "an array",
            Column::Struct(_) => "an object",
            Column::Unknown(_) => "nothing",
        })
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.append_null();
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match self {
            Column::Boolean(b) => b.append_value(value),
            other => return Err(E::invalid_type(Unexpected::Bool(value), &other)),
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        let unexpected = Unexpected::Signed(value);
        let fits = match self {
            Column::Int8(b) => value.try_into().is_ok_and(|v| appended(b, v)),
            Column::Int16(b) => value.try_into().is_ok_and(|v| appended(b, v)),
            Column::Int32(b) => value.try_into().is_ok_and(|v| appended(b, v)),
            Column::Int64(b) => appended(b, value),
            Column::Float32(b) => appended(b, value as f32),
            Column::Float64(b) => appended(b, value as f64),
            Column::Decimal(b, _, scale) => {
                decimal(&value.to_string(), *scale).is_some_and(|v| appended(b, v))
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(E::invalid_value(unexpected, &self)) }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        let unexpected = Unexpected::Float(value);
        let fits = match self {
            Column::Float32(b) => appended(b, value as f32),
            Column::Float64(b) => appended(b, value),
            Column::Decimal(b, _, scale) => {
                decimal(&value.to_string(), *scale).is_some_and(|v| appended(b, v))
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(E::invalid_value(unexpected, &self)) }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let fits = match self {
            Column::Text(b) => {
                b.append_value(text);
                true
            }
            Column::Binary(b) => STANDARD.decode(text).is_ok_and(|bytes| {
                b.append_value(bytes);
                true
            }),
            Column::Int8(b) => text.parse().is_ok_and(|v| appended(b, v)),
            Column::Int16(b) => text.parse().is_ok_and(|v| appended(b, v)),
            Column::Int32(b) => text.parse().is_ok_and(|v| appended(b, v)),
            Column::Int64(b) => text.parse().is_ok_and(|v| appended(b, v)),
            Column::Float32(b) => float(text).is_some_and(|v| appended(b, v as f32)),
            Column::Float64(b) => float(text).is_some_and(|v| appended(b, v)),
            Column::Decimal(b, _, scale) => decimal(text, *scale).is_some_and(|v| appended(b, v)),
            Column::Date(b) => date(text).is_some_and(|v| appended(b, v)),
            Column::Timestamp(b, zone) => timestamp(text, zone.is_some()).is_some_and(|v| appended(b, v)),
            _ => false,
        };
        if fits { Ok(()) } else { Err(E::invalid_value(Unexpected::Str(text), &self)) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        match self {
            Column::List(lists) => lists.read(seq),
            other => Err(A::Error::invalid_type(Unexpected::Seq, &other)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        match self {
            Column::Struct(structs) => structs.read(object),
            Column::List(lists) if lists.is_map.is_some() => lists.read_object(object),
            other => Err(A::Error::invalid_type(Unexpected::Map, &other)),
        }
    }
}

fn appended<T: ArrowPrimitiveType>(builder: &mut PrimitiveBuilder<T>, value: T::Native) -> bool {
    builder.append_value(value);
    true
}

fn float(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// `-12.5` at scale 2: -1250. More digits after the point than the scale has are refused, not rounded.
fn decimal(text: &str, scale: i8) -> Option<i128> {
    let scale = usize::try_from(scale).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = if fraction.len() > scale { fraction.trim_end_matches('0') } else { fraction };
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if digits.is_empty() || !all_digits(digits) || !all_digits(fraction) || fraction.len() > scale {
        return None;
    }
    format!("{whole}{fraction:0<scale$}").parse().ok()
}

fn date(text: &str) -> Option<i32> {
    let days = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.signed_duration_since(NaiveDate::default());
    i32::try_from(days.num_days()).ok()
}

fn timestamp(text: &str, zoned: bool) -> Option<i64> {
    match zoned {
        true => DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_micros()),
        false => {
            let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f").ok()?;
            Some(time.and_utc().timestamp_micros())
        }
    }
}
