//! The port to the state of stateful operators. Spark's `StateStore`.

use crate::{BatchId, Result};
use bytes::Bytes;
use std::ops::Range;

/// The state of one query, divided into named tables (an operator has one or several).
///
/// Keys are ordered by their bytes, so an operator that lays out its keys by time can find what expires
/// with [`StateStore::scan`]. Changes are seen at once by the operator that made them and become part of the
/// query's state when the micro-batch that made them is committed.
pub trait StateStore: Send {
    /// The values of many keys, in the order asked.
    fn get_many(&self, table: &str, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>>;
    /// Applies changes, in order.
    fn apply(&mut self, table: &str, changes: Vec<StateOp>) -> Result<()>;
    /// The entries of a key range in key order, at most `limit`.
    fn scan(&self, table: &str, keys: Range<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>>;
    /// Entries of a table.
    fn len(&self, table: &str) -> Result<u64>;
    /// Whether a table has no entry.
    fn is_empty(&self, table: &str) -> Result<bool> {
        Ok(self.len(table)? == 0)
    }
    /// Makes the changes of this micro-batch durable; they count once the commit log names the batch.
    fn commit(&mut self, batch_id: BatchId) -> Result<()>;
    /// Forgets the changes since the last commit.
    fn rollback(&mut self) -> Result<()>;
}

/// One change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateOp {
    /// Sets a key's value.
    Put(Bytes, Bytes),
    /// Removes a key; none is no error.
    Remove(Bytes),
}
