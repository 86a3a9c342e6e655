//! Rows to bytes: the formats that sinks write.
//!
//! Sinks call an [`Encoder`] from worker threads, the command line uses [`JsonEncoder`] for its filter and the
//! engine's dead letters. An encoder does no I/O and keeps nothing between calls: the same rows give the same
//! bytes, whoever encodes them and beside whom.

mod columns;
mod compress;
mod csv;
mod datetime;
mod json;
mod number;
mod parquet;
mod pattern;
#[cfg(test)]
mod round_trip_tests;
mod show;
mod text;

pub use compress::Compression;
pub use csv::CsvEncoder;
pub use json::JsonEncoder;
pub use parquet::ParquetEncoder;
pub use text::TextEncoder;

pub(crate) use columns::{Column, Values};
pub(crate) use datetime::{LocalTime, push_clock, push_two};
pub(crate) use number::{push_decimal_plain, push_f32, push_f64, push_int};
pub(crate) use parquet::ParquetFile;
pub(crate) use show::push_shown;

use crate::decode::options::OptionMap;
use ::parquet::arrow::arrow_writer::ArrowColumnChunk;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use std::str::FromStr;

/// What a file of rows looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// Comma-separated values.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// One string column, a line each.
    Text,
}

impl FileFormat {
    const ALL: [Self; 4] = [Self::Json, Self::Csv, Self::Parquet, Self::Text];

    /// The word in the pipeline file, which is also the ending of the files' names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Text => "text",
        }
    }
}

impl FromStr for FileFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == text).ok_or_else(|| {
            let near = did_you_mean(text, Self::ALL.map(Self::as_str));
            Error::invalid(format!("there is no format '{text}' to write{near}"))
        })
    }
}

/// The encoder of a format for rows of one schema.
#[derive(Debug)]
pub enum Encoder {
    /// JSON lines.
    Json(JsonEncoder),
    /// CSV.
    Csv(CsvEncoder),
    /// Lines of text.
    Text(TextEncoder),
    /// Parquet.
    Parquet(ParquetEncoder),
}

/// Rows encoded one by one: what a message or a request body holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// One after the other.
    pub bytes: Vec<u8>,
    /// Where each ends: record `i` is `bytes[ends[i - 1]..ends[i]]`.
    pub ends: Vec<usize>,
}

impl Records {
    /// The bytes of the n-th.
    pub fn get(&self, nth: usize) -> Option<&[u8]> {
        let start = nth.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(start..*self.ends.get(nth)?)
    }

    /// What was appended to `bytes` since the last record is one.
    pub(crate) fn close(&mut self) {
        self.ends.push(self.bytes.len());
    }
}

/// A piece of a file that was encoded apart from the others.
pub(crate) enum Encoded {
    /// As it goes into the file.
    Bytes(Vec<u8>),
    /// A Parquet row group: its columns, and how many rows they have.
    RowGroup(Vec<ArrowColumnChunk>),
}

impl Encoder {
    /// Reads the format's options (Spark's names in snake case) and checks the schema. An unknown option is
    /// refused with the nearest right name, a column that the format cannot hold by its name.
    pub fn new(format: FileFormat, schema: &Schema, options: &OptionMap) -> Result<Self> {
        Ok(match format {
            FileFormat::Json => Self::Json(JsonEncoder::with_options(schema, options)?),
            FileFormat::Csv => Self::Csv(CsvEncoder::new(schema, options)?),
            FileFormat::Text => Self::Text(TextEncoder::new(schema, options)?),
            FileFormat::Parquet => Self::Parquet(ParquetEncoder::new(schema, options)?),
        })
    }

    /// The end of a file's name: `.json.gz`, `.parquet`.
    pub fn extension(&self) -> String {
        match self {
            Self::Json(encoder) => format!(".json{}", encoder.compression().extension()),
            Self::Csv(encoder) => format!(".csv{}", encoder.compression().extension()),
            Self::Text(encoder) => format!(".txt{}", encoder.compression().extension()),
            Self::Parquet(_) => ".parquet".into(),
        }
    }

    /// What stands at the top of a file, compressed like the rest.
    pub(crate) fn head(&self) -> Result<Vec<u8>> {
        match self {
            Self::Csv(encoder) => encoder.compression().apply(encoder.header()),
            _ => Ok(Vec::new()),
        }
    }

    /// Encodes a piece of a file. Compressed pieces can be put one after another: each is a whole gzip member
    /// or zstd frame.
    pub(crate) fn encode(&self, rows: &[RecordBatch]) -> Result<Encoded> {
        let mut out = Vec::with_capacity(first_guess(rows));
        let compression = match self {
            Self::Json(encoder) => {
                rows.iter().try_for_each(|batch| encoder.encode(batch, &mut out))?;
                encoder.compression()
            }
            Self::Csv(encoder) => {
                rows.iter().try_for_each(|batch| encoder.encode(batch, &mut out))?;
                encoder.compression()
            }
            Self::Text(encoder) => {
                rows.iter().try_for_each(|batch| encoder.encode(batch, &mut out))?;
                encoder.compression()
            }
            Self::Parquet(encoder) => return encoder.row_group(rows).map(Encoded::RowGroup),
        };
        Ok(Encoded::Bytes(compression.apply(out)?))
    }

    /// Encodes every row on its own, without what separates rows in a file, and uncompressed: messages are compressed
    /// by whoever sends them. A format that only files have is refused.
    pub fn encode_records(&self, rows: &RecordBatch) -> Result<Records> {
        let mut out = Records {
            bytes: Vec::with_capacity(first_guess(std::slice::from_ref(rows))),
            ..Records::default()
        };
        match self {
            Self::Json(encoder) => encoder.encode_records(rows, &mut out)?,
            Self::Csv(encoder) => encoder.encode_records(rows, &mut out)?,
            Self::Text(encoder) => encoder.encode_records(rows, &mut out)?,
            Self::Parquet(_) => {
                return Err(Error::invalid("format parquet is one of files, not of messages"));
            }
        }
        Ok(out)
    }
}

/// Bytes that the rows will take, roughly: a growing buffer copies itself.
fn first_guess(rows: &[RecordBatch]) -> usize {
    rows.iter().map(|batch| batch.num_rows() * (2 + 16 * batch.num_columns())).sum()
}
