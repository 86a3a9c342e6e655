//! The sink of a pipeline file to core's `Sink`.

use super::Plugins;
use super::kafka;
use super::plugins::placed;
use super::source::{file_format, format_options};
use pelton_checkpoint::files::open_url;
use pelton_connectors::sink::console::{ConsoleFormat, ConsoleOptions, ConsoleSink};
use pelton_connectors::sink::file::{FileSink, FileSinkOptions, Rollover};
use pelton_connectors::sink::memory::MemorySink;
use pelton_connectors::sink::{KafkaSink, PluginSink, PostgresSink, PostgresSinkOptions};
use pelton_core::{Error, Result, Sink, SinkFunction};
use pelton_plan::file::{self as spec, SinkSpec};
use pelton_plan::{PhysicalPlan, PipelineFile};
use std::sync::Arc;

/// Rows that a memory sink keeps at most.
const MEMORY_ROWS_MAX: u64 = 10_000_000;

/// The variable that holds the password of a database whose URL has none, as PostgreSQL's own programs have it.
const PASSWORD_VARIABLE: &str = "PGPASSWORD";

/// Makes the sink and checks that it can take the plan's rows. It writes nothing yet.
pub(crate) fn open(file: &PipelineFile, plan: &PhysicalPlan, plugins: &Plugins) -> Result<Arc<dyn Sink>> {
    let here = |error: Error| error.context(format_args!("{}: sink", file.text().name()));
    Ok(match &file.sink {
        SinkSpec::Console(sink) => {
            let options = console_options(sink);
            options.check(&plan.schema).map_err(here)?;
            Arc::new(ConsoleSink::new(Box::new(std::io::stdout()), options))
        }
        SinkSpec::File(sink) => {
            let options = file_options(sink);
            options.check(&plan.schema).map_err(here)?;
            Arc::new(FileSink::new(open_url(&sink.path.value).map_err(here)?, options))
        }
        SinkSpec::Kafka(sink) => {
            let opened = KafkaSink::new(kafka::sink_options(file, sink)?).map_err(here)?;
            opened.check(&plan.schema).map_err(here)?;
            Arc::new(opened)
        }
        SinkSpec::Memory(_) => Arc::new(MemorySink::new(MEMORY_ROWS_MAX)),
        SinkSpec::Plugin(sink) => Arc::new(plugin_sink(file, sink, plan, plugins)?),
        SinkSpec::Postgres(sink) => {
            let opened = PostgresSink::new(postgres_options(sink)).map_err(here)?;
            opened.check(&plan.schema, plan.output_mode).map_err(here)?;
            Arc::new(opened)
        }
    })
}

/// The sink of a run whose first micro-batch was begun with other plugins.
pub(crate) fn for_rerun(
    file: &PipelineFile,
    sink: Arc<dyn Sink>,
    (plan, plugins): (&PhysicalPlan, &Plugins),
    then: &(PhysicalPlan, Plugins),
) -> Result<Arc<dyn Sink>> {
    let SinkSpec::Plugin(spec) = &file.sink else { return Ok(sink) };
    let then = sink_function(file, spec, &then.0, &then.1)?;
    Ok(Arc::new(plugin_sink(file, spec, plan, plugins)?.with_rerun(then)))
}

fn plugin_sink(
    file: &PipelineFile,
    sink: &spec::PluginSink,
    plan: &PhysicalPlan,
    plugins: &Plugins,
) -> Result<PluginSink> {
    Ok(PluginSink::new(sink.plugin.value.clone(), sink_function(file, sink, plan, plugins)?))
}

/// The plan has found out that there is such a function.
fn sink_function(
    file: &PipelineFile,
    sink: &spec::PluginSink,
    plan: &PhysicalPlan,
    plugins: &Plugins,
) -> Result<Arc<dyn SinkFunction>> {
    let named = &sink.plugin.value;
    let opened = named.split_once('.').and_then(|(plugin, function)| Some((plugins.get(plugin)?, function)));
    let (plugin, function) =
        opened.ok_or_else(|| Error::internal(format!("the sink function '{named}' is not loaded")))?;
    plugin
        .sink(function, Arc::clone(&plan.schema), plan.output_mode)
        .map_err(|error| placed(file, sink.plugin.span, error))
}

fn postgres_options(sink: &spec::PostgresSink) -> PostgresSinkOptions {
    PostgresSinkOptions {
        url: sink.url.value.clone(),
        password: std::env::var(PASSWORD_VARIABLE).ok(),
        table: sink.table.value.clone(),
        key: sink.key.iter().map(|column| column.value.clone()).collect(),
        create_table: sink.create_table,
    }
}

fn console_options(sink: &spec::ConsoleSink) -> ConsoleOptions {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    ConsoleOptions {
        format: match sink.format {
            spec::ConsoleFormat::Table => ConsoleFormat::Table,
            spec::ConsoleFormat::Json => ConsoleFormat::Json,
            spec::ConsoleFormat::Csv => ConsoleFormat::Csv,
            spec::ConsoleFormat::Text => ConsoleFormat::Text,
        },
        options: format_options(&sink.options),
        num_rows: number(sink.num_rows),
        truncate: sink.truncate.width().map(number),
    }
}

fn rollover(rule: &spec::Rollover) -> Rollover {
    let default = Rollover::default();
    Rollover {
        size_bytes: rule.size.map_or(default.size_bytes, |size| size.0),
        interval_ms: rule.interval.map_or(default.interval_ms, |wait| wait.interval().as_millis()),
    }
}

fn file_options(sink: &spec::FileSink) -> FileSinkOptions {
    FileSinkOptions {
        format: file_format(sink.format),
        options: format_options(&sink.options),
        partition_by: sink.partition_by.iter().map(|column| column.value.clone()).collect(),
        max_records_per_file: sink.max_records_per_file.as_ref().map(|limit| limit.value),
        rollover: sink.rollover.as_ref().map(|rule| rollover(&rule.value)),
    }
}
