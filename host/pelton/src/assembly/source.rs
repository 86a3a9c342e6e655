//! The sources of a pipeline file to core's `Source`.

use super::feed;
use super::given::GivenSource;
use super::kafka;
use arrow::datatypes::SchemaRef;
use pelton_connectors::decode::options::OptionMap;
use pelton_connectors::source::file::{FileFormat, FileSource, FileSourceOptions};
use pelton_connectors::source::kafka::KafkaSource;
use pelton_connectors::source::rate::{RateSource, RateSourceOptions};
use pelton_connectors::source::{HttpSource, LineSource, Stores};
use pelton_core::{Error, FileManager, Result, Source};
use pelton_plan::PipelineFile;
use pelton_plan::file::{self as spec, SourceSpec};
use std::sync::Arc;

/// A source that may still be cut down to the columns that the plan reads.
pub(crate) enum OpenSource {
    File(Box<FileSource>),
    Kafka(Box<KafkaSource>),
    Rate(RateSource),
    Http(Box<HttpSource>),
    Lines(Box<LineSource>),
    /// A memory source: known by its columns, readable in a test script only.
    Memory(SchemaRef),
    Given(Box<dyn GivenSource>),
}

impl OpenSource {
    /// All columns.
    pub(crate) fn full_schema(&self) -> SchemaRef {
        match self {
            Self::File(source) => Arc::new(source.full_schema()),
            Self::Kafka(source) => source.full_schema(),
            Self::Rate(source) => source.schema(),
            Self::Http(source) => source.schema(),
            Self::Lines(source) => source.schema(),
            Self::Memory(schema) => schema.clone(),
            Self::Given(source) => source.full_schema(),
        }
    }

    /// Gives only these columns, if the source can leave out others.
    pub(crate) fn cut(self, columns: Option<&[String]>) -> Result<Arc<dyn Source>> {
        Ok(match (self, columns) {
            (Self::File(source), Some(columns)) => Arc::new(source.with_columns(columns)?),
            (Self::File(source), None) => Arc::new(*source),
            (Self::Kafka(source), Some(columns)) => Arc::new(source.with_columns(columns)?),
            (Self::Kafka(source), None) => Arc::new(*source),
            (Self::Rate(source), _) => Arc::new(source),
            (Self::Http(source), Some(columns)) => Arc::new(source.with_columns(columns)?),
            (Self::Http(source), None) => Arc::new(*source),
            (Self::Lines(source), Some(columns)) => Arc::new(source.with_columns(columns)?),
            (Self::Lines(source), None) => Arc::new(*source),
            (Self::Memory(_), _) => {
                return Err(Error::invalid("a memory source has rows in `pelton test` only")
                    .hint("give the source another connector, or run the pipeline from a test script"));
            }
            (Self::Given(source), columns) => source.cut(columns)?,
        })
    }
}

/// Opens a source whose own log is in `log`.
pub(crate) async fn open(
    file: &PipelineFile,
    name: &str,
    source: &SourceSpec,
    log: Arc<dyn FileManager>,
    stores: &Stores,
) -> Result<OpenSource> {
    Ok(match source {
        SourceSpec::File(source) => {
            let opened = FileSource::open(name, &file_options(file, source)?, log, stores).await?;
            OpenSource::File(Box::new(opened))
        }
        SourceSpec::Kafka(source) => {
            let options = kafka::source_options(file, name, source)?.with_found_schema().await?;
            OpenSource::Kafka(Box::new(KafkaSource::new(name, &options, log)?))
        }
        SourceSpec::Memory(source) => {
            OpenSource::Memory(source.schema.schema(file.text(), file.time_zone())?)
        }
        SourceSpec::Rate(source) => OpenSource::Rate(RateSource::new(&rate_options(file, source), log)?),
        SourceSpec::Http(source) => {
            let options = feed::http_options(file, source)?;
            OpenSource::Http(Box::new(HttpSource::open(name, &options, log)?))
        }
        SourceSpec::Socket(source) => {
            OpenSource::Lines(Box::new(LineSource::open(name, &feed::socket_options(file, source)?)?))
        }
        SourceSpec::Stdin(source) => {
            OpenSource::Lines(Box::new(LineSource::open(name, &feed::stdin_options(file, source)?)?))
        }
    })
}

/// A format, as the connectors call it.
pub(super) fn file_format(format: spec::Format) -> FileFormat {
    match format {
        spec::Format::Json => FileFormat::Json,
        spec::Format::Csv => FileFormat::Csv,
        spec::Format::Parquet => FileFormat::Parquet,
        spec::Format::Text => FileFormat::Text,
        spec::Format::Avro => FileFormat::Avro,
        spec::Format::Arrow => FileFormat::Arrow,
        spec::Format::Protobuf => FileFormat::Protobuf,
        spec::Format::Raw => FileFormat::Raw,
    }
}

fn file_options(file: &PipelineFile, source: &spec::FileSource) -> Result<FileSourceOptions> {
    let format = file_format(source.format);
    let schema =
        source.schema.as_ref().map(|schema| schema.schema(file.text(), file.time_zone())).transpose()?;
    let default = FileSourceOptions::new([source.path.value.clone()], format);
    Ok(FileSourceOptions {
        options: format_options(&source.options),
        schema,
        infer_schema: source.infer_schema,
        on_malformed: source.on_malformed,
        time_zone: file.time_zone().to_owned(),
        max_files_per_trigger: source.max_files_per_trigger.as_ref().map(|limit| limit.value),
        max_bytes_per_trigger: source.max_bytes_per_trigger.map(|limit| limit.0),
        latest_first: source.latest_first,
        file_name_only: source.file_name_only,
        max_file_age: source.max_file_age.map_or(default.max_file_age, spec::Duration::interval),
        recursive: source.recursive_file_lookup,
        ..default
    })
}

fn rate_options(file: &PipelineFile, source: &spec::RateSource) -> RateSourceOptions {
    let default = RateSourceOptions::default();
    RateSourceOptions {
        rows_per_second: source.rows_per_second.value,
        ramp_up_time: source.ramp_up_time.map_or(default.ramp_up_time, spec::Duration::interval),
        num_partitions: source.num_partitions.as_ref().map_or(default.num_partitions, |n| n.value),
        time_zone: file.time_zone().to_owned(),
    }
}

/// The options of a format as the connectors read them.
pub(crate) fn format_options(options: &spec::FormatOptions) -> OptionMap {
    let value = |value: &spec::OptionValue| match value {
        spec::OptionValue::Text(text) => text.as_str().into(),
        spec::OptionValue::Int(number) => (*number).into(),
        spec::OptionValue::Float(number) => (*number).into(),
        spec::OptionValue::Bool(flag) => (*flag).into(),
    };
    options.0.iter().map(|(name, option)| (name.clone(), value(&option.value))).collect()
}
