//! One module a command.

pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod completions;
pub(crate) mod dead_letters;
pub(crate) mod explain;
pub(crate) mod files;
pub(crate) mod pipe;
pub(crate) mod plugin;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod schema;
mod shown;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod swap;
pub(crate) mod test;

use pelton_core::{Error, Result};
use std::io::Write;

/// Writes a line of data to stdout. That nobody reads on is no error: the reader has had enough.
pub(crate) fn print_line(line: &str) -> Result<()> {
    print_text(&format!("{line}\n")).map(|_| ())
}

/// Writes text to stdout as it is, at once. False if nobody reads it any more.
pub(crate) fn print_text(text: &str) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Whether stdout was closed when the program started. It is then `/dev/null`, opened for reading, too: as few others
/// have it (a shell's `> /dev/null` opens it for writing).
pub(crate) fn stdout_was_closed() -> bool {
    let is_null = std::fs::read_link("/proc/self/fd/1").is_ok_and(|target| target.as_os_str() == "/dev/null");
    let described = std::fs::read_to_string("/proc/self/fdinfo/1").unwrap_or_default();
    let flags = described.lines().find_map(|line| line.strip_prefix("flags:"));
    is_null && flags.is_some_and(|flags| flags.ends_with('2'))
}

/// A text of unknown origin on one line: a terminal would obey what controls it.
pub(crate) fn on_one_line(text: &str) -> String {
    let visible = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(visible).collect()
}

/// Whether to go on after writing to stdout: not if the reader has gone.
pub(crate) fn written(result: std::io::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Error::unavailable(format!("cannot write to stdout: {why}"))),
    }
}

/// The runtime of a command: `threads` workers, or as many as there are cores.
pub(crate) fn runtime(threads: Option<u16>) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(usize::from(threads));
    }
    let started = builder.enable_all().build();
    started.map_err(|why| Error::unavailable(format!("cannot start the worker threads: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_by_a_row() {
        assert_eq!(on_one_line("a\u{1b}[2J\n\u{9b}é"), r"a\u{1b}[2J\n\u{9b}é");
    }
}
