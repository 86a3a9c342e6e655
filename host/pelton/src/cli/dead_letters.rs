//! The arguments of `pelton dead-letters`.

use super::{OnePipeline, PrintFormat};
use clap::{Args, Subcommand, ValueEnum};
use pelton_core::LossKind;

/// Rows that did not reach the sink.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// Count them: by micro-batch, kind and where they were lost
    #[command(after_help = "Example:
  pelton dead-letters ls pipeline.yaml")]
    Ls(LettersArgs),
    /// Show them, with the reason and what the row was
    #[command(after_help = "Examples:
  pelton dead-letters show pipeline.yaml --batch 17
  pelton dead-letters show pipeline.yaml --kind malformed --format json | jq -r .payload")]
    Show {
        #[command(flatten)]
        letters: LettersArgs,
        /// So many at most
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Feed them back, once: the running query, or the next run, takes them into its next micro-batch
    #[command(after_help = "Examples:
  pelton dead-letters replay pipeline.yaml --dry-run
  pelton dead-letters replay pipeline.yaml --batch 17
  pelton dead-letters replay pipeline.yaml --kind refused

Malformed records (the default) are decoded by their source again. Refused, late and poison rows begin anew at the source with the \
columns that they had where they were lost: right if nothing before that step changes rows. Those that were fed back before are \
left out; one that fails again is a new dead letter.")]
    Replay(LettersReplayArgs),
}

/// Whose dead letters, and which.
#[derive(Debug, Args)]
pub(crate) struct LettersArgs {
    #[command(flatten)]
    pub(crate) of: OnePipeline,
    /// Of this micro-batch alone
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u64>,
    /// Of this kind alone
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<LetterKind>,
    /// Lost by this source or operator alone
    #[arg(long, value_name = "NAME")]
    pub(crate) origin: Option<String>,
    /// How to print it
    #[arg(long, default_value = "words")]
    pub(crate) format: PrintFormat,
}

/// Which dead letters go where.
#[derive(Debug, Args)]
pub(crate) struct LettersReplayArgs {
    #[command(flatten)]
    pub(crate) letters: LettersArgs,
    /// The source that refused, late and poison rows go to, if the pipeline has several
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Say what would be fed back, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Why a row was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LetterKind {
    /// The source's record did not decode
    Malformed,
    /// A function refused the row
    Refused,
    /// The row was behind the watermark
    Late,
    /// A function failed on the row
    Poison,
}

impl LetterKind {
    /// The word in the dead letters.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => LossKind::Malformed.as_str(),
            Self::Refused => LossKind::Refused.as_str(),
            Self::Late => LossKind::Late.as_str(),
            Self::Poison => LossKind::Poison.as_str(),
        }
    }
}
