//! `pelton stop`: ends a query that another process runs, as Ctrl-C there would.

use crate::api::client::Runs;
use crate::api::{QueryState, QueryStatus};
use crate::cli::StopArgs;
use crate::report;
use pelton_core::{Error, Result};

/// Returns when the query has ended; an error if it did not end well.
pub(crate) fn run(arguments: &StopArgs) -> Result<()> {
    let name = arguments.query.as_str();
    let client = Runs::of(&arguments.of)?.with_query(name)?;
    let now = if arguments.now { "true" } else { "false" };
    let asked = async { client.post(&["queries", name, "stop"], &[("now", now)]).await };
    let ended: QueryStatus = super::runtime(Some(1))?.block_on(asked)?;
    if let Some(failure) = ended.failure {
        return Err(Error::from(failure).context(format_args!("'{name}' had failed, or did on the way")));
    }
    report::say(words(&ended));
    Ok(())
}

fn words(ended: &QueryStatus) -> String {
    let last = match ended.last_committed {
        Some(batch) => format!("micro-batch {batch} is committed"),
        None => "no micro-batch is committed".to_owned(),
    };
    let how = match ended.state {
        QueryState::Aborted => "has ended at once",
        QueryState::Finished => "had finished",
        _ => "has stopped",
    };
    format!("{} {how}; {last}", ended.name)
}
