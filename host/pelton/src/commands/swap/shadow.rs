//! `pelton swap --shadow` and `pelton shadow`: a version that runs beside a query in another process, and its report.

use super::{of_file, print};
use crate::api::client::{Client, Runs};
use crate::cli::{PrintFormat, ShadowArgs, SwapArgs};
use crate::report;
use crate::shadow::{ShadowOutcome, ShadowReport};
use pelton_core::{Error, Result};
use std::time::Duration;

/// How often the run is asked how far it is.
const PACE: Duration = Duration::from_millis(200);

/// Begins it, waits for its end unless that is not wished, and prints the report.
pub(super) async fn swap(arguments: &SwapArgs, client: &Client, batches: u64, bytes: Vec<u8>) -> Result<()> {
    let query = arguments.query.as_str();
    let (plugin, path) = &arguments.plugin;
    let (batches, key) = (batches.to_string(), arguments.key.join(","));
    let condition = arguments.promote_if.map(|condition| condition.to_string());
    let mut options = vec![("shadow", batches.as_str())];
    options.extend(condition.as_deref().map(|condition| ("promote_if", condition)));
    if !key.is_empty() {
        options.push(("key", &key));
    }
    let begun = client.send(&["queries", query, "plugins", plugin], &options, bytes).await;
    let begun: ShadowReport = begun.map_err(|error| of_file(path, error))?;
    let found = match arguments.no_wait {
        true => begun,
        false => to_its_end(client, query, begun).await?,
    };
    shown(arguments.format, query, &found)?;
    judged(&found)
}

/// The report of the one that runs, or the last one.
pub(crate) fn run(arguments: &ShadowArgs) -> Result<()> {
    let query = arguments.query.as_str();
    let client = Runs::of(&arguments.of)?.with_query(query)?;
    let route = ["queries", query, "shadow"];
    let found: ShadowReport = super::super::runtime(Some(1))?.block_on(async {
        match arguments.end {
            true => client.delete(&route).await,
            false => client.get(&route).await,
        }
    })?;
    shown(arguments.format, query, &found)
}

/// Says now and then how far it is.
async fn to_its_end(client: &Client, query: &str, begun: ShadowReport) -> Result<ShadowReport> {
    let mut report = begun;
    let mut said = None;
    while report.outcome == ShadowOutcome::Running {
        if said != Some(report.batches) {
            report::say(report.headline(query));
            said = Some(report.batches);
        }
        tokio::time::sleep(PACE).await;
        let now = client.get(&["queries", query, "shadow"]).await;
        report = now.map_err(|gone: Error| {
            gone.context("the shadow has ended with the run").hint("nothing of it is in the checkpoint")
        })?;
    }
    Ok(report)
}

fn shown(format: PrintFormat, query: &str, report: &ShadowReport) -> Result<()> {
    print(format, report, |report| report.words(query))
}

/// The report says it all; the exit code says whether it is a good one.
fn judged(report: &ShadowReport) -> Result<()> {
    let plugin = &report.plugin;
    if report.outcome == ShadowOutcome::Failed {
        return Err(Error::plugin(format!("plugin '{plugin}' is not swapped: the shadow failed"))
            .hint("the version that runs goes on"));
    }
    let is_missed = report.promote_if.is_some() && report.promoted.is_none();
    match is_missed && report.outcome != ShadowOutcome::Running {
        true => Err(Error::plugin(format!(
            "plugin '{plugin}' is not swapped: {}",
            report.not_promoted.as_deref().or(report.message.as_deref()).unwrap_or_default()
        ))
        .hint("the version that runs goes on")),
        false => Ok(()),
    }
}
