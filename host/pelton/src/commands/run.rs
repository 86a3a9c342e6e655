//! `pelton run`: queries until they end or a signal comes.

mod line;
mod signals;

pub(crate) use line::above;

use crate::api::{Api, QueryState, Registry, Running};
use crate::assembly::{self, Assembly, Planned, RunOptions};
use crate::cli::{Reporting, RunArgs};
use crate::report::{self, say};
use crate::runner::{Observer, QueryRunner};
use crate::watch::Watch;
use line::ProgressLine;
use pelton_core::words::counted;
use pelton_core::{Error, Plugin, Result};
use pelton_engine::{Phase, Progress, Query, ResetState, RunControl, RunEnd, RunSummary, Waits};
use pelton_plan::PipelineFile;
use pelton_plan::file::SinkSpec;
use signals::EndedBy;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long threads may take to their end when all queries have come to theirs.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Plans all files before the first query starts; then they run side by side, and one that fails does not end the
/// others. The first failed query of the command line decides the exit code, then a signal that abandoned a micro-batch.
pub(crate) fn run(arguments: &RunArgs) -> Result<ExitCode> {
    let files = assembly::read(&arguments.pipeline)?;
    let assembly = Arc::new(Assembly::new(&arguments.pipeline, &files)?.with_reset(reset(arguments)));
    let options = RunOptions {
        trigger: arguments.trigger,
        batch: arguments.batch,
        threads: arguments.threads,
        rerun_with_current_plugins: arguments.rerun_with_current_plugins,
        rerun_with_current_tables: arguments.rerun_with_current_tables,
        goes_on: false,
    };
    let runtime = super::runtime(arguments.threads)?;
    let ended = runtime.block_on(async {
        let control = RunControl::default();
        let queries = files.iter().map(|file| (file.name.value.clone(), checkpoint_url(file, options)));
        let registry = Arc::new(Registry::new(queries, &control));
        let api = Api::start(&arguments.api, &registry)?;
        let mut planned = Vec::with_capacity(files.len());
        for (file, running) in files.iter().zip(registry.queries()) {
            let plan = assembly.plan(file, options).await?;
            running.uses(plan.plugins());
            planned.push(plan);
        }
        let ended_by = EndedBy::default();
        tokio::spawn(ended_by.clone().pass_on(control));
        if prints(&files) && super::stdout_was_closed() {
            tracing::warn!("stdout is closed: the rows that the sink `console` prints are lost");
        }
        let in_place = arguments.progress.is_none() && shows_lines(&files);
        let mut queries = Vec::with_capacity(files.len());
        for ((file, running), planned) in files.iter().zip(registry.queries()).zip(planned) {
            let line = in_place.then(ProgressLine::new);
            let (running_, progress) = (Arc::clone(running), how(arguments.progress));
            let told = Told { running: running_, progress, line: line.clone() };
            let runner = QueryRunner::new(Arc::clone(&assembly), file.clone(), options, Box::new(told));
            let watches = watches(&assembly, &runner, &planned);
            let query = tokio::select! {
                started = runner.start(planned) => started?,
                // What it waits for may never come.
                () = running.control.stop.cancelled() => {
                    running.ended(Ok(&RunSummary { end: RunEnd::Stopped, ..RunSummary::default() }));
                    continue;
                }
            };
            running.run_by(Arc::clone(&runner));
            for watch in watches {
                tokio::spawn(watch.run(Arc::clone(&runner)));
            }
            queries.push((running, (runner, query, line), assembly::letters_are_lost(file, options)));
        }
        let summary = how(arguments.summary);
        let runs = queries
            .into_iter()
            .map(|(running, query, letters_are_lost)| run_query(running, query, letters_are_lost, summary));
        let failed = futures::future::join_all(runs).await.into_iter().find_map(Result::err);
        if let Some(api) = api {
            api.close().await;
        }
        let aborted = registry.queries().iter().any(|running| running.state() == QueryState::Aborted);
        let signalled = aborted.then(|| ended_by.exit_code()).flatten();
        Ok(failed.map_or(signalled.unwrap_or(ExitCode::SUCCESS), |error| report::code_of(&error)))
    });
    // Whatever still waits for a reader or a cluster is waited for no longer.
    runtime.shutdown_timeout(AFTERMATH);
    ended
}

/// For those who ask where the query is remembered. That there is none, or none that can be, is told when it is planned.
fn checkpoint_url(file: &PipelineFile, options: RunOptions) -> Option<String> {
    let files = if options.batch { None } else { assembly::checkpoint(file).ok().flatten() };
    files.map(|files| files.url())
}

/// What a query does goes to whoever watches.
struct Told {
    running: Arc<Running>,
    progress: Reporting,
    line: Option<ProgressLine>,
}

impl Observer for Told {
    fn progress(&self, committed: &Progress) {
        self.running.committed(committed);
        match &self.line {
            Some(line) => line.show(committed),
            None => report_progress(self.progress, committed),
        }
    }
    fn phase(&self, phase: Phase) {
        self.running.phase(phase);
    }
    fn waits(&self, waits: Waits) {
        self.running.waits(waits);
    }
    fn opened(&self, query: &Query) {
        self.running.opened(query);
    }
    fn uses(&self, plugins: BTreeMap<String, Arc<dyn Plugin>>) {
        self.running.uses(plugins);
    }
}

fn reset(arguments: &RunArgs) -> ResetState {
    match (arguments.new_lineage, arguments.reset_state.is_empty()) {
        (true, _) => ResetState::Everything,
        (false, true) => ResetState::Nothing,
        (false, false) => ResetState::Operators(arguments.reset_state.iter().cloned().collect()),
    }
}

/// The plugins whose files are looked at while the query runs.
fn watches(assembly: &Assembly, running: &QueryRunner, planned: &Planned) -> Vec<Watch> {
    let file = running.file();
    let watched = file.plugins.iter().filter(|(_, spec)| spec.options().watch);
    let watch = |name: &String| {
        let (path, known) = (assembly.plugin_path(file, name)?, planned.written().digest(name)?);
        Some(Watch::new(name, path, known.clone()))
    };
    watched.filter_map(|(name, _)| watch(name)).collect()
}

async fn run_query(
    running: &Running,
    (runner, query, line): (Arc<QueryRunner>, Query, Option<ProgressLine>),
    letters_are_lost: bool,
    summary: Reporting,
) -> Result<()> {
    let name = running.name.as_str();
    let (ended, done) = runner.run(query, &running.control).await;
    let ended = match ended {
        // Whoever read the rows has seen enough.
        Err(error) if error.is_broken_pipe() => Ok(()),
        ended => ended,
    };
    line.iter().for_each(ProgressLine::clear);
    if ended.is_ok() && done.end == RunEnd::Aborted {
        warn_of_abort(running);
    }
    running.ended(match &ended {
        Ok(()) => Ok(&done),
        Err(failed) => Err(failed),
    });
    report_summary(summary, name, &done)?;
    if done.dead_letters > 0 && letters_are_lost {
        tracing::warn!(
            query = %name,
            "{} malformed, refused or poison, kept nowhere; give the query a `checkpoint:` or `dead_letters:`",
            counted(done.dead_letters, "row")
        );
    }
    // Told at once: the other queries may run on for ever.
    ended.inspect_err(report::print)
}

/// That a query was told to end at once, and what a new start does.
fn warn_of_abort(running: &Running) {
    let seen = running.seen();
    // Between the commit and the next micro-batch nothing is under way.
    let abandoned = seen.running_batch.filter(|batch| seen.last_committed != Some(*batch));
    let name = running.name.as_str();
    match (abandoned, &running.checkpoint) {
        (Some(batch), Some(_)) => {
            tracing::warn!(query = %name, "micro-batch {batch} is abandoned; a new start runs it again");
        }
        (Some(batch), None) => {
            tracing::warn!(query = %name, "micro-batch {batch} is abandoned; without a checkpoint a new start reads all anew");
        }
        (None, _) => tracing::warn!(query = %name, "ended at once; no micro-batch was under way"),
    }
}

/// Whether progress is a line that is rewritten: nothing else may write to the terminal meanwhile.
fn shows_lines(files: &[PipelineFile]) -> bool {
    std::io::stderr().is_terminal() && !(std::io::stdout().is_terminal() && prints(files))
}

/// Whether rows go to stdout.
fn prints(files: &[PipelineFile]) -> bool {
    files.iter().any(|file| matches!(file.sink, SinkSpec::Console(_)))
}

/// Words for a person, nothing for a program that did not ask.
fn how(wanted: Option<Reporting>) -> Reporting {
    let default = if std::io::stderr().is_terminal() { Reporting::Words } else { Reporting::None };
    wanted.unwrap_or(default)
}

fn report_progress(how: Reporting, progress: &Progress) {
    match how {
        Reporting::None => {}
        Reporting::Json => match serde_json::to_string(progress) {
            Ok(line) => say(line),
            Err(why) => tracing::warn!(%why, "progress could not be written"),
        },
        Reporting::Words => say(progress_words(progress)),
    }
}

fn progress_words(progress: &Progress) -> String {
    let lost: u64 = progress.sources.iter().map(|source| source.num_malformed_rows).sum();
    let losses = [
        (lost, "malformed"),
        (progress.num_refused_rows, "refused"),
        (progress.num_poison_rows, "poison"),
        (progress.num_late_rows, "late"),
    ];
    let losses: String =
        losses.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}")).collect();
    format!(
        "{} batch {}{}: {} in, {} out{losses}, {:.0} ms, {:.0} rows/s",
        progress.name,
        progress.batch_id,
        if progress.is_rerun { " (again)" } else { "" },
        counted(progress.num_input_rows, "row"),
        progress.sink.num_output_rows,
        progress.duration_ms.trigger_execution,
        progress.processed_rows_per_second,
    )
}

fn report_summary(how: Reporting, name: &str, summary: &RunSummary) -> Result<()> {
    match how {
        Reporting::None => {}
        Reporting::Json => {
            let broken = |why| Error::internal(format!("the summary cannot be written as JSON: {why}"));
            let mut value = serde_json::to_value(summary).map_err(broken)?;
            value["name"] = name.into();
            say(value);
        }
        Reporting::Words => say(summary_words(name, summary)),
    }
    Ok(())
}

fn summary_words(name: &str, summary: &RunSummary) -> String {
    let RunSummary { rows_in, rows_out, rows_malformed, rows_refused, rows_late, batches, seconds, .. } =
        summary;
    let poison = match summary.rows_poison {
        0 => String::new(),
        rows => format!("{rows} poison, "),
    };
    format!(
        "{name}: {} in, {rows_out} out, {rows_malformed} malformed, {rows_refused} refused, {poison}{rows_late} late, {}, \
         {seconds:.2} s",
        counted(*rows_in, "row"),
        counted(*batches, "micro-batch"),
    )
}
