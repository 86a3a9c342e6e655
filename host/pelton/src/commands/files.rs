//! `pelton files`: the output of a file sink. Neither command takes the directory from the query that writes to it.

use crate::cli::{FilesCommand, FilesCompactArgs, FilesLsArgs, PrintFormat, TableFormat};
use crate::report::time_text;
use pelton_checkpoint::files::open_url;
use pelton_connectors::sink::file::{CompactOptions, CompactedGroup, Compaction, compact, output_files};
use pelton_core::words::counted;
use pelton_core::{Clock, Error, FileManager, Result};
use pelton_engine::SystemClock;
use serde_json::{Value, json};

/// Runs one of the commands.
pub(crate) fn run(command: &FilesCommand) -> Result<()> {
    let runtime = super::runtime(None)?;
    match command {
        FilesCommand::Ls(arguments) => runtime.block_on(list(arguments)),
        FilesCommand::Compact(arguments) => runtime.block_on(put_together(arguments)),
    }
}

async fn list(arguments: &FilesLsArgs) -> Result<()> {
    let directory = open_url(&arguments.directory)?;
    if directory.subtree("_pelton").read("query").await?.is_none() {
        return Err(Error::invalid(format!("{} is not the output of a file sink", directory.url()))
            .hint("name the `path` of a file sink: a directory with `_pelton` in it"));
    }
    let lines = lines(&*directory).await?;
    if arguments.format == TableFormat::Table {
        super::print_line(&format!("{:8}  {:>12}  {:>8}  place", "state", "bytes", "batch"))?;
    }
    for line in lines {
        super::print_line(&match arguments.format {
            TableFormat::Json => line.to_string(),
            TableFormat::Table => words(&line),
        })?;
    }
    Ok(())
}

async fn lines(directory: &dyn FileManager) -> Result<Vec<Value>> {
    let found = output_files(directory).await?;
    let live = found.live.iter().map(|file| {
        json!({
            "state": "live",
            "path": file.path,
            "place": file.pending.as_ref().unwrap_or(&file.path),
            "batch_id": file.batch_id,
            "size_bytes": file.size_bytes,
            "rows": file.rows,
        })
    });
    let waiting = found.waiting.iter().map(|file| {
        json!({
            "state": "waiting",
            "directory": file.directory,
            "place": file.path,
            "size_bytes": file.size_bytes,
            "rows": file.rows,
            "since_ms": file.time_ms,
        })
    });
    let replaced = found.replaced.iter().map(|file| {
        json!({
            "state": "replaced",
            "path": file.path,
            "place": file.path,
            "size_bytes": file.size_bytes,
            "delete_at_ms": file.delete_at_ms,
        })
    });
    Ok(live.chain(waiting).chain(replaced).collect())
}

fn words(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    let number = |name: &str| line[name].as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string());
    let until = line["delete_at_ms"].as_i64().map(|ms| format!("  (until {})", time_text(ms)));
    format!(
        "{:8}  {:>12}  {:>8}  {}{}",
        text("state"),
        number("size_bytes"),
        number("batch_id"),
        text("place"),
        until.unwrap_or_default()
    )
}

async fn put_together(arguments: &FilesCompactArgs) -> Result<()> {
    let directory = open_url(&arguments.directory)?;
    let options = CompactOptions {
        target_size_bytes: arguments.target_size,
        delete_after_ms: arguments.delete_after.as_millis(),
        dry_run: arguments.dry_run,
    };
    let done = compact(&directory, options, SystemClock.now_ms()).await?;
    if done.unknown > 0 {
        tracing::warn!(
            "{} small files are left alone: an earlier release wrote them and did not note how",
            done.unknown
        );
    }
    match arguments.format {
        PrintFormat::Json => super::print_line(&json_of(&done, arguments.dry_run).to_string()),
        PrintFormat::Words => print_words(&done, arguments),
    }
}

fn json_of(done: &Compaction, dry_run: bool) -> Value {
    let group = |group: &CompactedGroup| json!({"path": group.path, "size_bytes": group.size_bytes, "replaces": group.replaces});
    json!({
        "dry_run": dry_run,
        "files": done.groups.iter().map(group).collect::<Vec<_>>(),
        "deleted": done.deleted,
        "kept": done.kept,
        "left_alone": done.unknown,
    })
}

fn print_words(done: &Compaction, arguments: &FilesCompactArgs) -> Result<()> {
    for CompactedGroup { path, size_bytes, replaces } in &done.groups {
        super::print_line(&format!(
            "{path}: {}, {size_bytes} bytes",
            counted(replaces.len() as u64, "file")
        ))?;
    }
    if done.groups.is_empty() {
        super::print_line("nothing to put together")?;
    }
    if done.deleted > 0 {
        super::print_line(&format!("{} deleted", counted(done.deleted as u64, "old file")))?;
    }
    if done.kept > 0 {
        let interval = arguments.delete_after;
        super::print_line(&format!(
            "{} kept for readers that have begun; the first compaction after {interval} deletes what is kept",
            counted(done.kept as u64, "old file")
        ))?;
    }
    Ok(())
}
