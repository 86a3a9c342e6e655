//! `pelton check`: everything that can be wrong in a pipeline file, without running it.

use crate::assembly::{self, Assembly, RunOptions};
use crate::cli::PipelineArgs;
use pelton_core::Result;

/// Reads, resolves and plans every file; touches no checkpoint and no output.
pub(crate) fn run(arguments: &PipelineArgs) -> Result<()> {
    let files = assembly::read(arguments)?;
    let assembly = Assembly::new(arguments, &files)?;
    let runtime = super::runtime(None)?;
    for file in &files {
        runtime.block_on(assembly.plan(file, RunOptions::default()))?;
        super::print_line(&format!("{}: ok", file.text().name()))?;
    }
    Ok(())
}
