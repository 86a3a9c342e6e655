//! The arguments of `pelton state` and `pelton checkpoint`.

use super::*;

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// List the operators that keep state, and how many rows each keeps
    #[command(after_help = "Example:
  pelton state ls pipeline.yaml")]
    Ls(StateArgs),
    /// Show the state of an operator as rows
    #[command(after_help = "Examples:
  pelton state show pipeline.yaml totals
  pelton state show pipeline.yaml totals --key user=ann --batch 41
  pelton state show pipeline.yaml totals --format json | jq .amount

A running query may be asked, too. Earlier micro-batches can be shown while the checkpoint remembers them.")]
    Show(StateShowArgs),
}

/// Whose state, and when.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(crate) of: OnePipeline,
    /// After this micro-batch [default: the last that was committed]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u64>,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: TableFormat,
}

/// Which state.
#[derive(Debug, Args)]
pub(crate) struct StateShowArgs {
    #[command(flatten)]
    pub(crate) of: StateArgs,
    /// The operator: see `pelton state ls`
    pub(crate) operator: String,
    /// Only rows with this value in this column, as JSON writes it; may be given several times
    #[arg(long, value_name = "COLUMN=VALUE", value_parser = pair)]
    pub(crate) key: Vec<(String, String)>,
    /// So many rows at most [default: 20 in a table, all as JSON]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// List the micro-batches that the checkpoint remembers
    #[command(after_help = "Example:
  pelton checkpoint ls pipeline.yaml")]
    Ls(CheckpointArgs),
    /// Show what the logs say of a micro-batch
    #[command(after_help = "Example:
  pelton checkpoint show pipeline.yaml --batch 41 --format json | jq .offsets.sources")]
    Show {
        #[command(flatten)]
        of: CheckpointArgs,
        /// Which micro-batch [default: the last]
        #[arg(long, value_name = "N")]
        batch: Option<u64>,
    },
}

/// Whose checkpoint.
#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    /// The pipeline file (YAML or JSON)
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// How to print it
    #[arg(long, default_value = "words")]
    pub(crate) format: PrintFormat,
    /// Set a value of the file: a path of keys, joined by dots
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

impl CheckpointArgs {
    /// The pipeline that is meant.
    pub(crate) fn pipeline(&self) -> PipelineArgs {
        PipelineArgs {
            files: vec![self.file.clone()],
            set: self.set.clone(),
            plugins: Vec::new(),
            fresh_instances: false,
        }
    }
}
