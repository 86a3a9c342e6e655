//! `cargo xtask bench`: builds what is measured and starts the measuring program of the tests' crate.

use crate::suite::cargo;
use crate::workspace::Workspace;
use crate::{guests, install, shell};
use anyhow::Result;

/// The cost of crossing the sandbox.
pub(crate) fn boundary(workspace: &Workspace) -> Result<()> {
    start(workspace, "boundary", &[])
}

/// From files to files.
pub(crate) fn file(workspace: &Workspace, rows: u64) -> Result<()> {
    with_binary(workspace, "file", &["--rows", &rows.to_string()])
}

/// Event time and native operators.
pub(crate) fn windows(workspace: &Workspace, rows: u64) -> Result<()> {
    with_binary(workspace, "windows", &["--rows", &rows.to_string()])
}

/// User code that keeps state.
pub(crate) fn state(workspace: &Workspace, rows: u64) -> Result<()> {
    with_binary(workspace, "state", &["--rows", &rows.to_string()])
}

/// From a broker to a broker.
pub(crate) fn kafka(workspace: &Workspace, rows: u64) -> Result<()> {
    install::java()?;
    with_binary(workspace, "kafka", &["--rows", &rows.to_string()])
}

/// A plugin that changes while a query runs.
pub(crate) fn swap(workspace: &Workspace) -> Result<()> {
    with_binary(workspace, "swap", &[])
}

/// A program that measures the real binary.
fn with_binary(workspace: &Workspace, name: &str, arguments: &[&str]) -> Result<()> {
    install::host()?;
    let mut build = cargo(workspace);
    build.args(["build", "--workspace", "--bins"]);
    shell::run(build)?;
    start(workspace, name, arguments)
}

/// In the profile of everyday work, whose hot parts are optimised as in a release, and with the features of the whole
/// workspace: nothing is built twice.
fn start(workspace: &Workspace, name: &str, arguments: &[&str]) -> Result<()> {
    guests::build_all(workspace)?;
    let mut bench = cargo(workspace);
    bench.args(["bench", "--profile", "dev", "--workspace", "--bench", name, "--"]);
    bench.args(arguments);
    shell::run(bench)
}
