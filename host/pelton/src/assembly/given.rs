//! Parts of a query that come from elsewhere than its file says: what a test script puts in their place.
//!
//! `commands/test` makes them, the assembly uses them instead of the file's. Nothing is opened here.

use arrow::datatypes::SchemaRef;
use pelton_core::{Clock, FileManager, QueryId, Result, Sink, Source};
use pelton_engine::Start;
use pelton_plan::PipelineFile;
use pelton_plan::file::SourceSpec;
use std::sync::Arc;

/// A source that takes the place of one of the file's, before it is known which columns the plan reads.
pub(crate) trait GivenSource: Send {
    /// All columns.
    fn full_schema(&self) -> SchemaRef;
    /// Gives only these columns; all if the plan cannot say.
    fn cut(self: Box<Self>, columns: Option<&[String]>) -> Result<Arc<dyn Source>>;
}

/// Makes the source that takes the place of one of a file.
pub(crate) type GiveSource =
    dyn Fn(&PipelineFile, &str, &SourceSpec) -> Result<Box<dyn GivenSource>> + Send + Sync;

/// Everything that a query has outside of its steps.
pub(crate) struct Given {
    /// Makes its sources.
    pub(crate) sources: Box<GiveSource>,
    /// Where its rows go.
    pub(crate) sink: Arc<dyn Sink>,
    /// Its clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Its checkpoint.
    pub(crate) checkpoint: Arc<dyn FileManager>,
    /// Its identity, so that every run of a script is the same.
    pub(crate) query_id: QueryId,
}

impl Given {
    pub(super) fn source(
        &self,
        file: &PipelineFile,
        name: &str,
        spec: &SourceSpec,
    ) -> Result<Box<dyn GivenSource>> {
        (self.sources)(file, name, spec)
    }

    pub(super) fn start(&self, name: String) -> Start {
        Start {
            query_id: Some(self.query_id.clone()),
            ..Start::new(name, Arc::clone(&self.checkpoint), Arc::clone(&self.clock))
        }
    }
}
