//! Plain text: one column `value`, a row for each line or for each file, as Spark's text source.

use super::column::Values;
use super::options::{Bag, OptionMap};
use super::rows::{RowSettings, Rows};
use super::{Decoder, DecoderSettings, Input, check_only_column, check_size, without_mark};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use memchr::memmem;
use pelton_core::{Decoded, Error, Result};
use std::sync::Arc;

/// How text is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// A row for each file instead of each line.
    pub whole_text: bool,
    /// What ends a line; `None`: a line feed, with or without a carriage return in front.
    pub line_sep: Option<String>,
}

impl TextOptions {
    /// Reads the options of the pipeline file. Unknown ones and wrong types are errors of kind `Invalid`.
    pub fn from_map(map: &OptionMap) -> Result<Self> {
        let mut bag = Bag::new("text", map);
        let options = Self { whole_text: bag.flag("whole_text", false)?, line_sep: bag.text("line_sep")? };
        bag.only("encoding", &["utf-8", "utf8"])?;
        bag.finish()?;
        if options.line_sep.as_deref() == Some("") {
            return Err(Error::invalid("option 'line_sep' of format text must not be empty"));
        }
        Ok(options)
    }
}

/// The only schema that text has.
pub fn text_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", DataType::Utf8, true)]))
}

/// Decodes lines to rows.
#[derive(Debug)]
pub struct TextDecoder {
    rows: RowSettings,
    options: TextOptions,
}

impl TextDecoder {
    /// A decoder of text. A schema other than `value: string` is an error of kind `Invalid`.
    pub fn new(settings: &DecoderSettings, options: &TextOptions) -> Result<Self> {
        check_only_column(settings, "text", &text_schema())?;
        Ok(Self { rows: RowSettings::new(settings, "")?, options: options.clone() })
    }

    fn line(rows: &mut Rows<'_>, line: &[u8], n: u64, valid: bool) -> Result<()> {
        if !valid && let Err(e) = std::str::from_utf8(line) {
            return rows.malformed(n, line, 0, format!("not UTF-8 at byte {}", e.valid_up_to() + 1));
        }
        if let Some(column) = rows.columns.first_mut()
            && let Values::Text(pieces) = &mut column.values
        {
            pieces.push(line);
            column.valid();
        }
        rows.good(1)
    }
}

impl Decoder for TextDecoder {
    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    fn decode(&self, input: &Input<'_>) -> Result<Decoded> {
        check_size(input.bytes.len(), input.file)?;
        let position = |line: u64| format!("{}:{line}", input.file);
        let mut rows = Rows::new(&self.rows, &position)?;
        let bytes = without_mark(input);
        if self.options.whole_text {
            Self::line(&mut rows, bytes, input.first_line, false)?;
            return rows.finish();
        }
        let sep = self.options.line_sep.as_deref().unwrap_or("\n").as_bytes();
        let finder = memmem::Finder::new(sep);
        let valid = std::str::from_utf8(bytes).is_ok();
        let (mut at, mut n) = (0, input.first_line);
        while at < bytes.len() {
            let end = finder.find(&bytes[at..]).map_or(bytes.len(), |len| at + len);
            let line = &bytes[at..end];
            let plain =
                if self.options.line_sep.is_none() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
            Self::line(&mut rows, plain, n, valid)?;
            at = end + sep.len();
            n += 1;
        }
        rows.finish()
    }

    fn decode_records(&self, records: &[&[u8]], position: &dyn Fn(u64) -> String) -> Result<Decoded> {
        let mut rows = Rows::new(&self.rows, position)?;
        for (n, record) in records.iter().enumerate() {
            check_size(record.len(), &position(n as u64))?;
            rows.begin_record(n);
            Self::line(&mut rows, record, n as u64, false)?;
        }
        rows.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::cast::AsArray;
    use pelton_core::MalformedPolicy;

    fn lines(options: TextOptions, bytes: &[u8]) -> (Vec<String>, u64) {
        let settings =
            DecoderSettings { on_malformed: MalformedPolicy::Drop, ..DecoderSettings::new(text_schema()) };
        let decoder = TextDecoder::new(&settings, &options).unwrap();
        let decoded =
            decoder.decode(&Input { bytes, file: "in.txt", first_line: 1, starts_file: true }).unwrap();
        let texts = |b: &arrow::array::RecordBatch| {
            b.column(0).as_string::<i32>().iter().map(|s| s.unwrap().to_owned()).collect::<Vec<_>>()
        };
        (decoded.batches.iter().flat_map(texts).collect(), decoded.dropped_rows)
    }

    #[test]
    fn every_line_is_a_row_blank_ones_too() {
        let default = TextOptions::default();
        assert_eq!(lines(default.clone(), b"\xEF\xBB\xBFa\r\n\nb").0, ["a", "", "b"]);
        assert_eq!(lines(default.clone(), b"a\n").0, ["a"]);
        assert!(lines(default.clone(), b"").0.is_empty());
        assert_eq!(lines(default, b"a\n\xFF\nb"), (vec!["a".to_owned(), "b".to_owned()], 1));
    }

    #[test]
    fn other_ends_of_lines_and_whole_files() {
        let options = TextOptions { line_sep: Some("||".into()), ..Default::default() };
        assert_eq!(lines(options, b"a\r||b|c||").0, ["a\r", "b|c"]);
        let options = TextOptions { whole_text: true, ..Default::default() };
        assert_eq!(lines(options.clone(), b"a\nb\n").0, ["a\nb\n"]);
        assert_eq!(lines(options, b"").0, [""]);
    }
}
