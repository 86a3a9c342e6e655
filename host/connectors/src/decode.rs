//! Bytes to rows: the formats that sources read, decoded straight into Arrow columns.
//!
//! Sources call a [`Decoder`] from worker threads, one call a block; the command line uses [`json`] for its
//! filter. A decoder never does I/O, knows no file system and keeps nothing between calls, so the same bytes
//! give the same rows.

pub mod arrow;
pub mod avro;
pub(crate) mod column;
pub mod csv;
pub(crate) mod fault;
pub mod json;
mod number;
pub mod options;
pub mod parquet;
mod pattern;
pub mod protobuf;
pub mod raw;
mod rows;
pub mod text;
mod time;

pub(crate) use number::parse_i64;
pub(crate) use time::{Zone, parse_date, parse_timestamp};

use ::arrow::datatypes::{Field, Fields, Schema, SchemaRef};
use async_trait::async_trait;
use pelton_core::suggest::did_you_mean;
use pelton_core::types::columns_name;
use pelton_core::{Decoded, Error, MalformedPolicy, Result};
use std::sync::Arc;

/// Rows in a batch, at most: what the engine's parts expect of each other.
pub const BATCH_ROWS: usize = 8192;
/// Bytes that one call of a decoder takes, at most: spans and offsets count in 32 bits.
pub const INPUT_BYTES_MAX: usize = 1 << 30;

/// A piece of a file (or the whole of it), cut at record boundaries.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Whole records.
    pub bytes: &'a [u8],
    /// The file's name, for messages and dead letters.
    pub file: &'a str,
    /// The number of the first line, from 1.
    pub first_line: u64,
    /// The bytes are the file's first: a byte order mark and a header may be in front.
    pub starts_file: bool,
}

/// A format that decodes records to rows of one schema.
#[async_trait]
pub trait Decoder: Send + Sync {
    /// The schema of the batches.
    fn schema(&self) -> SchemaRef;
    /// Decodes a piece of a file.
    fn decode(&self, input: &Input<'_>) -> Result<Decoded>;
    /// Decodes records that come one by one (messages, request bodies): a slice is a record, whatever
    /// line breaks are in it. `position` names the n-th for messages and dead letters. [`Decoded::records`] says which
    /// of them each row comes of.
    fn decode_records(&self, records: &[&[u8]], position: &dyn Fn(u64) -> String) -> Result<Decoded>;
    /// Fetches what decoding these records will need and is not there yet (schemas of a registry). Called by sources
    /// while they read; decoding itself does no I/O.
    async fn prepare(&self, _records: &[&[u8]]) -> Result<()> {
        Ok(())
    }
}

/// What every format's decoder must know.
#[derive(Debug, Clone)]
pub struct DecoderSettings {
    /// All columns of a record, as declared or inferred.
    pub schema: SchemaRef,
    /// The columns to decode; `None`: all. Rows have them in the order of the schema.
    pub columns: Option<Vec<String>>,
    /// What becomes of a record that does not decode.
    pub on_malformed: MalformedPolicy,
    /// The session's time zone, for times that name none: `UTC`, `Europe/Paris`, `+02:00`.
    pub time_zone: String,
    /// The source's name, for dead letters.
    pub origin: String,
}

impl DecoderSettings {
    /// Settings that decode all columns and fail on a malformed record, in UTC.
    pub fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            columns: None,
            on_malformed: MalformedPolicy::Fail,
            time_zone: "UTC".into(),
            origin: "input".into(),
        }
    }

    /// The schema of the rows: the wanted columns, all of them nullable as in Spark's file sources.
    pub(crate) fn wanted(&self) -> Result<SchemaRef> {
        project(&self.schema, self.columns.as_deref())
    }
}

/// The columns of `schema` that are named in `columns`, in the schema's order and nullable.
pub(crate) fn project(schema: &Schema, columns: Option<&[String]>) -> Result<SchemaRef> {
    let names = || schema.fields().iter().map(|f| f.name().as_str());
    if let Some(unknown) = columns.unwrap_or_default().iter().find(|c| !names().any(|n| n == c.as_str())) {
        return Err(Error::invalid(format!(
            "there is no column '{unknown}'{}",
            did_you_mean(unknown, names())
        )));
    }
    let wanted = |f: &&Arc<Field>| columns.is_none_or(|columns| columns.contains(f.name()));
    let fields = schema.fields().iter().filter(wanted).map(column::nullable);
    Ok(Arc::new(Schema::new(fields.collect::<Fields>())))
}

/// Where the column that keeps malformed records stands among `fields`; it must be a string.
pub(crate) fn corrupt_column(fields: &Fields, name: &str) -> Result<Option<usize>> {
    let Some((index, field)) = fields.find(name) else { return Ok(None) };
    if field.data_type() != &::arrow::datatypes::DataType::Utf8 {
        let found = pelton_core::types::type_name(field.data_type());
        return Err(Error::invalid(format!(
            "column '{name}' keeps malformed records: it must be string, not {found}"
        )));
    }
    Ok(Some(index))
}

/// Refuses columns other than the one that a format has.
pub(crate) fn check_only_column(settings: &DecoderSettings, format: &str, only: &Schema) -> Result<()> {
    let same = |(given, only): (&Arc<Field>, &Arc<Field>)| {
        given.name() == only.name() && given.data_type() == only.data_type()
    };
    let fields = settings.schema.fields();
    if fields.len() == only.fields().len() && fields.iter().zip(only.fields()).all(same) {
        return Ok(());
    }
    let (wanted, found) = (columns_name(only.fields()), columns_name(fields));
    Err(Error::invalid(format!("format {format} has one column, '{wanted}', not ({found})")))
}

/// Without the byte order mark, if there is one.
pub(crate) fn without_mark<'a>(input: &Input<'a>) -> &'a [u8] {
    match input.bytes.strip_prefix(b"\xEF\xBB\xBF") {
        Some(rest) if input.starts_file => rest,
        _ => input.bytes,
    }
}

/// Refuses what the 32-bit offsets could not hold.
pub(crate) fn check_size(bytes: usize, what: &str) -> Result<()> {
    if bytes <= INPUT_BYTES_MAX {
        return Ok(());
    }
    Err(Error::data(format!(
        "{what}: {bytes} bytes in one piece are more than the {INPUT_BYTES_MAX} that can be decoded"
    )))
}
