//! The program's last word: an error in plain sentences on stderr, and the exit code.

use pelton_core::words::plural;
use pelton_core::{Error, ErrorKind, Result};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Prints the error, if there is one, and says what to exit with.
pub(crate) fn exit_code(done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&error);
            code_of(&error)
        }
    }
}

/// What to exit with after an error that has been told.
pub(crate) fn code_of(error: &Error) -> ExitCode {
    ExitCode::from(code(error.kind()))
}

/// Prints an error on stderr.
pub(crate) fn print(error: &Error) {
    // Nobody is left to tell if stderr is gone.
    let _ = writeln!(std::io::stderr().lock(), "{}", message(error, colours_on_stderr()));
}

/// Writes a line to stderr, if anybody still reads it: a query goes on without.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// 2: the request was wrong; 1: it was right and failed.
fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid => 2,
        ErrorKind::Unavailable
        | ErrorKind::Data
        | ErrorKind::Plugin
        | ErrorKind::Fenced
        | ErrorKind::Internal => 1,
    }
}

fn message(error: &Error, colours: bool) -> String {
    let (red, cyan, plain) = if colours { ("\x1b[1;31m", "\x1b[36m", "\x1b[0m") } else { ("", "", "") };
    let kind = match error.kind() {
        ErrorKind::Invalid => "error".to_owned(),
        kind => format!("error ({kind})"),
    };
    let hint = error.hint_text().map(|hint| format!("\n  {cyan}hint{plain}: {hint}")).unwrap_or_default();
    let bug = match error.kind() {
        ErrorKind::Internal => "\n  this is a fault of Pelton; please report it with what led to it",
        _ => "",
    };
    format!("{red}{kind}{plain}: {}{hint}{bug}", error.message())
}

/// Whether stderr is a terminal that wants colours (see no-color.org).
pub(crate) fn colours_on_stderr() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && std::io::stderr().is_terminal()
}

/// `1 row`, `12,000 rows`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    format!("{} {}", indicatif::HumanCount(count), plural(count, one))
}

/// A time for a person: `2026-01-01T00:00:00.000Z`.
pub(crate) fn time_text(ms: i64) -> String {
    let time = chrono::DateTime::from_timestamp_millis(ms);
    time.map_or_else(|| format!("{ms} ms"), |time| time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_way_out() {
        let error = Error::invalid("there is no step 'fiter'").hint("did you mean 'filter'?");
        assert_eq!(message(&error, false), "error: there is no step 'fiter'\n  hint: did you mean 'filter'?");
        assert!(message(&error, true).starts_with("\x1b[1;31merror\x1b[0m: "));
    }

    #[test]
    fn other_kinds_are_named() {
        assert_eq!(message(&Error::data("line 3 is cut"), false), "error (data): line 3 is cut");
        assert!(message(&Error::internal("no"), false).contains("a fault of Pelton"));
    }

    #[test]
    fn a_wrong_request_and_a_failed_query_exit_differently() {
        assert_eq!((code(ErrorKind::Invalid), code(ErrorKind::Plugin)), (2, 1));
    }
}
