//! `pelton replay`: logged micro-batches once more, from the sources and on the state of their time, to look at what they
//! gave or to see what another build of a plugin would give. Reads the checkpoint without taking it and writes nothing.

mod shown;

use crate::assembly::{self, Assembly, Code, Replays, RunOptions};
use crate::cli::ReplayArgs;
use crate::compare::Differences;
use pelton_checkpoint::{CommitEntry, CommitLog, Metadata, OffsetEntry, OffsetLog, layouts};
use pelton_core::{BatchId, Error, FileManager, Result, StateStore};
use pelton_engine::Replayed;
use std::sync::Arc;

/// Runs the micro-batches and prints what they give.
pub(crate) fn run(arguments: &ReplayArgs) -> Result<()> {
    super::runtime(None)?.block_on(replay(arguments))
}

async fn replay(arguments: &ReplayArgs) -> Result<()> {
    let pipeline = arguments.of.pipeline();
    let files = assembly::read(&pipeline)?;
    let [file] = files.as_slice() else {
        return Err(Error::internal("a command for one pipeline file was given several"));
    };
    let assembly = Assembly::new(&pipeline, &files)?;
    let planned = assembly.plan(file, RunOptions::default()).await?;
    let is_stateful = !planned.plan().nodes.is_empty();
    let files = super::checkpoint::files_of(file).await?;
    let query_id = match Metadata::read(files.as_ref()).await? {
        Some(metadata) => {
            metadata.check_name(&file.name.value, &files.url())?;
            metadata.query_id
        }
        None => return Err(Error::internal("a checkpoint that was there is gone")),
    };
    let logs = Logs {
        offsets: OffsetLog::new(Arc::clone(&files)),
        commits: CommitLog::new(Arc::clone(&files)),
        files: Arc::clone(&files),
    };
    let batches = logs.batches(arguments, is_stateful).await?;
    let replays = Replays::new(&assembly, file, planned, &files, query_id);
    let mut session = Session { arguments, logs, replays };
    for batch_id in batches {
        session.replay(batch_id).await?;
    }
    Ok(())
}

/// The logs of the query.
struct Logs {
    files: Arc<dyn FileManager>,
    offsets: OffsetLog,
    commits: CommitLog,
}

/// What the logs say of a micro-batch.
struct Logged {
    batch_id: BatchId,
    entry: OffsetEntry,
    /// That it is done, if it is.
    commit: Option<CommitEntry>,
    /// That the one before is: where the state before it lies.
    before: Option<CommitEntry>,
}

struct Session<'a> {
    arguments: &'a ReplayArgs,
    logs: Logs,
    replays: Replays<'a>,
}

impl Logs {
    /// The micro-batches that are asked for, if all of them can be run again.
    async fn batches(&self, arguments: &ReplayArgs, is_stateful: bool) -> Result<Vec<BatchId>> {
        let (planned, done) = (self.offsets.ids().await?, self.commits.ids().await?);
        let has_state = |id: &BatchId| id.0 == 0 || done.contains(&BatchId(id.0 - 1));
        let there: Vec<BatchId> = planned.into_iter().filter(|id| !is_stateful || has_state(id)).collect();
        let (Some(first), Some(last)) = (there.first(), there.last()) else {
            return Err(Error::invalid(format!(
                "the checkpoint {} has no micro-batch that can be replayed",
                self.files.url()
            )));
        };
        let wanted = arguments.batches.clone().unwrap_or(last.0..=last.0);
        match wanted.clone().map(BatchId).find(|id| !there.contains(id)) {
            None => Ok(wanted.map(BatchId).collect()),
            Some(missing) => {
                let why = match missing > *last {
                    true => "has not run yet",
                    false => "is no longer remembered",
                };
                Err(Error::invalid(format!(
                    "micro-batch {missing} cannot be replayed: it {why} in the checkpoint {}",
                    self.files.url()
                ))
                .hint(format!(
                    "micro-batches {first} to {last} can be replayed; min_batches_to_retain says how many are kept"
                )))
            }
        }
    }

    async fn read(&self, batch_id: BatchId) -> Result<Logged> {
        let before = match batch_id.0.checked_sub(1) {
            Some(before) => self.commits.get(BatchId(before)).await?,
            None => None,
        };
        let (entry, commit) = (self.offsets.expect(batch_id).await?, self.commits.get(batch_id).await?);
        Ok(Logged { batch_id, entry, commit, before })
    }
}

impl Session<'_> {
    async fn replay(&mut self, batch_id: BatchId) -> Result<()> {
        let logged = self.logs.read(batch_id).await?;
        let digests = &logged.entry.plugins;
        let given = self.replays.given(digests, self.arguments.compare);
        let with_given = self.run(&logged, &given).await;
        if !self.arguments.compare {
            let replayed =
                with_given.map_err(|failed| failed.context(format_args!("micro-batch {batch_id}")))?;
            return shown::replayed(self.arguments, &logged, &replayed);
        }
        let as_logged = self.run(&logged, digests).await;
        let as_logged = as_logged
            .map_err(|e| e.context(format_args!("micro-batch {batch_id}, with the plugins it ran with")))?;
        let with_given = with_given
            .map_err(|e| e.context(format_args!("micro-batch {batch_id}, with the given plugins")))?;
        let rows = Differences::of_rows(&as_logged.rows, &with_given.rows, &self.arguments.key)?;
        let letters = Differences::of_dead_letters(&as_logged.dead_letters, &with_given.dead_letters)?;
        shown::compared(self.arguments, &logged, &rows, &letters, given == *digests)
    }

    async fn run(&mut self, logged: &Logged, digests: &assembly::Digests) -> Result<Replayed> {
        let code = self.replays.code(logged.batch_id, digests).await?;
        let state = self.state(logged, &code).await?;
        code.replay.run(logged.batch_id, &logged.entry, state).await
    }

    /// The state that the micro-batch before left, if the query keeps any and can read it.
    async fn state(&self, logged: &Logged, code: &Code) -> Result<Option<Box<dyn StateStore>>> {
        if !code.replay.is_stateful() {
            return Ok(None);
        }
        let before = logged.before.as_ref();
        let then = match before.and_then(|commit| commit.layout.as_ref()) {
            Some(id) => layouts::load(self.logs.files.as_ref(), id).await?,
            None => Vec::new(),
        };
        for now in &code.layouts {
            let anew = logged.entry.reset.contains(&now.name);
            let then = then.iter().find(|then| then.name == now.name && !then.set_aside && !anew);
            if let Some(then) = then.filter(|then| !super::state::is_read_as(then, now)) {
                return Err(Error::invalid(format!(
                    "the state of '{}' before micro-batch {} is not the one that the pipeline file describes\n  \
                     checkpoint: {then}\n  pipeline: {now}",
                    now.name, logged.batch_id
                ))
                .hint("give the pipeline file with which the query ran then"));
            }
        }
        self.replays.state(before.and_then(|commit| commit.state.as_ref())).await.map(Some)
    }
}
