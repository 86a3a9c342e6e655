//! CSV with the semantics of Spark's reader (that is univocity's): positions count, not names; an empty field
//! is null; one bad record never harms its neighbours.
//!
//! Where Pelton differs from Spark on purpose: a record with too few or too many fields is malformed whatever
//! columns the query reads; so is one whose quotes are not closed.

mod convert;
mod infer;
mod options;
pub(crate) mod split;

pub(crate) use convert::one_value;
pub use infer::infer_csv;
pub use options::CsvOptions;

use super::rows::{RowSettings, Rows};
use super::{Decoder, DecoderSettings, Input, check_size, corrupt_column, without_mark};
use arrow::datatypes::SchemaRef;
use convert::Converter;
use pelton_core::types::type_name;
use pelton_core::{Decoded, Error, Result};
use split::{Field, Splitter};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Decodes CSV records to rows of a schema.
#[derive(Debug)]
pub struct CsvDecoder {
    rows: RowSettings,
    converter: Converter,
    splitter: Splitter,
    options: CsvOptions,
    /// The names of a record's fields, in order.
    names: Vec<String>,
    /// For every wanted column its place in the record; none for the one that keeps malformed records.
    places: Vec<Option<usize>>,
    warned: AtomicBool,
}

impl CsvDecoder {
    /// A decoder for records of `settings.schema`. The kind of error is `Invalid`.
    pub fn new(settings: &DecoderSettings, options: &CsvOptions) -> Result<Self> {
        let rows = RowSettings::new(settings, &options.column_name_of_corrupt_record)?;
        let fields = settings.schema.fields();
        let corrupt = corrupt_column(fields, &options.column_name_of_corrupt_record)?;
        let held = fields.iter().enumerate().filter(|(i, _)| Some(*i) != corrupt).map(|(_, f)| f);
        let names: Vec<String> = held.clone().map(|f| f.name().clone()).collect();
        if let Some(nested) = held.clone().find(|f| f.data_type().is_nested()) {
            let found = type_name(nested.data_type());
            return Err(Error::invalid(format!("column '{}': CSV cannot hold {found}", nested.name())));
        }
        let place = |name: &String| names.iter().position(|n| n == name);
        let places = rows.schema.fields().iter().map(|f| place(f.name())).collect();
        Ok(Self {
            places,
            converter: Converter::new(options, &settings.time_zone)?,
            splitter: options.splitter(),
            options: options.clone(),
            names,
            rows,
            warned: AtomicBool::new(false),
        })
    }

    /// The record's fields against the columns: Spark's check with `enforce_schema: false`.
    fn check_header(&self, line: &[u8], fields: &[Field], file: &str) -> Result<()> {
        let header: Vec<String> = fields
            .iter()
            .map(|f| String::from_utf8_lossy(&self.splitter.text(line, f)).into_owned())
            .collect();
        let same = header.len() == self.names.len()
            && header.iter().zip(&self.names).all(|(found, name)| found.trim().eq_ignore_ascii_case(name));
        if same {
            return Ok(());
        }
        let message = format!(
            "{file}: the header does not fit the schema: the file has ({}), the schema ({})",
            header.join(", "),
            self.names.join(", ")
        );
        if !self.options.enforce_schema {
            return Err(Error::data(message).hint("declare all columns of the file in their order"));
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("{message}; columns are taken by position");
        }
        Ok(())
    }
}

impl Decoder for CsvDecoder {
    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    fn decode(&self, input: &Input<'_>) -> Result<Decoded> {
        check_size(input.bytes.len(), input.file)?;
        let position = |line: u64| format!("{}:{line}", input.file);
        let mut run = Run::new(self, &position)?;
        let mut header_pending = self.options.header && input.starts_file;
        let bytes = without_mark(input);
        let valid = std::str::from_utf8(bytes).is_ok();
        let (mut at, mut line) = (0, input.first_line);
        while at < bytes.len() {
            let end = self.splitter.record_end(bytes, at);
            let record = trimmed(&bytes[at..end]);
            if !self.nothing(record) {
                if std::mem::take(&mut header_pending) {
                    run.split(record);
                    self.check_header(record, &run.fields, input.file)?;
                } else {
                    run.record(record, line, valid)?;
                }
            }
            line += 1;
            if self.options.multi_line {
                line += memchr::memchr_iter(b'\n', &bytes[at..end]).count() as u64;
            }
            at = end + 1;
        }
        run.rows.finish()
    }

    fn decode_records(&self, records: &[&[u8]], position: &dyn Fn(u64) -> String) -> Result<Decoded> {
        let mut run = Run::new(self, position)?;
        for (n, record) in records.iter().enumerate() {
            check_size(record.len(), &position(n as u64))?;
            let record = trimmed(record.strip_suffix(b"\n").unwrap_or(record));
            if !self.nothing(record) {
                run.rows.begin_record(n);
                run.record(record, n as u64, false)?;
            }
        }
        run.rows.finish()
    }
}

impl CsvDecoder {
    /// Blank lines and comments are no records.
    #[inline]
    fn nothing(&self, record: &[u8]) -> bool {
        let comment = self.options.comment.is_some_and(|c| record.first() == Some(&c));
        comment || record.iter().all(u8::is_ascii_whitespace)
    }
}

/// One call of the decoder.
struct Run<'a> {
    decoder: &'a CsvDecoder,
    rows: Rows<'a>,
    fields: Vec<Field>,
}

impl<'a> Run<'a> {
    fn new(decoder: &'a CsvDecoder, position: &'a dyn Fn(u64) -> String) -> Result<Self> {
        Ok(Self { decoder, rows: Rows::new(&decoder.rows, position)?, fields: Vec::new() })
    }

    /// Whether all quotes are closed.
    fn split(&mut self, record: &[u8]) -> bool {
        self.decoder.splitter.split(record, &mut self.fields)
    }

    fn record(&mut self, record: &[u8], n: u64, valid: bool) -> Result<()> {
        if !valid && let Err(e) = std::str::from_utf8(record) {
            let why = format!("not UTF-8 at byte {}", e.valid_up_to() + 1);
            return self.rows.malformed(n, record, 0, why);
        }
        if !self.split(record) {
            return self.rows.malformed(n, record, 0, "a quote is not closed".into());
        }
        let mut why = self.count_fields();
        for (i, place) in self.decoder.places.iter().enumerate() {
            let Some(place) = *place else { continue };
            let column = &mut self.rows.columns[i];
            let Some(text) = self.fields.get(place).and_then(|f| self.decoder.value(record, f)) else {
                column.push_null();
                continue;
            };
            if self.decoder.converter.append(column, &text) {
                column.valid();
            } else {
                column.push_null();
                why.get_or_insert_with(|| self.decoder.wrong(i, &text));
            }
        }
        match why {
            None => self.rows.good(1),
            Some(why) => self.rows.malformed(n, record, 1, why),
        }
    }

    fn count_fields(&self) -> Option<String> {
        let (found, wanted) = (self.fields.len(), self.decoder.names.len());
        (found != wanted).then(|| format!("{found} fields instead of {wanted}"))
    }
}

impl CsvDecoder {
    /// The field's text; `None`: null.
    #[inline]
    fn value<'t>(&'t self, record: &'t [u8], field: &Field) -> Option<Cow<'t, [u8]>> {
        let text = self.splitter.text(record, field);
        if text.is_empty() && !field.quoted {
            return None;
        }
        let text = if text.is_empty() { Cow::Borrowed(self.options.empty_value.as_bytes()) } else { text };
        (*text != *self.options.null_value.as_bytes()).then_some(text)
    }

    #[cold]
    fn wrong(&self, column: usize, text: &[u8]) -> String {
        let field = self.rows.schema.field(column);
        let shown: String = String::from_utf8_lossy(text).chars().take(60).collect();
        format!("column '{}': \"{shown}\" is not {}", field.name(), type_name(field.data_type()))
    }
}

fn trimmed(record: &[u8]) -> &[u8] {
    record.strip_suffix(b"\r").unwrap_or(record)
}

#[cfg(test)]
mod tests;
