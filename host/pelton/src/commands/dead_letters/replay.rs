//! `pelton dead-letters replay`: which letters go back to which source. All is checked before anything is written: what is written,
//! the query takes.

use super::{Letter, Letters};
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
    let pipeline = arguments.letters.of.pipeline();
    let assembly = Assembly::new(&pipeline, std::slice::from_ref(&letters.file))?;
    let inputs = assembly.inputs(&letters.file).await?;
    let of_kind = |letter: &Letter| letter.kind == kind.as_str();
    let fresh = letters.found.iter().filter(|(line, letter, _)| !letters.is_replayed(*line, letter));
    let (wanted, others): (Vec<_>, Vec<_>) = fresh.partition(|(_, letter, _)| of_kind(letter));
    let mut replayed = Vec::new();
    for (line, letter, _) in wanted {
        let is_row = kind != LetterKind::Malformed;
        let source = if is_row { target(arguments, &inputs)? } else { letter.origin.clone() };
        check(&inputs, &source, letter, is_row)?;
        let (batch_id, position, payload) = (letter.batch_id, letter.position.clone(), letter.payload()?);
        replayed.push(ReplayedLetter::new(&source, batch_id, *line, is_row, position, &payload));
    }
    let counts = match arguments.dry_run {
        true => counted(replayed.iter().map(|letter| letter.source.as_str())),
        // Another command may have been faster with some of them.
        false => letters.replays.append(&replayed).await?,
    };
    let left = counted(others.iter().map(|(_, letter, _)| letter.kind.as_str()));
    let before = letters.found.iter().filter(|(_, letter, _)| of_kind(letter)).count() - replayed.len();
    report(arguments, &counts, &Left { kind, before, others: left })
}

/// What is not fed back.
struct Left {
    kind: LetterKind,
    /// Of that kind, those that were fed back before.
    before: usize,
    /// Those of other kinds.
    others: BTreeMap<String, usize>,
}

fn counted<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name.to_owned()).or_default() += 1);
    counts
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

fn report(arguments: &LettersReplayArgs, counts: &BTreeMap<String, usize>, left: &Left) -> Result<()> {
    if arguments.letters.format == PrintFormat::Json {
        return super::super::print_line(
            &json!({"dry_run": arguments.dry_run, "replayed": counts, "left": left.others}).to_string(),
        );
    }
    for (source, count) in counts {
        let what = if arguments.dry_run { "would go" } else { "go" };
        super::super::print_line(&format!("{what} back to '{source}': {count}"))?;
    }
    super::super::print_line(&match (counts.is_empty(), arguments.dry_run) {
        (true, _) => left.nothing(),
        (false, true) => "a dry run: nothing was changed".to_owned(),
        (false, false) => "a running query takes them within seconds, otherwise the next run does".to_owned(),
    })?;
    left.hint().map_or(Ok(()), |hint| super::super::print_line(&hint))
}

impl Left {
    /// Why nothing is fed back.
    fn nothing(&self) -> String {
        let kind = self.kind.as_str();
        match self.before {
            0 => format!("nothing to feed back: there are no {kind} ones"),
            before => format!("nothing to feed back: the {kind} ones ({before}) were fed back before"),
        }
    }

    /// What else there is, and how it would be fed back.
    fn hint(&self) -> Option<String> {
        let others: Vec<String> = self.others.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let late = LetterKind::Late.as_str();
        let note = match self.others.contains_key(late) {
            true => "; late rows would be late again, because the watermark never falls",
            false => "",
        };
        (!others.is_empty()).then(|| {
            format!("left where they are: {} (--kind says which are fed back{note})", others.join(", "))
        })
    }
}
