//! The arguments of `pelton replay`.

use super::{OnePipeline, TableFormat};
use clap::Args;
use std::ops::RangeInclusive;

/// Which micro-batches to run again, and with what.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton replay pipeline.yaml --batches 41
  pelton replay pipeline.yaml --batches 38..41 --dead-letters --format json
  pelton replay pipeline.yaml --batches 41 --plugin flights=target/plugins/flights.wasm
  pelton replay pipeline.yaml --batches 38..41 --compare --key carrier --plugin flights=new.wasm

Each micro-batch reads what it read then, on the state that the one before left, with the plugins that it ran with. Nothing \
is written: neither sink nor checkpoint nor source will know. The query may be running. Steps are those of the pipeline file \
as it is.")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) of: OnePipeline,
    /// A micro-batch, or the first and the last of several: 41, 38..41 [default: the last]
    #[arg(long, value_name = "A..B", value_parser = batches)]
    pub(crate) batches: Option<RangeInclusive<u64>>,
    /// Run each micro-batch twice on the same state, with the plugins that it ran with and with those of --plugin (or, if
    /// none is given, of the pipeline file as it is), and show which rows differ
    #[arg(long)]
    pub(crate) compare: bool,
    /// With --compare: the columns by which rows of both sides belong together; may be given several times. Without it
    /// rows are compared as a whole
    #[arg(long, value_name = "COLUMN", requires = "compare")]
    pub(crate) key: Vec<String>,
    /// Show the rows that went to the dead letters, too
    #[arg(long)]
    pub(crate) dead_letters: bool,
    /// So many rows of a micro-batch at most [default: 20 in a table, all as JSON]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: TableFormat,
}

/// `41` or `38..41`, both included.
fn batches(text: &str) -> Result<RangeInclusive<u64>, String> {
    let wrong = || format!("'{text}' names no micro-batches; write for example 41 or 38..41");
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if last < first {
        return Err(format!("'{text}' ends before it begins; write the smaller number first"));
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_are_named_alone_or_from_to() {
        assert_eq!(batches("41"), Ok(41..=41));
        assert_eq!(batches("38..41"), Ok(38..=41));
        assert_eq!(
            batches("3..1").expect_err("backwards"),
            "'3..1' ends before it begins; write the smaller number first"
        );
        assert_eq!(
            batches("last").expect_err("no number"),
            "'last' names no micro-batches; write for example 41 or 38..41"
        );
    }
}
