//! The port to where dead letters go beside their file in the checkpoint: to a topic, for those who look after them elsewhere.

use crate::{BatchId, BatchInfo, DeadLetter, PluginDigest, QueryId, Result};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plugins that a micro-batch runs with: their names in the pipeline file.
pub type PluginNames = Arc<BTreeMap<PluginDigest, String>>;

/// What must be known before the first micro-batch of a run.
#[derive(Debug, Clone)]
pub struct DeadLetterContext {
    /// The pipeline file's `name`.
    pub query_name: String,
    /// The query's identity: with the batch id it makes a micro-batch's letters recognisable.
    pub query_id: QueryId,
    /// The last micro-batch that the commit log knows.
    pub last_committed: Option<BatchId>,
    /// The micro-batch that was begun and must run again, if there is one.
    pub unfinished: Option<BatchId>,
}

/// Where dead letters go, too.
#[async_trait]
pub trait DeadLetterSink: Send + Sync {
    /// Called once a run, before the first micro-batch.
    async fn open(&self, context: DeadLetterContext) -> Result<()>;
    /// What it waits for without being able to go on, for people.
    fn waits_for(&self) -> Option<String> {
        None
    }
    /// Begins those of a micro-batch. Nothing happens before there are any.
    fn begin(&self, batch: &Arc<BatchInfo>, plugins: &PluginNames) -> Box<dyn DeadLetterWriter>;
}

/// The dead letters of one micro-batch, being written. Dropping it without `finish` leaves nothing that counts.
#[async_trait]
pub trait DeadLetterWriter: Send {
    /// Appends letters, in order.
    async fn append(&mut self, letters: &[DeadLetter]) -> Result<()>;
    /// Makes them durable. Those of a micro-batch that are there from a run before stay as they are.
    async fn finish(&mut self) -> Result<()>;
}
