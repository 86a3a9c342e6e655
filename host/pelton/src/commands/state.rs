//! `pelton state`: what a query's state holds, now or after an earlier micro-batch. Reads the checkpoint without taking
//! it, so it may be asked while the query runs; changes nothing.

use super::shown::{KeyFilter, Shown};
use crate::assembly::{self, Assembly, Planned, RunOptions};
use crate::cli::{StateArgs, StateCommand, StateShowArgs};
use pelton_checkpoint::{CommitEntry, CommitLog, layout, layouts};
use pelton_core::{BatchId, Error, FileManager, Result, StateLayout};
use pelton_operators::{show_state, state_layouts};
use pelton_state::CheckpointedStateStore;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Runs one of the commands.
pub(crate) fn run(command: &StateCommand) -> Result<()> {
    let runtime = super::runtime(None)?;
    match command {
        StateCommand::Ls(arguments) => runtime.block_on(list(arguments)),
        StateCommand::Show(arguments) => runtime.block_on(show(arguments)),
    }
}

/// The state after a committed micro-batch.
struct Stored {
    planned: Planned,
    batch_id: BatchId,
    /// As the run that wrote it described it.
    layouts: Vec<StateLayout>,
    state: CheckpointedStateStore,
}

async fn list(arguments: &StateArgs) -> Result<()> {
    let mut stored = open(arguments).await?;
    let now = state_layouts(stored.planned.plan())?;
    let mut shown = Shown::new(arguments.format, None, KeyFilter::default());
    for layout in &stored.layouts {
        let mut rows = 0_u64;
        if let Some(known) = now.iter().find(|now| now.name == layout.name && is_read_as(layout, now)) {
            show_state(stored.planned.plan(), &known.name, &mut stored.state, &mut |_, part| {
                rows += part.num_rows() as u64;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        shown.operator(layout, stored.batch_id, rows)?;
    }
    shown.finish()
}

async fn show(arguments: &StateShowArgs) -> Result<()> {
    let mut stored = open(&arguments.of).await?;
    let name = &arguments.operator;
    let now = state_layouts(stored.planned.plan())?;
    if let (Some(then), Some(now)) = (
        stored.layouts.iter().find(|layout| layout.name == *name),
        now.iter().find(|layout| layout.name == *name),
    ) && !is_read_as(then, now)
    {
        let batch = stored.batch_id;
        return Err(Error::invalid(format!(
            "the state of '{name}' after micro-batch {batch} is not the one that the pipeline file describes\n  \
             checkpoint: {then}\n  pipeline: {now}"
        ))
        .hint("give the pipeline file with which the query ran when it wrote that state"));
    }
    let filter = KeyFilter::new(&arguments.key);
    let mut shown = Shown::new(arguments.of.format, arguments.limit, filter);
    show_state(stored.planned.plan(), name, &mut stored.state, &mut |part, rows| shown.rows(part, &rows))?;
    shown.finish()
}

/// Whether entries written as `then` says can be read as `now` says: names of columns and their meaning are for people.
pub(super) fn is_read_as(then: &StateLayout, now: &StateLayout) -> bool {
    let types = |layout: &StateLayout| {
        let of = |columns: &[pelton_core::StateColumn]| {
            columns.iter().map(|column| column.data_type.clone()).collect::<Vec<_>>()
        };
        (of(&layout.keys), of(&layout.values))
    };
    then.kind == now.kind && then.form == now.form && types(then) == types(now)
}

async fn open(arguments: &StateArgs) -> Result<Stored> {
    let pipeline = arguments.of.pipeline();
    let files = assembly::read(&pipeline)?;
    let [file] = files.as_slice() else {
        return Err(Error::internal("a command for one pipeline file was given several"));
    };
    let assembly = Assembly::new(&pipeline, &files)?;
    let planned = assembly.plan(file, RunOptions::default()).await?;
    let checkpoint = super::checkpoint::files_of(file).await?;
    let (batch_id, commit) = commit(&checkpoint, arguments.batch.map(BatchId)).await?;
    let Some(state) = &commit.state else {
        return Err(Error::invalid(format!(
            "the query '{}' kept no state in micro-batch {batch_id}",
            file.name.value
        )));
    };
    let layouts = match &commit.layout {
        Some(id) => layouts::load(checkpoint.as_ref(), id).await?,
        None => state_layouts(planned.plan())?,
    };
    let (files, options) = (checkpoint.subtree(layout::STATE), assembly::state_options(file));
    let state = CheckpointedStateStore::open_with(files, Some(state), options).await?;
    Ok(Stored { planned, batch_id, layouts, state })
}

/// The commit of a micro-batch, or the newest one.
async fn commit(files: &Arc<dyn FileManager>, batch: Option<BatchId>) -> Result<(BatchId, CommitEntry)> {
    let commits = CommitLog::new(Arc::clone(files));
    let ids = commits.ids().await?;
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Err(Error::invalid(format!(
            "the checkpoint {} has no committed micro-batch yet",
            files.url()
        )));
    };
    let batch_id = batch.unwrap_or(*last);
    match commits.get(batch_id).await? {
        Some(commit) => Ok((batch_id, commit)),
        None => Err(Error::invalid(format!(
            "the checkpoint {} does not remember micro-batch {batch_id} as committed",
            files.url()
        ))
        .hint(format!("it remembers {first} to {last}"))),
    }
}
