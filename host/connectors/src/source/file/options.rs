//! What the pipeline file says of a file source.

use crate::decode::csv::CsvOptions;
use crate::decode::json::JsonOptions;
use crate::decode::options::OptionMap;
use crate::decode::parquet::check_parquet_options;
use crate::decode::text::TextOptions;
use arrow::datatypes::SchemaRef;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Interval, MalformedPolicy, Result};

/// The formats that a file source reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// A JSON object on each line.
    Json,
    /// Fields with separators.
    Csv,
    /// Lines, or whole files.
    Text,
    /// Parquet.
    Parquet,
}

impl FileFormat {
    /// All names.
    pub const NAMES: [&str; 4] = ["json", "csv", "text", "parquet"];

    /// Reads a name. The error is of kind `Invalid`.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "json" => Ok(Self::Json),
            "csv" => Ok(Self::Csv),
            "text" => Ok(Self::Text),
            "parquet" => Ok(Self::Parquet),
            _ => Err(Error::invalid(format!(
                "there is no file format '{name}'{}",
                did_you_mean(name, Self::NAMES)
            ))),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Text => "text",
            Self::Parquet => "parquet",
        }
    }
}

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
        FormatOptions::read(self.format, &self.options)
    }
}

/// The options of the format, read.
#[derive(Debug, Clone, PartialEq)]
pub enum FormatOptions {
    /// Of `json`.
    Json(Box<JsonOptions>),
    /// Of `csv`.
    Csv(Box<CsvOptions>),
    /// Of `text`.
    Text(TextOptions),
    /// Of `parquet`, which has none.
    Parquet,
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
        })
    }
}
