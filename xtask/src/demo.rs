//! `cargo xtask demo`: builds what is needed, runs a pipeline over real flights, and says what it did.
#![allow(clippy::print_stdout, reason = "what it did is its output")]

use crate::progress::heading;
use crate::workspace::Workspace;
use crate::{guests, install, shell, suite};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

const PIPELINE: &str = "examples/01-flights/pipeline.yaml";

/// Runs it from nothing each time: what an earlier demo left is removed first.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    install::host()?;
    guests::build_flights(workspace)?;
    heading("building pelton (the first time this takes a while: some 450 packages)");
    let mut build = suite::cargo(workspace);
    build.args(["build", "--workspace", "--bins"]);
    shell::run(build)?;

    let folder = workspace.target.join("demo");
    remove(&folder)?;
    let (output, checkpoint) = (folder.join("output"), folder.join("checkpoint"));
    heading(&format!("pelton run {PIPELINE} --trigger available_now"));
    let summary = run_pipeline(workspace, &output, &checkpoint)?;
    print(workspace, &summary, &output, &checkpoint)
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Err(why).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Shows the run's own lines and gives back its summary, the JSON object that it ends with.
fn run_pipeline(workspace: &Workspace, output: &Path, checkpoint: &Path) -> Result<serde_json::Value> {
    let mut pelton = shell::command(&workspace.pelton());
    pelton.current_dir(&workspace.root).args(["run", PIPELINE, "--trigger", "available_now"]);
    pelton.args(["--progress", "none", "--summary", "json"]);
    let plugin = workspace.plugins().join(guests::FLIGHTS);
    pelton.arg("--plugin").arg(format!("flights={}", plugin.display()));
    pelton.arg("--set").arg(format!("sink.path={}", output.display()));
    pelton.arg("--set").arg(format!("checkpoint={}", checkpoint.display()));
    let mut child = pelton.stderr(Stdio::piped()).spawn().context("cannot start pelton")?;
    let stderr = child.stderr.take().context("pelton has no stderr")?;
    let mut summary = None;
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        match serde_json::from_str(&line) {
            Ok(value @ serde_json::Value::Object(_)) => summary = Some(value),
            _ => eprintln!("   {line}"),
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "pelton run failed ({status})");
    summary.context("pelton run ended without a summary")
}

fn print(workspace: &Workspace, summary: &serde_json::Value, output: &Path, checkpoint: &Path) -> Result<()> {
    let number = |key: &str| summary[key].as_f64().with_context(|| format!("the summary has no {key}"));
    let (rows_in, rows_out) = (number("rows_in")?, number("rows_out")?);
    ensure!(rows_in > 0.0 && rows_out > 0.0, "no rows went through: {summary}");
    println!("rows in        {rows_in}");
    println!("rows out       {rows_out}");
    println!("rows refused   {}", number("rows_refused")?);
    println!("micro-batches  {}", number("batches")?);
    println!("seconds        {:.2}", number("seconds")?);
    println!("output         {}", workspace.shown(output));
    println!("checkpoint     {}", workspace.shown(checkpoint));
    if let Some((file, line)) = first_row(output) {
        println!("\nthe first row of {file}:\n{line}");
    }
    Ok(())
}

/// The first line of the first file, to have something to look at.
fn first_row(output: &Path) -> Option<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(output).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "json" || e == "jsonl"));
    files.sort();
    let first = files.first()?;
    let line = BufReader::new(std::fs::File::open(first).ok()?).lines().next()?.ok()?;
    Some((first.file_name()?.to_string_lossy().into_owned(), line))
}
