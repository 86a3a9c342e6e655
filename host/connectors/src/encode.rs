//! Rows to bytes: the formats that sinks write.
//!
//! Sinks call an [`Encoder`] from worker threads, the command line uses [`JsonEncoder`] for its filter and the
//! engine's dead letters. An encoder does no I/O and keeps nothing between calls: the same rows give the same
//! bytes, whoever encodes them and beside whom.

mod arrow;
mod avro;
mod columns;
mod compress;
mod csv;
mod datetime;
mod json;
mod parquet;
mod pattern;
mod protobuf;
mod raw;
#[cfg(test)]
mod round_trip_tests;
mod show;
mod text;

pub use self::arrow::ArrowEncoder;
pub use self::avro::AvroEncoder;
pub use self::parquet::ParquetEncoder;
pub(crate) use self::parquet::ParquetFile;
pub use compress::Compression;
pub use csv::CsvEncoder;
pub use json::JsonEncoder;
pub use protobuf::ProtobufEncoder;
pub use raw::RawEncoder;
pub use text::TextEncoder;

pub use crate::format::FileFormat;

pub(crate) use columns::{Column, Values};
pub(crate) use datetime::{LocalTime, push_clock, push_two};
pub(crate) use pelton_core::number::{push_decimal_plain, push_f32, push_f64, push_int};
pub(crate) use show::push_shown;

use crate::decode::options::OptionMap;
use ::arrow::array::RecordBatch;
use ::arrow::datatypes::Schema;
use ::parquet::arrow::arrow_writer::ArrowColumnChunk;
use pelton_core::{Error, Result};

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
    /// Avro.
    Avro(Box<AvroEncoder>),
    /// Arrow IPC.
    Arrow(ArrowEncoder),
    /// Protobuf.
    Protobuf(Box<ProtobufEncoder>),
    /// Records as they are.
    Raw(RawEncoder),
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
    /// The columns of a Parquet row group.
    RowGroup(Vec<ArrowColumnChunk>),
    /// Rows that a file of Arrow takes as they are.
    Rows(Vec<RecordBatch>),
}

/// A file whose parts know where they stand in it.
pub(crate) enum FileBody {
    /// Pieces one after the other.
    Plain,
    /// Row groups and a footer.
    Parquet(Box<parquet::ParquetFile>),
    /// Messages and a footer.
    Arrow(Box<arrow::ArrowFile>),
}

impl FileBody {
    /// The bytes to write for a piece.
    pub(crate) fn append(&mut self, piece: Encoded) -> Result<Vec<u8>> {
        match (self, piece) {
            (Self::Plain, Encoded::Bytes(bytes)) => Ok(bytes),
            (Self::Parquet(file), Encoded::RowGroup(columns)) => {
                file.append(columns)?;
                file.take()
            }
            (Self::Arrow(file), Encoded::Rows(rows)) => file.append(&rows),
            _ => Err(Error::internal("a piece of another format reached a file")),
        }
    }

    /// The bytes that end the file.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(Vec::new()),
            Self::Parquet(file) => file.finish(),
            Self::Arrow(file) => file.finish(),
        }
    }
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
            FileFormat::Avro => Self::Avro(Box::new(AvroEncoder::new(schema, options)?)),
            FileFormat::Arrow => Self::Arrow(ArrowEncoder::new(schema, options)?),
            FileFormat::Protobuf => Self::Protobuf(Box::new(ProtobufEncoder::new(schema, options)?)),
            FileFormat::Raw => Self::Raw(RawEncoder::new(schema, options)?),
        })
    }

    /// Refuses what cannot be files.
    pub(crate) fn check_files(&self) -> Result<()> {
        let only_records = |format: &str| {
            let message = format!("format {format} is one of messages: rows in a file would have no end");
            Err(Error::invalid(message).hint("write files as json, csv, text, avro, parquet or arrow"))
        };
        match self {
            Self::Avro(encoder) => encoder.check_files(),
            Self::Protobuf(_) => only_records("protobuf"),
            Self::Raw(_) => only_records("raw"),
            _ => Ok(()),
        }
    }

    /// Gets ready what encoding rows one by one needs from outside: a schema is registered, if there is a registry,
    /// under its `subject` or else `<topic>-value`. Called by sinks when they are opened; encoding itself does no I/O.
    /// Without a topic the rows themselves say where they go.
    pub async fn prepare(&self, topic: Option<&str>) -> Result<()> {
        match self {
            Self::Avro(encoder) => encoder.prepare(topic).await,
            Self::Protobuf(encoder) => encoder.prepare(topic).await,
            _ => Ok(()),
        }
    }

    /// The end of a file's name: `.json.gz`, `.parquet`, `.avro`.
    pub fn extension(&self) -> String {
        match self {
            Self::Json(encoder) => format!(".json{}", encoder.compression().extension()),
            Self::Csv(encoder) => format!(".csv{}", encoder.compression().extension()),
            Self::Text(encoder) => format!(".txt{}", encoder.compression().extension()),
            Self::Parquet(_) => ".parquet".into(),
            Self::Avro(_) => ".avro".into(),
            Self::Arrow(_) => ".arrow".into(),
            Self::Protobuf(_) | Self::Raw(_) => ".bin".into(),
        }
    }

    /// What stands at the top of a file, compressed like the rest.
    pub(crate) fn head(&self) -> Result<Vec<u8>> {
        match self {
            Self::Csv(encoder) => encoder.compression().apply(encoder.header()),
            Self::Avro(encoder) => Ok(encoder.head()),
            _ => Ok(Vec::new()),
        }
    }

    /// Starts a file.
    pub(crate) fn body(&self) -> Result<FileBody> {
        Ok(match self {
            Self::Parquet(encoder) => FileBody::Parquet(Box::new(encoder.file()?)),
            Self::Arrow(encoder) => FileBody::Arrow(Box::new(encoder.file()?)),
            _ => FileBody::Plain,
        })
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
            Self::Avro(encoder) => return encoder.block(rows).map(Encoded::Bytes),
            Self::Arrow(_) => return Ok(Encoded::Rows(rows.to_vec())),
            Self::Protobuf(_) | Self::Raw(_) => return Err(Error::internal("messages in a file")),
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
            Self::Avro(encoder) => encoder.encode_records(rows, &mut out)?,
            Self::Arrow(encoder) => encoder.encode_records(rows, &mut out)?,
            Self::Protobuf(encoder) => encoder.encode_records(rows, &mut out)?,
            Self::Raw(encoder) => encoder.encode_records(rows, &mut out)?,
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
