//! `pelton explain`: the plan of a pipeline file, for a person.

use crate::assembly::{self, Assembly, RunOptions};
use crate::cli::PipelineArgs;
use pelton_core::Result;

/// Plans every file and prints the plan; touches no checkpoint and no output.
pub(crate) fn run(arguments: &PipelineArgs) -> Result<()> {
    let files = assembly::read(arguments)?;
    let assembly = Assembly::new(arguments, &files)?;
    let runtime = super::runtime(None)?;
    for file in &files {
        let planned = runtime.block_on(assembly.plan(file, RunOptions::default()))?;
        super::print_line(pelton_operators::explain(planned.plan()).trim_end())?;
    }
    Ok(())
}
