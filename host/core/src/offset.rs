//! How far a source has been read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A position in a source, as JSON that a person can read in the offset log.
/// Only the source that made it knows what it means. Spark's `Offset`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub Value);

/// What one micro-batch reads of one source: everything after `start` up to and including `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetRange {
    /// The last position of the micro-batch before; `None` at the beginning of the query.
    pub start: Option<Offset>,
    /// The last position of this micro-batch.
    pub end: Offset,
}
