//! `cargo xtask test`: every plugin, then every test. Cargo's own lines come last, so that they are seen.

use crate::progress::heading;
use crate::workspace::Workspace;
use crate::{guests, install, shell};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Runs them.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    install::host()?;
    install::java()?;
    guests::build_all(workspace)?;
    install::postgres()?;
    heading("cargo build --workspace --bins");
    // The end-to-end tests see by what this leaves whether the binary is older than its sources.
    let mut build = cargo(workspace);
    build.args(["build", "--workspace", "--bins"]);
    shell::run(build)?;
    heading("cargo test --workspace");
    let mut test = cargo(workspace);
    test.args(["test", "--workspace"]).args(arguments);
    shell::run(test)
}

/// Ten times as many kills as the tests do, and more with more rounds; with another sequence of moments each round.
pub(crate) fn soak(workspace: &Workspace, rounds: u64) -> Result<()> {
    install::host()?;
    install::java()?;
    guests::build_all(workspace)?;
    for round in 1..=rounds {
        heading(&format!("round {round} of {rounds}"));
        let mut test = cargo(workspace);
        test.args(["test", "--workspace", "--test", "e2e", "--", "crash::", "s3::twenty", "kafka::once::"]);
        test.args(["swap::api::a_hundred_kills", "swap::api::kills", "swap::shadow::kills"]);
        test.arg("--nocapture");
        test.env("PELTON_TEST_SOAK", "10").env("PELTON_TEST_SEED", (1000 + round).to_string());
        shell::run(test)?;
    }
    Ok(())
}

/// Cargo, in the checkout.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let mut cargo = shell::command(Path::new("cargo"));
    cargo.current_dir(&workspace.root);
    cargo
}
