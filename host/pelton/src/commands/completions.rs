//! `pelton completions`: a completion script for a shell, on stdout.

use crate::cli::{Cli, CompletionsArgs};
use clap::CommandFactory;
use pelton_core::Result;

/// Prints it.
pub(crate) fn run(arguments: &CompletionsArgs) -> Result<()> {
    clap_complete::generate(arguments.shell, &mut Cli::command(), "pelton", &mut std::io::stdout());
    Ok(())
}
