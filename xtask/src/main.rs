//! `cargo xtask`: what developers and CI run. It builds with few and small dependencies, so that the first
//! command on a fresh clone answers soon.

mod bench;
mod demo;
mod docs;
mod example;
mod guests;
mod install;
#[cfg(unix)]
mod kafka;
mod progress;
mod shell;
mod suite;
mod workspace;

use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;
use workspace::Workspace;

/// Builds, shows and tests Pelton.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the binary and an example plugin, and run a pipeline over real flights
    Demo,
    /// Build every plugin and run all tests
    Test {
        /// Arguments for `cargo test`, after `--`
        #[arg(last = true)]
        cargo: Vec<String>,
    },
    /// Kill the real process a thousand times and more, and compare what it leaves
    Soak {
        /// How many times over
        #[arg(long, default_value_t = 1)]
        rounds: u64,
    },
    /// Run an example from nothing: `cargo xtask example 06-kafka-parquet`
    Example {
        /// Its folder in examples/
        name: String,
    },
    /// Run a Kafka broker of its own until Ctrl-C: for trying things out
    #[cfg(unix)]
    Kafka {
        /// The port of the loopback device that it listens on
        #[arg(long, default_value_t = 9092)]
        port: u16,
    },
    /// Build every plugin to target/plugins
    Plugins,
    /// Measure, and print beside it what the bare work costs on this machine
    Bench {
        /// What to measure
        what: Bench,
        /// Rows to generate for `file`, `windows`, `state` and `kafka`
        #[arg(long, default_value_t = 1_000_000)]
        rows: u64,
    },
    /// Write the generated pages: pipeline reference, JSON Schema
    Docs,
    /// What CI runs
    Ci,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bench {
    /// The cost of crossing the sandbox, a call and a row
    Boundary,
    /// Rows a second from files to files, and where the time goes
    File,
    /// Windows, deduplication and joins, and what a micro-batch costs as the state grows
    Windows,
    /// User code that keeps state: rows a second, small micro-batches, bytes written, recovery
    State,
    /// From topic to topic on a broker of its own: rows a second, and the time from producer to consumer
    Kafka,
    /// How long a query at full speed pauses when its plugin is swapped
    Swap,
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    let workspace = Workspace::find()?;
    match task {
        Task::Demo => demo::run(&workspace),
        Task::Test { cargo } => suite::run(&workspace, &cargo),
        Task::Soak { rounds } => suite::soak(&workspace, rounds),
        Task::Example { name } => example::run(&workspace, &name),
        #[cfg(unix)]
        Task::Kafka { port } => kafka::run(port),
        Task::Plugins => guests::build_all(&workspace),
        Task::Bench { what: Bench::Boundary, .. } => bench::boundary(&workspace),
        Task::Bench { what: Bench::File, rows } => bench::file(&workspace, rows),
        Task::Bench { what: Bench::Windows, rows } => bench::windows(&workspace, rows),
        Task::Bench { what: Bench::State, rows } => bench::state(&workspace, rows),
        Task::Bench { what: Bench::Kafka, rows } => bench::kafka(&workspace, rows),
        Task::Bench { what: Bench::Swap, .. } => bench::swap(&workspace),
        Task::Docs => docs::write(&workspace),
        Task::Ci => shell::run(shell::command(&workspace.root.join(".ci/run"))),
    }
}
