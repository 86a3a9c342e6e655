//! State in memory, with the meaning of commit and rollback that every store has.
//!
//! Called by the engine's operators through the port, in tests and in runs without a checkpoint.

use crate::tables::Tables;
use async_trait::async_trait;
use pelton_core::{BatchId, Error, Result, StateCommit, StateShard, StateStore};
use std::collections::BTreeSet;

/// A [`StateStore`] without files. Nothing of it outlives the process.
#[derive(Debug, Default)]
pub struct MemoryStateStore {
    tables: Tables,
    committed: Option<BatchId>,
}

impl MemoryStateStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The last micro-batch whose changes count.
    pub fn committed(&self) -> Option<BatchId> {
        self.committed
    }
}

#[async_trait]
impl StateStore for MemoryStateStore {
    fn shards(&mut self) -> Vec<&mut dyn StateShard> {
        self.tables.shards()
    }

    fn len(&self, table: &str) -> u64 {
        self.tables.len(table)
    }

    fn tables(&self) -> BTreeSet<String> {
        self.tables.names()
    }

    async fn commit(&mut self, batch_id: BatchId) -> Result<StateCommit> {
        check_order(self.committed, batch_id)?;
        self.tables.keep();
        self.committed = Some(batch_id);
        Ok(StateCommit::default())
    }

    fn rollback(&mut self) -> Result<()> {
        self.tables.rollback();
        Ok(())
    }
}

/// Micro-batches are committed in their order.
pub(crate) fn check_order(committed: Option<BatchId>, batch_id: BatchId) -> Result<()> {
    match committed {
        Some(last) if last >= batch_id => Err(Error::internal(format!(
            "the state of micro-batch {batch_id} is committed already, up to {last}"
        ))),
        _ => Ok(()),
    }
}
