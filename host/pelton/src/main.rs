//! `pelton`: the command line. This file shows the whole program; each command is a module of its own.
//!
//! Data goes to stdout, everything else to stderr. Exit code 0: done; 1: the query or the data failed;
//! 2: the request was wrong; 130 and 143: a second SIGINT or SIGTERM ended a run at once.

mod api;
mod assembly;
mod cli;
mod commands;
mod compare;
mod json;
mod logging;
mod plugins;
mod report;
mod runner;
mod shadow;
mod watch;

use clap::Parser;
use cli::{Cli, Command, PluginCommand};
use std::process::ExitCode;

/// State is many small pieces of memory, made on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // The help and the version are what was asked for.
        Err(asked) if !asked.use_stderr() => {
            return report::exit_code(commands::written(asked.print()).map(|_| ()));
        }
        Err(wrong) => wrong.exit(),
    };
    logging::start(&cli.logging, !matches!(cli.command, Command::Test(_)));
    let done = match cli.command {
        Command::Run(arguments) => {
            return commands::run::run(&arguments).unwrap_or_else(|error| report::exit_code(Err(error)));
        }
        Command::Test(arguments) => {
            return commands::test::run(&arguments).unwrap_or_else(|error| report::exit_code(Err(error)));
        }
        Command::Status(arguments) => commands::status::run(&arguments),
        Command::Stop(arguments) => commands::stop::run(&arguments),
        Command::Swap(arguments) => commands::swap::run(&arguments),
        Command::Rollback(arguments) => commands::swap::roll_back(&arguments),
        Command::Shadow(arguments) => commands::swap::shadow::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Explain(arguments) => commands::explain::run(&arguments),
        Command::State(command) => commands::state::run(&command),
        Command::Checkpoint(command) => commands::checkpoint::run(&command),
        Command::DeadLetters(command) => commands::dead_letters::run(&command),
        Command::Files(command) => commands::files::run(&command),
        Command::Replay(arguments) => commands::replay::run(&arguments),
        Command::Pipe(arguments) => commands::pipe::run(&arguments),
        Command::Plugin(PluginCommand::New(arguments)) => commands::plugin::new::run(&arguments),
        Command::Plugin(PluginCommand::Build(arguments)) => commands::plugin::build::run(&arguments),
        Command::Plugin(PluginCommand::Inspect(arguments)) => commands::plugin::inspect::run(&arguments),
        Command::Plugin(PluginCommand::Test(arguments)) => commands::plugin::test::run(&arguments),
        Command::Schema(arguments) => commands::schema::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments),
    };
    report::exit_code(done)
}
