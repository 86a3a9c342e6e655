//! Scripts over a query: add data, check the answer, stop, start, move the clock, expect a failure.
//! After Spark's `StreamTest`.

use super::{FileState, MemorySource, RecordingSink, SinkFault, rows_text};
use crate::{Logic, Progress, Query, QueryBuilder, Recovered, ResetState, Start, Turn};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::files::{Fault, FaultyFiles};
use pelton_core::{
    Clock, Error, ErrorKind, FileManager, ManualClock, MemoryFiles, PluginDigest, QueryId, Result, Trigger,
    WatermarkPolicy,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One line of a script.
#[derive(Clone)]
pub enum Action {
    /// Adds rows to an input (by its index); nothing runs yet.
    AddData(usize, Vec<RecordBatch>),
    /// Adds rows to a partition of an input.
    AddToPartition(usize, &'static str, Vec<RecordBatch>),
    /// Starts the query. With trigger `processing_time` the first trigger fires at once.
    StartStream,
    /// Ends the query as a graceful stop does.
    StopStream,
    /// Ends the query and starts it again.
    Restart,
    /// Runs micro-batches until there is nothing more to do.
    ProcessAllAvailable,
    /// Moves the clock; with trigger `processing_time` a trigger that this reaches fires once.
    AdvanceManualClock(i64),
    /// Processes all available, then compares everything that the sink has, in order.
    CheckAnswer(Vec<String>),
    /// Processes all available, then compares what the sink got since the last check.
    CheckNewAnswer(Vec<String>),
    /// Runs until the query fails and compares the error's kind and a part of its message. The query is gone then.
    ExpectFailure(ErrorKind, &'static str),
    /// The sink's next write fails.
    FailSink(SinkFault),
    /// Removes `commits/N` from the checkpoint, as a crash after the sink's write would have left it.
    DeleteCommit(u64),
    /// The n-th operation on the checkpoint's files from the next start on fails.
    FailFiles(Fault),
    /// From the next start on the query has these steps. A micro-batch that is run again still gets the older steps
    /// whose plugins its entry names.
    SetLogic(Logic),
}

/// [`Action::CheckAnswer`] from anything that is text.
pub fn check_answer<T: ToString>(rows: impl IntoIterator<Item = T>) -> Action {
    Action::CheckAnswer(rows.into_iter().map(|row| row.to_string()).collect())
}

/// [`Action::CheckNewAnswer`] from anything that is text.
pub fn check_new_answer<T: ToString>(rows: impl IntoIterator<Item = T>) -> Action {
    Action::CheckNewAnswer(rows.into_iter().map(|row| row.to_string()).collect())
}

/// More micro-batches than any script means to run.
const TURNS_MAX: usize = 100_000;

/// What outlives the query's process, and the query while it runs.
pub struct StreamTest {
    /// The inputs, by index.
    pub sources: Vec<MemorySource>,
    /// Where the rows go.
    pub sink: RecordingSink,
    /// The checkpoint's content.
    pub files: Arc<dyn FileManager>,
    /// The query's clock.
    pub clock: Arc<ManualClock>,
    /// What the queries have told of every micro-batch.
    progress: Arc<Mutex<Vec<Progress>>>,
    trigger: Trigger,
    no_data_batches: bool,
    watermark_policy: WatermarkPolicy,
    parallelism: usize,
    logics: Vec<Logic>,
    accept_changed_state: Vec<String>,
    reset_state: ResetState,
    fault: Option<Fault>,
    checked_rows: usize,
    next_trigger_ms: i64,
    query: Option<Query>,
}

impl StreamTest {
    /// A query named `test` with sources `s0`, `s1`, … of these schemas, trigger as fast as possible.
    pub fn new(inputs: impl IntoIterator<Item = SchemaRef>, logic: Logic) -> Self {
        Self {
            sources: inputs.into_iter().map(MemorySource::new).collect(),
            sink: RecordingSink::new(),
            files: Arc::new(MemoryFiles::new()),
            clock: Arc::new(ManualClock::new(0)),
            progress: Arc::default(),
            trigger: Trigger::AsFastAsPossible,
            no_data_batches: true,
            watermark_policy: WatermarkPolicy::Min,
            parallelism: 2,
            logics: vec![logic],
            accept_changed_state: Vec::new(),
            reset_state: ResetState::Nothing,
            fault: None,
            checked_rows: 0,
            next_trigger_ms: 0,
            query: None,
        }
    }

    /// Another trigger: as fast as possible or processing time (the others end by themselves: run those directly).
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.trigger = trigger;
        self
    }

    /// Whether micro-batches run without data (they do if not set). Counts from the next start on.
    pub fn set_no_data_batches(&mut self, enabled: bool) {
        self.no_data_batches = enabled;
    }

    /// The pipeline's watermark policy (min if not set). Counts from the next start on.
    pub fn set_watermark_policy(&mut self, policy: WatermarkPolicy) {
        self.watermark_policy = policy;
    }

    /// The operators that may go on with state that meant something else. Counts from the next start on.
    pub fn accept_changed_state(&mut self, operators: &[&str]) {
        self.accept_changed_state = operators.iter().map(|&name| name.to_owned()).collect();
    }

    /// The operators that begin with empty state. Counts from the next start on.
    pub fn reset_state(&mut self, reset: ResetState) {
        self.reset_state = reset;
    }

    /// What was told of every micro-batch so far, over all runs.
    pub fn progress(&self) -> Vec<Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Blocks processed at a time (2 if not set).
    #[must_use]
    pub fn parallelism(mut self, parallelism: usize) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// The running query.
    pub fn query(&self) -> Option<&Query> {
        self.query.as_ref()
    }

    /// Runs a script to its end, or to the first action that does not go as it should; the message names it.
    pub async fn run(&mut self, script: impl IntoIterator<Item = Action>) -> Result<(), String> {
        for (index, action) in script.into_iter().enumerate() {
            self.act(action).await.map_err(|why| format!("action {index}: {why}"))?;
        }
        Ok(())
    }

    async fn act(&mut self, action: Action) -> Result<(), String> {
        let text = |failed: Error| failed.to_string();
        match action {
            Action::AddData(input, rows) => self.sources[input].add(rows),
            Action::AddToPartition(input, partition, rows) => self.sources[input].add_to(partition, rows),
            Action::StartStream => self.start().await.map_err(text)?,
            Action::StopStream => self.query = None,
            Action::Restart => {
                self.query = None;
                self.start().await.map_err(text)?;
            }
            Action::ProcessAllAvailable => self.process_all().await.map_err(text)?,
            Action::AdvanceManualClock(by_ms) => self.advance(by_ms).await.map_err(text)?,
            Action::CheckAnswer(expected) => self.check(0, &expected).await?,
            Action::CheckNewAnswer(expected) => self.check(self.checked_rows, &expected).await?,
            Action::ExpectFailure(kind, part) => self.expect_failure(kind, part).await?,
            Action::FailSink(fault) => self.sink.fail_next(fault),
            Action::DeleteCommit(id) => self.files.delete(&format!("commits/{id}")).await.map_err(text)?,
            Action::FailFiles(fault) => self.fault = Some(fault),
            Action::SetLogic(logic) => self.logics.push(logic),
        }
        Ok(())
    }

    /// Starts the query over what is left of the runs before.
    async fn start(&mut self) -> Result<()> {
        let files: Arc<dyn FileManager> = match self.fault.take() {
            Some(fault) => Arc::new(FaultyFiles::new(Arc::clone(&self.files), Some(fault))),
            None => Arc::clone(&self.files),
        };
        let clock = Arc::clone(&self.clock);
        let start =
            Start { query_id: Some(QueryId("test-query".into())), ..Start::new("test", files, clock) };
        let recovered = start.recover().await?;
        let recorded = recovered.rerun_plugins().cloned();
        let state = self.open_state(&recovered).await?;
        let progress = Arc::clone(&self.progress);
        let mut builder = Query::builder(recovered)
            .sink(Arc::new(self.sink.clone()))
            .trigger(self.trigger)
            .no_data_batches(self.no_data_batches)
            .watermark_policy(self.watermark_policy)
            .accept_changed_state(self.accept_changed_state.clone())
            .reset_state(self.reset_state.clone())
            .on_progress(move |told| {
                progress.lock().unwrap_or_else(PoisonError::into_inner).push(told.clone());
            })
            .parallelism(self.parallelism);
        if let Some(state) = state {
            builder = builder.state(Box::new(state));
        }
        for (index, source) in self.sources.iter().enumerate() {
            builder = builder.input(format!("s{index}"), Arc::new(source.reopen()));
        }
        self.query = Some(self.with_logic(builder, recorded.as_ref())?.build().await?);
        if let Trigger::ProcessingTime(interval) = self.trigger {
            self.fire(interval.as_millis()).await?;
        }
        Ok(())
    }

    /// The state of the newest steps, if they have any.
    async fn open_state(&self, recovered: &Recovered) -> Result<Option<FileState>> {
        let commit = recovered.state_commit()?;
        let keeps_state = |logic: &Logic| !logic.dataflow.operators().is_empty();
        match commit.is_some() || self.logics.last().is_some_and(keeps_state) {
            true => FileState::open(recovered.checkpoint().state_files(), commit).await.map(Some),
            false => Ok(None),
        }
    }

    fn with_logic(
        &self,
        builder: QueryBuilder,
        recorded: Option<&BTreeMap<String, PluginDigest>>,
    ) -> Result<QueryBuilder> {
        let newest = self.logics.last().cloned().ok_or_else(|| Error::internal("the script has no steps"))?;
        let is = |logic: &Logic, name: &String, digest: &PluginDigest| {
            logic.plugins.get(name).is_some_and(|plugin| plugin.digest == *digest)
        };
        let ran = |logic: &&Logic| {
            recorded.is_none_or(|recorded| recorded.iter().all(|(name, digest)| is(logic, name, digest)))
        };
        match self.logics.iter().rev().find(ran) {
            Some(rerun) => Ok(builder.logic(newest).rerun_logic(rerun.clone())),
            None => Err(Error::internal("the script never had the plugins that the checkpoint names")),
        }
    }

    fn running(&mut self) -> Result<&mut Query> {
        self.query.as_mut().ok_or_else(|| Error::internal("the script has not started the query"))
    }

    async fn fire(&mut self, interval_ms: i64) -> Result<()> {
        self.next_trigger_ms = crate::trigger::next_trigger_ms(self.clock.now_ms(), interval_ms);
        self.running()?.run_once().await.map(|_| ())
    }

    async fn advance(&mut self, by_ms: i64) -> Result<()> {
        self.clock.advance(by_ms);
        match self.trigger {
            Trigger::ProcessingTime(interval)
                if self.query.is_some() && self.clock.now_ms() >= self.next_trigger_ms =>
            {
                self.fire(interval.as_millis()).await
            }
            _ => Ok(()),
        }
    }

    async fn process_all(&mut self) -> Result<()> {
        let query = self.running()?;
        for _ in 0..TURNS_MAX {
            match query.run_once().await? {
                Turn::Ran(_) => {}
                Turn::Idle => return Ok(()),
                Turn::RolledBack(_) => return Err(Error::internal("a script of this kind swaps nothing")),
            }
        }
        Err(Error::internal("the query does not come to rest"))
    }

    async fn check(&mut self, from: usize, expected: &[String]) -> Result<(), String> {
        if matches!(self.trigger, Trigger::AsFastAsPossible) && self.query.is_some() {
            self.process_all().await.map_err(|failed| failed.to_string())?;
        }
        let rows = rows_text(&self.sink.rows()).map_err(|failed| failed.to_string())?;
        self.checked_rows = rows.len();
        let got = rows.get(from..).unwrap_or_default();
        if got == expected {
            return Ok(());
        }
        Err(format!("the answer is not as expected\n  expected: {expected:?}\n  got:      {got:?}"))
    }

    async fn expect_failure(&mut self, kind: ErrorKind, part: &str) -> Result<(), String> {
        let outcome = match self.query {
            Some(_) => self.process_all().await,
            None => self.start().await,
        };
        self.query = None;
        match outcome {
            Err(failed) if failed.kind() == kind && failed.to_string().contains(part) => Ok(()),
            Err(failed) => Err(format!("expected an error of kind {kind} with '{part}', got {failed:?}")),
            Ok(()) => Err(format!("expected an error of kind {kind} with '{part}', but all went well")),
        }
    }
}
