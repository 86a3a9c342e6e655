//! The queries of this process: what they do, what they have done lately, and how they are asked to end.
//!
//! `run` makes it and tells it what happens; the engine's listeners write into it once a micro-batch, so all that is
//! done there is counting and copying. The server reads it when somebody asks.

use super::failure::Failure;
use super::status::QueryState;
use super::totals::Totals;
use crate::runner::QueryRunner;
use pelton_core::{BatchId, Clock, Error, Plugin, QueryId, Result, RunId};
use pelton_engine::{Phase, Progress, Query, RunControl, RunEnd, RunSummary, SystemClock, Waits};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio_util::sync::CancellationToken;

/// As many micro-batches are remembered. Spark's `spark.sql.streaming.numRecentProgressUpdates`.
pub(crate) const RECENT_MAX: usize = 100;

/// All queries, in the order of the command line. Which they are never changes.
pub(crate) struct Registry {
    pub(crate) started_ms: i64,
    queries: Vec<Arc<Running>>,
}

impl Registry {
    /// For queries of these names, remembered there; each can be ended by itself, and all of them by `control`.
    pub(crate) fn new(
        queries: impl IntoIterator<Item = (String, Option<String>)>,
        control: &RunControl,
    ) -> Self {
        let queries = queries.into_iter();
        let queries = queries.map(|(name, checkpoint)| Arc::new(Running::new(name, checkpoint, control)));
        Self { started_ms: SystemClock.now_ms(), queries: queries.collect() }
    }

    /// In their order.
    pub(crate) fn queries(&self) -> &[Arc<Running>] {
        &self.queries
    }
}

/// A query of this process, from its planning to the end of the process.
pub(crate) struct Running {
    /// The pipeline file's `name`.
    pub(crate) name: String,
    /// Where it is remembered.
    pub(crate) checkpoint: Option<String>,
    /// Asks it to end.
    pub(crate) control: RunControl,
    /// It has ended and has let go of its checkpoint.
    pub(crate) ended: CancellationToken,
    /// Whoever swaps its plugins; not there before it has started.
    runner: OnceLock<Arc<QueryRunner>>,
    /// What it waits for.
    waits: Mutex<Waits>,
    seen: Mutex<Seen>,
}

/// What was told of a query.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) state: QueryState,
    pub(crate) since_ms: i64,
    pub(crate) ids: Option<(QueryId, RunId)>,
    pub(crate) running_batch: Option<BatchId>,
    pub(crate) last_committed: Option<BatchId>,
    /// Of this run; the newest last.
    pub(crate) recent: VecDeque<Committed>,
    pub(crate) totals: Totals,
    pub(crate) plugins: BTreeMap<String, Arc<dyn Plugin>>,
    pub(crate) failure: Option<Failure>,
}

/// A micro-batch that is done.
#[derive(Clone)]
pub(crate) struct Committed {
    pub(crate) at_ms: i64,
    pub(crate) progress: Arc<Progress>,
}

impl Running {
    fn new(name: String, checkpoint: Option<String>, control: &RunControl) -> Self {
        let seen = Seen {
            state: QueryState::Starting,
            since_ms: SystemClock.now_ms(),
            ids: None,
            running_batch: None,
            last_committed: None,
            recent: VecDeque::new(),
            totals: Totals::default(),
            plugins: BTreeMap::new(),
            failure: None,
        };
        Self {
            name,
            checkpoint,
            control: RunControl { stop: control.stop.child_token(), abort: control.abort.child_token() },
            ended: CancellationToken::new(),
            runner: OnceLock::new(),
            waits: Mutex::default(),
            seen: Mutex::new(seen),
        }
    }

    /// It has started; this one swaps its plugins.
    pub(crate) fn run_by(&self, runner: Arc<QueryRunner>) {
        let _ = self.runner.set(runner);
    }

    /// Whoever swaps its plugins, once it has started.
    pub(crate) fn runner(&self) -> Option<Arc<QueryRunner>> {
        self.runner.get().cloned()
    }

    /// These are the plugins that it calls from now on.
    pub(crate) fn uses(&self, plugins: BTreeMap<String, Arc<dyn Plugin>>) {
        self.lock().plugins = plugins;
    }

    /// There it can be asked what it waits for.
    pub(crate) fn waits(&self, waits: Waits) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    /// What it waits for without being able to go on.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        waits.now()
    }

    /// It owns its checkpoint.
    pub(crate) fn opened(&self, query: &Query) {
        let mut seen = self.lock();
        seen.ids = Some((query.id().clone(), query.run_id().clone()));
        seen.last_committed = query.last_committed();
    }

    /// It does something else than before.
    pub(crate) fn phase(&self, phase: Phase) {
        let mut seen = self.lock();
        match phase {
            Phase::Waiting => seen.enter(QueryState::Waiting, None),
            Phase::Running { batch_id, is_rerun: false } => seen.enter(QueryState::Running, Some(batch_id)),
            Phase::Running { batch_id, is_rerun: true } => seen.enter(QueryState::Rerunning, Some(batch_id)),
        }
    }

    /// A micro-batch is done.
    pub(crate) fn committed(&self, progress: &Progress) {
        let committed = Committed { at_ms: SystemClock.now_ms(), progress: Arc::new(progress.clone()) };
        let mut seen = self.lock();
        seen.totals.add(progress);
        seen.last_committed = Some(progress.batch_id);
        if seen.recent.len() == RECENT_MAX {
            seen.recent.pop_front();
        }
        seen.recent.push_back(committed);
    }

    /// It is over; whoever waits for that is told. Comes after the checkpoint is free again.
    pub(crate) fn ended(&self, end: Result<&RunSummary, &Error>) {
        let mut seen = self.lock();
        let state = match end {
            Ok(RunSummary { end: RunEnd::Finished, .. }) => QueryState::Finished,
            Ok(RunSummary { end: RunEnd::Stopped, .. }) => QueryState::Stopped,
            // After a rollback it would have gone on.
            Ok(RunSummary { end: RunEnd::Aborted | RunEnd::RolledBack, .. }) => QueryState::Aborted,
            Err(_) => QueryState::Failed,
        };
        seen.enter(state, None);
        seen.failure = end.err().map(Failure::from);
        drop(seen);
        self.ended.cancel();
    }

    /// What it does.
    pub(crate) fn state(&self) -> QueryState {
        self.lock().state
    }

    /// All that was told, as it is now.
    pub(crate) fn seen(&self) -> Seen {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn enter(&mut self, state: QueryState, batch_id: Option<BatchId>) {
        self.state = state;
        self.since_ms = SystemClock.now_ms();
        self.running_batch = batch_id;
    }
}
