//! `pelton status`: what the queries of this user's runs do, as a table or as lines of JSON.

mod table;

use super::print_text;
use crate::api::QueryStatus;
use crate::api::client::{Client, Runs};
use crate::cli::{StatusArgs, TableFormat};
use crate::report;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use std::io::IsTerminal;
use std::time::Duration;

/// How often `--watch` looks.
const PACE: Duration = Duration::from_secs(1);

/// Takes the cursor home and clears what is there.
const CLEAR: &str = "\x1b[H\x1b[2J\n";

/// See above.
pub(crate) fn run(arguments: &StatusArgs) -> Result<()> {
    super::runtime(Some(1))?.block_on(async {
        loop {
            let queries = chosen(asked(Runs::of(&arguments.of)?).await?, arguments.query.as_deref())?;
            let clear = if arguments.watch && std::io::stdout().is_terminal() { CLEAR } else { "" };
            let is_read = print_text(&format!("{clear}{}", shown(&queries, arguments)?))?;
            if !arguments.watch || !is_read {
                return Ok(());
            }
            tokio::time::sleep(PACE).await;
        }
    })
}

/// What they say. A run of several that does not answer hides the others no more than that.
async fn asked(runs: Runs) -> Result<Vec<QueryStatus>> {
    let runs = match runs {
        Runs::One(client) => return client.get(&["queries"]).await,
        Runs::Found(runs) => runs,
    };
    let mut queries = Vec::new();
    for run in runs {
        let client = Client::of(&run)?;
        match client.get::<Vec<QueryStatus>>(&["queries"]).await {
            Ok(answered) => queries.extend(answered),
            Err(silent) => {
                tracing::warn!("process {} at {} is left out: {}", run.pid, client.url(), silent.message());
            }
        }
    }
    Ok(queries)
}

fn chosen(mut queries: Vec<QueryStatus>, name: Option<&str>) -> Result<Vec<QueryStatus>> {
    let Some(name) = name else { return Ok(queries) };
    let names: Vec<String> = queries.iter().map(|query| query.name.clone()).collect();
    queries.retain(|query| query.name == name);
    match queries.is_empty() {
        false => Ok(queries),
        true => {
            let near = did_you_mean(name, names.iter().map(String::as_str));
            Err(Error::invalid(format!("no query '{name}' is running{near}")))
        }
    }
}

/// What goes to stdout.
fn shown(queries: &[QueryStatus], arguments: &StatusArgs) -> Result<String> {
    if arguments.format == TableFormat::Json {
        let broken = |why| Error::internal(format!("a status cannot be written as JSON: {why}"));
        let line = |query| Ok(format!("{}\n", serde_json::to_string(query).map_err(broken)?));
        return queries.iter().map(line).collect();
    }
    if queries.is_empty() {
        report::say("no query is running");
        return Ok(String::new());
    }
    Ok(format!("{}\n", table::words(queries, arguments.query.is_some())))
}
