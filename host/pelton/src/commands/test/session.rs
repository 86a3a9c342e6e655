//! What outlives the query of a script (its files, what its sources hold, what its sink has), and the query while it
//! runs. `test` walks through the steps; the session does what they say.
//!
//! Nothing runs in the background: a step fires triggers itself, so a script does the same every time. A step runs
//! micro-batches until there is nothing more to do; with trigger `processing_time` one fires when the query starts
//! and one when the clock reaches the next.

use super::script::{Addition, Change, Pipeline, Script, SinkFault};
use super::sink::ScriptSink;
use super::source::{Additions, ScriptSource, schema_of};
use super::values;
use crate::assembly::{Assembly, Given, GivenSource, RunOptions};
use crate::cli::{PipelineArgs, ScriptArgs};
use crate::runner::{Observer, Prepared, QueryRunner, Swapped};
use arrow::datatypes::SchemaRef;
use pelton_checkpoint::layout;
use pelton_core::suggest::did_you_mean;
use pelton_core::words::counted;
use pelton_core::{
    BatchId, Clock, Error, ErrorKind, FileManager, ManualClock, MemoryFiles, QueryId, Result, Trigger,
};
use pelton_engine::{Progress, Query, RunControl, SwapKind, Turn, next_trigger_ms};
use pelton_plan::PipelineFile;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// More micro-batches than any step means to run.
const TURNS_MAX: usize = 100_000;

/// A micro-batch that ran and is committed.
pub(super) struct MicroBatch {
    pub(super) batch_id: u64,
    pub(super) schema: SchemaRef,
    pub(super) rows: Vec<Value>,
    pub(super) watermark: Option<String>,
    pub(super) no_data: bool,
    pub(super) late_rows: u64,
    pub(super) state_rows: u64,
    pub(super) dead_letters: u64,
}

impl MicroBatch {
    /// It had nothing to read and nothing to give.
    pub(super) fn is_quiet(&self) -> bool {
        self.no_data && self.rows.is_empty()
    }

    /// As `--print json` shows it.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "batch_id": self.batch_id,
            "rows": self.rows,
            "watermark": self.watermark,
            "no_data": self.no_data,
            "late_rows": self.late_rows,
            "state_rows": self.state_rows,
        })
    }

    /// A few lines for a person.
    pub(super) fn summary(&self) -> Vec<String> {
        const ROWS: usize = 20;
        let data = if self.no_data { "without data, " } else { "" };
        let watermark = self.watermark.as_deref().unwrap_or("none");
        let head = format!("{data}watermark {watermark}, {}", counted(self.rows.len() as u64, "row"));
        let rows = self.rows.iter().take(ROWS).map(|row| format!("  {row}"));
        let more = self.rows.len().saturating_sub(ROWS);
        let more = (more > 0).then(|| format!("  and {more} more"));
        [head].into_iter().chain(rows).chain(more).collect()
    }
}

/// Why the query is down.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
    hint: Option<String>,
}

impl Failure {
    pub(super) fn new(error: &Error) -> Self {
        let hint = error.hint_text().map(str::to_owned);
        Self { kind: error.kind(), message: error.message().to_owned(), hint }
    }

    /// As `--print json` shows it.
    pub(super) fn to_json(&self) -> Value {
        json!({"error": {"kind": self.kind.to_string(), "message": self.message}})
    }

    /// For a person.
    pub(super) fn lines(&self) -> Vec<String> {
        let message = self.message.lines().map(str::to_owned);
        let kind = format!("error ({}):", self.kind);
        [kind]
            .into_iter()
            .chain(message)
            .chain(self.hint.iter().map(|hint| format!("hint: {hint}")))
            .collect()
    }
}

/// Whether there is a query, and if not, why.
enum State {
    Running(Box<Running>),
    /// Its trigger has ended it, or it has not been started yet: whatever is added starts it again.
    Ended,
    /// A step has stopped it, or it has failed: it waits for `start` or `restart`.
    Down,
}

struct Running {
    of: Arc<QueryRunner>,
    /// None only while it is put together anew.
    query: Option<Query>,
    trigger: Trigger,
    next_trigger_ms: i64,
}

/// The world of one script.
pub(super) struct Session {
    assembly: Arc<Assembly>,
    additions: Additions,
    sink: Arc<ScriptSink>,
    checkpoint: Arc<MemoryFiles>,
    clock: Arc<ManualClock>,
    pipeline: Pipeline,
    file: PipelineFile,
    state: State,
    ran: Arc<Mutex<Vec<Result<MicroBatch>>>>,
}

impl Session {
    /// A session for a script whose pipeline is `file`. Nothing runs yet.
    pub(super) fn new(script: &Script, file: PipelineFile, given: &ScriptArgs) -> Result<Self> {
        let arguments = PipelineArgs {
            files: Vec::new(),
            set: Vec::new(),
            plugins: given.plugins.clone(),
            fresh_instances: given.fresh_instances,
        };
        let (additions, sink) = (Additions::new(script.rows_per_block), Arc::new(ScriptSink::default()));
        let checkpoint = Arc::new(MemoryFiles::new());
        let clock = Arc::new(ManualClock::new(script.start_ms));
        let of_sources = additions.clone();
        let given = Given {
            sources: Box::new(move |file, name, spec| {
                let source = ScriptSource::new(file, name, spec, of_sources.clone())?;
                Ok(Box::new(source) as Box<dyn GivenSource>)
            }),
            sink: Arc::<ScriptSink>::clone(&sink),
            clock: Arc::<ManualClock>::clone(&clock),
            checkpoint: Arc::<MemoryFiles>::clone(&checkpoint),
            query_id: QueryId("00000000-0000-0000-0000-000000000000".to_owned()),
        };
        Ok(Self {
            assembly: Arc::new(Assembly::new(&arguments, std::slice::from_ref(&file))?.with_given(given)),
            additions,
            sink,
            checkpoint,
            clock,
            pipeline: script.pipeline.clone(),
            file,
            state: State::Ended,
            ran: Arc::default(),
        })
    }

    /// The time zone in which times without one are meant.
    pub(super) fn time_zone(&self) -> &str {
        self.file.time_zone()
    }

    /// What has been committed since the last call.
    pub(super) fn take_ran(&mut self) -> Result<Vec<MicroBatch>> {
        std::mem::take(&mut *self.ran.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }

    /// Whether the query goes on by itself, so that it runs from the start of the script on. With a trigger that ends
    /// by itself it runs each time that something is added.
    pub(super) fn runs_on(&self) -> bool {
        matches!(Trigger::from(self.file.trigger), Trigger::AsFastAsPossible | Trigger::ProcessingTime(_))
    }

    /// Why a list of additions cannot be: an unknown source or column. The span is that of what is wrong.
    pub(super) fn check(&self, additions: &[Addition]) -> Result<(), (pelton_plan::file::Span, String)> {
        let sources = &self.file.sources.value;
        for addition in additions {
            let Some(spec) = sources.get(&addition.source) else {
                let near = did_you_mean(&addition.source, sources.keys().map(String::as_str));
                return Err((addition.span, format!("there is no source '{}'{near}", addition.source)));
            };
            let schema = schema_of(&self.file, &addition.source, spec)
                .map_err(|error| (addition.span, error.message().to_owned()))?;
            for row in addition.lists.iter().flatten() {
                let Value::Object(columns) = &row.value else { continue };
                if let Some(unknown) = columns.keys().find(|name| schema.field_with_name(name).is_err()) {
                    let near =
                        did_you_mean(unknown, schema.fields().iter().map(|field| field.name().as_str()));
                    let what = format!("the source '{}' has no column '{unknown}'{near}", addition.source);
                    return Err((row.span, what));
                }
            }
        }
        Ok(())
    }

    /// Gives rows to the sources and runs what there is to run.
    pub(super) async fn add(&mut self, additions: &[Addition]) -> Result<(), Failure> {
        self.keep(additions);
        match &self.state {
            State::Running(_) => self.run_until_idle().await,
            State::Ended => self.start(&[]).await,
            State::Down => Ok(()),
        }
    }

    fn keep(&self, additions: &[Addition]) {
        for addition in additions {
            addition.lists.iter().for_each(|rows| self.additions.add(&addition.source, rows));
        }
    }

    /// Ends the query as a graceful stop does.
    pub(super) fn stop(&mut self) {
        self.state = State::Down;
    }

    /// Ends the query, if it runs, and makes of its pipeline what the script says.
    pub(super) fn change(&mut self, change: &Change) -> Result<(), Failure> {
        self.state = State::Down;
        if change.pipeline.is_some() || !change.sets.is_empty() {
            self.pipeline = self.pipeline.changed(change);
            self.file = self.pipeline.read().map_err(|error| Failure::new(&error))?;
            self.sink.pipeline_changed();
        }
        Ok(())
    }

    /// Starts the query over what is left of the runs before, and runs what there is to run. `offline` came while it
    /// was down.
    pub(super) async fn start(&mut self, offline: &[Addition]) -> Result<(), Failure> {
        self.state = State::Down;
        self.keep(offline);
        self.state = self.started().await.map_err(|error| Failure::new(&error))?;
        self.run_until_idle().await
    }

    async fn started(&self) -> Result<State> {
        let options = RunOptions::default();
        let planned = self.assembly.plan(&self.file, options).await?;
        let (sink, ran) = (Arc::clone(&self.sink), Arc::clone(&self.ran));
        let kept = Box::new(Kept { sink, ran });
        let of = QueryRunner::new(Arc::clone(&self.assembly), self.file.clone(), options, kept);
        let query = Some(of.start(planned).await?);
        let trigger = Trigger::from(self.file.trigger);
        let next_trigger_ms = self.clock.now_ms();
        Ok(State::Running(Box::new(Running { of, query, trigger, next_trigger_ms })))
    }

    /// Swaps a plugin for the one in a file, in a micro-batch without data, then runs what there is to run. A version that
    /// is refused, or fails at once, is a failure of the step; the query goes on.
    pub(super) async fn swap(&mut self, plugin: &str, path: &Path) -> Result<(), Failure> {
        let prepared = match self.running() {
            Ok(running) => running.version(plugin, path).await,
            Err(down) => Err(down),
        };
        self.take_over(prepared).await
    }

    /// The same with the version before.
    pub(super) async fn rollback(&mut self, plugin: Option<&str>) -> Result<(), Failure> {
        let prepared = match self.running() {
            Ok(running) => running.of.prepared_rollback(plugin).await,
            Err(down) => Err(down),
        };
        self.take_over(prepared).await
    }

    fn running(&mut self) -> Result<&mut Running> {
        match &mut self.state {
            State::Running(running) => Ok(running),
            State::Ended | State::Down => {
                Err(Error::invalid("the query does not run, so nothing can be swapped in it"))
            }
        }
    }

    async fn take_over(&mut self, prepared: Result<Prepared>) -> Result<(), Failure> {
        let prepared = prepared.map_err(|error| Failure::new(&error))?;
        let swapped = match self.running() {
            Ok(running) => running.take_over(prepared).await,
            Err(down) => Err(down),
        };
        match swapped {
            Ok(()) => self.run_until_idle().await,
            Err(error) => Err(Failure::new(&error)),
        }
    }

    /// Moves the clock, then runs what there is to run.
    pub(super) async fn advance(&mut self, by_ms: i64) -> Result<(), Failure> {
        self.clock.advance(by_ms);
        match self.state {
            State::Running(_) => self.run_until_idle().await,
            State::Ended | State::Down => Ok(()),
        }
    }

    /// Fires the triggers whose time has come. After a failure the query is down.
    async fn run_until_idle(&mut self) -> Result<(), Failure> {
        let State::Running(running) = &mut self.state else { return Ok(()) };
        match running.fire(self.clock.now_ms()).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.state = State::Ended;
                Ok(())
            }
            Err(error) => {
                self.state = State::Down;
                Err(Failure::new(&error))
            }
        }
    }

    /// The sink fails in a micro-batch that is to come.
    pub(super) fn fail_sink(&self, fault: SinkFault) {
        self.sink.fail(fault);
    }

    /// Removes an entry of the commit log, as if the query had died before it wrote it.
    pub(super) async fn delete_commit(&self, batch_id: BatchId) -> Result<(), String> {
        if matches!(self.state, State::Running(_)) {
            return Err("the query runs; stop it before its commit log is touched".to_owned());
        }
        let path = layout::log_entry(layout::COMMITS, batch_id);
        let found = self.checkpoint.read(&path).await.map_err(|error| error.to_string())?;
        if found.is_none() {
            return Err(format!("micro-batch {batch_id} is not in the commit log"));
        }
        self.checkpoint.delete(&path).await.map_err(|error| error.to_string())
    }
}

/// Keeps what ran for the next `expect`.
struct Kept {
    sink: Arc<ScriptSink>,
    ran: Arc<Mutex<Vec<Result<MicroBatch>>>>,
}

impl Observer for Kept {
    fn progress(&self, committed: &Progress) {
        let batch = micro_batch(committed, &self.sink);
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
    }
}

impl Running {
    /// Whether the query goes on afterwards.
    async fn fire(&mut self, now_ms: i64) -> Result<bool> {
        match self.trigger {
            Trigger::Once | Trigger::AvailableNow => {
                let Some(query) = self.query.take() else { return Ok(false) };
                self.of.run(query, &RunControl::default()).await.0.map(|()| false)
            }
            Trigger::ProcessingTime(interval) if interval.as_millis() > 0 => {
                if now_ms >= self.next_trigger_ms {
                    self.next_trigger_ms = next_trigger_ms(now_ms, interval.as_millis());
                    if let Turn::RolledBack(_) = self.turn(false).await? {
                        self.turn(false).await?;
                    }
                }
                Ok(true)
            }
            Trigger::AsFastAsPossible | Trigger::ProcessingTime(_) => {
                for _ in 0..TURNS_MAX {
                    if self.turn(false).await? == Turn::Idle {
                        return Ok(true);
                    }
                }
                Err(Error::internal(format!(
                    "the query does not come to rest after {TURNS_MAX} micro-batches"
                )))
            }
        }
    }

    /// One turn; after a rollback the query is put together anew.
    async fn turn(&mut self, only_swaps: bool) -> Result<Turn> {
        let query = self.query.as_mut().ok_or_else(|| Error::internal("the script's query is gone"))?;
        let turn = if only_swaps { query.swap_once().await? } else { query.run_once().await? };
        if let Turn::RolledBack(_) = turn {
            let so_far = query.summary().clone();
            self.query = None;
            self.query = Some(self.of.start_again(so_far).await?);
        }
        Ok(turn)
    }

    async fn version(&self, plugin: &str, path: &Path) -> Result<Prepared> {
        let bytes = crate::plugins::read(path)?.into();
        self.of.prepared(plugin, bytes, SwapKind::Swap).await
    }

    async fn take_over(&mut self, prepared: Prepared) -> Result<()> {
        let Prepared { candidate, parts, .. } = prepared;
        let plugin = candidate.plugin.clone();
        let mut answer = self.of.swaps().offer(candidate);
        self.turn(true).await?;
        let outcome = answer.try_recv().map_err(|_| Error::internal("the swap was not answered"))??;
        Swapped::of(&plugin, outcome)?;
        self.of.took_over(parts);
        Ok(())
    }
}

fn micro_batch(progress: &Progress, sink: &ScriptSink) -> Result<MicroBatch> {
    let (schema, rows) = sink.rows(progress.batch_id);
    Ok(MicroBatch {
        batch_id: progress.batch_id.0,
        rows: values::rows(&rows)?,
        schema,
        watermark: progress.event_time.watermark.clone(),
        no_data: progress.no_data,
        late_rows: progress.num_late_rows,
        state_rows: progress.state_operators.iter().map(|operator| operator.num_rows_total).sum(),
        dead_letters: progress.num_dead_letters,
    })
}
