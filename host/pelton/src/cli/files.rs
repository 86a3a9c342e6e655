//! The arguments of `pelton files`.

use super::{PrintFormat, TableFormat};
use clap::{Args, Subcommand, ValueHint};
use pelton_core::Interval;
use pelton_plan::file::{ByteSize, Duration};

/// The output of a file sink.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List the files of an output directory: what a reader reads, what waits, what is replaced
    #[command(after_help = "Example:
  pelton files ls out --format json | jq -r 'select(.state == \"live\") | .place'")]
    Ls(FilesLsArgs),
    /// Put small files together; a query may write to the directory meanwhile, and others read it
    #[command(after_help = "Examples:
  pelton files compact out --dry-run
  pelton files compact s3://bucket/out --target-size 256MiB --delete-after '1 day'

Readers of the sink's log (Pelton's file source among them) read the new files at once. Others go on with the old ones, which \
are deleted by the first compaction after --delete-after: run it from time to time.")]
    Compact(FilesCompactArgs),
}

/// What to list.
#[derive(Debug, Args)]
pub(crate) struct FilesLsArgs {
    /// The `path` of a file sink: a directory or an object store's URL
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: String,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: TableFormat,
}

/// What to put together.
#[derive(Debug, Args)]
pub(crate) struct FilesCompactArgs {
    /// The `path` of a file sink: a directory or an object store's URL
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: String,
    /// Smaller files are put together until they have this size
    #[arg(long, value_name = "BYTES", default_value = "128MiB", value_parser = size)]
    pub(crate) target_size: u64,
    /// How long the old files stay for readers that have them listed already
    #[arg(long, value_name = "DURATION", default_value = "1 hour", value_parser = duration)]
    pub(crate) delete_after: Interval,
    /// Say what would be put together, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How to print it
    #[arg(long, default_value = "words")]
    pub(crate) format: PrintFormat,
}

fn size(text: &str) -> Result<u64, String> {
    ByteSize::parse(text).map(|size| size.0)
}

fn duration(text: &str) -> Result<Interval, String> {
    Duration::parse(text).map(Duration::interval)
}
