//! JSON lines, straight from Arrow arrays, as Spark's JSON writer and `to_json` lay them out: fields that are null
//! are left out (unless told otherwise), timestamps are ISO 8601 in the session's time zone, decimals are numbers,
//! binary is base64, numbers that JSON cannot hold are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.

use super::Records;
use super::columns::{Column, Values, range};
use super::compress::Compression;
use super::pattern::{Knows, TimeFormat};
use super::show::push_shown;
use crate::decode::options::{Bag, OptionMap};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use pelton_core::Result;
use pelton_core::number::{push_decimal, push_f32, push_f64, push_int};

/// Writes rows as JSON objects.
#[derive(Debug, Clone)]
pub struct JsonEncoder {
    ignore_null_fields: bool,
    date: TimeFormat,
    timestamp: TimeFormat,
    timestamp_ntz: TimeFormat,
    compression: Compression,
}

impl Default for JsonEncoder {
    /// Spark's defaults.
    fn default() -> Self {
        Self {
            ignore_null_fields: true,
            date: TimeFormat::Iso,
            timestamp: TimeFormat::Iso,
            timestamp_ntz: TimeFormat::Iso,
            compression: Compression::None,
        }
    }
}

impl JsonEncoder {
    /// Spark's options: `ignore_null_fields` (true), `date_format`, `timestamp_format`, `timestamp_ntz_format`,
    /// and `compression` for files.
    pub fn with_options(_schema: &Schema, options: &OptionMap) -> Result<Self> {
        let mut bag = Bag::new("json", options);
        let mut format = |name, knows| TimeFormat::from_option(name, bag.text(name)?, knows);
        let date = format("date_format", Knows::Date)?;
        let timestamp = format("timestamp_format", Knows::Instant)?;
        let timestamp_ntz = format("timestamp_ntz_format", Knows::LocalTime)?;
        let ignore_null_fields = bag.flag("ignore_null_fields", true)?;
        let compression = Compression::from_options(&mut bag)?;
        bag.finish()?;
        Ok(Self { ignore_null_fields, date, timestamp, timestamp_ntz, compression })
    }

    /// Null fields are written, as `null`.
    #[must_use]
    pub fn with_null_fields(mut self) -> Self {
        self.ignore_null_fields = false;
        self
    }

    pub(crate) fn compression(&self) -> Compression {
        self.compression
    }

    /// Appends every row as a line.
    pub fn encode(&self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        let columns = Column::of(batch)?;
        for row in 0..batch.num_rows() {
            self.push_object(out, &columns, row);
            out.push(b'\n');
        }
        Ok(())
    }

    /// Appends every row as a record of its own.
    pub(crate) fn encode_records(&self, batch: &RecordBatch, out: &mut Records) -> Result<()> {
        let columns = Column::of(batch)?;
        for row in 0..batch.num_rows() {
            self.push_object(&mut out.bytes, &columns, row);
            out.close();
        }
        Ok(())
    }

    /// One row as an object without a line break: what dead letters keep of a refused row.
    pub fn encode_row(&self, batch: &RecordBatch, row: usize) -> Result<Vec<u8>> {
        let row = batch.slice(row, 1);
        let mut out = Vec::new();
        self.push_object(&mut out, &Column::of(&row)?, 0);
        Ok(out)
    }

    #[inline]
    fn push_object(&self, out: &mut Vec<u8>, columns: &[Column<'_>], row: usize) {
        let start = out.len();
        for column in columns {
            if !column.is_null(row) {
                out.extend_from_slice(&column.key);
                self.push_value(out, &column.values, row);
            } else if !self.ignore_null_fields {
                out.extend_from_slice(&column.key);
                out.extend_from_slice(b"null");
            }
        }
        // Every key begins with the comma before it; the first one's place is that of the brace.
        match out.get_mut(start) {
            Some(comma) => *comma = b'{',
            None => out.push(b'{'),
        }
        out.push(b'}');
    }

    /// Appends a value that is not null.
    #[inline]
    pub(crate) fn push_value(&self, out: &mut Vec<u8>, values: &Values<'_>, row: usize) {
        match values {
            Values::Utf8(array) => push_string(out, array.value(row).as_bytes()),
            Values::Int64(values) => push_int(out, values[row]),
            Values::Float64(values) if values[row].is_finite() => push_f64(out, values[row]),
            Values::Float32(values) if values[row].is_finite() => push_f32(out, values[row]),
            Values::Int32(values) => push_int(out, values[row]),
            Values::Timestamp(values, clock) => {
                let format = if clock.is_some() { &self.timestamp } else { &self.timestamp_ntz };
                in_quotes(out, |out| format.push(out, values[row], clock.as_ref()));
            }
            Values::Boolean(array) => {
                out.extend_from_slice(if array.value(row) { b"true" } else { b"false" })
            }
            Values::Int16(values) => push_int(out, values[row]),
            Values::Int8(values) => push_int(out, values[row]),
            Values::Decimal(values, scale) => push_decimal(out, values[row], *scale),
            Values::Date(values) => in_quotes(out, |out| self.date.push_date(out, values[row])),
            Values::Binary(array) => in_quotes(out, |out| {
                out.extend_from_slice(BASE64.encode(array.value(row)).as_bytes());
            }),
            Values::Float64(values) => in_quotes(out, |out| push_f64(out, values[row])),
            Values::Float32(values) => in_quotes(out, |out| push_f32(out, values[row])),
            Values::List(offsets, items) => self.push_list(out, items, range(offsets, row)),
            Values::Map { offsets, keys, values } => self.push_map(out, keys, values, range(offsets, row)),
            Values::Struct(columns) => self.push_object(out, columns, row),
        }
    }

    fn push_list(&self, out: &mut Vec<u8>, items: &Column<'_>, range: std::ops::Range<usize>) {
        out.push(b'[');
        for (nth, item) in range.enumerate() {
            if nth > 0 {
                out.push(b',');
            }
            self.push_item(out, items, item);
        }
        out.push(b']');
    }

    fn push_map(
        &self,
        out: &mut Vec<u8>,
        keys: &Column<'_>,
        values: &Column<'_>,
        range: std::ops::Range<usize>,
    ) {
        let mut key = Vec::new();
        out.push(b'{');
        for (nth, entry) in range.enumerate() {
            if nth > 0 {
                out.push(b',');
            }
            key.clear();
            push_shown(&mut key, keys, entry);
            push_string(out, &key);
            out.push(b':');
            self.push_item(out, values, entry);
        }
        out.push(b'}');
    }

    fn push_item(&self, out: &mut Vec<u8>, items: &Column<'_>, item: usize) {
        match items.is_null(item) {
            true => out.extend_from_slice(b"null"),
            false => self.push_value(out, &items.values, item),
        }
    }
}

fn in_quotes(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

/// Appends a string in quotes, escaped where it must be.
#[inline]
pub(crate) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    if needs_escape(text) {
        push_escaped(out, text)
    } else {
        out.extend_from_slice(text)
    }
    out.push(b'"');
}

/// Without an early exit, so that it becomes a few vector instructions.
#[inline]
fn needs_escape(text: &[u8]) -> bool {
    text.iter().fold(false, |found, &byte| found | (byte < 0x20) | (byte == b'"') | (byte == b'\\'))
}

#[cold]
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0C => out.extend_from_slice(b"\\f"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04X}").as_bytes()),
            plain => out.push(plain),
        }
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
