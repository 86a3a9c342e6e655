//! From a pipeline file to a query that is ready to run: the one place that knows every crate.
//!
//! Called by `run`, `check`, `explain` and `test`. Everything that can be refused is refused before a checkpoint is touched:
//! the plan is made over a source whose log is in memory, then the checkpoint is taken and the parts are made for it.

mod candidate;
mod changed;
mod feed;
mod given;
mod kafka;
mod memory;
mod plugins;
mod replay;
mod sample;
mod shadow;
mod sink;
mod source;
mod table;

pub(crate) use candidate::Parts;
pub(crate) use feed::columns_of_lines;
pub(crate) use given::{Given, GivenSource};
pub(crate) use kafka::schema as kafka_schema;
pub(crate) use plugins::{Overrides, Plugins};
pub(crate) use replay::{Code, Digests, Replays};
pub(crate) use sample::{Migrated, migrated};
pub(crate) use shadow::{Fork, Forks, forked_state};
pub(crate) use source::format_options;

use crate::cli::PipelineArgs;
use arrow::datatypes::SchemaRef;
use pelton_checkpoint::files::open_url;
use pelton_connectors::source::{ReplayLog, ReplaySource, Stores};
use pelton_core::{
    Clock, Dataflow, DeadLetterSink, Error, FileManager, MemoryFiles, Plugin, PluginDigest, Result, Sink,
    Source, StateStore, Table, Trigger,
};
use pelton_engine::{
    Logic, Query, QueryBuilder, Recovered, ResetState, Start, SystemClock, check_output_mode,
};
use pelton_operators::QueryDataflow;
use pelton_plan::file::{DeadLettersSpec, Span, Spanned};
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use pelton_state::{CheckpointedStateStore, StateOptions};
use pelton_wasm::PluginHost;
use source::OpenSource;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads the pipeline files of a command and checks that their queries can live in one process.
pub(crate) fn read(arguments: &PipelineArgs) -> Result<Vec<PipelineFile>> {
    let files =
        arguments.files.iter().map(|path| read_file(path, &arguments.set)).collect::<Result<Vec<_>>>()?;
    for (index, file) in files.iter().enumerate() {
        let name = &file.name;
        if files[..index].iter().any(|other| other.name.value == name.value) {
            return Err(file.text().error(name.span, format!("two queries are named '{}'", name.value)));
        }
    }
    Ok(files)
}

fn read_file(path: &Path, sets: &[String]) -> Result<PipelineFile> {
    let text = std::fs::read_to_string(path)
        .map_err(|why| Error::invalid(format!("cannot read the pipeline file {}: {why}", path.display())))?;
    PipelineFile::read(&text, &path.display().to_string(), sets)
}

/// How the queries of a command run, whatever their files say.
#[derive(Clone, Copy, Default)]
pub(crate) struct RunOptions {
    /// Instead of the files' triggers.
    pub(crate) trigger: Option<Trigger>,
    /// One micro-batch over all there is, remembered nowhere.
    pub(crate) batch: bool,
    /// Worker threads, if not as many as the machine has cores.
    pub(crate) threads: Option<u16>,
    /// A micro-batch that must be repeated runs the plugins of the file, whatever it was begun with.
    pub(crate) rerun_with_current_plugins: bool,
    /// A micro-batch that must be repeated reads its static tables as they are now.
    pub(crate) rerun_with_current_tables: bool,
    /// The query has run in this process already: what the command line says of a start has happened.
    pub(crate) goes_on: bool,
}

/// What all queries of a process share.
pub(crate) struct Assembly {
    host: PluginHost,
    stores: Stores,
    overrides: Overrides,
    given: Option<Given>,
    reset: ResetState,
}

/// A pipeline that was understood and may run: its plan and what the plan stands on.
pub(crate) struct Planned {
    plugins: Plugins,
    tables: BTreeMap<String, Arc<dyn Table>>,
    plan: PhysicalPlan,
    sink: Arc<dyn Sink>,
    /// A version of a plugin that the file may name by now: it does, if the log says so.
    offered: Option<(String, Plugins)>,
}

/// What a start goes on with, given what its checkpoint says.
struct Plans {
    plugins: Plugins,
    tables: BTreeMap<String, Arc<dyn Table>>,
    /// The versions of the plugins that the file names.
    in_file: BTreeMap<String, PluginDigest>,
    plan: PhysicalPlan,
    rerun: Option<(PhysicalPlan, Plugins)>,
    sink: Arc<dyn Sink>,
}

/// A query that owns its checkpoint, and what it was made of.
pub(crate) struct Assembled {
    pub(crate) query: QueryBuilder,
    pub(crate) parts: Parts,
}

/// The tree of their files, and what takes them beside that.
type LettersTo = (Option<Arc<dyn FileManager>>, Option<Arc<dyn DeadLetterSink>>);

/// The sources of a plan, cut down to the columns that it reads. Their logs are in memory: they can be asked, not run.
pub(crate) struct Inputs {
    pub(crate) sources: Vec<(String, Arc<dyn Source>)>,
}

impl Planned {
    /// The plugins, as the file names them.
    pub(crate) fn written(&self) -> &Plugins {
        &self.plugins
    }

    /// A version of this plugin was offered as the one that the file names now; the log knows whether it was taken.
    pub(crate) fn with_offered(mut self, offered: Option<(String, Plugins)>) -> Self {
        self.offered = offered;
        self
    }

    /// For `explain`.
    pub(crate) fn plan(&self) -> &PhysicalPlan {
        &self.plan
    }

    /// The plugins that it calls, by their names in the pipeline file.
    pub(crate) fn plugins(&self) -> BTreeMap<String, Arc<dyn Plugin>> {
        self.plugins.loaded()
    }
}

impl Assembly {
    /// `arguments` says which plugins to take from elsewhere.
    pub(crate) fn new(arguments: &PipelineArgs, files: &[PipelineFile]) -> Result<Self> {
        let overrides = Overrides::new(&arguments.plugins, files)?;
        let stores = Stores::new(std::env::vars());
        let host = match arguments.fresh_instances {
            true => crate::plugins::host_of_fresh_instances()?,
            false => crate::plugins::host()?,
        };
        Ok(Self { host, stores, overrides, given: None, reset: ResetState::Nothing })
    }

    /// The queries' sources, sink, clock and checkpoint are these, whatever their files say.
    pub(crate) fn with_given(mut self, given: Given) -> Self {
        self.given = Some(given);
        self
    }

    /// The operators whose state is forgotten at the start.
    pub(crate) fn with_reset(mut self, reset: ResetState) -> Self {
        self.reset = reset;
        self
    }

    /// Where the file of a plugin is.
    pub(crate) fn plugin_path(&self, file: &PipelineFile, plugin: &str) -> Option<PathBuf> {
        let written = || file.plugins.get(plugin).map(|spec| PathBuf::from(spec.options().path.value));
        self.overrides.get(plugin).map(Path::to_owned).or_else(written)
    }

    /// Everything that can be said of a pipeline without touching its checkpoint.
    pub(crate) async fn plan(&self, file: &PipelineFile, options: RunOptions) -> Result<Planned> {
        if self.given.is_none() {
            checkpoint_files(file, options)?;
            dead_letter_files(file)?;
            kafka::dead_letters(file)?;
        }
        self.plan_with(file, Plugins::load(&self.host, file, &self.overrides)?).await
    }

    /// The same with plugins that are loaded.
    pub(crate) async fn plan_with(&self, file: &PipelineFile, plugins: Plugins) -> Result<Planned> {
        let tables = table::open_all(file, &self.stores).await?;
        let sources = self.open_sources(file, &|_| Arc::new(MemoryFiles::new())).await?;
        let plan = physical_plan(file, &plugins, &schemas(&sources), &tables)?;
        check_accepted(file, &plan)?;
        for warning in &plan.warnings {
            tracing::warn!(query = %plan.name, "{warning}");
        }
        let sink = match &self.given {
            Some(given) => Arc::clone(&given.sink),
            None => sink::open(file, &plan, &plugins)?,
        };
        check_output_mode(sink.as_ref(), plan.output_mode)
            .map_err(|refused| located(file, file.output_mode.span, refused))?;
        Ok(Planned { plugins, tables, plan, sink, offered: None })
    }

    /// The sources as the plan reads them.
    pub(crate) async fn inputs(&self, file: &PipelineFile) -> Result<Inputs> {
        let planned = self.plan(file, RunOptions::default()).await?;
        let sources = self.open_sources(file, &|_| Arc::new(MemoryFiles::new())).await?;
        Ok(Inputs { sources: cut(sources, &planned.plan, None)? })
    }

    /// A query that owns its checkpoint and is ready to run.
    pub(crate) async fn query(
        &self,
        file: &PipelineFile,
        planned: Planned,
        options: RunOptions,
    ) -> Result<Assembled> {
        let recovered = self.recover(file, options).await?;
        let logs = |name: &str| recovered.checkpoint().source_files(name);
        let sources = self.open_sources(file, &logs).await?;
        let full = schemas(&sources);
        let plans = self.plans(file, planned, options, (&recovered, &full)).await?;
        let Plans { plugins, tables, in_file, plan, rerun, sink } = plans;
        let sources = cut(sources, &plan, rerun.as_ref().map(|(plan, _)| plan))?;
        let remembers = self.given.is_none() && checkpoint_files(file, options)?.is_some();
        let sources =
            if remembers { with_replays(sources, recovered.checkpoint().replay_files())? } else { sources };
        let (dead_letters, dead_letter_topic) = self.dead_letters(file, &recovered)?;
        let trigger = if options.batch { Trigger::Once } else { options.trigger.unwrap_or(plan.trigger) };

        let reset = if options.goes_on { &ResetState::Nothing } else { &self.reset };
        let logic_now = logic(&plan, &plugins, &sources)?;
        let (output_mode, watermark_policy) = (plan.output_mode, plan.watermark_policy);
        let checkpoint = Arc::clone(recovered.checkpoint().files());
        let given = sources.iter().map(|(name, source)| (name.clone(), source.schema())).collect();
        let (plan, of_logic) = (plan.into(), logic_now.clone());
        let parts = Parts { plugins, tables, sources: full, given, checkpoint, plan, logic: of_logic };
        let on_probation = self.on_probation(file, &recovered, &parts, (options, reset)).await?;
        let state = state(file, &recovered, &logic_now, reset).await?;
        let mut query = Query::builder(recovered)
            .logic(logic_now)
            .file_plugins(in_file)
            .on_probation(on_probation)
            .sink(sink)
            .output_mode(output_mode)
            .trigger(trigger)
            .watermark_policy(watermark_policy.into())
            .no_data_batches(file.no_data_batches)
            .accept_changed_state(file.accept_changed_state.iter().map(|name| name.value.clone()))
            .reset_state(reset.clone())
            .bounded(options.batch)
            .rerun_with_current_plugins(options.rerun_with_current_plugins)
            .rerun_with_current_tables(options.rerun_with_current_tables);
        for (name, table) in &parts.tables {
            query = query.table(name, Arc::clone(table));
        }
        if let Some(state) = state {
            query = query.state(state);
        }
        for (name, source) in &sources {
            query = query.input(name, Arc::clone(source));
        }
        if let Some((plan, plugins)) = &rerun {
            query = query.rerun_logic(logic(plan, plugins, &sources)?);
        }
        if let Some(files) = dead_letters {
            query = query.dead_letters(files);
        }
        if let Some(topic) = dead_letter_topic {
            query = query.dead_letter_sink(topic);
        }
        if let Some(threads) = options.threads {
            query = query.parallelism(usize::from(threads));
        }
        Ok(Assembled { query, parts })
    }

    /// Where dead letters go if not into the checkpoint alone: their files, and beside them.
    fn dead_letters(&self, file: &PipelineFile, recovered: &Recovered) -> Result<LettersTo> {
        if self.given.is_some() {
            return Ok((None, None));
        }
        // A directory a query: several may share the tree, and a new checkpoint begins a new one.
        let files = dead_letter_files(file)?.map(|files| files.subtree(recovered.query_id().as_str()));
        let topic = kafka::dead_letters(file)?;
        Ok((files, topic.map(|topic| Arc::new(topic) as Arc<dyn DeadLetterSink>)))
    }

    /// The plan that goes on and, if others are needed for a micro-batch that must be repeated, the plan for that.
    async fn plans(
        &self,
        file: &PipelineFile,
        planned: Planned,
        options: RunOptions,
        (recovered, sources): (&Recovered, &BTreeMap<String, SchemaRef>),
    ) -> Result<Plans> {
        let same_inputs =
            planned.plan.inputs.iter().all(|input| sources.get(&input.name) == Some(&input.schema));
        let (planned, in_file) = match options.rerun_with_current_plugins {
            true => {
                let in_file = planned.plugins.digests();
                (planned, in_file)
            }
            false => self.with_swapped_in(file, recovered, planned).await?,
        };
        let Planned { plugins, tables, plan, sink, .. } = planned;
        let is_swapped = plugins.digests() != in_file;
        let plan = match same_inputs && !is_swapped {
            true => plan,
            // A schema was inferred, and the checkpoint remembers what was inferred first; or a plugin was swapped.
            false => physical_plan(file, &plugins, sources, &tables)?,
        };
        let sink = match &self.given {
            None if is_swapped => sink::open(file, &plan, &plugins)?,
            _ => sink,
        };
        let rerun = match options.rerun_with_current_plugins {
            true => None,
            false => self.rerun_plugins(file, recovered, &plugins).await?,
        };
        let planned_again =
            |plugins| Ok::<_, Error>((physical_plan(file, &plugins, sources, &tables)?, plugins));
        let rerun = rerun.map(planned_again).transpose()?;
        let sink = match (&rerun, &self.given) {
            (Some(then), None) => sink::for_rerun(file, sink, (&plan, &plugins), then)?,
            _ => sink,
        };
        Ok(Plans { plugins, tables, in_file, plan, rerun, sink })
    }

    /// The plugins of a micro-batch that must be repeated, if they are not those of the pipeline file.
    async fn rerun_plugins(
        &self,
        file: &PipelineFile,
        recovered: &Recovered,
        now: &Plugins,
    ) -> Result<Option<Plugins>> {
        let Some(digests) = recovered.rerun_plugins() else { return Ok(None) };
        let mut code = Vec::new();
        for (name, digest) in digests {
            if now.digest(name).is_none() {
                return Err(Error::invalid(format!(
                    "{}: an unfinished micro-batch was begun with a plugin '{name}', which is not in the file",
                    file.text().name()
                ))
                .hint("put it back for one start, or use --rerun-with-current-plugins"));
            }
            if now.digest(name).is_some_and(|current| current != digest) {
                code.push((name.clone(), recovered.load_plugin(digest).await?));
            }
        }
        match code.is_empty() {
            true => Ok(None),
            false => now.with_code(&self.host, file, code).map(Some),
        }
    }

    /// Takes the checkpoint.
    async fn recover(&self, file: &PipelineFile, options: RunOptions) -> Result<Recovered> {
        let name = file.name.value.clone();
        if let Some(given) = &self.given {
            return given.start(name).recover().await;
        }
        let files = checkpoint_files(file, options)?.unwrap_or_else(|| Arc::new(MemoryFiles::new()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let start = Start::new(name, files, clock);
        let retain = &file.min_batches_to_retain;
        if retain.value < 2 {
            let what = "the checkpoint must remember at least the last 2 micro-batches";
            return Err(file.text().error(retain.span, what.to_owned()));
        }
        Start { min_batches_to_retain: retain.value, ..start }.recover().await
    }

    async fn open_sources(
        &self,
        file: &PipelineFile,
        log: &(dyn Fn(&str) -> Arc<dyn FileManager> + Sync),
    ) -> Result<BTreeMap<String, OpenSource>> {
        let mut sources = BTreeMap::new();
        for (name, spec) in &file.sources.value {
            let opened = match &self.given {
                Some(given) => given.source(file, name, spec).map(OpenSource::Given),
                None => source::open(file, name, spec, log(name), &self.stores).await,
            };
            let place = |error: Error| match is_located(file, &error) {
                true => error,
                false => error.context(format_args!("{}: source '{name}'", file.text().name())),
            };
            sources.insert(name.clone(), opened.map_err(place)?);
        }
        Ok(sources)
    }
}

fn physical_plan(
    file: &PipelineFile,
    plugins: &Plugins,
    sources: &BTreeMap<String, SchemaRef>,
    tables: &BTreeMap<String, Arc<dyn Table>>,
) -> Result<PhysicalPlan> {
    let inputs = PlanInputs { sources: sources.clone(), tables: tables.clone(), plugins: plugins.loaded() };
    PhysicalPlan::build(&LogicalPlan::resolve(file, &inputs)?)
}

/// All columns of each source.
fn schemas(sources: &BTreeMap<String, OpenSource>) -> BTreeMap<String, SchemaRef> {
    sources.iter().map(|(name, source)| (name.clone(), source.full_schema())).collect()
}

/// `accept_changed_state` names operators that are there.
fn check_accepted(file: &PipelineFile, plan: &PhysicalPlan) -> Result<()> {
    let keeps_state = plan.nodes.iter().filter(|node| node.layout.is_some());
    let known: Vec<&str> = keeps_state.map(|node| node.name.as_str()).collect();
    let Some(unknown) = file.accept_changed_state.iter().find(|name| !known.contains(&name.value.as_str()))
    else {
        return Ok(());
    };
    let what = format!("no operator '{}' keeps state", unknown.value);
    let there = match known.is_empty() {
        true => "the pipeline has no such operator: leave the key out".to_owned(),
        false => format!("those that do: {}", known.join(", ")),
    };
    Err(file.text().error(unknown.span, what).hint(there))
}

/// The sources of a plan, in its order, cut down to the columns that it reads. A rerun reads with the same sources, so
/// they must have what both plans need.
fn cut(
    mut sources: BTreeMap<String, OpenSource>,
    plan: &PhysicalPlan,
    rerun: Option<&PhysicalPlan>,
) -> Result<Vec<(String, Arc<dyn Source>)>> {
    let inputs = plan.inputs.iter().enumerate().map(|(index, input)| {
        let source = sources.remove(&input.name);
        let source =
            source.ok_or_else(|| Error::internal(format!("the source '{}' is not open", input.name)))?;
        let differs =
            rerun.is_some_and(|rerun| rerun.inputs[index].required_columns != input.required_columns);
        let columns = (!differs).then_some(&input.required_columns[..]);
        Ok((input.name.clone(), source.cut(columns)?))
    });
    inputs.collect()
}

/// The sources, each with the dead letters that are fed back to it.
fn with_replays(
    sources: Vec<(String, Arc<dyn Source>)>,
    files: Arc<dyn FileManager>,
) -> Result<Vec<(String, Arc<dyn Source>)>> {
    let with_replays = |(name, source): (String, Arc<dyn Source>)| {
        let log = ReplayLog::new(Arc::clone(&files));
        let source: Arc<dyn Source> = Arc::new(ReplaySource::new(&name, source, log)?);
        Ok((name, source))
    };
    sources.into_iter().map(with_replays).collect()
}

fn logic(plan: &PhysicalPlan, plugins: &Plugins, sources: &[(String, Arc<dyn Source>)]) -> Result<Logic> {
    let schemas: Vec<SchemaRef> = sources.iter().map(|(_, source)| source.schema()).collect();
    logic_of(plan, plugins, &schemas)
}

fn logic_of(plan: &PhysicalPlan, plugins: &Plugins, schemas: &[SchemaRef]) -> Result<Logic> {
    let dataflow: Arc<dyn Dataflow> = QueryDataflow::bind(plan, schemas)?;
    Ok(Logic { dataflow, plugins: plugins.code() })
}

/// The state of the last committed micro-batch, if the query keeps any, or has kept any that is set aside.
async fn state(
    file: &PipelineFile,
    recovered: &Recovered,
    logic: &Logic,
    reset: &ResetState,
) -> Result<Option<Box<dyn StateStore>>> {
    let commit = recovered.state_commit()?;
    if logic.dataflow.operators().is_empty() && commit.is_none() {
        return Ok(None);
    }
    // What is to be forgotten need not be readable.
    let is_needed = *reset != ResetState::Everything || recovered.rerun_plugins().is_some();
    let commit = commit.filter(|_| is_needed);
    let files = recovered.checkpoint().state_files();
    let store = CheckpointedStateStore::open_with(files, commit, state_options(file)).await?;
    Ok(Some(Box::new(store)))
}

/// What the pipeline file says of the working copy of the state.
pub(crate) fn state_options(file: &PipelineFile) -> StateOptions {
    let default = StateOptions::default();
    StateOptions {
        memory_bytes_max: file.state.memory.as_ref().map_or_else(memory::for_state, |size| size.value.0),
        directory: file.state.directory.as_ref().map_or(default.directory, Into::into),
    }
}

/// Where the query is remembered when it runs as the file says.
pub(crate) fn checkpoint(file: &PipelineFile) -> Result<Option<Arc<dyn FileManager>>> {
    checkpoint_files(file, RunOptions::default())
}

/// Where the query is remembered; `None` for one that may start from the beginning each time: its sink keeps nothing,
/// or it runs as one batch.
fn checkpoint_files(file: &PipelineFile, options: RunOptions) -> Result<Option<Arc<dyn FileManager>>> {
    match &file.checkpoint {
        _ if options.batch => Ok(None),
        Some(url) => tree(file, url).map(Some),
        None if file.sink.is_lasting() => Err(Error::invalid(format!(
            "{}: a query with a {} sink needs a checkpoint",
            file.text().name(),
            file.sink.connector()
        ))
        .hint(format!("add a line 'checkpoint: ./checkpoints/{}', or run with --batch", file.name.value))),
        None => Ok(None),
    }
}

/// Where dead letters go, if not into the checkpoint.
pub(crate) fn dead_letter_files(file: &PipelineFile) -> Result<Option<Arc<dyn FileManager>>> {
    let directory = file.dead_letters.as_ref().and_then(DeadLettersSpec::directory);
    directory.map(|url| tree(file, url)).transpose()
}

fn tree(file: &PipelineFile, url: &Spanned<String>) -> Result<Arc<dyn FileManager>> {
    open_url(&url.value).map_err(|error| located(file, url.span, error))
}

/// The error, pointing at where in the file it comes from.
fn located(file: &PipelineFile, span: Span, error: Error) -> Error {
    let located = Error::new(error.kind(), file.text().located(span, error.message()));
    match error.hint_text() {
        Some(hint) => located.hint(hint),
        None => located,
    }
}

/// The error names its place in the file.
fn is_located(file: &PipelineFile, error: &Error) -> bool {
    let rest = error.message().strip_prefix(file.text().name()).and_then(|rest| rest.strip_prefix(':'));
    let has_line = rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    has_line || error.message().starts_with("--set ")
}

/// Whether dead letters end with the process: there is neither a checkpoint nor another place for them.
pub(crate) fn letters_are_lost(file: &PipelineFile, options: RunOptions) -> bool {
    file.dead_letters.is_none() && (options.batch || file.checkpoint.is_none())
}
