//! The options of sources that rows are sent to: `http`, `socket`, `stdin`.

use super::source::{file_format, format_options};
use arrow::datatypes::SchemaRef;
use pelton_connectors::source::line::LinesFrom;
use pelton_connectors::source::{HttpSourceOptions, LineOptions, LineSource, LineSourceOptions};
use pelton_core::{Error, MalformedPolicy, Result, Source};
use pelton_plan::PipelineFile;
use pelton_plan::file::{self as spec, SourceSpec};

/// The variable that holds an HTTP source's token, unless the file names another.
const TOKEN_VARIABLE: &str = "PELTON_HTTP_TOKEN";

pub(super) fn http_options(file: &PipelineFile, source: &spec::HttpSource) -> Result<HttpSourceOptions> {
    let default = HttpSourceOptions::new(source.listen.value.clone());
    Ok(HttpSourceOptions {
        path: source.path.clone(),
        lines: lines(file, source.format, &source.options, source.schema.as_ref(), source.on_malformed)?,
        max_body_bytes: source.max_body.map_or(default.max_body_bytes, |size| size.0),
        max_backlog_bytes: source.max_backlog.map_or(default.max_backlog_bytes, |size| size.0),
        max_rows_per_trigger: source.max_rows_per_trigger.as_ref().map(|limit| limit.value),
        max_bytes_per_trigger: source.max_bytes_per_trigger.map(|limit| limit.0),
        token: token(file, source)?,
        ..default
    })
}

/// A variable that the file names must be set; the usual one need not.
fn token(file: &PipelineFile, source: &spec::HttpSource) -> Result<Option<String>> {
    let Some(named) = &source.token_env else { return Ok(std::env::var(TOKEN_VARIABLE).ok()) };
    std::env::var(&named.value).map(Some).map_err(|_| {
        let what = format!("the environment variable '{}' is not set", named.value);
        file.text().error(named.span, what).hint("set it to the token that requests must have")
    })
}

pub(super) fn socket_options(file: &PipelineFile, source: &spec::SocketSource) -> Result<LineSourceOptions> {
    Ok(LineSourceOptions {
        from: LinesFrom::Socket(format!("{}:{}", source.host.value, source.port)),
        lines: lines(file, source.format, &source.options, source.schema.as_ref(), source.on_malformed)?,
        include_timestamp: source.include_timestamp,
        max_rows_per_trigger: source.max_rows_per_trigger.as_ref().map(|limit| limit.value),
    })
}

pub(super) fn stdin_options(file: &PipelineFile, source: &spec::StdinSource) -> Result<LineSourceOptions> {
    Ok(LineSourceOptions {
        from: LinesFrom::Stdin,
        lines: lines(file, source.format, &source.options, source.schema.as_ref(), source.on_malformed)?,
        include_timestamp: source.include_timestamp,
        max_rows_per_trigger: source.max_rows_per_trigger.as_ref().map(|limit| limit.value),
    })
}

/// All columns of such a source.
pub(crate) fn columns_of_lines(file: &PipelineFile, source: &SourceSpec) -> Result<SchemaRef> {
    let options = match source {
        SourceSpec::Http(source) => LineSourceOptions {
            from: LinesFrom::Stdin,
            lines: lines(file, source.format, &source.options, source.schema.as_ref(), source.on_malformed)?,
            include_timestamp: false,
            max_rows_per_trigger: None,
        },
        SourceSpec::Socket(source) => socket_options(file, source)?,
        SourceSpec::Stdin(source) => stdin_options(file, source)?,
        other => return Err(Error::internal(format!("a {} source has no lines", other.connector()))),
    };
    Ok(LineSource::open("columns", &options)?.schema())
}

fn lines(
    file: &PipelineFile,
    format: spec::Format,
    options: &spec::FormatOptions,
    schema: Option<&spec::SchemaSpec>,
    on_malformed: MalformedPolicy,
) -> Result<LineOptions> {
    Ok(LineOptions {
        options: format_options(options),
        schema: schema.map(|schema| schema.schema(file.text(), file.time_zone())).transpose()?,
        on_malformed,
        time_zone: file.time_zone().to_owned(),
        ..LineOptions::new(file_format(format))
    })
}
