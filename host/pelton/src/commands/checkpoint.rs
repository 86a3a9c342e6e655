//! `pelton checkpoint`: the logs of a query. Reads them without taking the checkpoint, so it may be asked while the query
//! runs; changes nothing.

use crate::assembly;
use crate::cli::{CheckpointArgs, CheckpointCommand, PrintFormat};
use pelton_checkpoint::{CommitEntry, CommitLog, Metadata, OffsetEntry, OffsetLog};
use pelton_core::{BatchId, Error, FileManager, Result};
use pelton_plan::PipelineFile;
use serde_json::{Value, json};
use std::sync::Arc;

/// Runs one of the commands.
pub(crate) fn run(command: &CheckpointCommand) -> Result<()> {
    let runtime = super::runtime(None)?;
    match command {
        CheckpointCommand::Ls(arguments) => runtime.block_on(list(arguments)),
        CheckpointCommand::Show { of, batch } => runtime.block_on(show(of, batch.map(BatchId))),
    }
}

/// The checkpoint of a pipeline file, which must be there.
pub(super) async fn files_of(file: &PipelineFile) -> Result<Arc<dyn FileManager>> {
    let files = named(file)?;
    if Metadata::read(files.as_ref()).await?.is_none() {
        return Err(Error::invalid(format!("there is no checkpoint in {}", files.url()))
            .hint("has the query ever run? a relative `checkpoint:` counts from the current directory"));
    }
    Ok(files)
}

/// The checkpoint that a pipeline file names, whether the query has ever run or not.
pub(super) fn named(file: &PipelineFile) -> Result<Arc<dyn FileManager>> {
    assembly::checkpoint(file)?.ok_or_else(|| {
        let error = Error::invalid(format!("{}: the pipeline file names no checkpoint", file.text().name()));
        error.hint("the query must have run with `checkpoint:` to have something to show")
    })
}

async fn opened(arguments: &CheckpointArgs) -> Result<Arc<dyn FileManager>> {
    let files = assembly::read(&arguments.pipeline())?;
    match files.as_slice() {
        [file] => files_of(file).await,
        _ => Err(Error::internal("a command for one pipeline file was given several")),
    }
}

async fn list(arguments: &CheckpointArgs) -> Result<()> {
    let files = opened(arguments).await?;
    let (offsets, commits) = (OffsetLog::new(Arc::clone(&files)), CommitLog::new(Arc::clone(&files)));
    if arguments.format == PrintFormat::Words {
        super::print_line(&format!("{:>8}  {:24}  {:24}  {:>10}", "batch", "time", "watermark", "rows"))?;
    }
    for batch_id in offsets.ids().await? {
        // A running query may have trimmed it since it was listed.
        let Some(entry) = offsets.get(batch_id).await? else { continue };
        let commit = commits.get(batch_id).await?;
        super::print_line(&match arguments.format {
            PrintFormat::Json => line(batch_id, &entry, commit.as_ref()).to_string(),
            PrintFormat::Words => words(batch_id, &entry, commit.as_ref()),
        })?;
    }
    Ok(())
}

fn words(batch_id: BatchId, entry: &OffsetEntry, commit: Option<&CommitEntry>) -> String {
    let rows = commit.map_or_else(|| "running".to_owned(), |commit| commit.sink.rows.to_string());
    let watermark = entry.watermark_ms.map_or_else(|| "-".to_owned(), crate::report::time_text);
    format!("{batch_id:>8}  {:24}  {watermark:24}  {rows:>10}", crate::report::time_text(entry.batch_time_ms))
}

fn line(batch_id: BatchId, entry: &OffsetEntry, commit: Option<&CommitEntry>) -> Value {
    json!({
        "batch_id": batch_id,
        "batch_time_ms": entry.batch_time_ms,
        "watermark_ms": entry.watermark_ms,
        "committed": commit.is_some(),
        "rows": commit.map(|commit| commit.sink.rows),
    })
}

async fn show(arguments: &CheckpointArgs, batch: Option<BatchId>) -> Result<()> {
    let files = opened(arguments).await?;
    let (offsets, commits) = (OffsetLog::new(Arc::clone(&files)), CommitLog::new(Arc::clone(&files)));
    let ids = offsets.ids().await?;
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Err(Error::invalid(format!("the checkpoint {} has no micro-batch yet", files.url())));
    };
    let batch_id = batch.unwrap_or(*last);
    let Some(entry) = offsets.get(batch_id).await? else {
        return Err(Error::invalid(format!(
            "the checkpoint {} does not remember micro-batch {batch_id}",
            files.url()
        ))
        .hint(format!("it remembers {first} to {last}")));
    };
    let metadata = Metadata::read(files.as_ref()).await?;
    let all = json!({
        "checkpoint": files.url(),
        "metadata": metadata,
        "batch_id": batch_id,
        "offsets": entry,
        "commit": commits.get(batch_id).await?,
    });
    super::print_line(&match arguments.format {
        PrintFormat::Json => all.to_string(),
        PrintFormat::Words => serde_json::to_string_pretty(&all)
            .map_err(|why| Error::internal(format!("the logs cannot be shown: {why}")))?,
    })
}
