//! `pelton explain`: the plan of a pipeline file; with `--live` what its query waits for, as its checkpoint says.

mod live;

use crate::assembly::{self, Assembly, RunOptions};
use crate::cli::{ExplainArgs, PrintFormat};
use pelton_core::Result;
use pelton_plan::{PhysicalPlan, PipelineFile};

/// Plans every file and prints the plan; touches no checkpoint and no output. With `--live` it reads the checkpoints.
pub(crate) fn run(arguments: &ExplainArgs) -> Result<()> {
    let files = assembly::read(&arguments.pipeline)?;
    let assembly = Assembly::new(&arguments.pipeline, &files)?;
    let runtime = super::runtime(None)?;
    for file in &files {
        let planned = runtime.block_on(assembly.plan(file, RunOptions::default()))?;
        let text = match arguments.live {
            true => runtime.block_on(of_checkpoint(file, planned.plan(), arguments.format))?,
            false => pelton_operators::explain(planned.plan()),
        };
        super::print_line(text.trim_end())?;
    }
    Ok(())
}

async fn of_checkpoint(file: &PipelineFile, plan: &PhysicalPlan, format: PrintFormat) -> Result<String> {
    let files = super::checkpoint::named(file)?;
    let found = pelton_engine::live::read(files, &plan.name).await?;
    let live = live::View { plan, live: &found };
    Ok(match format {
        PrintFormat::Words => live.words(),
        PrintFormat::Json => live.json().to_string(),
    })
}
