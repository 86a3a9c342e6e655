//! The arguments of those commands that speak to a running query, and where `run` can be spoken to.

use super::*;
use crate::shadow::PromoteIf;

/// Where a run can be asked what it does.
#[derive(Debug, Args)]
pub(crate) struct ApiArgs {
    /// Listen here for `pelton status` and `stop`, HTTP and Prometheus [default: PELTON_API, or any free port of 127.0.0.1]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) api: Option<String>,
    /// Listen nowhere
    #[arg(long, conflicts_with_all = ["api", "api_token_file"])]
    pub(crate) no_api: bool,
    /// The token that the API answers to [default: a new one, which the commands of the same user find by themselves]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) api_token_file: Option<PathBuf>,
}

/// Which run is meant.
#[derive(Debug, Args)]
pub(crate) struct ApiTargetArgs {
    /// The API of the run [default: PELTON_API, or all runs of this user on this machine]
    #[arg(long, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// Its token [default: what a run of this user says itself]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) api_token_file: Option<PathBuf>,
}

/// Of which queries, and how.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton status
  pelton status late-flights --watch
  pelton status --format json | jq 'select(.state == \"failed\").failure'
  pelton status --api http://10.0.0.7:4040 --api-token-file token")]
pub(crate) struct StatusArgs {
    /// Only this query, in full
    pub(crate) query: Option<String>,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: TableFormat,
    /// Print it again every second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) of: ApiTargetArgs,
}

/// Which query to end, and how.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton stop late-flights
  pelton stop late-flights --now

It returns when the query has ended and its checkpoint is free. Exit code 1: the query had failed.")]
pub(crate) struct StopArgs {
    /// The query's name
    pub(crate) query: String,
    /// End at once: the micro-batch under way is run again at the next start
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) of: ApiTargetArgs,
}

/// Which plugin to swap, and for what.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton swap late-flights flights=target/flights.wasm --dry-run
  pelton swap late-flights flights=target/flights.wasm
  pelton swap late-flights flights=target/flights.wasm --shadow 100
  pelton swap late-flights flights=target/flights.wasm --shadow 100 --promote-if identical

It returns when a micro-batch with the new version is committed. A version that does not fit is refused, and one that \
fails is swapped back: exit code 1 or 2, and the running version goes on. With --shadow it returns when the report is \
complete; exit code 1: the new version failed there, or does not take over although --promote-if asks for it.")]
pub(crate) struct SwapArgs {
    /// The query's name
    pub(crate) query: String,
    /// The plugin's name in the pipeline file, and the file of its new version
    #[arg(value_name = "PLUGIN=PATH", value_parser = pair)]
    pub(crate) plugin: (String, String),
    /// Only say what it would do: compile and compare it, and read some of the state as it migrates it
    #[arg(long, group = "tries")]
    pub(crate) dry_run: bool,
    /// Do not swap: let it run beside the query for so many micro-batches, on the same rows and a fork of the state, and
    /// report in what it differs
    #[arg(long, value_name = "N", group = "tries", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) shadow: Option<u64>,
    /// With --shadow: swap at its end if it is so: identical, or for example within=0.1% of the rows
    #[arg(long, value_name = "CONDITION", requires = "shadow")]
    pub(crate) promote_if: Option<PromoteIf>,
    /// With --shadow: a column by which rows of both versions belong together; may be given several times [default: those by
    /// which the last stateful operator groups, if the rows have them; else rows are compared as a whole]
    #[arg(long, value_name = "COLUMN", requires = "shadow")]
    pub(crate) key: Vec<String>,
    /// With --shadow: return when it has begun; `pelton shadow` shows the report
    #[arg(long, requires = "shadow")]
    pub(crate) no_wait: bool,
    /// How to print what --dry-run or --shadow finds
    #[arg(long, default_value = "words", requires = "tries")]
    pub(crate) format: PrintFormat,
    #[command(flatten)]
    pub(crate) of: ApiTargetArgs,
}

/// Of which query, and whether to end it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton shadow late-flights
  pelton shadow late-flights --end")]
pub(crate) struct ShadowArgs {
    /// The query's name
    pub(crate) query: String,
    /// End it; the query goes on
    #[arg(long)]
    pub(crate) end: bool,
    /// How to print it
    #[arg(long, default_value = "words")]
    pub(crate) format: PrintFormat,
    #[command(flatten)]
    pub(crate) of: ApiTargetArgs,
}

/// Which plugin goes back to the version before.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton rollback late-flights
  pelton rollback late-flights flights")]
pub(crate) struct RollbackArgs {
    /// The query's name
    pub(crate) query: String,
    /// The plugin's name in the pipeline file; not needed if only one was swapped
    pub(crate) plugin: Option<String>,
    #[command(flatten)]
    pub(crate) of: ApiTargetArgs,
}
