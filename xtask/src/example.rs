//! `cargo xtask example NAME`: builds what an example needs and runs its pipelines; with a broker, if it is one of Kafka.

use crate::progress::{Step, heading};
use crate::workspace::Workspace;
use crate::{guests, install, shell, suite};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// What the examples with Kafka name as their broker.
#[cfg(unix)]
const PORT: u16 = 9092;

/// The pipelines of an example, in this order: those that are there.
const PIPELINES: [&str; 3] = ["produce.yaml", "pipeline.yaml", "show.yaml"];

/// Runs it from nothing each time: what an earlier run left is removed first.
pub(crate) fn run(workspace: &Workspace, name: &str) -> Result<()> {
    let folder = workspace.root.join("examples").join(name);
    let pipelines = PIPELINES.map(|file| folder.join(file));
    ensure!(
        pipelines[1].is_file(),
        "there is no example '{name}'; there are: {}",
        names(workspace)?.join(", ")
    );
    install::host()?;
    guests::build_all(workspace)?;
    heading("building pelton (the first time this takes a while: some 450 packages)");
    let mut build = suite::cargo(workspace);
    build.args(["build", "--workspace", "--bins"]);
    shell::run(build)?;
    match std::fs::remove_dir_all(workspace.root.join("target/examples").join(name)) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(why.into()),
        _ => {}
    }
    #[cfg(unix)]
    let _broker = if std::fs::read_to_string(&pipelines[1])?.contains("connector: kafka") {
        Some(broker()?)
    } else {
        None
    };
    pipelines
        .iter()
        .filter(|pipeline| pipeline.is_file())
        .try_for_each(|pipeline| pelton(workspace, pipeline))
}

/// One for as long as the example runs.
#[cfg(unix)]
fn broker() -> Result<pelton_services::KafkaBroker> {
    install::java()?;
    let step = Step::start("starting Kafka (the first time, Maven fetches 44 MB)");
    let broker = pelton_services::KafkaBroker::start_on(PORT).with_context(|| {
        format!("if port {PORT} is taken by a broker of yours, run the files by hand as the README says")
    })?;
    step.done(&broker.bootstrap_servers());
    Ok(broker)
}

fn pelton(workspace: &Workspace, pipeline: &Path) -> Result<()> {
    let shown = workspace.shown(pipeline);
    heading(&format!("pelton run {shown} --trigger available_now"));
    let mut pelton = shell::command(&workspace.pelton());
    pelton.current_dir(&workspace.root).args(["run", &shown, "--trigger", "available_now"]);
    shell::run(pelton)
}

fn names(workspace: &Workspace) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(workspace.root.join("examples"))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.join("pipeline.yaml").is_file() {
            names.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
