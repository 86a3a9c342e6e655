//! `pelton swap` and `pelton rollback`: another version of a plugin for a query that another process runs.

pub(crate) mod shadow;

use crate::api::client::Runs;
use crate::cli::{PrintFormat, RollbackArgs, SwapArgs};
use crate::report;
use crate::runner::{DryRun, Swapped};
use pelton_core::{Error, Result};
use serde::Serialize;
use std::path::Path;

/// Returns when a micro-batch with the new version is committed.
pub(crate) fn run(arguments: &SwapArgs) -> Result<()> {
    let query = arguments.query.as_str();
    let (plugin, path) = &arguments.plugin;
    let bytes = crate::plugins::read(Path::new(path))?;
    let client = Runs::of(&arguments.of)?.with_query(query)?;
    let route = ["queries", query, "plugins", plugin.as_str()];
    let runtime = super::runtime(Some(1))?;
    if let Some(batches) = arguments.shadow {
        return runtime.block_on(shadow::swap(arguments, &client, batches, bytes));
    }
    if !arguments.dry_run {
        let swapped = runtime.block_on(client.send(&route, &[], bytes));
        let swapped: Swapped = swapped.map_err(|error| of_file(path, error))?;
        report::say(words(query, &swapped));
        return Ok(());
    }
    let found = runtime.block_on(client.send(&route, &[("dry_run", "true")], bytes));
    let found: DryRun = found.map_err(|error| of_file(path, error))?;
    print(arguments.format, &found, dry_run_words)
}

fn print<T: Serialize>(format: PrintFormat, found: &T, words: impl Fn(&T) -> Vec<String>) -> Result<()> {
    match format {
        PrintFormat::Words => words(found).iter().try_for_each(|line| super::print_line(line)),
        PrintFormat::Json => {
            let line = serde_json::to_string(found);
            super::print_line(&line.map_err(|why| Error::internal(format!("an answer is no JSON: {why}")))?)
        }
    }
}

/// What is said of the version names the file that it comes from.
fn of_file(path: &str, error: Error) -> Error {
    match error.message().starts_with("plugin '") {
        true => error.context(path),
        false => error,
    }
}

/// Returns when a micro-batch with the version before is committed.
pub(crate) fn roll_back(arguments: &RollbackArgs) -> Result<()> {
    let query = arguments.query.as_str();
    let client = Runs::of(&arguments.of)?.with_query(query)?;
    let plugin: Vec<(&str, &str)> = arguments.plugin.iter().map(|name| ("plugin", name.as_str())).collect();
    let route = ["queries", query, "rollback"];
    let swapped: Swapped = super::runtime(Some(1))?.block_on(client.post(&route, &plugin))?;
    report::say(words(query, &swapped));
    Ok(())
}

fn words(query: &str, swapped: &Swapped) -> String {
    let Swapped { plugin, from, to, batch_id } = swapped;
    let (from, to) = (short(from), short(to));
    format!("{query}: plugin '{plugin}' runs in version {to} instead of {from} since micro-batch {batch_id}")
}

/// The rows of state as JSON, each before and after.
fn dry_run_words(found: &DryRun) -> Vec<String> {
    let DryRun { plugin, from, to, notes, migrated } = found;
    let (from, to) = (short(from), short(to));
    let mut lines = vec![format!("plugin '{plugin}' can be swapped from version {from} to {to}")];
    lines.extend(notes.iter().cloned());
    for sample in migrated {
        lines.push(format!("state of '{}', as it is and as the new version reads it:", sample.operator));
        let pairs = sample.before.iter().zip(&sample.after);
        lines.extend(pairs.map(|(before, after)| format!("  {before} → {after}")));
    }
    lines
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
