//! What the pipeline file says of a file source.

use crate::decode::arrow::{ArrowDecoder, check_arrow_options};
use crate::decode::avro::{AvroDecoder, AvroOptions};
use crate::decode::csv::{CsvDecoder, CsvOptions};
use crate::decode::json::{JsonDecoder, JsonOptions};
use crate::decode::options::OptionMap;
use crate::decode::parquet::check_parquet_options;
use crate::decode::protobuf::{ProtobufDecoder, ProtobufOptions};
use crate::decode::raw::{RawDecoder, check_raw_options, raw_schema};
use crate::decode::text::{TextDecoder, TextOptions, text_schema};
use crate::decode::{Decoder, DecoderSettings};
use crate::format::FileFormat;
use arrow::datatypes::SchemaRef;
use pelton_core::{Error, Interval, MalformedPolicy, Result};
use std::sync::Arc;

/// A file source as the pipeline file has it. Names are Spark's in snake case.
#[derive(Debug, Clone, PartialEq)]
pub struct FileSourceOptions {
    /// Files, directories or glob patterns: local paths, `file://` or the URLs of object stores. Relative local
    /// paths start at the working directory.
    pub paths: Vec<String>,
    /// The format of all files.
    pub format: FileFormat,
    /// The format's own options.
    pub options: OptionMap,
    /// The declared columns, those from `key=value` directories included.
    pub schema: Option<SchemaRef>,
    /// Without declared columns: look into the files that are there at the first start.
    pub infer_schema: bool,
    /// What becomes of a record that does not decode. A damaged Parquet file always fails the query.
    pub on_malformed: MalformedPolicy,
    /// The session's time zone.
    pub time_zone: String,
    /// Files in a micro-batch, at most. Not together with `max_bytes_per_trigger`.
    pub max_files_per_trigger: Option<u64>,
    /// Bytes of files in a micro-batch, at most; at least one file is taken.
    pub max_bytes_per_trigger: Option<u64>,
    /// The newest files come first. With a limit, `max_file_age` does not count then.
    pub latest_first: bool,
    /// A file is known by its name alone, whatever directory it is in.
    pub file_name_only: bool,
    /// Files that are older than the newest file seen by more than this are not read. It bounds the memory
    /// of the files seen.
    pub max_file_age: Interval,
    /// Read all directories below, and make no columns of `key=value` ones. Spark's `recursiveFileLookup`.
    pub recursive: bool,
}

impl FileSourceOptions {
    /// A source of these paths with Spark's defaults.
    pub fn new(paths: impl IntoIterator<Item = impl Into<String>>, format: FileFormat) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            format,
            options: OptionMap::new(),
            schema: None,
            infer_schema: false,
            on_malformed: MalformedPolicy::default(),
            time_zone: "UTC".into(),
            max_files_per_trigger: None,
            max_bytes_per_trigger: None,
            latest_first: false,
            file_name_only: false,
            max_file_age: Interval::from_millis(7 * 24 * 3600 * 1000),
            recursive: false,
        }
    }

    /// What can be said to be wrong without looking at any file. The error is of kind `Invalid`.
    pub fn check(&self) -> Result<FormatOptions> {
        if self.paths.is_empty() {
            return Err(Error::invalid("a file source needs a path"));
        }
        if self.max_files_per_trigger.is_some() && self.max_bytes_per_trigger.is_some() {
            return Err(Error::invalid("max_files_per_trigger and max_bytes_per_trigger exclude each other"));
        }
        for (name, limit) in [
            ("max_files_per_trigger", self.max_files_per_trigger),
            ("max_bytes_per_trigger", self.max_bytes_per_trigger),
        ] {
            if limit == Some(0) {
                return Err(Error::invalid(format!("{name} must be at least 1")));
            }
        }
        if self.max_file_age.as_micros() < 0 {
            return Err(Error::invalid(format!(
                "max_file_age must not be negative, not {}",
                self.max_file_age
            )));
        }
        let format = FormatOptions::read(self.format, &self.options)?;
        match &format {
            FormatOptions::Avro(avro) => avro.check_files()?,
            FormatOptions::Protobuf(_) => {
                return Err(Error::invalid(
                    "format protobuf is one of messages: a file of them has no form of its own",
                )
                .hint("read files as json, csv, text, avro, parquet, arrow or raw"));
            }
            _ => {}
        }
        Ok(format)
    }
}

/// The options of the format, read.
#[derive(Debug, Clone)]
pub enum FormatOptions {
    /// Of `json`.
    Json(Box<JsonOptions>),
    /// Of `csv`.
    Csv(Box<CsvOptions>),
    /// Of `text`.
    Text(TextOptions),
    /// Of `parquet`, which has none.
    Parquet,
    /// Of `avro`.
    Avro(Box<AvroOptions>),
    /// Of `arrow`, which has none.
    Arrow,
    /// Of `protobuf`.
    Protobuf(Box<ProtobufOptions>),
    /// Of `raw`, which has none.
    Raw,
}

impl FormatOptions {
    /// Reads the options of a format. Unknown ones and wrong types are errors of kind `Invalid`.
    pub fn read(format: FileFormat, map: &OptionMap) -> Result<Self> {
        Ok(match format {
            FileFormat::Json => Self::Json(Box::new(JsonOptions::from_map(map)?)),
            FileFormat::Csv => Self::Csv(Box::new(CsvOptions::from_map(map)?)),
            FileFormat::Text => Self::Text(TextOptions::from_map(map)?),
            FileFormat::Parquet => {
                check_parquet_options(map)?;
                Self::Parquet
            }
            FileFormat::Avro => Self::Avro(Box::new(AvroOptions::from_map(map)?)),
            FileFormat::Arrow => {
                check_arrow_options(map)?;
                Self::Arrow
            }
            FileFormat::Protobuf => Self::Protobuf(Box::new(ProtobufOptions::from_map(map)?)),
            FileFormat::Raw => {
                check_raw_options(map)?;
                Self::Raw
            }
        })
    }

    /// The decoder of records that come one by one. A format that only files have is refused.
    pub fn record_decoder(&self, settings: &DecoderSettings) -> Result<Arc<dyn Decoder>> {
        Ok(match self {
            Self::Json(json) => Arc::new(JsonDecoder::new(settings, json)?),
            Self::Csv(csv) => Arc::new(CsvDecoder::new(settings, csv)?),
            Self::Text(text) => Arc::new(TextDecoder::new(settings, text)?),
            Self::Avro(avro) => Arc::new(AvroDecoder::of_records(settings, avro)?),
            Self::Arrow => Arc::new(ArrowDecoder::new(settings)?),
            Self::Protobuf(protobuf) => Arc::new(ProtobufDecoder::new(settings, protobuf)?),
            Self::Raw => Arc::new(RawDecoder::new(settings)?),
            Self::Parquet => return Err(Error::invalid("format parquet is one of files, not of messages")),
        })
    }

    /// The columns that the format itself gives: the one of text and raw, those of an Avro or protobuf schema. Nothing, if
    /// they must be declared.
    pub(crate) fn own_schema(&self, time_zone: &str) -> Result<Option<SchemaRef>> {
        Ok(match self {
            Self::Text(_) => Some(text_schema()),
            Self::Raw => Some(raw_schema()),
            Self::Avro(avro) => avro.columns(time_zone)?.map(Arc::new),
            Self::Protobuf(protobuf) => Some(Arc::new(protobuf.columns(time_zone)?)),
            Self::Json(_) | Self::Csv(_) | Self::Parquet | Self::Arrow => None,
        })
    }

    /// The columns of the records of a topic, if they need not be declared; a schema registry is asked for the newest
    /// schema of its subject.
    pub async fn record_schema(&self, time_zone: &str, topic: &str) -> Result<Option<SchemaRef>> {
        match self {
            Self::Avro(avro) => Ok(avro.columns_of_topic(time_zone, topic).await?.map(Arc::new)),
            _ => self.own_schema(time_zone),
        }
    }
}
