//! `cargo xtask docs`: writes the pages that are generated from the program itself. A test holds them equal.

use crate::suite::cargo;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};

/// What is printed by which command into which page.
const PAGES: [(&str, &str); 2] =
    [("json", "docs/pipeline.schema.json"), ("markdown", "docs/pipeline-reference.md")];

/// Writes them.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    for (format, page) in PAGES {
        let output = cargo(workspace)
            .args(["run", "--quiet", "--package", "pelton", "--", "schema", "--format", format])
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        ensure!(output.status.success(), "pelton schema --format {format} failed");
        std::fs::write(workspace.root.join(page), output.stdout).with_context(|| page.to_owned())?;
        eprintln!("   {page}");
    }
    Ok(())
}
