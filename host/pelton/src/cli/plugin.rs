//! The arguments of `pelton plugin`.

use super::*;

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Start a project that builds, has a test and a pipeline to try
    New(NewArgs),
    /// Build a project to NAME.wasm
    Build(BuildArgs),
    /// Say what a plugin file holds
    Inspect(InspectArgs),
    /// Run a plugin against cases: rows in, rows out, refused rows
    Test(TestArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  pelton plugin new shout --lang rust && cd shout && pelton plugin build && pelton run pipeline.yaml")]
pub(crate) struct NewArgs {
    /// The plugin's name: lower case, digits, - and _; a folder of this name is made here
    pub(crate) name: String,
    /// The language
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    pub(crate) lang: Language,
    /// Begin with a function over groups of rows that keeps state, not with functions over rows
    #[arg(long)]
    pub(crate) stateful: bool,
}

/// A language that `plugin new` and `plugin build` know. Others compile to Wasm in their own ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Rust, with the SDK
    Rust,
    /// C, freestanding, with the header
    C,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The project's folder: with a Cargo.toml, or with C files
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Where to put the module [default: NAME.wasm in the project's folder]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pelton plugin inspect flights.wasm --format json | jq '.manifest.functions[].name'
  pelton plugin inspect totals.wasm --function spent --key 'user: string' \\
    --input-schema 'user: string, cents: long, ts: timestamp'")]
pub(crate) struct InspectArgs {
    /// The plugin: .wasm or .wat
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// How to print it
    #[arg(long, default_value = "words")]
    pub(crate) format: PrintFormat,
    /// Say what this function makes of the columns of --input-schema: those that come out, and of one over groups its form,
    /// its time, its variables
    #[arg(long, value_name = "FUNCTION", requires = "input_schema")]
    pub(crate) function: Option<String>,
    /// The columns that go in: 'name type, …'
    #[arg(long, value_name = "COLUMNS", requires = "function")]
    pub(crate) input_schema: Option<String>,
    /// Of a function over groups: the columns of the key
    #[arg(long, value_name = "COLUMNS", requires = "function", default_value = "")]
    pub(crate) key: String,
    /// The plugin's configuration, as JSON
    #[arg(long, value_name = "JSON", requires = "function", default_value = "{}")]
    pub(crate) config: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  pelton plugin test my-plugin.wasm cases/*.json")]
pub(crate) struct TestArgs {
    /// The plugin: .wasm or .wat
    #[arg(value_name = "PLUGIN", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Case files
    #[arg(required = true, value_name = "CASES", value_hint = ValueHint::FilePath)]
    pub(crate) cases: Vec<PathBuf>,
}
