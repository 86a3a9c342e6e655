//! `pelton dead-letters`: what did not reach the sink. `ls` and `show` read; `replay` feeds letters back to a source. None of them
//! takes the checkpoint, so the query may be running.

mod replay;

use crate::assembly;
use crate::cli::{DeadLettersCommand, LettersArgs, PrintFormat};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pelton_checkpoint::{CommitLog, Metadata, OffsetLog, layout};
use pelton_connectors::source::ReplayLog;
use pelton_core::{BatchId, Error, FileManager, Result};
use pelton_plan::PipelineFile;
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Runs one of the commands.
pub(crate) fn run(command: &DeadLettersCommand) -> Result<()> {
    let runtime = super::runtime(None)?;
    match command {
        DeadLettersCommand::Ls(arguments) => runtime.block_on(list(arguments)),
        DeadLettersCommand::Show { letters, limit } => runtime.block_on(show(letters, *limit)),
        DeadLettersCommand::Replay(arguments) => runtime.block_on(replay::run(arguments)),
    }
}

/// A dead letter as it is written.
#[derive(Debug, Clone, Deserialize)]
struct Letter {
    batch_id: BatchId,
    kind: String,
    origin: String,
    position: Option<String>,
    reason: String,
    payload: Option<String>,
    payload_base64: Option<String>,
}

impl Letter {
    fn payload(&self) -> Result<Vec<u8>> {
        match (&self.payload, &self.payload_base64) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(encoded)) => BASE64.decode(encoded).map_err(|why| {
                Error::data(format!("a dead letter of micro-batch {} is damaged: {why}", self.batch_id))
            }),
            (None, None) => Ok(Vec::new()),
        }
    }
}

/// The dead letters of a query, and which of them were fed back.
struct Letters {
    file: PipelineFile,
    replays: ReplayLog,
    /// In order; each with its line in the micro-batch's file, and as it stands there.
    found: Vec<(u64, Letter, String)>,
    replayed: BTreeSet<(BatchId, u64)>,
}

impl Letters {
    /// Reads those that the arguments name. A micro-batch that is not committed has none yet.
    async fn read(arguments: &LettersArgs) -> Result<Self> {
        let file = assembly::read(&arguments.of.pipeline())?.remove(0);
        let checkpoint = super::checkpoint::files_of(&file).await?;
        let committed = CommitLog::new(Arc::clone(&checkpoint)).ids().await?.pop();
        let files = match assembly::dead_letter_files(&file)? {
            Some(files) => {
                let metadata = Metadata::read(checkpoint.as_ref()).await?;
                let metadata =
                    metadata.ok_or_else(|| Error::internal("the checkpoint was there a moment ago"))?;
                files.subtree(metadata.query_id.as_str())
            }
            None => checkpoint.subtree(layout::DEAD_LETTERS),
        };
        let mut batches: Vec<u64> = files
            .list("")
            .await?
            .iter()
            .filter_map(|file| file.path.strip_suffix(".jsonl")?.parse().ok())
            .filter(|batch| Some(BatchId(*batch)) <= committed && arguments.batch.is_none_or(|n| n == *batch))
            .collect();
        batches.sort_unstable();
        let mut found = Vec::new();
        for batch in batches {
            found.extend(letters_of(&*files, batch).await?.into_iter().filter(|(_, letter, _)| {
                arguments.kind.is_none_or(|kind| letter.kind == kind.as_str())
                    && arguments.origin.as_ref().is_none_or(|origin| letter.origin == *origin)
            }));
        }
        let offsets = OffsetLog::new(Arc::clone(&checkpoint));
        let newest = match offsets.ids().await?.pop() {
            Some(newest) => offsets.get(newest).await?,
            None => None,
        };
        let ends =
            newest.iter().flat_map(|entry| entry.sources.values()).filter_map(|source| source.end.as_ref());
        let replays = ReplayLog::new(checkpoint.subtree(layout::REPLAYS));
        let replayed = replays.letters(ends).await?;
        let replayed = replayed.iter().map(|letter| (letter.batch_id, letter.line)).collect();
        Ok(Self { file, replays, found, replayed })
    }

    fn is_replayed(&self, line: u64, letter: &Letter) -> bool {
        self.replayed.contains(&(letter.batch_id, line))
    }
}

async fn letters_of(files: &dyn FileManager, batch: u64) -> Result<Vec<(u64, Letter, String)>> {
    let name = format!("{batch}.jsonl");
    // Somebody may have deleted it since it was listed.
    let content = files.read(&name).await?.unwrap_or_default();
    let text = String::from_utf8_lossy(&content).into_owned();
    let letter = |(line, text): (usize, &str)| {
        let letter = serde_json::from_str(text).map_err(|why| {
            Error::data(format!("{}/{name}:{} is not a dead letter: {why}", files.url(), line + 1))
        })?;
        Ok((line as u64, letter, text.to_owned()))
    };
    text.lines().enumerate().map(letter).collect()
}

async fn list(arguments: &LettersArgs) -> Result<()> {
    let letters = Letters::read(arguments).await?;
    let mut counts: BTreeMap<(BatchId, &str, &str), (u64, u64)> = BTreeMap::new();
    for (line, letter, _) in &letters.found {
        let count =
            counts.entry((letter.batch_id, letter.kind.as_str(), letter.origin.as_str())).or_default();
        count.0 += 1;
        count.1 += u64::from(letters.is_replayed(*line, letter));
    }
    if arguments.format == PrintFormat::Words {
        super::print_line(&format!(
            "{:>8}  {:9}  {:>8}  {:>8}  origin",
            "batch", "kind", "letters", "fed back"
        ))?;
    }
    for ((batch_id, kind, origin), (count, replayed)) in counts {
        super::print_line(&match arguments.format {
            PrintFormat::Json => {
                json!({"batch_id": batch_id, "kind": kind, "origin": origin, "letters": count,
                "replayed": replayed})
                .to_string()
            }
            PrintFormat::Words => format!("{batch_id:>8}  {kind:9}  {count:>8}  {replayed:>8}  {origin}"),
        })?;
    }
    Ok(())
}

async fn show(arguments: &LettersArgs, limit: Option<usize>) -> Result<()> {
    let letters = Letters::read(arguments).await?;
    for (line, letter, text) in letters.found.iter().take(limit.unwrap_or(usize::MAX)) {
        if arguments.format == PrintFormat::Json {
            super::print_line(text)?;
            continue;
        }
        let Letter { batch_id, kind, origin, position, reason, payload, payload_base64 } = letter;
        let position = position.as_ref().map(|position| format!(", {position}")).unwrap_or_default();
        let again = if letters.is_replayed(*line, letter) { " (fed back)" } else { "" };
        let row = payload.as_ref().or(payload_base64.as_ref()).map_or("", String::as_str);
        let [place, reason, row] = [position.as_str(), reason, row].map(super::on_one_line);
        super::print_line(&format!("{batch_id}: {kind} at {origin}{place}: {reason}{again}\n    {row}"))?;
    }
    Ok(())
}
