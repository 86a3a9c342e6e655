//! The sink of a pipeline file to core's `Sink`.

use super::source::format_options;
use pelton_checkpoint::files::open_url;
use pelton_connectors::encode::FileFormat;
use pelton_connectors::sink::console::{ConsoleFormat, ConsoleOptions, ConsoleSink};
use pelton_connectors::sink::file::{FileSink, FileSinkOptions};
use pelton_connectors::sink::memory::MemorySink;
use pelton_core::{Result, Sink};
use pelton_plan::file::{self as spec, SinkSpec};
use pelton_plan::{PhysicalPlan, PipelineFile};
use std::sync::Arc;

/// Rows that a memory sink keeps at most.
const MEMORY_ROWS_MAX: u64 = 10_000_000;

/// Makes the sink and checks that it can take the plan's rows. It writes nothing yet.
pub(crate) fn open(file: &PipelineFile, plan: &PhysicalPlan) -> Result<Arc<dyn Sink>> {
    Ok(match &file.sink {
        SinkSpec::Console(sink) => {
            Arc::new(ConsoleSink::new(Box::new(std::io::stdout()), console_options(sink)))
        }
        SinkSpec::File(sink) => {
            let options = file_options(sink);
            let here =
                |error: pelton_core::Error| error.context(format_args!("{}: sink", file.text().name()));
            options.check(&plan.schema).map_err(here)?;
            Arc::new(FileSink::new(open_url(&sink.path.value).map_err(here)?, options))
        }
        SinkSpec::Memory(_) => Arc::new(MemorySink::new(MEMORY_ROWS_MAX)),
    })
}

fn console_options(sink: &spec::ConsoleSink) -> ConsoleOptions {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    ConsoleOptions {
        format: match sink.format {
            spec::ConsoleFormat::Table => ConsoleFormat::Table,
            spec::ConsoleFormat::Json => ConsoleFormat::Json,
        },
        num_rows: number(sink.num_rows),
        truncate: sink.truncate.width().map(number),
    }
}

fn file_options(sink: &spec::FileSink) -> FileSinkOptions {
    FileSinkOptions {
        format: match sink.format {
            spec::FileFormat::Json => FileFormat::Json,
            spec::FileFormat::Csv => FileFormat::Csv,
            spec::FileFormat::Parquet => FileFormat::Parquet,
            spec::FileFormat::Text => FileFormat::Text,
        },
        options: format_options(&sink.options),
        partition_by: sink.partition_by.iter().map(|column| column.value.clone()).collect(),
        max_records_per_file: sink.max_records_per_file.as_ref().map(|limit| limit.value),
    }
}
