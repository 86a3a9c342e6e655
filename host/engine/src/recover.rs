//! The first step of a start: own the checkpoint and learn where to go on, before anything is assembled.
//!
//! Called by the binary. What it learns decides what must be loaded: a micro-batch that runs again wants the
//! plugins that its entry names, which are perhaps not those of the pipeline file.

use crate::swap::in_force;
use bytes::Bytes;
use pelton_checkpoint::{Checkpoint, MIN_BATCHES_TO_RETAIN, Opening, Resume};
use pelton_core::{
    BatchId, Clock, Error, FileManager, PluginDigest, QueryId, Result, RunId, StateCommit, StateLayout,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A query that is to start.
#[derive(Clone)]
pub struct Start {
    /// The pipeline file's `name`.
    pub query_name: String,
    /// The checkpoint's tree ([`pelton_core::MemoryFiles`] for a run that is not to be remembered).
    pub files: Arc<dyn FileManager>,
    /// The query's clock.
    pub clock: Arc<dyn Clock>,
    /// The id of the query if the checkpoint is new; `None` makes a UUID. Functions' random seeds follow from it, so
    /// a run without a checkpoint that is to be repeatable sets it.
    pub query_id: Option<QueryId>,
    /// How many micro-batches the logs remember, at least 2.
    pub min_batches_to_retain: u64,
}

impl Start {
    /// With Spark's retention and a new id.
    pub fn new(query_name: impl Into<String>, files: Arc<dyn FileManager>, clock: Arc<dyn Clock>) -> Self {
        let query_name = query_name.into();
        Self { query_name, files, clock, query_id: None, min_batches_to_retain: MIN_BATCHES_TO_RETAIN }
    }

    /// Takes the checkpoint and reads its logs. Errors: those of [`Checkpoint::open`] and [`Checkpoint::resume`].
    pub async fn recover(self) -> Result<Recovered> {
        let opening = Opening {
            query_name: self.query_name,
            new_query_id: self.query_id.unwrap_or_else(|| QueryId(random_uuid())),
            run_id: RunId(random_uuid()),
            now_ms: self.clock.now_ms(),
            min_batches_to_retain: self.min_batches_to_retain,
        };
        let checkpoint = Checkpoint::open(self.files, opening).await?;
        let resume = checkpoint.resume().await?;
        let layouts = match resume.last_commit().and_then(|commit| commit.layout.as_ref()) {
            Some(id) => Some(checkpoint.load_layouts(id).await?),
            None => None,
        };
        Ok(Recovered { checkpoint, resume, layouts, clock: self.clock })
    }
}

/// A query whose checkpoint is owned and read; [`crate::Query::builder`] takes it.
pub struct Recovered {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) resume: Resume,
    /// What the state of the last committed micro-batch consists of, if that was recorded.
    pub(crate) layouts: Option<Vec<StateLayout>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Recovered {
    /// The checkpoint: trees for the sources' and the sink's own logs, the query's id.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Where to go on.
    pub fn resume(&self) -> &Resume {
        &self.resume
    }

    /// The query's identity.
    pub fn query_id(&self) -> &QueryId {
        &self.checkpoint.metadata().query_id
    }

    /// The last micro-batch that is surely done.
    pub fn last_committed(&self) -> Option<BatchId> {
        self.resume.last_committed()
    }

    /// The plugins that the micro-batch to be repeated ran with, by name. `None` if none is to be repeated.
    pub fn rerun_plugins(&self) -> Option<&BTreeMap<String, PluginDigest>> {
        match &self.resume {
            Resume::Rerun { entry, .. } => Some(&entry.plugins),
            Resume::Fresh | Resume::Next { .. } => None,
        }
    }

    /// The versions that were swapped in while the query ran and go on instead of those that the pipeline file names, which
    /// are `in_file`. The engine is told of them with [`crate::QueryBuilder::file_plugins`].
    pub fn swapped_in(&self, in_file: &BTreeMap<String, PluginDigest>) -> BTreeMap<String, PluginDigest> {
        self.resume.newest_entry().map(|entry| in_force(entry, in_file)).unwrap_or_default()
    }

    /// What the state of the last committed micro-batch consists of; nothing if that was not recorded.
    pub fn layouts(&self) -> &[StateLayout] {
        self.layouts.as_deref().unwrap_or_default()
    }

    /// The bytes of a plugin that the logs name, from the checkpoint.
    pub async fn load_plugin(&self, digest: &PluginDigest) -> Result<Bytes> {
        self.checkpoint.load_plugin(digest).await
    }

    /// The state that the next micro-batch begins with, for the state store to be opened at: that of the last
    /// committed one. `None`: there is none yet. Refused if the records that name it are lost.
    pub fn state_commit(&self) -> Result<Option<&StateCommit>> {
        if let Resume::Rerun { batch_id, commits_lost: true, .. } = &self.resume {
            let url = self.checkpoint.files().url();
            return Err(Error::data(format!(
                "micro-batch {batch_id} must run again on the state of the one before it, but the commit log of the \
                 checkpoint {url}, which says where that state is, has lost its record of it"
            ))
            .hint(
                "restore `commits/` from a backup; without one, start over with a new checkpoint and a new output",
            ));
        }
        Ok(self.resume.last_commit().and_then(|commit| commit.state.as_ref()))
    }
}

/// Names of queries and runs are the only random thing in the engine; the query's is kept for life in its checkpoint.
#[allow(clippy::disallowed_methods, reason = "an identity, not data")]
fn random_uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}
