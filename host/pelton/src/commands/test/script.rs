//! A test script as it is written; docs/testing.md explains every key. Read by `pelton test`; nothing here runs.

use super::expected::{Expected, read_expected};
use crate::json::timestamp_ms;
use pelton_core::suggest::did_you_mean;
use pelton_core::{BatchId, Error, Result};
use pelton_plan::PipelineFile;
use pelton_plan::file::{Document, Duration, Node, SourceText, Span};
use serde::Deserialize;
use serde_json::Value;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// When the virtual clock starts unless the script says: 2026-01-01T00:00:00Z.
const CLOCK_START_MS: i64 = 1_767_225_600_000;

/// As many as a file source decodes together.
const ROWS_PER_BLOCK: usize = pelton_connectors::decode::BATCH_ROWS;

const KEYS: [&str; 6] = ["name", "pipeline", "set", "clock", "rows_per_block", "steps"];
const ACTIONS: [&str; 10] = [
    "add",
    "advance_clock",
    "restart",
    "stop",
    "start",
    "swap",
    "rollback",
    "delete_commit",
    "fail_sink",
    "expect",
];

/// A script that was understood.
pub(super) struct Script {
    /// Its place, for messages.
    pub(super) document: Document,
    /// What it tests.
    pub(super) pipeline: Pipeline,
    /// Where the virtual clock starts.
    pub(super) start_ms: i64,
    /// How many rows of a source are decoded and worked on together.
    pub(super) rows_per_block: usize,
    pub(super) steps: Vec<Step>,
}

/// One step and where it stands.
pub(super) struct Step {
    pub(super) span: Span,
    pub(super) action: Action,
}

/// What a step does.
pub(super) enum Action {
    /// Gives rows to sources; a list of rows is a micro-batch.
    Add(Vec<Addition>),
    /// Moves the clock.
    AdvanceClock(i64),
    /// Ends the query, if it runs, and starts it again.
    Restart(Change),
    /// Ends the query.
    Stop,
    /// Starts the query after `stop`, or after it has failed.
    Start(Change),
    /// Swaps a plugin for the one in a file.
    Swap(String, PathBuf),
    /// Swaps a plugin for the version before; without a name the only one that was swapped.
    Rollback(Option<String>),
    /// Removes an entry of the commit log while the query is down.
    DeleteCommit(BatchId),
    /// Makes the sink fail.
    FailSink(SinkFault),
    /// Compares the micro-batches that ran since the last `expect`.
    Expect(Vec<Expected>),
}

/// Rows for one source.
pub(super) struct Addition {
    pub(super) source: String,
    /// Where the source's name stands.
    pub(super) span: Span,
    /// The rows of each micro-batch.
    pub(super) lists: Vec<Vec<Row>>,
}

/// A row: an object, or its raw JSON text.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) span: Span,
    pub(super) value: Value,
}

/// The pipeline of a script, or what a restart makes of it.
#[derive(Clone)]
pub(super) struct Pipeline {
    written: Written,
    sets: Vec<String>,
}

#[derive(Clone)]
enum Written {
    At(PathBuf),
    Inline(Node, Arc<SourceText>),
}

/// What is changed while the query is down.
#[derive(Default)]
pub(super) struct Change {
    /// Another pipeline.
    pub(super) pipeline: Option<Pipeline>,
    /// Values of the pipeline that are changed.
    pub(super) sets: Vec<String>,
    /// Rows that come while it is down.
    pub(super) add_offline: Vec<Addition>,
}

/// The sink fails in a micro-batch, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SinkFault {
    pub(super) batch_id: BatchId,
    #[serde(default)]
    pub(super) when: FaultTime,
}

/// When the sink fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FaultTime {
    /// Before it has kept the rows.
    #[default]
    Before,
    /// After it has kept the rows, before they are committed.
    After,
}

impl Pipeline {
    /// Reads it. What a script leaves out of a pipeline that stands in it is filled in.
    pub(super) fn read(&self) -> Result<PipelineFile> {
        match &self.written {
            Written::At(path) => {
                let text = std::fs::read_to_string(path).map_err(|why| {
                    Error::invalid(format!("cannot read the pipeline file {}: {why}", path.display()))
                })?;
                PipelineFile::read(&text, &path.display().to_string(), &self.sets)
            }
            Written::Inline(node, text) => {
                let filled = [("name", "name=test"), ("sink", "sink={connector: memory}")];
                let missing = filled.iter().filter(|(key, _)| node.get(key).is_none());
                let mut sets: Vec<String> = missing.map(|(_, set)| (*set).to_owned()).collect();
                sets.extend(self.sets.iter().cloned());
                PipelineFile::from_node(node, text, &sets)
            }
        }
    }

    /// The pipeline after a restart with changes.
    pub(super) fn changed(&self, change: &Change) -> Self {
        let mut changed = change.pipeline.clone().unwrap_or_else(|| self.clone());
        changed.sets.extend(change.sets.iter().cloned());
        changed
    }
}

impl Script {
    /// Reads a script's file.
    pub(super) fn read(path: &Path, sets: &[String]) -> Result<Self> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|why| Error::invalid(format!("cannot read the script {shown}: {why}")))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, &shown, folder, sets)
    }

    fn parse(text: &str, name: &str, folder: &Path, sets: &[String]) -> Result<Self> {
        let document = Document::read(text, name)?;
        let reader = Reader { document: &document, folder };
        reader.known_keys(document.root(), &KEYS, "a script")?;
        let pipeline = reader.required("pipeline")?;
        let mut pipeline = reader.pipeline(pipeline)?;
        if let Some(set) = document.root().get("set") {
            pipeline.sets.extend(reader.sets(set)?);
        }
        pipeline.sets.extend(sets.iter().cloned());
        let start_ms = document.root().get("clock").map(|clock| reader.clock(clock)).transpose()?;
        let rows_per_block = match document.root().get("rows_per_block") {
            Some(rows) => document.decode::<NonZeroUsize>(rows)?.get(),
            None => ROWS_PER_BLOCK,
        };
        let steps = reader.required("steps")?;
        let steps = reader.list(steps, "the steps")?.iter();
        let steps = steps.map(|step| reader.step(step)).collect::<Result<_>>()?;
        Ok(Self { pipeline, start_ms: start_ms.unwrap_or(CLOCK_START_MS), rows_per_block, steps, document })
    }
}

/// Reads the parts of a document.
struct Reader<'a> {
    document: &'a Document,
    /// The script's folder: where the paths in it start.
    folder: &'a Path,
}

impl Reader<'_> {
    fn error(&self, span: Span, message: impl Into<String>) -> Error {
        self.document.text().error(span, message.into())
    }

    fn required(&self, key: &str) -> Result<&Node> {
        let root = self.document.root();
        root.get(key).ok_or_else(|| self.error(root.span(), format!("a script needs the key '{key}'")))
    }

    fn known_keys(&self, map: &Node, known: &[&str], what: &str) -> Result<()> {
        let Some(mut entries) = map.entries() else {
            return Err(self.error(
                map.span(),
                format!("{what} is a map with {}, not {}", known.join(", "), map.kind()),
            ));
        };
        match entries.find(|(key, ..)| !known.contains(key)) {
            Some((key, span, _)) => {
                let near = did_you_mean(key, known.iter().copied());
                Err(self.error(span, format!("there is no key '{key}' here{near}")))
            }
            None => Ok(()),
        }
    }

    fn list<'n>(&self, node: &'n Node, what: &str) -> Result<&'n [Node]> {
        node.items().ok_or_else(|| self.error(node.span(), format!("{what} are a list, not {}", node.kind())))
    }

    fn pipeline(&self, node: &Node) -> Result<Pipeline> {
        let written = match node.as_text() {
            Some(path) => Written::At(self.folder.join(path)),
            None if node.entries().is_some() => {
                Written::Inline(node.clone(), Arc::clone(self.document.text()))
            }
            None => {
                let what = format!("a pipeline is the path of its file, or itself, not {}", node.kind());
                return Err(self.error(node.span(), what));
            }
        };
        Ok(Pipeline { written, sets: Vec::new() })
    }

    /// As texts for `--set`; JSON is YAML.
    fn sets(&self, node: &Node) -> Result<Vec<String>> {
        let what = "'set' is a map of paths and values, for example {output_mode: update}";
        let entries = node.entries().ok_or_else(|| self.error(node.span(), what))?;
        Ok(entries.map(|(key, _, value)| format!("{key}={}", value.to_json())).collect())
    }

    fn clock(&self, node: &Node) -> Result<i64> {
        self.known_keys(node, &["start"], "the clock")?;
        let Some(start) = node.get("start") else { return Ok(CLOCK_START_MS) };
        let text = start.as_text().unwrap_or_default();
        timestamp_ms(text).map_err(|_| {
            self.error(start.span(), "the clock starts at a time such as 2026-01-01T00:00:00Z".to_owned())
        })
    }

    /// A word alone, or a map of one key.
    fn step(&self, node: &Node) -> Result<Step> {
        if let Some(word) = node.as_text() {
            return self.action(word, node.span(), None);
        }
        let mut entries = node.entries().into_iter().flatten();
        match (entries.next(), entries.next()) {
            (Some((word, span, value)), None) => self.action(word, span, Some(value)),
            (Some((first, ..)), Some((second, span, _))) => {
                let what = format!("a step does one thing; '{first}' and '{second}' are two steps");
                Err(self.error(span, what))
            }
            (None, _) => {
                let what = format!("a step is one of: {}", ACTIONS.join(", "));
                Err(self.error(node.span(), what))
            }
        }
    }

    fn action(&self, word: &str, span: Span, value: Option<&Node>) -> Result<Step> {
        let missing = || self.error(span, format!("'{word}' needs a value"));
        let action = match word {
            "add" => Action::Add(self.additions(value.ok_or_else(missing)?)?),
            "advance_clock" => Action::AdvanceClock(self.duration_ms(value.ok_or_else(missing)?)?),
            "restart" => Action::Restart(self.change(value)?),
            "start" => Action::Start(self.change(value)?),
            "stop" => self.change(value)?.is_nothing().then_some(Action::Stop).ok_or_else(|| {
                self.error(span, "'stop' changes nothing; the changes belong to 'start'".to_owned())
            })?,
            "swap" => self.swap(value.ok_or_else(missing)?)?,
            "rollback" => Action::Rollback(value.map(|value| self.plugin_name(value)).transpose()?),
            "delete_commit" => Action::DeleteCommit(self.document.decode(value.ok_or_else(missing)?)?),
            "fail_sink" => Action::FailSink(self.document.decode(value.ok_or_else(missing)?)?),
            "expect" => Action::Expect(read_expected(self.document, value.ok_or_else(missing)?)?),
            _ => {
                let near = did_you_mean(word, ACTIONS);
                return Err(self.error(span, format!("there is no step '{word}'{near}")));
            }
        };
        Ok(Step { span, action })
    }

    /// `{plugin: path}`.
    fn swap(&self, node: &Node) -> Result<Action> {
        let mut entries = node.entries().into_iter().flatten();
        match (entries.next(), entries.next()) {
            (Some((plugin, _, path)), None) if path.as_text().is_some() => {
                Ok(Action::Swap(plugin.to_owned(), self.folder.join(path.as_text().unwrap_or_default())))
            }
            _ => Err(self.error(node.span(), "a plugin is swapped as {plugin: path of its new file}")),
        }
    }

    fn plugin_name(&self, node: &Node) -> Result<String> {
        let name = node.as_text().map(str::to_owned);
        name.ok_or_else(|| self.error(node.span(), "a rollback is of a plugin, by its name"))
    }

    fn duration_ms(&self, node: &Node) -> Result<i64> {
        let duration: Duration = self.document.decode(node)?;
        Ok(duration.interval().as_millis())
    }

    /// Nothing, `true`, or a map of changes.
    fn change(&self, node: Option<&Node>) -> Result<Change> {
        let Some(node) = node.filter(|node| node.to_json() != Value::Bool(true)) else {
            return Ok(Change::default());
        };
        self.known_keys(node, &["pipeline", "set", "add_offline"], "what changes")?;
        Ok(Change {
            pipeline: node.get("pipeline").map(|pipeline| self.pipeline(pipeline)).transpose()?,
            sets: node.get("set").map(|sets| self.sets(sets)).transpose()?.unwrap_or_default(),
            add_offline: node
                .get("add_offline")
                .map(|add| self.additions(add))
                .transpose()?
                .unwrap_or_default(),
        })
    }

    /// `{source: [row, …]}`, or `{source: [[row, …], …]}` for a backlog.
    fn additions(&self, node: &Node) -> Result<Vec<Addition>> {
        let what =
            "rows are added as {source: [row, …]}, or {source: [[row, …], …]} for several micro-batches";
        let entries = node.entries().ok_or_else(|| self.error(node.span(), what))?;
        let additions = entries.map(|(source, span, rows)| {
            let rows = self.list(rows, "the rows of a source")?;
            let is_backlog = rows.first().is_some_and(|first| first.items().is_some());
            let lists = match is_backlog {
                true => rows.iter().map(|list| self.rows(self.list(list, "the rows of a micro-batch")?)),
                false => {
                    return Ok(Addition { source: source.to_owned(), span, lists: vec![self.rows(rows)?] });
                }
            };
            Ok(Addition { source: source.to_owned(), span, lists: lists.collect::<Result<_>>()? })
        });
        additions.collect()
    }

    fn rows(&self, rows: &[Node]) -> Result<Vec<Row>> {
        let rows = rows.iter().map(|row| match row.entries().is_some() || row.as_text().is_some() {
            true => Ok(Row { span: row.span(), value: row.to_json() }),
            false => {
                let what = format!("a row is a map of columns or its JSON as text, not {}", row.kind());
                Err(self.error(row.span(), what))
            }
        });
        rows.collect()
    }
}

impl Change {
    fn is_nothing(&self) -> bool {
        self.pipeline.is_none() && self.sets.is_empty() && self.add_offline.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPELINE: &str = "pipeline: {sources: {s: {connector: rate}}}\n";

    fn message(steps: &str) -> String {
        let text = format!("{PIPELINE}{steps}");
        match Script::parse(&text, "t.yaml", Path::new("."), &[]) {
            Ok(_) => "reads".to_owned(),
            Err(error) => error.message().lines().next().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (steps, expected) in [
            ("steps: [stop, start, restart: {set: {a.b: 1}}]\n", "reads"),
            ("steps: [{ad: 1}]\n", "t.yaml:2:10: there is no step 'ad'; did you mean 'add'?"),
            ("stps: []\n", "t.yaml:2:1: there is no key 'stps' here; did you mean 'steps'?"),
            (
                "steps: [{stop: true, start: true}]\n",
                "t.yaml:2:22: a step does one thing; 'stop' and 'start' are two steps",
            ),
            (
                "steps: [add: {s: [1]}]\n",
                "t.yaml:2:19: a row is a map of columns or its JSON as text, not a number",
            ),
            ("steps: [swap: {p: q.wasm}, rollback: p, rollback]\n", "reads"),
            ("steps: [swap: p]\n", "t.yaml:2:15: a plugin is swapped as {plugin: path of its new file}"),
            (
                "steps: [fail_sink: {batch: 1}]\n",
                "t.yaml:2:21: there is no key 'batch' here; did you mean 'batch_id'?",
            ),
            (
                "steps: [expect: [{rowz: []}]]\n",
                "t.yaml:2:19: there is no key 'rowz' here; did you mean 'rows'?",
            ),
            (
                "clock: {start: soon}\nsteps: []\n",
                "t.yaml:2:16: the clock starts at a time such as 2026-01-01T00:00:00Z",
            ),
        ] {
            assert_eq!(message(steps), expected, "{steps}");
        }
    }

    #[test]
    fn a_list_of_lists_is_a_backlog() -> Result<()> {
        let text =
            format!("{PIPELINE}steps: [add: {{a: [{{x: 1}}, {{x: 2}}], b: [[{{x: 1}}], []], c: []}}]\n");
        let script = Script::parse(&text, "t.yaml", Path::new("."), &[])?;
        let Action::Add(additions) = &script.steps[0].action else { panic!("an addition") };
        let lengths: Vec<Vec<usize>> =
            additions.iter().map(|addition| addition.lists.iter().map(Vec::len).collect()).collect();
        assert_eq!(lengths, [vec![2], vec![1, 0], vec![0]]);
        Ok(())
    }

    #[test]
    fn an_inline_pipeline_needs_no_name_and_no_sink() -> Result<()> {
        let script = Script::parse(
            &format!("{PIPELINE}set: {{output_mode: update}}\nsteps: []\n"),
            "t.yaml",
            Path::new("."),
            &[],
        )?;
        let file = script.pipeline.read()?;
        assert_eq!((file.name.value.as_str(), file.sink.connector()), ("test", "memory"));
        assert_eq!(file.output_mode.value, pelton_plan::file::OutputModeSpec::Update);
        Ok(())
    }
}
