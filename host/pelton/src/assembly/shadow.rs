//! A running query and the same with another version of one of its plugins, put together beside it: used by the shadow of
//! a swap.
//!
//! Both have sources, tables and plugins of their own, so that they are in nobody's way and what they cost is counted apart.
//! The checkpoint is read alone, and there is no sink.

use super::{Assembly, OpenSource, Parts, Plugins, cut, physical_plan, state_options, table, with_replays};
use bytes::Bytes;
use pelton_checkpoint::{Metadata, layout};
use pelton_core::{
    Error, FileManager, OverlayFiles, Plugin, Result, Source, StateCommit, StateLayout, StateStore, Table,
};
use pelton_engine::Replay;
use pelton_operators::{QueryDataflow, state_layouts};
use pelton_plan::file::SourceSpec;
use pelton_plan::{PhysicalPlan, PipelineFile};
use pelton_state::ForkedStateStore;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One of the two.
pub(crate) struct Fork {
    /// Runs its micro-batches.
    pub(crate) replay: Replay,
    /// The plugin that is to be swapped, in this version.
    pub(crate) plugin: Arc<dyn Plugin>,
    /// What its state consists of.
    pub(crate) layouts: Vec<StateLayout>,
}

/// Both.
pub(crate) struct Forks {
    pub(crate) running: Fork,
    pub(crate) new: Fork,
    /// The columns by which rows of both belong together; without any they are compared as a whole.
    pub(crate) key: Vec<String>,
}

/// What both of them read.
struct Read {
    sources: Vec<(String, Arc<dyn Source>)>,
    tables: BTreeMap<String, Arc<dyn Table>>,
}

impl Assembly {
    /// The query as it runs, and with these bytes for one of its plugins. `key`: see [`Forks::key`]; none stands for what the
    /// last stateful operator groups by, if the rows have that.
    pub(crate) async fn forks(
        self: &Arc<Self>,
        file: &PipelineFile,
        parts: &Parts,
        (plugin, bytes): (&str, Bytes),
        key: &[String],
    ) -> Result<Forks> {
        file.sources.value.iter().try_for_each(|(name, source)| check_stays(file, name, source))?;
        let tables = table::open_all(file, &self.stores).await?;
        let work = {
            let (assembly, file, parts) = (Arc::clone(self), file.clone(), parts.clone());
            let (name, tables) = (plugin.to_owned(), tables.clone());
            move || assembly.planned_forks(&file, &parts, (name, bytes), &tables)
        };
        let planned = tokio::task::spawn_blocking(work).await;
        let [running, new] =
            planned.map_err(|e| Error::internal(format!("planning a shadow did not end: {e}")))??;
        let key = key_columns(&running.1, key)?;

        let files: Arc<dyn FileManager> = Arc::new(OverlayFiles::new(Arc::clone(&parts.checkpoint)));
        let logs = |name: &str| files.subtree(&format!("{}/{name}", layout::SOURCES));
        let sources: BTreeMap<String, OpenSource> = self.open_sources(file, &logs).await?;
        let sources = with_replays(cut(sources, &running.1, Some(&new.1))?, files.subtree(layout::REPLAYS))?;
        let metadata = Metadata::read(files.as_ref()).await?;
        let query_id = metadata.ok_or_else(|| Error::internal("a running query without an id"))?.query_id;
        let read = Read { sources, tables };
        let fork = |(plugins, plan): (Plugins, PhysicalPlan)| -> Result<Fork> {
            let schemas: Vec<_> = read.sources.iter().map(|(_, source)| source.schema()).collect();
            let dataflow = QueryDataflow::bind(&plan, &schemas)?;
            let replay = Replay::new(query_id.clone(), dataflow, read.sources.clone(), read.tables.clone());
            let loaded = plugins.loaded().remove(plugin);
            Ok(Fork {
                // The query goes first: this takes its time.
                replay: replay.parallelism(1),
                plugin: loaded.ok_or_else(|| Error::internal("a shadow without its plugin"))?,
                layouts: state_layouts(&plan)?,
            })
        };
        Ok(Forks { running: fork(running)?, new: fork(new)?, key })
    }

    fn planned_forks(
        &self,
        file: &PipelineFile,
        parts: &Parts,
        (plugin, bytes): (String, Bytes),
        tables: &BTreeMap<String, Arc<dyn Table>>,
    ) -> Result<[(Plugins, PhysicalPlan); 2]> {
        let [running, new] = parts.plugins.beside(&self.host, file, (plugin, bytes))?;
        let plan = |plugins: &Plugins| physical_plan(file, plugins, &parts.sources, tables);
        let plans = (plan(&running)?, plan(&new)?);
        Ok([(running, plans.0), (new, plans.1)])
    }
}

/// The state that a commit of the running query names, for one of the two alone; none if it keeps none.
pub(crate) async fn forked_state(
    file: &PipelineFile,
    checkpoint: &Arc<dyn FileManager>,
    fork: &Fork,
    commit: Option<&StateCommit>,
) -> Result<Option<Box<dyn StateStore>>> {
    if !fork.replay.is_stateful() {
        return Ok(None);
    }
    let store =
        ForkedStateStore::open(checkpoint.subtree(layout::STATE), commit, state_options(file)).await?;
    Ok(Some(Box::new(store)))
}

/// What is read beside the query is read once more, after the query has committed it.
fn check_stays(file: &PipelineFile, name: &str, source: &SourceSpec) -> Result<()> {
    let why = match source {
        SourceSpec::Http(_) => "an http source deletes rows when they are committed",
        SourceSpec::Socket(_) => "a socket gives rows once",
        SourceSpec::Stdin(_) => "stdin gives rows once",
        SourceSpec::Memory(_) => "a memory source gives rows in a test script only",
        SourceSpec::File(_) | SourceSpec::Kafka(_) | SourceSpec::Rate(_) => return Ok(()),
    };
    let what = format!("the source '{name}' cannot be read a second time beside the query: {why}");
    Err(file.text().error(file.sources.span, what).hint(
        "--dry-run compares the versions and tries the migration; a swap is on probation and undone if it fails",
    ))
}

/// The columns by which rows belong together.
fn key_columns(plan: &PhysicalPlan, wanted: &[String]) -> Result<Vec<String>> {
    let has = |column: &String| plan.schema.index_of(column).is_ok();
    if let Some(unknown) = wanted.iter().find(|column| !has(column)) {
        let names = || plan.schema.fields().iter().map(|field| field.name().as_str());
        let near = pelton_core::suggest::did_you_mean(unknown, names());
        return Err(Error::invalid(format!("the rows for the sink have no column '{unknown}'{near}"))
            .hint(format!("the columns are {}", names().collect::<Vec<_>>().join(", "))));
    }
    if !wanted.is_empty() {
        return Ok(wanted.to_vec());
    }
    let layout = plan.nodes.last().and_then(|node| node.layout.as_ref());
    let keys: Vec<String> =
        layout.into_iter().flat_map(|layout| &layout.keys).map(|key| key.name.clone()).collect();
    Ok(if keys.iter().all(has) { keys } else { Vec::new() })
}
