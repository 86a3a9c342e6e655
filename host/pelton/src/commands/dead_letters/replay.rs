//! `pelton dead-letters replay`: which letters go back to which source. All is checked before anything is written: what is written,
//! the query takes.

use super::{Letter, Letters, replay_log};
use crate::assembly::{Assembly, Inputs};
use crate::cli::{LetterKind, LettersReplayArgs, PrintFormat};
use pelton_connectors::source::ReplayedLetter;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) async fn run(arguments: &LettersReplayArgs) -> Result<()> {
    let kind = arguments.letters.kind.unwrap_or(LetterKind::Malformed);
    let letters = Letters::read(&arguments.letters).await?;
    let pipeline = arguments.letters.pipeline();
    let assembly = Assembly::new(&pipeline, std::slice::from_ref(&letters.file))?;
    let inputs = assembly.inputs(&letters.file).await?;
    let mut by_source: BTreeMap<String, Vec<ReplayedLetter>> = BTreeMap::new();
    let fresh = letters
        .found
        .iter()
        .filter(|(line, letter, _)| letter.kind == kind.as_str() && !letters.is_replayed(*line, letter));
    for (line, letter, _) in fresh {
        let is_row = kind != LetterKind::Malformed;
        let source = if is_row { target(arguments, &inputs)? } else { letter.origin.clone() };
        check(&inputs, &source, letter, is_row)?;
        let (batch_id, position, payload) = (letter.batch_id, letter.position.clone(), letter.payload()?);
        let replayed = ReplayedLetter::new(batch_id, *line, is_row, position, &payload);
        by_source.entry(source).or_default().push(replayed);
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (source, replayed) in by_source {
        let count = match arguments.dry_run {
            true => replayed.len(),
            // Another command may have been faster with some of them.
            false => replay_log(&letters.checkpoint, &source).append(&replayed).await?,
        };
        if count > 0 {
            counts.insert(source, count);
        }
    }
    report(arguments, &counts)
}

/// Where rows go that are no source's.
fn target(arguments: &LettersReplayArgs, inputs: &Inputs) -> Result<String> {
    let names = || inputs.sources.iter().map(|(name, _)| name.as_str());
    match (&arguments.source, inputs.sources.as_slice()) {
        (Some(name), _) if names().any(|source| source == name) => Ok(name.clone()),
        (Some(name), _) => Err(Error::invalid(format!(
            "--source: there is no source '{name}'{}",
            did_you_mean(name, names())
        ))),
        (None, [(only, _)]) => Ok(only.clone()),
        (None, _) => Err(Error::invalid("the pipeline has several sources: to which do the rows go?")
            .hint(format!("say --source with one of: {}", names().collect::<Vec<_>>().join(", ")))),
    }
}

/// What the query could not take must not get into its checkpoint.
fn check(inputs: &Inputs, source: &str, letter: &Letter, is_row: bool) -> Result<()> {
    let input = inputs.sources.iter().find(|(name, _)| name == source).map(|(_, source)| source);
    let Some(input) = input else {
        let names = inputs.sources.iter().map(|(name, _)| name.as_str());
        return Err(Error::invalid(format!(
            "micro-batch {}: the pipeline has no source '{source}' any more{}",
            letter.batch_id,
            did_you_mean(source, names)
        ))
        .hint("leave these letters out with --origin or --batch"));
    };
    if !is_row {
        return match input.decode_again(Vec::new()) {
            Some(_) => Ok(()),
            None => Err(Error::invalid(format!("the source '{source}' cannot take records back"))
                .hint("a record does not say which `key=value` directory it was in: write the letters' payloads to a file there")),
        };
    }
    let row: Value = serde_json::from_slice(&letter.payload()?).unwrap_or_default();
    let schema = input.schema();
    let missing = schema.fields().iter().find(|field| row.get(field.name()).is_none());
    match missing {
        None => Ok(()),
        Some(field) => Err(Error::invalid(format!(
            "micro-batch {}: the row that {} lost has no column '{}', which the pipeline reads from '{source}'",
            letter.batch_id,
            letter.origin,
            field.name()
        ))
        .hint("rows can be fed back if the steps before the one that lost them keep the source's columns")),
    }
}

fn report(arguments: &LettersReplayArgs, counts: &BTreeMap<String, usize>) -> Result<()> {
    if arguments.letters.format == PrintFormat::Json {
        return super::super::print_line(
            &json!({"dry_run": arguments.dry_run, "replayed": counts}).to_string(),
        );
    }
    for (source, count) in counts {
        let what = if arguments.dry_run { "would go" } else { "go" };
        super::super::print_line(&format!("{what} back to '{source}': {count}"))?;
    }
    super::super::print_line(match (counts.is_empty(), arguments.dry_run) {
        (true, _) => "nothing to feed back",
        (false, true) => "a dry run: nothing was changed",
        (false, false) => "a running query takes them within seconds, otherwise the next run does",
    })
}
