//! What micro-batches gave, on stdout: as tables for a person, or as lines of JSON.

use super::Logged;
use crate::cli::{ReplayArgs, TableFormat};
use crate::commands::print_line;
use crate::commands::shown::{KeyFilter, Shown};
use crate::compare::{Differences, values};
use crate::report::time_text;
use pelton_core::Result;
use pelton_core::words::counted;
use pelton_engine::Replayed;
use serde_json::{Value, json};

/// Rows of a micro-batch, or differences, that a person is shown if no limit is given.
const SHOWN_ROWS: usize = 20;

/// The rows of a micro-batch, and its dead letters if they are asked for.
pub(super) fn replayed(arguments: &ReplayArgs, logged: &Logged, replayed: &Replayed) -> Result<()> {
    let rows: usize = replayed.rows.iter().map(|batch| batch.num_rows()).sum();
    let committed = logged.commit.as_ref().map(|commit| commit.sink.rows);
    let letters = if arguments.dead_letters { replayed.dead_letters.as_slice() } else { &[] };
    match arguments.format {
        TableFormat::Json => {
            let limit = arguments.limit.unwrap_or(usize::MAX);
            line(
                logged,
                "summary",
                json!({
                    "time": time_text(logged.entry.batch_time_ms), "rows": rows, "committed_rows": committed,
                    "dead_letters": replayed.dead_letters.len(), "plugins": logged.entry.plugins,
                }),
            )?;
            values(&replayed.rows)?.into_iter().take(limit).try_for_each(|row| line(logged, "row", row))?;
            letters.iter().take(limit).try_for_each(|letter| line(logged, "dead_letter", letter.clone()))
        }
        TableFormat::Table => {
            let committed = match committed {
                Some(committed) => format!("{committed} were committed"),
                None => "it is not committed".to_owned(),
            };
            let lost = replayed.dead_letters.len();
            let (rows, lost) = (counted(rows as u64, "row"), counted(lost as u64, "dead letter"));
            print_line(&format!("{}: {rows} ({committed}), {lost}", heading(logged)))?;
            let mut table = Shown::new(TableFormat::Table, arguments.limit, KeyFilter::default());
            replayed
                .rows
                .iter()
                .filter(|batch| batch.num_rows() > 0)
                .try_for_each(|batch| table.rows("", batch).map(drop))?;
            table.finish()?;
            some(letters, arguments.limit.unwrap_or(SHOWN_ROWS), |letter| format!("dead letter: {letter}"))
        }
    }
}

/// In what two runs of a micro-batch differ.
pub(super) fn compared(
    arguments: &ReplayArgs,
    logged: &Logged,
    rows: &Differences,
    letters: &Differences,
    same_plugins: bool,
) -> Result<()> {
    match arguments.format {
        TableFormat::Json => {
            line(
                logged,
                "summary",
                json!({
                    "time": time_text(logged.entry.batch_time_ms), "same_plugins": same_plugins, "rows": counts(rows),
                    "dead_letters": counts(letters),
                }),
            )?;
            let limit = arguments.limit.unwrap_or(usize::MAX);
            differences_json(rows).take(limit).try_for_each(|found| line(logged, "difference", found))?;
            let mut letters = differences_json(letters).take(if arguments.dead_letters { limit } else { 0 });
            letters.try_for_each(|found| line(logged, "dead_letter_difference", found))
        }
        TableFormat::Table => {
            let note = if same_plugins { " (the plugins are the same)" } else { "" };
            print_line(&format!("{}: {}{note}", heading(logged), counts_text(rows, "row")))?;
            let limit = arguments.limit.unwrap_or(SHOWN_ROWS);
            some(&differences_text(rows), limit, String::clone)?;
            if letters.old + letters.new > 0 {
                print_line(&format!("  {}", counts_text(letters, "dead letter")))?;
            }
            if arguments.dead_letters {
                some(&differences_text(letters), limit, String::clone)?;
            }
            Ok(())
        }
    }
}

fn heading(logged: &Logged) -> String {
    format!("micro-batch {}, {}", logged.batch_id, time_text(logged.entry.batch_time_ms))
}

fn line(logged: &Logged, what: &str, value: Value) -> Result<()> {
    print_line(&json!({"batch_id": logged.batch_id, what: value}).to_string())
}

/// The first of some lines, and how many more there are.
fn some<T>(all: &[T], limit: usize, text: impl Fn(&T) -> String) -> Result<()> {
    all.iter().take(limit).try_for_each(|one| print_line(&text(one)))?;
    match all.len().saturating_sub(limit) {
        0 => Ok(()),
        more => print_line(&format!("and {more} more (--limit shows them)")),
    }
}

fn counts(found: &Differences) -> Value {
    json!({
        "logged": found.old, "given": found.new, "equal": found.equal, "changed": found.changed.len(),
        "only_logged": found.only_old.len(), "only_given": found.only_new.len(),
    })
}

fn counts_text(found: &Differences, what: &str) -> String {
    let sides =
        format!("{} as logged, {} with the given plugins", counted(found.old as u64, what), found.new);
    match found.count() {
        0 => format!("{sides}: no difference"),
        _ => format!(
            "{sides}: {} equal, {} changed, {} only as logged, {} only with the given",
            found.equal,
            found.changed.len(),
            found.only_old.len(),
            found.only_new.len()
        ),
    }
}

fn differences_json(found: &Differences) -> impl Iterator<Item = Value> {
    let changed = found.changed.iter().map(|(logged, given)| json!({"logged": logged, "given": given}));
    let only_logged = found.only_old.iter().map(|row| json!({"logged": row}));
    changed.chain(only_logged).chain(found.only_new.iter().map(|row| json!({"given": row})))
}

fn differences_text(found: &Differences) -> Vec<String> {
    let changed = found.changed.iter().map(|(logged, given)| format!("  - {logged}\n  + {given}"));
    let only_logged = found.only_old.iter().map(|row| format!("  - {row}"));
    changed.chain(only_logged).chain(found.only_new.iter().map(|row| format!("  + {row}"))).collect()
}
