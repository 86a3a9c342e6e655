//! The status of queries for a person: a line a query, and below it what is wrong; of a single query more.

use crate::api::{PluginStatus, QueryStatus, SourceStatus};
use crate::report::counted;
use crate::shadow::differing;
use indicatif::{HumanBytes, HumanCount, HumanDuration};
use std::fmt::Write;
use std::time::Duration;

const HEADINGS: [&str; 12] = [
    "QUERY",
    "STATE",
    "BATCH",
    "IN/S",
    "OUT/S",
    "LAG",
    "WATERMARK",
    "BEHIND",
    "STATE ROWS",
    "STATE SIZE",
    "PID",
    "CHECKPOINT",
];

/// `in_full`: with plugins and counts, too.
pub(super) fn words(queries: &[QueryStatus], in_full: bool) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(queries.iter().map(cells));
    let mut widths = [0; HEADINGS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let line: String = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
        // (Writing to a string cannot fail.)
        let _ = writeln!(out, "{}", line.trim_end());
        if let Some(query) = index.checked_sub(1).and_then(|index| queries.get(index)) {
            below(&mut out, query, in_full);
        }
    }
    out.trim_end().to_owned()
}

fn cells(query: &QueryStatus) -> [String; HEADINGS.len()] {
    let dash = || "-".to_owned();
    let rate = |rows: f64| HumanCount(rows.round() as u64).to_string();
    let has_state = query.state_rows > 0 || query.state_bytes > 0;
    [
        query.name.clone(),
        match query.stop_requested && query.state.is_alive() {
            true => format!("{}, stopping", query.state),
            false => query.state.to_string(),
        },
        query.running_batch.or(query.last_committed).map_or_else(dash, |batch| batch.to_string()),
        rate(query.input_rows_per_second),
        rate(query.output_rows_per_second),
        lag(query).map_or_else(dash, duration),
        query.watermark.clone().unwrap_or_else(dash),
        query.watermark_delay_seconds.map_or_else(dash, duration),
        if has_state { HumanCount(query.state_rows).to_string() } else { dash() },
        if has_state { HumanBytes(query.state_bytes).to_string() } else { dash() },
        query.pid.to_string(),
        query.checkpoint.clone().unwrap_or_else(dash),
    ]
}

/// That of the source that is furthest behind, of those that know.
fn lag(query: &QueryStatus) -> Option<f64> {
    query.sources.values().filter_map(|source| source.lag_seconds).reduce(f64::max)
}

fn duration(seconds: f64) -> String {
    HumanDuration(Duration::from_secs_f64(seconds.clamp(0.0, 1e12))).to_string()
}

/// What has no column.
fn below(out: &mut String, query: &QueryStatus, in_full: bool) {
    if let Some(failure) = &query.failure {
        let _ = writeln!(out, "  {}: {}", failure.kind, failure.message);
        if let Some(hint) = &failure.hint {
            let _ = writeln!(out, "  hint: {hint}");
        }
    }
    if let Some(what) = &query.waiting_for {
        let _ = writeln!(out, "  waiting for {what}");
    }
    for (name, plugin) in &query.plugins {
        let _ = write!(out, "  plugin {name} {} ({})", plugin.version, short(&plugin.digest));
        if in_full {
            let busy = plugin.busy_seconds;
            let _ = write!(
                out,
                ": {}, {}, {busy:.3} s, {} at most, {}, {} refused",
                counted(plugin.calls, "call"),
                counted(plugin.rows, "row"),
                HumanBytes(plugin.memory_bytes_max),
                counted(plugin.errors, "error"),
                counted(plugin.refused_rows, "row"),
            );
        }
        out.push('\n');
        swaps(out, plugin, in_full);
    }
    if let Some(shadow) = query.shadow.as_ref().filter(|shadow| in_full || shadow.is_running()) {
        let _ = write!(
            out,
            "  shadow of plugin {} {}: {} of {}, {}",
            shadow.plugin,
            short(&shadow.digest),
            HumanCount(shadow.batches),
            counted(shadow.batches_wanted, "micro-batch"),
            differing(shadow.differing_rows),
        );
        let _ = match &shadow.message {
            Some(message) => writeln!(out, "; it ended: {message}"),
            None => writeln!(out, "{}", if shadow.is_running() { "" } else { "; it is done" }),
        };
    }
    if !in_full {
        return;
    }
    for (name, source) in &query.sources {
        let _ = writeln!(out, "  source {name} ({}): {}", source.description, behind(source));
    }
    let counts = &query.counts;
    let _ = writeln!(
        out,
        "  this run: {}, {} in, {} out, {} malformed, {} refused, {} late, {}",
        counted(counts.batches, "micro-batch"),
        counted(counts.input_rows, "row"),
        HumanCount(counts.output_rows),
        HumanCount(counts.malformed_rows),
        HumanCount(counts.refused_rows),
        HumanCount(counts.late_rows),
        counted(counts.dead_letters, "dead letter"),
    );
    let speed = counted(query.processed_rows_per_second.round() as u64, "row");
    let _ = writeln!(out, "  the last micro-batch went through {speed} a second");
    let last = query.last_commit_at.as_deref().unwrap_or("never in this run");
    let _ = writeln!(out, "  {} since {}, last commit: {last}", query.state, query.since);
}

/// `12 rows, 3 files, 4 MiB wait, the oldest for 5 seconds`.
fn behind(source: &SourceStatus) -> String {
    let parts = [
        source.backlog_rows.map(|rows| counted(rows, "row")),
        source.backlog_files.map(|files| counted(files, "file")),
        source.backlog_bytes.map(|bytes| HumanBytes(bytes).to_string()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match (parts.is_empty(), source.lag_seconds) {
        (true, _) => "it does not know what waits".to_owned(),
        (false, Some(lag)) if lag > 0.0 => {
            format!("{} wait, the oldest for {}", parts.join(", "), duration(lag))
        }
        (false, _) => format!("{} wait", parts.join(", ")),
    }
}

/// What became of swaps of a plugin, if there were any.
fn swaps(out: &mut String, plugin: &PluginStatus, in_full: bool) {
    if plugin.on_probation {
        let _ = writeln!(out, "    on probation: a failure undoes its swap");
    }
    if in_full && !plugin.before.is_empty() {
        let before: Vec<&str> = plugin.before.iter().map(|digest| short(digest)).collect();
        let _ = writeln!(out, "    versions before, oldest first: {}", before.join(", "));
    }
    let Some(last) = &plugin.last_swap else { return };
    let _ = write!(out, "    the last swap: {}", last.outcome.replace('_', " "));
    if let Some(batch_id) = last.batch_id {
        let _ = write!(out, " with micro-batch {batch_id}");
    }
    if let Some(message) = &last.message {
        let _ = write!(out, ": {message}");
    }
    if in_full {
        let (swaps, refused, back) = (plugin.swaps, plugin.swaps_refused, plugin.swaps_rolled_back);
        let _ = write!(out, " (this run: {swaps} took over, {refused} refused, {back} rolled back)");
    }
    out.push('\n');
}

/// As much of a digest as tells two versions apart.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
