//! One module a command.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod explain;
pub(crate) mod pipe;
pub(crate) mod plugin;
pub(crate) mod run;
pub(crate) mod schema;

use pelton_core::{Error, Result};
use std::io::Write;

/// Writes a line of data to stdout. That nobody reads on is no error: the reader has had enough.
pub(crate) fn print_line(line: &str) -> Result<()> {
    written(writeln!(std::io::stdout().lock(), "{line}")).map(|_| ())
}

/// Whether to go on after writing to stdout: not if the reader has gone.
pub(crate) fn written(result: std::io::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Error::unavailable(format!("cannot write to stdout: {why}"))),
    }
}
