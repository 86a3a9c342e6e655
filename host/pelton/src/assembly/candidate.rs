//! Another version of a plugin, made ready to take over in a running query; and the versions that go on after a start
//! because they were swapped in.
//!
//! Called off the hot path: it compiles. Everything that can be refused of a version is refused here or by the engine's
//! comparison, with the difference.

use super::{Assembly, Planned, Plugins, logic_of, physical_plan, sink};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pelton_checkpoint::SwappedPlugin;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, FileManager, PluginDigest, Result, Table};
use pelton_engine::{Candidate, Logic, Recovered, SwapKind};
use pelton_plan::file::SinkSpec;
use pelton_plan::{PhysicalPlan, PipelineFile};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a running query was made of: enough to plan it once more with another version of a plugin.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) plugins: Plugins,
    pub(super) tables: BTreeMap<String, Arc<dyn Table>>,
    /// All columns of each source.
    pub(super) sources: BTreeMap<String, SchemaRef>,
    /// The columns that are read of it, in the order of the inputs.
    pub(super) given: Vec<(String, SchemaRef)>,
    pub(crate) checkpoint: Arc<dyn FileManager>,
    pub(super) plan: Arc<PhysicalPlan>,
    pub(crate) logic: Logic,
}

impl Assembly {
    /// The query as it would be with these bytes for one of its plugins.
    pub(crate) fn candidate(
        &self,
        file: &PipelineFile,
        running: &Parts,
        plugin: &str,
        bytes: Bytes,
        kind: SwapKind,
    ) -> Result<(Candidate, Parts)> {
        if running.plugins.digest(plugin).is_none() {
            let near = did_you_mean(plugin, file.plugins.keys().map(String::as_str));
            return Err(Error::invalid(format!(
                "the query '{}' has no plugin '{plugin}'{near}",
                file.name.value
            )));
        }
        let plugins = running.plugins.with_code(&self.host, file, vec![(plugin.to_owned(), bytes)])?;
        let plan = physical_plan(file, &plugins, &running.sources, &running.tables)?;
        check_reads(&plan, &running.given, plugin)?;
        let schemas: Vec<SchemaRef> = running.given.iter().map(|(_, schema)| Arc::clone(schema)).collect();
        let logic = logic_of(&plan, &plugins, &schemas)?;
        let is_sink = |spec: &pelton_plan::file::PluginSink| {
            spec.plugin.value.split_once('.').is_some_and(|(name, _)| name == plugin)
        };
        let sink = match &file.sink {
            SinkSpec::Plugin(spec) if self.given.is_none() && is_sink(spec) => {
                Some(sink::open(file, &plan, &plugins)?)
            }
            _ => None,
        };
        let parts = Parts { plugins, plan: plan.into(), logic: logic.clone(), ..running.clone() };
        Ok((Candidate { plugin: plugin.to_owned(), logic, sink, kind, is_in_file: false }, parts))
    }

    /// The plugins with the versions that were swapped in while the query ran, if the file is as it was then; and the
    /// digests of those that the file names.
    pub(super) async fn with_swapped_in(
        &self,
        file: &PipelineFile,
        recovered: &Recovered,
        planned: Planned,
    ) -> Result<(Planned, BTreeMap<String, PluginDigest>)> {
        let mut written = planned.plugins.clone();
        let swaps = recovered.resume().newest_entry().map(|entry| &entry.swaps);
        if let Some((name, offered)) = &planned.offered
            && let Some(swapped) = swaps.and_then(|swaps| swaps.get(name))
            && offered.digest(name) == Some(&swapped.instead_of)
        {
            written = written.with_version_of(name, offered);
        }
        let in_file = written.digests();
        let swapped_in = recovered.swapped_in(&in_file);
        for (name, swapped) in swaps.into_iter().flatten() {
            let written = in_file.get(name);
            if !swapped_in.contains_key(name) && written.is_some_and(|digest| *digest != swapped.instead_of) {
                tracing::info!(
                    "plugin '{name}' was swapped while the query ran; what the pipeline file names since counts"
                );
            }
        }
        let mut code = Vec::new();
        for (name, digest) in &swapped_in {
            if let Some(swapped) = swaps.and_then(|swaps| swaps.get(name)) {
                let kept = recovered.checkpoint().files().as_ref();
                tracing::warn!("{}", goes_on_words(file, name, (digest, swapped), kept));
            }
            code.push((name.clone(), recovered.load_plugin(digest).await?));
        }
        let plugins = written.with_code(&self.host, file, code)?;
        Ok((Planned { plugins, ..planned }, in_file))
    }
}

/// The sources that run give only the columns that the version before needs.
fn check_reads(plan: &PhysicalPlan, given: &[(String, SchemaRef)], plugin: &str) -> Result<()> {
    for (input, (name, schema)) in plan.inputs.iter().zip(given) {
        let is_missing = |column: &&String| schema.index_of(column).is_err();
        if let Some(column) = input.required_columns.iter().find(is_missing) {
            return Err(Error::invalid(format!(
                "plugin '{plugin}' is not swapped: the new version needs the column '{column}' of the source '{name}', \
                 which the running query does not read"
            ))
            .hint("stop the query, give the pipeline file the new version, and start it again"));
        }
    }
    Ok(())
}

/// Why another version goes on than the one that the file names, and how to make that permanent once it has stood its
/// probation.
fn goes_on_words(
    file: &PipelineFile,
    name: &str,
    (digest, swapped): (&PluginDigest, &SwappedPlugin),
    checkpoint: &dyn FileManager,
) -> String {
    let path = file.plugins.get(name).map(|spec| spec.options().path.value).unwrap_or_default();
    let kept = format!("{}/plugins/{digest}.wasm", checkpoint.url().trim_end_matches('/'));
    let kept = kept.strip_prefix("file://").unwrap_or(&kept);
    // A version that was swapped in has that of the file among those before it.
    let why = match swapped.before.contains(&swapped.instead_of) || swapped.probation.is_some() {
        true => {
            "goes on in the version that was swapped in while the query ran, not in that of the pipeline file"
        }
        false => "goes on in the version before that of the pipeline file, which was swapped back",
    };
    let then = match &swapped.probation {
        Some(probation) => format!("it is on probation until micro-batch {}", probation.until),
        None => format!("to make it permanent: cp '{kept}' '{path}'"),
    };
    format!("plugin '{name}' {why}; {then}")
}
