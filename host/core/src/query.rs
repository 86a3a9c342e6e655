//! How a query runs: when its micro-batches start and what they give to the sink.

use crate::Interval;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What of the result goes to the sink in each micro-batch. Spark's `OutputMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// Rows that are final, each once.
    #[default]
    Append,
    /// Rows of the result that this micro-batch touched.
    Update,
    /// The whole result.
    Complete,
}

impl fmt::Display for OutputMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Append => "append",
            Self::Update => "update",
            Self::Complete => "complete",
        })
    }
}

/// Which of several watermarks is the query's. Spark's `multipleWatermarkPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatermarkPolicy {
    /// The one that is furthest behind: no row is late because another source is ahead.
    #[default]
    Min,
    /// The one that is furthest ahead: results do not wait for a slow source, whose rows may then be late.
    Max,
}

impl fmt::Display for WatermarkPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Min => "min",
            Self::Max => "max",
        })
    }
}

/// When the next micro-batch starts. Spark's `Trigger`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trigger {
    /// As soon as the one before is done and there is something to do.
    #[default]
    AsFastAsPossible,
    /// At once and then at multiples of the interval since the epoch, as Spark's `Trigger.ProcessingTime`:
    /// a micro-batch that takes longer is followed by the next at once; triggers that it missed are not made up.
    ProcessingTime(Interval),
    /// One micro-batch with everything there is, then the end. Spark's `Trigger.Once`: limits are ignored.
    Once,
    /// Everything that is there at the start, in micro-batches that keep the limits, then the end.
    AvailableNow,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsFastAsPossible => f.write_str("as_fast_as_possible"),
            Self::ProcessingTime(interval) => write!(f, "processing_time {interval}"),
            Self::Once => f.write_str("once"),
            Self::AvailableNow => f.write_str("available_now"),
        }
    }
}

/// What becomes of a record that does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MalformedPolicy {
    /// The query fails, naming the record. Spark's `FAILFAST`.
    #[default]
    Fail,
    /// The record is counted and left out. Spark's `DROPMALFORMED`.
    Drop,
    /// The fields that could not be read are null; the text goes to `_corrupt_record` if the schema has it.
    /// Spark's `PERMISSIVE`.
    Null,
    /// The record goes to the dead letters with its position and the reason.
    DeadLetter,
}
