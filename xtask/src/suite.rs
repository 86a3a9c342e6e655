//! `cargo xtask test`: every plugin, then every test. Cargo's own lines come last, so that they are seen.

use crate::progress::heading;
use crate::workspace::Workspace;
use crate::{guests, install, shell};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Runs them.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    guests::build_all(workspace)?;
    install::postgres()?;
    heading("cargo test --workspace");
    let mut test = cargo(workspace);
    test.args(["test", "--workspace"]).args(arguments);
    shell::run(test)
}

/// Cargo, in the checkout.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let mut cargo = shell::command(Path::new("cargo"));
    cargo.current_dir(&workspace.root);
    cargo
}
