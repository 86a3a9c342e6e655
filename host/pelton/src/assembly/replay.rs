//! What a logged micro-batch ran with, put together again for reading: used by `pelton replay`.
//!
//! Sources and state are opened over files whose writes stay in memory, the sink not at all.

use super::{Assembly, OpenSource, Planned, Plugins, cut, physical_plan, state_options, with_replays};
use pelton_checkpoint::{layout, plugins};
use pelton_core::{
    BatchId, Dataflow, Error, FileManager, OverlayFiles, PluginDigest, QueryId, Result, StateCommit,
    StateLayout, StateStore,
};
use pelton_engine::Replay;
use pelton_operators::{QueryDataflow, state_layouts};
use pelton_plan::PipelineFile;
use pelton_state::CheckpointedStateStore;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Plugins by their name in the file.
pub(crate) type Digests = BTreeMap<String, PluginDigest>;

/// A query whose micro-batches are run again.
pub(crate) struct Replays<'a> {
    assembly: &'a Assembly,
    file: &'a PipelineFile,
    planned: Planned,
    query_id: QueryId,
    files: Arc<dyn FileManager>,
    /// What was put together for some plugins: micro-batches mostly ran with the same.
    known: Vec<(Digests, Arc<Code>)>,
}

/// The query with some version of its plugins.
pub(crate) struct Code {
    /// Runs its micro-batches.
    pub(crate) replay: Replay,
    /// What its state consists of.
    pub(crate) layouts: Vec<StateLayout>,
}

impl<'a> Replays<'a> {
    /// Of a query whose checkpoint lies in `files`, of which nothing is changed.
    pub(crate) fn new(
        assembly: &'a Assembly,
        file: &'a PipelineFile,
        planned: Planned,
        files: &Arc<dyn FileManager>,
        query_id: QueryId,
    ) -> Self {
        let files = Arc::new(OverlayFiles::new(Arc::clone(files)));
        Self { assembly, file, planned, query_id, files, known: Vec::new() }
    }

    /// The plugins of a micro-batch with those of the command line in their place; all of them those of the pipeline file
    /// if the command line names none and `all` is set.
    pub(crate) fn given(&self, logged: &Digests, all: bool) -> Digests {
        let overrides = &self.assembly.overrides;
        let is_given = |name: &str| if overrides.is_empty() { all } else { overrides.has(name) };
        let digest = |(name, logged): (&String, &PluginDigest)| {
            let now = self.planned.plugins.digest(name).filter(|_| is_given(name));
            (name.clone(), now.unwrap_or(logged).clone())
        };
        logged.iter().map(digest).collect()
    }

    /// The query with these plugins; the code comes from the checkpoint, unless the pipeline file has the same.
    pub(crate) async fn code(&mut self, batch_id: BatchId, digests: &Digests) -> Result<Arc<Code>> {
        if let Some((_, code)) = self.known.iter().find(|(known, _)| known == digests) {
            return Ok(Arc::clone(code));
        }
        let plugins = self.plugins(batch_id, digests).await?;
        let logs = |name: &str| self.files.subtree(&format!("{}/{name}", layout::SOURCES));
        let sources: BTreeMap<String, OpenSource> = self.assembly.open_sources(self.file, &logs).await?;
        let plan = physical_plan(self.file, &plugins, &super::schemas(&sources), &self.planned.tables)?;
        let sources = with_replays(cut(sources, &plan, None)?, self.files.subtree(layout::REPLAYS))?;
        let schemas: Vec<_> = sources.iter().map(|(_, source)| source.schema()).collect();
        let dataflow: Arc<dyn Dataflow> = QueryDataflow::bind(&plan, &schemas)?;
        let tables = self.planned.tables.iter().map(|(name, table)| (name.clone(), Arc::clone(table)));
        let code = Arc::new(Code {
            replay: Replay::new(self.query_id.clone(), dataflow, sources, tables),
            layouts: state_layouts(&plan)?,
        });
        self.known.push((digests.clone(), Arc::clone(&code)));
        Ok(code)
    }

    async fn plugins(&self, batch_id: BatchId, digests: &Digests) -> Result<Plugins> {
        let now = &self.planned.plugins;
        let mut code = Vec::new();
        for (name, digest) in digests {
            match now.digest(name) {
                Some(current) if current == digest => {}
                Some(_) => code.push((name.clone(), plugins::load(self.files.as_ref(), digest).await?)),
                None => {
                    return Err(Error::invalid(format!(
                        "{}: micro-batch {batch_id} ran with a plugin '{name}', which is not in the file",
                        self.file.text().name()
                    ))
                    .hint("give the pipeline file with which the query ran then"));
                }
            }
        }
        now.with_code(&self.assembly.host, self.file, code)
    }

    /// The state that a commit names.
    pub(crate) async fn state(&self, commit: Option<&StateCommit>) -> Result<Box<dyn StateStore>> {
        let files = self.files.subtree(layout::STATE);
        let store = CheckpointedStateStore::open_with(files, commit, state_options(self.file)).await?;
        Ok(Box::new(store))
    }
}
