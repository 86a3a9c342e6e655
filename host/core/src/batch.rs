//! What is known of a micro-batch, and of the rows that fall out of it.

use crate::{BatchId, PluginDigest, QueryId};
use bytes::Bytes;
use std::sync::Arc;

/// A watermark behind all event times: that of the one micro-batch of a bounded run, in which everything is over at the
/// end. In microseconds it still fits its type.
pub const END_OF_TIME_MS: i64 = i64::MAX / 2000;

/// Where a micro-batch stands. Written to the offset log before it runs and the same in every rerun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchInfo {
    /// The query's identity.
    pub query_id: QueryId,
    /// The micro-batch's number.
    pub batch_id: BatchId,
    /// Its processing time: milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The watermark it runs with: milliseconds since the Unix epoch. `None` if the query has none.
    pub watermark_ms: Option<i64>,
    /// The watermark that judges late rows: that of the micro-batch before, as in Spark. (What is over is judged by
    /// `watermark_ms`.)
    pub late_watermark_ms: Option<i64>,
}

impl BatchInfo {
    /// Nothing will ever come after this micro-batch: the sources have an end, and it takes all there is. What waits is
    /// final then, also what waits without a time that a watermark could pass.
    pub fn is_final(&self) -> bool {
        self.watermark_ms == Some(END_OF_TIME_MS)
    }
}

/// Where one call of user code stands: everything that may vary between calls is in here, so a rerun
/// is the same to the bit.
#[derive(Debug, Clone, Copy)]
pub struct CallScope<'a> {
    /// The micro-batch.
    pub batch: &'a BatchInfo,
    /// The operator's stable name within the query.
    pub operator: &'a str,
    /// Which part of the micro-batch: counts the source's blocks from 0.
    pub partition: u64,
    /// Which call within the part, from 0.
    pub call: u64,
}

/// Numbers of pieces have this bit, those of whole calls have not.
const PIECE: u64 = 1 << 63;

/// The number of a piece of a call that has failed as a whole: `count` of its rows or groups, from `first` on. It follows
/// from the piece alone, so the numbers of other calls do not depend on whether one was cut; functions that are called one
/// after the other for the piece may count on from it.
pub fn piece_of_call(call: u64, first: usize, count: usize) -> u64 {
    let bytes = [call, first as u64, count as u64].into_iter().flat_map(u64::to_le_bytes);
    (fnv(bytes) << 16) | PIECE
}

/// FNV-1a.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl CallScope<'_> {
    /// Where a piece of this call stands: see [`piece_of_call`].
    #[must_use]
    pub fn piece(&self, first: usize, count: usize) -> Self {
        Self { call: piece_of_call(self.call, first, count), ..*self }
    }

    /// Whether it is a piece of a call that has failed as a whole.
    pub fn is_piece(&self) -> bool {
        self.call & PIECE != 0
    }

    /// A seed for randomness that depends on nothing but the scope (FNV-1a over its parts).
    pub fn seed(&self) -> u64 {
        let numbers = [self.batch.batch_id.0, self.partition, self.call];
        let bytes = self.batch.query_id.0.bytes().chain([0]).chain(self.operator.bytes()).chain([0]);
        fnv(bytes.chain(numbers.iter().flat_map(|n| n.to_le_bytes())))
    }
}

/// Why a row left the query without reaching the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossKind {
    /// The source's record did not decode.
    Malformed,
    /// A function refused the row.
    Refused,
    /// The row's event time was behind the watermark.
    Late,
    /// A function failed on the row: a call of it alone trapped, overran a limit or said that it failed.
    Poison,
}

impl LossKind {
    /// The word used in dead letters and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::Poison => "poison",
        }
    }
}

/// A row that goes to the dead-letter output instead of the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Why.
    pub kind: LossKind,
    /// The source or the operator that gave it up.
    pub origin: String,
    /// Its position in the source, if known: `flights-03.csv:117`, `topic-2@4711`.
    pub position: Option<String>,
    /// What was wrong with it, for a person.
    pub reason: String,
    /// The plugin that refused it, or failed on it.
    pub plugin: Option<PluginDigest>,
    /// The original bytes; of a row that was refused or failed on its columns as JSON.
    pub payload: Bytes,
    /// The message that it was, if it did not decode and came from a topic.
    pub message: Option<MessageOrigin>,
}

/// Where a message lay, and the key that it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageOrigin {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number.
    pub partition: i32,
    /// Its place there.
    pub offset: i64,
    /// Its key, if it had one.
    pub key: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_call_has_a_seed_of_its_own_that_follows_from_the_piece() {
        let batch = BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(3),
            time_ms: 0,
            watermark_ms: None,
            late_watermark_ms: None,
        };
        let whole = CallScope { batch: &batch, operator: "o", partition: 1, call: 4 };
        assert_eq!(whole.piece(0, 8).seed(), whole.piece(0, 8).seed());
        let pieces = [
            whole,
            whole.piece(0, 8),
            whole.piece(8, 8),
            whole.piece(8, 4),
            CallScope { call: 5, ..whole }.piece(0, 8),
        ];
        let seeds: std::collections::BTreeSet<u64> = pieces.iter().map(CallScope::seed).collect();
        assert_eq!(seeds.len(), pieces.len());
    }
}
