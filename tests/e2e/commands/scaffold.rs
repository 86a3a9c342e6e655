//! `plugin new`, `build`, `inspect`, `test`, and the new project's own pipeline: each new project works as it comes.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Finished, Pelton, target_folder};
use std::path::Path;
use std::process::Command;

/// `pelton …` in a folder, offline: what a new project needs lies in cargo's cache already.
fn pelton_in(folder: &Path, arguments: &[&str]) -> Result<Finished> {
    Pelton::new(arguments.iter().copied())?
        .current_dir(folder)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", target_folder()?.join("scaffold"))
        .succeed()
}

/// Starts a project, builds it, and sends it through everything that its README names.
fn works_as_it_comes(language: &str, more: &[&str]) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let name = format!("{}-{language}", if more.is_empty() { "words" } else { "totals" });
    pelton_in(folder.path(), &[&["plugin", "new", &name, "--lang", language], more].concat())?;
    let project = folder.path().join(&name);

    pelton_in(&project, &["plugin", "build"])?;
    let module = format!("{name}.wasm");
    let inspected = pelton_in(&project, &["plugin", "inspect", &module, "--format", "json"])?.stdout;
    let manifest: serde_json::Value = serde_json::from_str(&inspected)?;
    ensure!(
        manifest["manifest"]["functions"].as_array().is_some_and(|f| !f.is_empty()),
        "no functions: {inspected}"
    );

    let cases = if more.is_empty() { "cases/words.json" } else { "cases/spent.json" };
    pelton_in(&project, &["plugin", "test", &module, cases])?;
    let rows = pelton_in(&project, &["run", "pipeline.yaml"])?.stdout;
    let expected = std::fs::read_to_string(project.join("data/expected.jsonl"))?;
    ensure!(rows == expected, "the pipeline gave\n{rows}\ninstead of\n{expected}");
    Ok(folder)
}

/// Its own tests pass, and there are some.
fn passes_its_tests(project: &Path) -> Result<()> {
    let output = Command::new("cargo")
        .args(["test", "--offline"])
        .current_dir(project)
        .env("CARGO_TARGET_DIR", target_folder()?.join("scaffold"))
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(printed.contains("1 passed") || printed.contains("2 passed"), "it has no test:\n{printed}");
    Ok(())
}

#[test]
fn a_new_rust_plugin_works_as_it_comes() -> Result<()> {
    let folder = works_as_it_comes("rust", &[])?;
    passes_its_tests(&folder.path().join("words-rust"))
}

#[test]
fn a_new_rust_plugin_that_keeps_state_works_as_it_comes() -> Result<()> {
    let folder = works_as_it_comes("rust", &["--stateful"])?;
    passes_its_tests(&folder.path().join("totals-rust"))
}

#[test]
fn a_new_c_plugin_works_as_it_comes() -> Result<()> {
    works_as_it_comes("c", &[]).map(|_| ())
}

#[test]
fn a_new_c_plugin_that_keeps_state_works_as_it_comes() -> Result<()> {
    works_as_it_comes("c", &["--stateful"]).map(|_| ())
}

#[test]
fn a_project_is_never_written_over() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("mine"))?;
    let finished = Pelton::new(["plugin", "new", "mine"])?.current_dir(folder.path()).output()?;
    ensure!(finished.code == Some(2) && finished.stderr.contains("there already"), "{finished:?}");
    ensure!(std::fs::read_dir(folder.path().join("mine"))?.next().is_none(), "something was written");
    Ok(())
}
