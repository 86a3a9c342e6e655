//! The command line as a user meets it.

use anyhow::{Result, ensure};
use pelton_tests::Pelton;

mod basics;
mod explain;
mod pipe;
mod scaffold;
mod state;
mod testing;

/// Runs it, and expects this exit code and these words on stderr.
fn fails(arguments: &[&str], code: i32, words: &[&str]) -> Result<()> {
    let finished = Pelton::new(arguments.iter().copied())?.output()?;
    ensure!(finished.code == Some(code), "{arguments:?}: exit {:?}\n{}", finished.code, finished.stderr);
    ensure!(finished.stdout.is_empty(), "{arguments:?}: data on stdout: {}", finished.stdout);
    for word in words {
        ensure!(finished.stderr.contains(word), "{arguments:?}: no '{word}' in\n{}", finished.stderr);
    }
    Ok(())
}
