//! The pipeline file as written: its types, with the meaning of every key in their documentation.
//!
//! `pelton` reads it with [`PipelineFile::read`] and hands it to [`crate::LogicalPlan::resolve`]. The reference page
//! and the JSON Schema for editors are made from these types ([`reference_markdown`], [`PipelineFile::json_schema`]).
//! Nothing here opens a file: the text is given.

mod declared;
mod deserialize;
mod document;
mod events;
mod failures;
mod feeds;
mod kafka;
mod letters;
mod location;
mod node;
mod reference;
mod set;
mod sinks;
mod sources;
mod values;

pub use document::Document;
pub use events::{
    DedupSpec, DedupStep, LatePolicy, MemorySource, StateSpec, TableSpec, WatermarkPolicySpec, WatermarkSpec,
    WatermarkStep,
};
pub use failures::{DeadLetterBudget, OnPluginFailure, RecycleLimits};
pub use feeds::{HttpSource, SocketSource, StdinSource};
pub use kafka::{Delivery, KafkaSink, KafkaSource, NoRecordStrategy, OffsetsSpec, TopicsSpec, Undecided};
pub use letters::{DeadLetterConnector, DeadLetterTopic, DeadLettersSpec};
pub use location::SourceText;
pub use node::{Node, Span};
pub use reference::reference_markdown;
pub use sinks::{
    ConsoleFormat, ConsoleSink, FileSink, MemorySink, PluginSink, PostgresSink, Rollover, SinkSpec, Truncate,
};
pub use sources::{Column, Columns, FileSource, Format, RateSource, SchemaSpec, SourceSpec};
pub use values::{ByteSize, Duration, FormatOptions, OptionValue, Spanned, SpannedText};

use pelton_core::{Error, OutputMode, Result, Trigger};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pipeline: where rows come from, what is done with them, where they go.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineFile {
    /// The query's name, for messages and metrics.
    pub name: Spanned<String>,
    /// The plugins that steps and SQL may use, by the name that they have in this file.
    #[serde(default)]
    pub plugins: BTreeMap<String, PluginSpec>,
    /// Where rows come from, by name. SQL reads each by its name; a single one is the first step's `input`, too.
    pub sources: Spanned<BTreeMap<String, SourceSpec>>,
    /// Static tables, by the name that SQL joins them by.
    #[serde(default)]
    pub tables: BTreeMap<String, Spanned<TableSpec>>,
    /// What is done with the rows, in order. Each step's result is the next one's `input`.
    #[serde(default)]
    pub steps: Vec<StepSpec>,
    /// What of the result goes to the sink in each micro-batch. `complete` needs an aggregation.
    #[serde(default)]
    pub output_mode: Spanned<OutputModeSpec>,
    /// When the next micro-batch starts.
    #[serde(default)]
    pub trigger: TriggerSpec,
    /// How several watermarks make the query's: `min` or `max`. A checkpoint keeps the policy that it began with.
    #[serde(default)]
    pub watermark_policy: WatermarkPolicySpec,
    /// Runs micro-batches without data when the watermark has moved and something can become final or expire. Spark's
    /// `spark.sql.streaming.noDataMicroBatches.enabled`.
    #[serde(default = "yes")]
    pub no_data_batches: bool,
    /// What becomes of rows behind the watermark: `drop` counts them, `dead_letter` keeps them, too.
    #[serde(default)]
    pub on_late: LatePolicy,
    /// The operators that may go on with state that means something else since the pipeline was changed: another key,
    /// function, window or condition of the same types. Without this such a change is refused on an old checkpoint.
    #[serde(default)]
    pub accept_changed_state: Vec<Spanned<String>>,
    /// Where rows go.
    pub sink: SinkSpec,
    /// The directory that remembers how far the query has come: a path or an `object_store` URL.
    #[serde(default)]
    pub checkpoint: Option<Spanned<String>>,
    /// How much memory the state may take, and where it goes beyond that.
    #[serde(default)]
    pub state: StateSpec,
    /// How many micro-batches the checkpoint remembers, with their state: at least 2. Spark's
    /// `spark.sql.streaming.minBatchesToRetain`.
    #[serde(default = "min_batches_to_retain")]
    pub min_batches_to_retain: Spanned<u64>,
    /// Where malformed, refused, poison and late rows are written, as JSON lines. Unless said: `dead-letters` in the checkpoint.
    /// With a connector they go there, too.
    #[serde(default)]
    pub dead_letters: Option<DeadLettersSpec>,
    /// The session time zone, an IANA name such as `Europe/Berlin`: what timestamps without a zone mean, and how
    /// they are shown and cut into days. Unless said: `UTC`.
    #[serde(default)]
    pub time_zone: TimeZone,
    #[serde(skip)]
    #[schemars(skip)]
    text: Arc<SourceText>,
}

fn min_batches_to_retain() -> Spanned<u64> {
    Spanned::unplaced(100)
}

fn yes() -> bool {
    true
}

/// The session time zone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct TimeZone(pub Spanned<String>);

impl Default for TimeZone {
    fn default() -> Self {
        Self(Spanned::unplaced("UTC".into()))
    }
}

/// A plugin: the path of its file, or the path with more about it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum PluginSpec {
    /// The path of its `.wasm` file.
    Path(Spanned<String>),
    /// The path and more.
    Full(Box<PluginOptions>),
}

impl PluginSpec {
    /// All about it, whichever way it is written.
    pub fn options(&self) -> PluginOptions {
        match self {
            Self::Path(path) => PluginOptions::at(path.clone()),
            Self::Full(options) => PluginOptions::clone(options),
        }
    }
}

/// A plugin with its configuration and limits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginOptions {
    /// The path of its `.wasm` file.
    pub path: Spanned<String>,
    /// Given to the plugin as JSON when a function is opened.
    #[serde(default)]
    pub config: serde_json::Map<String, serde_json::Value>,
    /// What it may use at most.
    #[serde(default)]
    pub limits: PluginLimits,
    /// What it may reach outside of the sandbox: nothing unless it is said here.
    #[serde(default)]
    pub allow: PluginAllow,
    /// What follows when a call of one of its functions fails: `fail`, `dead_letter` or `retry N`. Unless said: `fail`.
    #[serde(default)]
    pub on_plugin_failure: OnPluginFailure,
    /// Looks at the file while the query runs and swaps the plugin when a new version is written there.
    #[serde(default)]
    pub watch: bool,
}

impl PluginOptions {
    fn at(path: Spanned<String>) -> Self {
        Self {
            path,
            config: serde_json::Map::new(),
            limits: PluginLimits::default(),
            allow: PluginAllow::default(),
            on_plugin_failure: OnPluginFailure::default(),
            watch: false,
        }
    }
}

/// What a plugin may use at most. What is not given has the host's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginLimits {
    /// Memory of one instance, for example `64MiB`.
    pub memory: Option<ByteSize>,
    /// Time of one call, for example `1s`.
    pub time: Option<Duration>,
    /// Bytes that one call may return, for example `64MiB`.
    pub output: Option<ByteSize>,
    /// Bytes of log lines that one call may write; what is beyond is counted and dropped.
    pub log: Option<ByteSize>,
    /// Elements of one instance's tables.
    pub table_elements: Option<u64>,
    /// Time of one HTTP request of a sink function, its answer included, for example `30s`.
    pub http_time: Option<Duration>,
    /// Bytes of the answer to one, for example `1MiB`.
    pub http_response: Option<ByteSize>,
    /// When an instance is replaced by a new one.
    #[serde(default)]
    pub recycle: RecycleLimits,
}

/// What a plugin may reach outside of the sandbox.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginAllow {
    /// The hosts to which its sink functions may send HTTP requests: `hooks.example.com` (https), or with scheme and port
    /// `http://localhost:8080`. Each counts exactly as it is; names that stand for private addresses lead nowhere.
    #[serde(default)]
    pub http: Vec<SpannedText>,
    /// The same, of hosts whose names may stand for addresses of private networks.
    #[serde(default)]
    pub http_private: Vec<SpannedText>,
}

/// A step: one of the keys `filter`, `select`, `sql`, `plugin`, `watermark` or `dedup`, and perhaps a `name`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum StepSpec {
    /// Keeps the rows for which an expression is true.
    Filter(FilterStep),
    /// Computes columns.
    Select(SelectStep),
    /// Runs a SELECT over the rows.
    Sql(SqlStep),
    /// Runs the rows through a plugin's function.
    Plugin(PluginStep),
    /// Declares the event time of the rows.
    Watermark(WatermarkStep),
    /// Keeps the first row of each key.
    Dedup(DedupStep),
}

/// Keeps the rows for which an expression is true.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterStep {
    /// A boolean SQL expression. A plugin's scalar function is called as `plugin.function(column, …)`; if it is the
    /// whole expression, the rows that it refuses go to the dead letters.
    pub filter: Spanned<String>,
    /// Of a plugin's function that is the whole expression: what follows when a call fails, if not what the plugin's key
    /// says.
    #[serde(default)]
    pub on_plugin_failure: Option<Spanned<OnPluginFailure>>,
    /// The operator's stable name in the checkpoint, metrics and dead letters.
    pub name: Option<Spanned<String>>,
}

/// Computes columns.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SelectStep {
    /// The columns: a list of SQL expressions (`price * 2 AS twice`, `*`) or of `name: expression`.
    pub select: SelectSpec,
    /// The operator's stable name in the checkpoint, metrics and dead letters.
    pub name: Option<Spanned<String>>,
}

/// The columns of a `select` step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum SelectSpec {
    /// Expressions as SQL has them behind SELECT.
    One(Spanned<String>),
    /// A list of columns.
    Many(Vec<SelectItem>),
    /// `name: expression`, in order.
    Named(Columns),
}

/// One column of a `select` step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum SelectItem {
    /// `expression`, `expression AS name` or `*`.
    Expression(Spanned<String>),
    /// `name: expression`.
    Named(Columns),
}

/// Runs a SELECT over the rows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlStep {
    /// A SELECT in Spark's dialect over the table `input` (the step before), all sources and all static tables.
    pub sql: Spanned<String>,
    /// The operator's stable name in the checkpoint, metrics and dead letters.
    pub name: Option<Spanned<String>>,
}

/// Runs the rows through a plugin's function.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginStep {
    /// The function, as `plugin.function`: a transform function, or, with a `key`, a stateful one.
    pub plugin: Spanned<String>,
    /// Of a stateful function: the columns by which rows make groups. Each group has its own state.
    #[serde(default)]
    pub key: Option<Spanned<Vec<SpannedText>>>,
    /// Of a function over groups with any number of rows (Spark's `flatMapGroupsWithState`): whether its rows are final
    /// (`append`) or take the place of earlier ones (`update`). Unless said: the query's.
    #[serde(default)]
    pub output_mode: Option<Spanned<GroupOutputMode>>,
    /// Of a stateful function with one value: a static table of `tables:` with the state that groups have before the
    /// first micro-batch. Its columns: the key's by their names, and the fields of the value by theirs.
    #[serde(default)]
    pub initial_state: Option<SpannedText>,
    /// What follows when a call fails, if not what the plugin's key says.
    #[serde(default)]
    pub on_plugin_failure: Option<Spanned<OnPluginFailure>>,
    /// The operator's stable name in the checkpoint, metrics and dead letters.
    pub name: Option<Spanned<String>>,
}

/// What the rows of a function over groups are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupOutputMode {
    /// Final, each of them.
    Append,
    /// In the place of earlier rows of the group.
    Update,
}

/// What of the result goes to the sink in each micro-batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputModeSpec {
    /// Rows that are final, each once (the default).
    #[default]
    Append,
    /// Rows of the result that the micro-batch touched.
    Update,
    /// The whole result; needs an aggregation.
    Complete,
}

impl From<OutputModeSpec> for OutputMode {
    fn from(mode: OutputModeSpec) -> Self {
        match mode {
            OutputModeSpec::Append => Self::Append,
            OutputModeSpec::Update => Self::Update,
            OutputModeSpec::Complete => Self::Complete,
        }
    }
}

/// When the next micro-batch starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerSpec {
    /// As soon as the one before is done and there is something to do (the default).
    #[default]
    AsFastAsPossible,
    /// One micro-batch with everything there is, then the end.
    Once,
    /// Everything that is there at the start, in micro-batches that keep the limits, then the end.
    AvailableNow,
    /// At multiples of this duration, for example `{processing_time: 10 seconds}`.
    ProcessingTime(Duration),
}

impl From<TriggerSpec> for Trigger {
    fn from(trigger: TriggerSpec) -> Self {
        match trigger {
            TriggerSpec::AsFastAsPossible => Self::AsFastAsPossible,
            TriggerSpec::Once => Self::Once,
            TriggerSpec::AvailableNow => Self::AvailableNow,
            TriggerSpec::ProcessingTime(duration) => Self::ProcessingTime(duration.interval()),
        }
    }
}

impl TriggerSpec {
    /// Reads a trigger as the command line has it: `once`, or a duration for `processing_time`.
    pub fn parse(text: &str) -> Result<Self> {
        match text.trim() {
            "as_fast_as_possible" => return Ok(Self::AsFastAsPossible),
            "once" => return Ok(Self::Once),
            "available_now" => return Ok(Self::AvailableNow),
            _ => {}
        }
        let interval = text
            .trim()
            .strip_prefix("processing_time")
            .map_or(text, |rest| rest.trim_start_matches(['=', ':', ' ']));
        Duration::parse(interval).map(Self::ProcessingTime).map_err(|_| {
            Error::invalid(format!("there is no trigger '{text}'"))
                .hint("as_fast_as_possible, once, available_now, or a duration such as '10 seconds'")
        })
    }
}

impl PipelineFile {
    /// Reads a pipeline file (YAML or JSON). `file_name` is for messages; `sets` are `KEY=VALUE` texts that replace
    /// or add values, as `--set` gives them: `sources.flights.max_files_per_trigger=1`, `steps.0.filter=x > 1`.
    ///
    /// Every error is of kind `Invalid` and begins with `file:line:column`.
    pub fn read(text: &str, file_name: &str, sets: &[String]) -> Result<Self> {
        let source = SourceText::new(file_name, text, sets);
        let tree = Node::read(text).map_err(|(message, span)| source.error(span, message))?;
        Self::from_tree(tree, source, sets)
    }

    /// A pipeline that stands inside another document, whose text is `text`.
    pub fn from_node(node: &Node, text: &SourceText, sets: &[String]) -> Result<Self> {
        Self::from_tree(node.clone(), text.with_sets(sets), sets)
    }

    fn from_tree(mut tree: Node, source: SourceText, sets: &[String]) -> Result<Self> {
        for (index, set) in sets.iter().enumerate() {
            set::apply(&mut tree, set, index)?;
        }
        let mut file = Self::deserialize(&tree)
            .map_err(|error| source.error(error.span.unwrap_or_default(), error.message))?;
        file.text = Arc::new(source);
        file.check_time_zone()?;
        file.state.check().map_err(|(what, span)| file.text.error(span, what))?;
        file.check_names()?;
        Ok(file)
    }

    /// The JSON Schema of the file, for editors.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// The text that it was read from, to tie further errors to their place.
    pub fn text(&self) -> &Arc<SourceText> {
        &self.text
    }

    /// The session time zone, a valid IANA name.
    pub fn time_zone(&self) -> &str {
        &self.time_zone.0.value
    }

    /// SQL knows sources and tables by name, and the step before as `input`.
    fn check_names(&self) -> Result<()> {
        let places = self.tables.iter().map(|(name, table)| (name, table.span));
        let sources = self.sources.value.keys().map(|name| (name, self.sources.span));
        if self.sources.value.is_empty() {
            return Err(self.text.error(self.sources.span, "a pipeline needs a source".into()));
        }
        for (name, span) in sources.chain(places) {
            if name.eq_ignore_ascii_case("input") {
                let what = "'input' is the step before; give the source or table another name";
                return Err(self.text.error(span, what.into()));
            }
            let twin = |other: &&String| *other != name && other.eq_ignore_ascii_case(name);
            if let Some(twin) = self.sources.value.keys().chain(self.tables.keys()).find(twin) {
                let what = format!("'{name}' and '{twin}' are one name to SQL, which takes no note of case");
                return Err(self.text.error(span, what));
            }
            if self.tables.contains_key(name) && self.sources.value.contains_key(name) {
                let span = self.tables[name].span;
                return Err(self.text.error(span, format!("'{name}' is the name of a source already")));
            }
        }
        Ok(())
    }

    fn check_time_zone(&self) -> Result<()> {
        let zone = &self.time_zone.0;
        if zone.value.parse::<chrono_tz::Tz>().is_ok() {
            return Ok(());
        }
        let names = chrono_tz::TZ_VARIANTS.iter().map(|tz| tz.name());
        let near = pelton_core::suggest::nearest(&zone.value, names).map_or_else(
            || "write an IANA name such as 'Europe/Berlin'".into(),
            |n| format!("did you mean '{n}'?"),
        );
        Err(self.text.error(zone.span, format!("there is no time zone '{}'; {near}", zone.value)))
    }
}

#[cfg(test)]
mod tests;
