//! Whose checkpoint this is. Written once, when a query starts for the first time. Spark's `StreamMetadata`.
//!
//! Called by [`crate::Checkpoint::open`] and by the commands that show a checkpoint.

use crate::log::damage_error;
use crate::{entry, layout};
use pelton_core::{Created, Error, FileManager, QueryId, Result};
use serde::{Deserialize, Serialize};

/// The query that a checkpoint belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// Made with the checkpoint, kept for life.
    pub query_id: QueryId,
    /// The pipeline file's `name`.
    pub query_name: String,
    /// Milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// The version of Pelton that made it, for a person who looks.
    pub created_by: String,
}

const WAY_OUT: &str =
    "restore the file from a backup; without one, start over with a new checkpoint and a new output";

impl Metadata {
    /// Reads and checks the metadata of a checkpoint; `None` if there is none yet.
    pub async fn read(files: &dyn FileManager) -> Result<Option<Self>> {
        let Some(content) = files.read(layout::METADATA).await? else { return Ok(None) };
        let file = format!("{}/{}", files.url(), layout::METADATA);
        entry::decode(&content).map(Some).map_err(|damage| damage_error(&file, damage, WAY_OUT))
    }

    /// Makes these the metadata of a new checkpoint, or gives those of another run that was quicker.
    pub(crate) async fn create(self, files: &dyn FileManager) -> Result<Self> {
        match files.create(layout::METADATA, entry::encode(&self)?).await? {
            Created::New => Ok(self),
            Created::Exists => Self::read(files).await?.ok_or_else(|| {
                Error::fenced(format!(
                    "the checkpoint {} is being deleted while this run starts",
                    files.url()
                ))
                .hint("let whatever deletes it finish, then start again")
            }),
        }
    }

    /// Refuses the checkpoint of another query.
    pub fn check_name(&self, query_name: &str, url: &str) -> Result<()> {
        if self.query_name == query_name {
            return Ok(());
        }
        let theirs = &self.query_name;
        Err(Error::invalid(format!(
            "the checkpoint {url} belongs to the query '{theirs}', not to '{query_name}'"
        ))
        .hint(format!(
            "choose another directory under `checkpoint:`; or, if this is the same query under a new name, set \
             `name: {theirs}` again"
        )))
    }
}
