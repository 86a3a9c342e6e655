//! What can be typed: every command, its arguments and its help. Used by `main`; it only reads, it does nothing.

mod checkpoint;
mod control;
mod dead_letters;
mod files;
mod plugin;
mod replay;

pub(crate) use checkpoint::{CheckpointArgs, CheckpointCommand, StateArgs, StateCommand, StateShowArgs};
pub(crate) use control::{ApiArgs, ApiTargetArgs, RollbackArgs, ShadowArgs, StatusArgs, StopArgs, SwapArgs};
pub(crate) use dead_letters::{DeadLettersCommand, LetterKind, LettersArgs, LettersReplayArgs};
pub(crate) use files::{FilesCommand, FilesCompactArgs, FilesLsArgs};
pub(crate) use plugin::{BuildArgs, InspectArgs, Language, NewArgs, PluginCommand, TestArgs};
pub(crate) use replay::ReplayArgs;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use pelton_core::Trigger;
use pelton_plan::file::TriggerSpec;
use std::path::PathBuf;

/// A stream processor in one binary, with sandboxed Wasm plugins.
#[derive(Debug, Parser)]
#[command(
    name = "pelton",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  pelton run pipeline.yaml                       run a query until Ctrl-C
  pelton run pipeline.yaml --trigger available_now
                                                 process what is there, then end
  pelton plugin new my-plugin --lang rust        start a plugin
  cat rows.jsonl | pelton pipe my-plugin.wasm    run it as a Unix filter

Exit codes: 0 done, 1 the query or the data failed, 2 the request was wrong, \
130 and 143 a second Ctrl-C or SIGTERM ended a run at once."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How much is said on stderr.
#[derive(Debug, Args)]
pub(crate) struct Logging {
    /// Say more on stderr (-vv: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run queries until they end or a signal comes
    Run(RunArgs),
    /// Show what running queries do
    Status(StatusArgs),
    /// End a running query: the micro-batch under way is committed before
    Stop(StopArgs),
    /// Swap a plugin of a running query for another version
    Swap(SwapArgs),
    /// Swap a plugin of a running query for the version before
    Rollback(RollbackArgs),
    /// Show what a version has found that runs beside a query (`swap --shadow`), or end it
    Shadow(ShadowArgs),
    /// Check a pipeline file: syntax, names, types, plugins
    #[command(after_help = "Examples:
  pelton check pipeline.yaml
  pelton check pipeline.yaml --plugin flights=target/plugins/flights-c.wasm")]
    Check(PipelineArgs),
    /// Print the plan of a pipeline file, or what the running query waits for
    #[command(after_help = "Examples:
  pelton explain pipeline.yaml
  pelton explain pipeline.yaml --set sink.connector=console
  pelton explain pipeline.yaml --live")]
    Explain(ExplainArgs),
    /// Show the state of a query, now or after an earlier micro-batch
    #[command(subcommand)]
    State(StateCommand),
    /// Show the logs of a query's checkpoint
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Look at the rows that did not reach the sink, and feed them back
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
    /// Look after the output of a file sink: list its files, put small ones together
    #[command(subcommand)]
    Files(FilesCommand),
    /// Run logged micro-batches again and show what they give, with the plugins of their time or with others
    Replay(ReplayArgs),
    /// Run test scripts: add rows to a pipeline, expect rows per micro-batch
    Test(ScriptArgs),
    /// Send JSON lines from stdin through plugin functions to stdout
    Pipe(PipeArgs),
    /// Start, build, describe and test plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Print the JSON Schema of pipeline files, for editors
    #[command(after_help = "Example:
  pelton schema > pipeline.schema.json
  # then, as the first line of a pipeline file:
  # yaml-language-server: $schema=pipeline.schema.json")]
    Schema(SchemaArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  pelton completions bash > ~/.local/share/bash-completion/completions/pelton
  pelton completions zsh > \"${fpath[1]}/_pelton\"
  pelton completions fish > ~/.config/fish/completions/pelton.fish")]
    Completions(CompletionsArgs),
}

/// Pipeline files and what the command line changes in them.
#[derive(Debug, Args)]
pub(crate) struct PipelineArgs {
    /// Pipeline files (YAML or JSON)
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Set a value of the file: a path of keys, joined by dots
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Take a plugin from another file than the pipeline file says
    #[arg(long = "plugin", value_name = "NAME=PATH", value_parser = pair)]
    pub(crate) plugins: Vec<(String, String)>,
    /// Make a new instance of a plugin for every call: slow, and the rows must not change by it. It finds functions that
    /// keep something between calls which they ought to keep in their state
    #[arg(long)]
    pub(crate) fresh_instances: bool,
}

/// The pipeline file of a command that looks at one query, and what the command line changes in it.
#[derive(Debug, Args)]
pub(crate) struct OnePipeline {
    /// The pipeline file (YAML or JSON)
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Set a value of the file: a path of keys, joined by dots
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Take a plugin from another file than the pipeline file says
    #[arg(long = "plugin", value_name = "NAME=PATH", value_parser = pair)]
    plugins: Vec<(String, String)>,
}

impl OnePipeline {
    /// The pipeline that is meant.
    pub(crate) fn pipeline(&self) -> PipelineArgs {
        PipelineArgs {
            files: vec![self.file.clone()],
            set: self.set.clone(),
            plugins: self.plugins.clone(),
            fresh_instances: false,
        }
    }
}

/// How rows are printed on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// A table for a person
    Table,
    /// A line of JSON a row
    Json,
}

/// What to explain.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) pipeline: PipelineArgs,
    /// Read the checkpoint, also while the query runs: how far it is, what each operator waits for, what holds the
    /// watermark and since when
    #[arg(long)]
    pub(crate) live: bool,
    /// How to print what --live finds
    #[arg(long, default_value = "words", requires = "live")]
    pub(crate) format: PrintFormat,
}

/// How to run queries.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton run pipeline.yaml
  pelton run pipeline.yaml --trigger available_now
  pelton run pipeline.yaml --trigger '10 seconds' --set sources.flights.path='in/*.csv'
  pelton run pipeline.yaml --batch --set sink.connector=console
  pelton run a.yaml b.yaml --progress json 2> progress.jsonl

Ctrl-C finishes the micro-batch under way and commits it; a second Ctrl-C ends at once, with \
exit code 130 (a second SIGTERM: 143); a new start runs that micro-batch again.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) pipeline: PipelineArgs,
    /// When micro-batches start: as_fast_as_possible, once, available_now, or an interval ('10 seconds')
    #[arg(long, value_name = "TRIGGER", value_parser = trigger)]
    pub(crate) trigger: Option<Trigger>,
    /// Run once over everything that is there, as one batch, without a checkpoint
    #[arg(long, conflicts_with = "trigger")]
    pub(crate) batch: bool,
    /// Report every micro-batch on stderr [default: one line that is rewritten on a terminal, none elsewhere]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) progress: Option<Reporting>,
    /// Report the whole run on stderr when it ends [default: words on a terminal, none elsewhere]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) summary: Option<Reporting>,
    /// Run a micro-batch that an earlier run began and did not commit with the plugins of the pipeline file, not with
    /// those it was begun with: the way out if those fail on it
    #[arg(long)]
    pub(crate) rerun_with_current_plugins: bool,
    /// Forget the state of this operator, or of this variable of a function (OPERATOR.VARIABLE), and begin with empty
    /// state; may be given several times. An operator that the pipeline no longer has is let go: its state is set aside
    #[arg(long, value_name = "OPERATOR", conflicts_with_all = ["batch", "new_lineage"])]
    pub(crate) reset_state: Vec<String>,
    /// Forget the state of all operators, and go on from where the sources were read to
    #[arg(long, conflicts_with = "batch")]
    pub(crate) new_lineage: bool,
    /// Run a micro-batch that an earlier run began and did not commit with the static tables as they are now, not as they
    /// were: the way out if their files are gone or changed
    #[arg(long)]
    pub(crate) rerun_with_current_tables: bool,
    /// Worker threads for decoding and operators [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Which scripts to run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton test tests/*.yaml
  pelton test windows.yaml --print json
  pelton test tests/*.yaml --filter windows --set output_mode=update

Exit codes: 0 all as expected, 1 something was not, 2 a script is wrong. docs/testing.md explains the scripts.")]
pub(crate) struct ScriptArgs {
    /// Scripts (YAML or JSON)
    #[arg(required = true, value_name = "SCRIPT", value_hint = ValueHint::FilePath)]
    pub(crate) scripts: Vec<PathBuf>,
    /// Run only the scripts whose path contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Print every micro-batch that ran as a line of JSON, instead of a line a script
    #[arg(long, value_name = "FORMAT")]
    pub(crate) print: Option<ScriptPrint>,
    /// Set a value of the pipelines: a path of keys, joined by dots
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Take a plugin from another file than the pipelines say
    #[arg(long = "plugin", value_name = "NAME=PATH", value_parser = pair)]
    pub(crate) plugins: Vec<(String, String)>,
    /// Make a new instance of a plugin for every call: what the scripts expect must come all the same
    #[arg(long)]
    pub(crate) fresh_instances: bool,
}

/// What `test` prints on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScriptPrint {
    /// A line of JSON a micro-batch
    Json,
}

/// How something is reported on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reporting {
    /// A line for a person
    Words,
    /// A line of JSON
    Json,
    /// Nothing
    None,
}

/// What to send rows through.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cat flights.jsonl | pelton pipe flights.wasm:is_delayed
  cat flights.jsonl | pelton pipe flights.wasm:events redact.wasm --config redact='{\"drop\": [\"flight\"]}'
  pelton pipe 'flights.wasm:is_delayed(dep_delay)' --input-schema 'carrier string, dep_delay double' < flights.jsonl

A boolean function keeps the rows for which it is true, another scalar function adds a column, a transform gives any \
number of rows. A scalar function gets the columns in parentheses, or all of them. Refused rows and malformed lines go to \
stderr with the reason, and harm none of their neighbours.")]
pub(crate) struct PipeArgs {
    /// Plugin file and function, in the order of the chain; without a function, the plugin's only one
    #[arg(required = true, value_name = "PLUGIN.wasm[:FUNCTION]")]
    pub(crate) functions: Vec<String>,
    /// The columns of the input, as Spark's DDL [default: inferred from the first lines]
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) input_schema: Option<String>,
    /// Configuration of the plugins: a JSON object, or NAME=OBJECT for the plugin file NAME.wasm alone
    #[arg(long, value_name = "[NAME=]JSON")]
    pub(crate) config: Vec<String>,
}

/// How a description is printed on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrintFormat {
    /// For a person
    Words,
    /// For a program
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// How to print it
    #[arg(long, default_value = "json")]
    pub(crate) format: SchemaFormat,
}

/// In which form the pipeline file is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaFormat {
    /// JSON Schema
    Json,
    /// The reference page, for reading
    Markdown,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' has no '='; write NAME=PATH")),
    }
}

fn trigger(text: &str) -> Result<Trigger, String> {
    let spec = TriggerSpec::parse(text).map_err(|error| match error.hint_text() {
        Some(hint) => format!("{}: {hint}", error.message()),
        None => error.message().to_owned(),
    })?;
    Ok(spec.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use pelton_core::Interval;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn prose_is_wrapped_by_the_terminal_alone() {
        fn look_at(command: &clap::Command) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_prose = |line: &&str| !line.is_empty() && !line.starts_with("  ") && !line.ends_with(':');
            let lines: Vec<&str> = text.lines().collect();
            let broken = lines.windows(2).find(|pair| pair.iter().all(is_prose));
            assert_eq!(broken, None, "{} --help", command.get_name());
            command.get_subcommands().for_each(look_at);
        }
        look_at(&Cli::command());
    }

    #[test]
    fn triggers_are_read() {
        assert_eq!(trigger("available_now"), Ok(Trigger::AvailableNow));
        assert_eq!(trigger("10 seconds"), Ok(Trigger::ProcessingTime(Interval::from_millis(10_000))));
        assert!(trigger("sometimes").is_err_and(|why| why.contains("available_now")));
    }

    #[test]
    fn pairs_keep_what_follows_the_first_equals_sign() {
        assert_eq!(pair("a.b=c=d"), Ok(("a.b".to_owned(), "c=d".to_owned())));
        assert!(pair("=x").is_err() && pair("x").is_err());
    }
}
