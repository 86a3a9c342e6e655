//! CSV as Spark writes it: a value is quoted if it must be, null is nothing, an empty string is `""`, quotes inside of
//! a quoted value are escaped with a backslash, white space around a value is cut.

use super::Records;
use super::columns::{Column, Values};
use super::compress::Compression;
use super::pattern::{Knows, TimeFormat};
use crate::decode::options::{Bag, OptionMap};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use pelton_core::number::{push_decimal, push_f32, push_f64, push_int};
use pelton_core::types::type_name;
use pelton_core::{Error, Result};

/// Writes rows as lines of comma-separated values.
#[derive(Debug, Clone)]
pub struct CsvEncoder {
    header: Vec<u8>,
    separator: Vec<u8>,
    quote: Option<u8>,
    escape: Option<u8>,
    quote_all: bool,
    escape_quotes: bool,
    null_value: Vec<u8>,
    empty_value: Vec<u8>,
    trim_start: bool,
    trim_end: bool,
    line_end: Vec<u8>,
    date: TimeFormat,
    timestamp: TimeFormat,
    timestamp_ntz: TimeFormat,
    compression: Compression,
}

impl CsvEncoder {
    /// Spark's options: `header` (false), `sep`, `quote`, `escape`, `quote_all`, `escape_quotes`, `null_value`,
    /// `empty_value`, `ignore_leading_white_space`, `ignore_trailing_white_space` (both true), `line_sep`,
    /// `date_format`, `timestamp_format`, `timestamp_ntz_format`, `compression`.
    pub fn new(schema: &Schema, options: &OptionMap) -> Result<Self> {
        check_schema(schema)?;
        let mut bag = Bag::new("csv", options);
        let with_header = bag.flag("header", false)?;
        let delimiter = bag.text("delimiter")?;
        let separator = bag.text("sep")?.or(delimiter).unwrap_or_else(|| ",".into());
        let mut format = |name, knows| TimeFormat::from_option(name, bag.text(name)?, knows);
        let date = format("date_format", Knows::Date)?;
        let timestamp = format("timestamp_format", Knows::Instant)?;
        let timestamp_ntz = format("timestamp_ntz_format", Knows::LocalTime)?;
        let mut encoder = Self {
            header: Vec::new(),
            separator: unescaped(&separator),
            quote: bag.character("quote")?.unwrap_or(Some(b'"')),
            escape: bag.character("escape")?.unwrap_or(Some(b'\\')),
            quote_all: bag.flag("quote_all", false)?,
            escape_quotes: bag.flag("escape_quotes", true)?,
            null_value: bag.text("null_value")?.unwrap_or_default().into_bytes(),
            empty_value: bag.text("empty_value")?.unwrap_or_else(|| "\"\"".into()).into_bytes(),
            trim_start: bag.flag("ignore_leading_white_space", true)?,
            trim_end: bag.flag("ignore_trailing_white_space", true)?,
            line_end: unescaped(&bag.text("line_sep")?.unwrap_or_else(|| "\n".into())),
            date,
            timestamp,
            timestamp_ntz,
            compression: Compression::from_options(&mut bag)?,
        };
        bag.finish()?;
        if encoder.separator.is_empty() || encoder.line_end.is_empty() {
            return Err(Error::invalid("options 'sep' and 'line_sep' of format csv must not be empty"));
        }
        if with_header {
            encoder.header = encoder.header_line(schema);
        }
        Ok(encoder)
    }

    pub(crate) fn compression(&self) -> Compression {
        self.compression
    }

    /// The first line of every file; empty without the option `header`.
    pub fn header(&self) -> Vec<u8> {
        self.header.clone()
    }

    /// Appends every row as a line.
    pub fn encode(&self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        let columns = Column::of(batch)?;
        let mut value = Vec::new();
        for row in 0..batch.num_rows() {
            self.push_row(out, &columns, row, &mut value);
            out.extend_from_slice(&self.line_end);
        }
        Ok(())
    }

    /// Appends every row as a record of its own.
    pub(crate) fn encode_records(&self, batch: &RecordBatch, out: &mut Records) -> Result<()> {
        let columns = Column::of(batch)?;
        let mut value = Vec::new();
        for row in 0..batch.num_rows() {
            self.push_row(&mut out.bytes, &columns, row, &mut value);
            out.close();
        }
        Ok(())
    }

    #[inline]
    fn push_row(&self, out: &mut Vec<u8>, columns: &[Column<'_>], row: usize, value: &mut Vec<u8>) {
        for (nth, column) in columns.iter().enumerate() {
            if nth > 0 {
                out.extend_from_slice(&self.separator);
            }
            match column.is_null(row) {
                true => out.extend_from_slice(&self.null_value),
                false => self.push_value(out, column, row, value),
            }
        }
    }

    fn header_line(&self, schema: &Schema) -> Vec<u8> {
        let mut line = Vec::new();
        for (nth, field) in schema.fields().iter().enumerate() {
            if nth > 0 {
                line.extend_from_slice(&self.separator);
            }
            self.push_text(&mut line, field.name().as_bytes());
        }
        line.extend_from_slice(&self.line_end);
        line
    }

    fn push_value(&self, out: &mut Vec<u8>, column: &Column<'_>, row: usize, value: &mut Vec<u8>) {
        if let Values::Utf8(array) = &column.values {
            return self.push_text(out, array.value(row).as_bytes());
        }
        value.clear();
        match &column.values {
            Values::Boolean(array) => {
                value.extend_from_slice(if array.value(row) { b"true" } else { b"false" })
            }
            Values::Int8(values) => push_int(value, values[row]),
            Values::Int16(values) => push_int(value, values[row]),
            Values::Int32(values) => push_int(value, values[row]),
            Values::Int64(values) => push_int(value, values[row]),
            Values::Float32(values) => push_f32(value, values[row]),
            Values::Float64(values) => push_f64(value, values[row]),
            Values::Decimal(values, scale) => push_decimal(value, values[row], *scale),
            Values::Date(values) => self.date.push_date(value, values[row]),
            Values::Timestamp(values, clock) => {
                let format = if clock.is_some() { &self.timestamp } else { &self.timestamp_ntz };
                format.push(value, values[row], clock.as_ref());
            }
            // Refused by `check_schema`.
            Values::Utf8(_)
            | Values::Binary(_)
            | Values::List(..)
            | Values::Map { .. }
            | Values::Struct(_) => {}
        }
        self.push_text(out, value);
    }

    /// A value that is not null, quoted and escaped where it must be.
    #[inline]
    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        let text = if self.trim_start { text.trim_ascii_start() } else { text };
        let text = if self.trim_end { text.trim_ascii_end() } else { text };
        if text.is_empty() {
            return out.extend_from_slice(&self.empty_value);
        }
        match self.quote {
            Some(quote) if self.quote_all || self.needs_quotes(text, quote) => {
                self.push_quoted(out, text, quote)
            }
            _ => out.extend_from_slice(text),
        }
    }

    #[inline]
    fn needs_quotes(&self, text: &[u8], quote: u8) -> bool {
        let first = self.separator[0];
        // Unless quotes are to be escaped, only one at the beginning counts: a reader would take it for the opening.
        let inner_quote = if self.escape_quotes { quote } else { b'\n' };
        let suspicious = text.iter().fold(text[0] == quote, |found, &byte| {
            found | (byte == first) | (byte == b'\n') | (byte == b'\r') | (byte == inner_quote)
        });
        suspicious && (self.separator.len() == 1 || self.needs_quotes_after_all(text, quote, inner_quote))
    }

    #[cold]
    fn needs_quotes_after_all(&self, text: &[u8], quote: u8, inner_quote: u8) -> bool {
        text[0] == quote
            || text.windows(self.separator.len()).any(|window| window == self.separator)
            || text.iter().any(|&byte| byte == b'\n' || byte == b'\r' || byte == inner_quote)
    }

    fn push_quoted(&self, out: &mut Vec<u8>, text: &[u8], quote: u8) {
        out.push(quote);
        for &byte in text {
            match self.escape {
                Some(escape) if byte == quote || byte == escape => out.extend_from_slice(&[escape, byte]),
                _ => out.push(byte),
            }
        }
        out.push(quote);
    }
}

/// `\t` and `\n` as people write them in a file.
fn unescaped(text: &str) -> Vec<u8> {
    text.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r").into_bytes()
}

fn check_schema(schema: &Schema) -> Result<()> {
    let nested = |data_type: &DataType| data_type.is_nested() || data_type == &DataType::Binary;
    match schema.fields().iter().find(|field| nested(field.data_type())) {
        None => Ok(()),
        Some(field) => Err(Error::invalid(format!(
            "column '{}' of type {} cannot be written as csv",
            field.name(),
            type_name(field.data_type())
        ))
        .hint("turn it into a string in the last step (to_json for nested values, base64 for binary), or write json or parquet")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use serde_json::json;
    use std::sync::Arc;

    fn written(options: &[(&str, serde_json::Value)], texts: &[Option<&str>]) -> String {
        let n: ArrayRef =
            Arc::new(Int64Array::from_iter((0..texts.len() as i64).map(|n| (n != 1).then_some(n))));
        let s: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let batch = RecordBatch::try_from_iter_with_nullable([("n", n, true), ("a b", s, true)]).unwrap();
        let options = options.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        let encoder = CsvEncoder::new(&batch.schema(), &options).unwrap();
        let mut out = encoder.header();
        encoder.encode(&batch, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_quoted_only_where_they_must_be() {
        let texts =
            [Some("plain"), None, Some(""), Some("a,b"), Some("say \"hi\" \\o/"), Some("x\ny"), Some(" t ")];
        assert_eq!(
            written(&[], &texts),
            "0,plain\n,\n2,\"\"\n3,\"a,b\"\n4,\"say \\\"hi\\\" \\\\o/\"\n5,\"x\ny\"\n6,t\n"
        );
        assert_eq!(written(&[], &[Some("back\\slash")]), "0,back\\slash\n");
    }

    #[test]
    fn options_change_the_layout() {
        let options = [
            ("header", json!(true)),
            ("sep", json!("\\t")),
            ("null_value", json!("NA")),
            ("quote_all", json!(true)),
            ("ignore_leading_white_space", json!(false)),
            ("escape", json!("\"")),
        ];
        let expected = "\"n\"\t\"a b\"\n\"0\"\t\" x\"\nNA\tNA\n\"2\"\t\"\"\"\"\n";
        assert_eq!(written(&options, &[Some(" x "), None, Some("\"")]), expected);
        let unescaped = [("escape_quotes", json!(false))];
        assert_eq!(
            written(&unescaped, &[Some("a\"b"), Some("\"b"), Some("a,\"")]),
            "0,a\"b\n,\"\\\"b\"\n2,\"a,\\\"\"\n"
        );
        assert_eq!(written(&[("sep", json!("||"))], &[Some("a|b"), Some("a||b")]), "0||a|b\n||\"a||b\"\n");
    }

    #[test]
    fn numbers_look_as_in_java() {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 1e10, f64::NAN]));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let mut out = Vec::new();
        CsvEncoder::new(&batch.schema(), &OptionMap::new()).unwrap().encode(&batch, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1.0\n1.0E10\nNaN\n");
    }

    #[test]
    fn nested_columns_and_unknown_options_are_refused() {
        let list = pelton_core::types::list_of(DataType::Int64);
        let schema = Schema::new(vec![arrow::datatypes::Field::new("l", list, true)]);
        let error = CsvEncoder::new(&schema, &OptionMap::new()).unwrap_err();
        assert_eq!(error.message(), "column 'l' of type array<long> cannot be written as csv");
        let options = OptionMap::from([("nul_value".to_owned(), json!("NA"))]);
        let error = CsvEncoder::new(&Schema::empty(), &options).unwrap_err();
        assert_eq!(error.message(), "format csv has no option 'nul_value'; did you mean 'null_value'?");
    }
}
