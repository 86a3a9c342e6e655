//! JSON lines: the decoder of the hot path, with the semantics of Spark's JSON reader.
//!
//! The file source and the command line's filter use [`JsonDecoder`], `from_json` uses [`JsonColumn`].
//! A record is read in two steps: its structure is checked to the end and the wanted values are marked
//! (`scan`, `shape`), then the marks become values in columns (`convert`). A malformed record therefore never
//! leaves half a row behind, and a bad line never harms its neighbours.
//!
//! Where Pelton differs from Spark on purpose: what follows the record on its line makes it malformed (Spark
//! ignores it); an integer out of a `byte`'s range is malformed (Spark wraps from 128 to 255); a lone carriage
//! return does not end a line.

mod convert;
mod infer;
mod lenient;
mod options;
mod scan;
mod shape;
mod text;
mod value;

pub use infer::infer_json;
pub use options::JsonOptions;
pub use value::JsonColumn;

use super::rows::{RowSettings, Rows};
use super::{Decoder, DecoderSettings, Input, check_size, without_mark};
use arrow::datatypes::SchemaRef;
use convert::{Converter, StructNode, another, open};
use pelton_core::{Decoded, Result};
use scan::{Fault, Scanner};
use std::borrow::Cow;

/// Decodes JSON lines to rows of a schema.
#[derive(Debug)]
pub struct JsonDecoder {
    rows: RowSettings,
    converter: Converter,
    options: JsonOptions,
}

impl JsonDecoder {
    /// A decoder for records of `settings.schema`. The kind of error is `Invalid`.
    pub fn new(settings: &DecoderSettings, options: &JsonOptions) -> Result<Self> {
        let decoder = Self {
            rows: RowSettings::new(settings, &options.column_name_of_corrupt_record)?,
            converter: options.converter(&settings.time_zone)?,
            options: options.clone(),
        };
        // Types that JSON cannot hold are refused now.
        decoder.root()?;
        Ok(decoder)
    }

    fn root(&self) -> Result<StructNode> {
        StructNode::new(self.rows.schema.fields(), self.rows.corrupt)
    }

    fn run<'a>(&'a self, position: &'a dyn Fn(u64) -> String) -> Result<Run<'a>> {
        let (rows, root) = (Rows::new(&self.rows, position)?, self.root()?);
        Ok(Run { decoder: self, rows, root, why: String::new() })
    }
}

impl Decoder for JsonDecoder {
    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    fn decode(&self, input: &Input<'_>) -> Result<Decoded> {
        check_size(input.bytes.len(), input.file)?;
        let position = |line: u64| format!("{}:{line}", input.file);
        let mut run = self.run(&position)?;
        run.lines(without_mark(input), input.first_line)?;
        run.rows.finish()
    }

    fn decode_records(&self, records: &[&[u8]], position: &dyn Fn(u64) -> String) -> Result<Decoded> {
        let mut run = self.run(position)?;
        for (n, record) in records.iter().enumerate() {
            check_size(record.len(), &position(n as u64))?;
            run.rows.begin_record(n);
            run.unusual(&one_line(record), n as u64)?;
        }
        run.rows.finish()
    }
}

/// The record on one line. A carriage return means the same as a line feed: white space between values,
/// forbidden in strings.
fn one_line(record: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', record).is_none() {
        return Cow::Borrowed(record);
    }
    Cow::Owned(record.iter().map(|b| if *b == b'\n' { b'\r' } else { *b }).collect())
}

/// One call of the decoder.
struct Run<'a> {
    decoder: &'a JsonDecoder,
    rows: Rows<'a>,
    root: StructNode,
    /// Why a field of the current record is null that should not be.
    why: String,
}

impl Run<'_> {
    fn lines(&mut self, bytes: &[u8], first_line: u64) -> Result<()> {
        let valid = std::str::from_utf8(bytes).is_ok();
        let (mut at, mut line) = (0, first_line);
        while at < bytes.len() {
            at = match valid {
                true => self.line(bytes, at, line)?,
                false => self.unusual_line(bytes, at, line)?,
            };
            line += 1;
        }
        Ok(())
    }

    /// The line at `at`, if it is an object and nothing else; returns where the next one starts.
    #[inline]
    fn line(&mut self, bytes: &[u8], at: usize, n: u64) -> Result<usize> {
        let mut scanner = self.scanner(bytes, at);
        scanner.spaces();
        if scanner.peek() != b'{' || self.root.read(&mut scanner).is_err() {
            return self.unusual_line(bytes, at, n);
        }
        scanner.spaces();
        if scanner.peek() != b'\n' {
            return self.unusual_line(bytes, at, n);
        }
        self.row(bytes, &bytes[at..scanner.at.min(bytes.len())], n)?;
        Ok(scanner.at + 1)
    }

    /// Makes a row of the object that was read last; `text` is what its spans point into.
    #[inline]
    fn row(&mut self, text: &[u8], record: &[u8], n: u64) -> Result<()> {
        if self.root.fill(&self.decoder.converter, text, &mut self.rows.columns, &mut self.why) {
            return self.rows.good(1);
        }
        let why = std::mem::take(&mut self.why);
        self.rows.malformed(n, trimmed(record), 1, why)
    }

    #[cold]
    fn unusual_line(&mut self, bytes: &[u8], at: usize, n: u64) -> Result<usize> {
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |len| at + len);
        self.unusual(&bytes[at..end], n)?;
        Ok(end + 1)
    }

    /// A record that may be anything: blank, an array, tolerated, malformed.
    fn unusual(&mut self, record: &[u8], n: u64) -> Result<()> {
        let record = trimmed(record);
        if record.trim_ascii().is_empty() {
            return Ok(());
        }
        if let Err(e) = std::str::from_utf8(record) {
            let why = format!("not UTF-8 at byte {}", e.valid_up_to() + 1);
            return self.rows.malformed(n, record, 0, why);
        }
        let Err(fault) = self.object_or_array(record, record, n)? else { return Ok(()) };
        if let Some(rewritten) = self.decoder.options.lenience().rewrite(record)
            && self.object_or_array(&rewritten, record, n)?.is_ok()
        {
            return Ok(());
        }
        let why = format!("not JSON at byte {}: {}", fault.at + 1, fault.what);
        self.rows.malformed(n, record, 0, why)
    }

    /// Rows from `text`; `record` is what it was in the file. The inner error means that nothing was appended.
    fn object_or_array(&mut self, text: &[u8], record: &[u8], n: u64) -> Result<Result<(), Fault>> {
        let mut scanner = self.scanner(text, 0);
        scanner.spaces();
        let start = scanner.at;
        let read = match scanner.peek() {
            b'{' => self.root.read(&mut scanner),
            b'[' if self.decoder.options.arrays_are_rows => scanner.value().map(drop),
            _ => scanner.fault("a record must be an object"),
        };
        scanner.spaces();
        let read = match read {
            Ok(()) if scanner.at < text.len() => scanner.fault("something follows the record"),
            read => read,
        };
        if read.is_err() {
            return Ok(read);
        }
        match text[start] {
            b'{' => self.row(text, record, n)?,
            _ => self.array(text, start, record, n)?,
        }
        Ok(Ok(()))
    }

    /// Every element of the (checked) array is a row, as in Spark.
    fn array(&mut self, text: &[u8], start: usize, record: &[u8], n: u64) -> Result<()> {
        let mut scanner = self.scanner(text, start);
        let (mut rows, mut good) = (0, true);
        let mut more = open(&mut scanner, b']');
        while more {
            if scanner.peek() != b'{' || self.root.read(&mut scanner).is_err() {
                self.rows.discard();
                return self.rows.malformed(
                    n,
                    record,
                    0,
                    "every element of the array must be an object".into(),
                );
            }
            good &= self.root.fill(&self.decoder.converter, text, &mut self.rows.columns, &mut self.why);
            rows += 1;
            more = another(&mut scanner);
        }
        match good {
            true => self.rows.good(rows),
            false => {
                let why = std::mem::take(&mut self.why);
                self.rows.malformed(n, record, rows, why)
            }
        }
    }

    #[inline]
    fn scanner<'t>(&self, text: &'t [u8], at: usize) -> Scanner<'t> {
        Scanner { text, at, non_numeric: self.decoder.converter.non_numeric }
    }
}

fn trimmed(record: &[u8]) -> &[u8] {
    record.strip_suffix(b"\r").unwrap_or(record)
}

#[cfg(test)]
mod tests;
