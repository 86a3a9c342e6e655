//! `pelton completions`: a completion script for a shell, on stdout.

use super::print_text;
use crate::cli::{Cli, CompletionsArgs};
use clap::CommandFactory;
use pelton_core::{Error, Result};

/// Prints it.
pub(crate) fn run(arguments: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "pelton", &mut script);
    let script = String::from_utf8(script);
    let script = script.map_err(|why| Error::internal(format!("the script is no text: {why}")))?;
    print_text(&script).map(|_| ())
}
