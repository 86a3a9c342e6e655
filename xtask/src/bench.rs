//! `cargo xtask bench`: builds what is measured and starts the measuring program of the tests' crate.

use crate::suite::cargo;
use crate::workspace::Workspace;
use crate::{guests, shell};
use anyhow::Result;

/// The cost of crossing the sandbox.
pub(crate) fn boundary(workspace: &Workspace) -> Result<()> {
    start(workspace, "boundary", &[])
}

/// From files to files.
pub(crate) fn file(workspace: &Workspace, rows: u64) -> Result<()> {
    let mut build = cargo(workspace);
    build.args(["build", "--workspace", "--bins"]);
    shell::run(build)?;
    start(workspace, "file", &["--rows", &rows.to_string()])
}

/// Event time and state.
pub(crate) fn windows(workspace: &Workspace, rows: u64) -> Result<()> {
    let mut build = cargo(workspace);
    build.args(["build", "--workspace", "--bins"]);
    shell::run(build)?;
    start(workspace, "windows", &["--rows", &rows.to_string()])
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
