//! The formats of files and messages, by their names. Which of them a source, a table or a sink can use is said there.

use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use std::str::FromStr;

/// What rows look like as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileFormat {
    /// JSON objects: one a line, or a message.
    #[default]
    Json,
    /// Comma-separated values.
    Csv,
    /// Lines of text, or whole files.
    Text,
    /// Apache Parquet.
    Parquet,
    /// Apache Avro: container files, or records with a schema.
    Avro,
    /// Arrow IPC.
    Arrow,
    /// Protobuf messages.
    Protobuf,
    /// Records or files as they are.
    Raw,
}

impl FileFormat {
    const ALL: [Self; 8] = [
        Self::Json,
        Self::Csv,
        Self::Text,
        Self::Parquet,
        Self::Avro,
        Self::Arrow,
        Self::Protobuf,
        Self::Raw,
    ];

    /// The word in the pipeline file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Text => "text",
            Self::Parquet => "parquet",
            Self::Avro => "avro",
            Self::Arrow => "arrow",
            Self::Protobuf => "protobuf",
            Self::Raw => "raw",
        }
    }
}

impl FromStr for FileFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == text).ok_or_else(|| {
            let near = did_you_mean(text, Self::ALL.map(Self::as_str));
            Error::invalid(format!("there is no format '{text}'{near}"))
        })
    }
}
