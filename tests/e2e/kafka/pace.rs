//! The same rows from a topic as from a file, however few a micro-batch takes and however often the query is started.

use super::{source, written};
use anyhow::{Result, ensure};
use pelton_tests::{Kafka, Pelton, Record, committed_rows, plugin};
use std::fmt::Write as _;
use std::path::Path;

const PARTITIONS: i32 = 3;
const ROWS: usize = 3000;
const PACES: [Option<usize>; 3] = [None, Some(1000), Some(170)];

/// Answers do not depend on where a micro-batch ends, as long as no row is later than the watermark's delay.
const QUERIES: [(&str, &str); 6] = [
    ("stateless", "  - filter: amount > 50\n  - select: [id, upper(user) AS user, amount * 2 AS twice]\n"),
    (
        "windows",
        "  - sql: SELECT window(ts, '5 minutes') AS w, user, count(*) AS n, sum(amount) AS total FROM input GROUP BY 1, 2\n",
    ),
    (
        "sessions",
        "  - sql: SELECT user, session_window(ts, '35 seconds') AS w, count(*) AS n FROM input GROUP BY 1, 2\n",
    ),
    ("deduplication", "  - dedup: {columns: [id], within_watermark: true}\n  - select: [id, user]\n"),
    (
        "join",
        "  - sql: SELECT l.id, r.id AS other FROM events l JOIN more r ON l.user = r.user AND l.id < r.id AND r.ts BETWEEN \
         l.ts - INTERVAL 1 MINUTE AND l.ts + INTERVAL 1 MINUTE\n",
    ),
    ("plugin", "  - select: [user AS key, ts]\n  - plugin: sessionize.sessionize\n    key: [key]\n"),
];

/// Events of 37 users, one a second, up to 50 seconds out of order, every tenth of them twice.
fn events() -> Vec<String> {
    let mut events = Vec::new();
    for number in 0..ROWS {
        let shuffled = number * 7919 % 50;
        let (seconds, user) = (number + shuffled, number * 31 % 37);
        let (hour, minute, second) = (9 + seconds / 3600, seconds / 60 % 60, seconds % 60);
        let amount = number * 17 % 101;
        let event = format!(
            "{{\"id\":{number},\"user\":\"u{user}\",\"amount\":{amount},\"ts\":\"2026-01-01T{hour:02}:{minute:02}:{second:02}Z\"}}"
        );
        let times = if number % 10 == 0 { 2 } else { 1 };
        events.extend(std::iter::repeat_n(event, times));
    }
    events
}

fn pipeline(name: &str, steps: &str, input: &str, folder: &Path) -> Result<String> {
    let mut sources = format!("  events: {input}\n");
    if name == "join" {
        let _ = writeln!(sources, "  more: {input}");
    }
    Ok(format!(
        "name: {name}\nplugins: {{sessionize: {{path: '{}', config: {{gap: 35 seconds}}}}}}\nsources:\n{sources}steps:\n{steps}\
         sink: {{connector: file, path: '{}/output', format: json}}",
        plugin("sessionize.wasm")?.display(),
        folder.display()
    ))
}

const COLUMNS: &str = "format: json, schema: 'id long, user string, amount long, ts timestamp', \
                       watermark: {column: ts, delay: 10 minutes}";

fn run(folder: &Path, pipeline: &str) -> Result<()> {
    Pelton::new(["run", "--trigger", "available_now"])?.arg(written(folder, pipeline)?).succeed()?;
    Ok(())
}

fn sorted(folder: &Path) -> Result<Vec<String>> {
    let mut rows = committed_rows(&folder.join("output"))?;
    rows.sort();
    Ok(rows)
}

/// What the queries give over a file.
fn expected(events: &[String]) -> Result<Vec<Vec<String>>> {
    let input = tempfile::tempdir()?;
    std::fs::write(input.path().join("events.jsonl"), events.join("\n") + "\n")?;
    let source = format!("{{connector: file, path: '{}/*.jsonl', {COLUMNS}}}", input.path().display());
    QUERIES
        .iter()
        .map(|(name, steps)| {
            let folder = tempfile::tempdir()?;
            run(folder.path(), &pipeline(name, steps, &source, folder.path())?)?;
            let rows = sorted(folder.path())?;
            ensure!(rows.len() > 30, "{name} gives only {} rows", rows.len());
            Ok(rows)
        })
        .collect()
}

#[test]
fn a_topic_gives_the_rows_of_a_file_at_any_pace() -> Result<()> {
    let (kafka, events) = (Kafka::shared()?, events());
    let expected = expected(&events)?;
    kafka.create_topic("events", PARTITIONS)?;
    let folders = tempfile::tempdir()?;
    // The second half comes after every query has read the first one and ended.
    for half in events.chunks(events.len().div_ceil(2)) {
        let records = half.iter().enumerate();
        let records = records.map(|(n, event)| Record::new(event.as_str()).partition(n as i32 % PARTITIONS));
        kafka.produce("events", records)?;
        for ((name, steps), pace) in QUERIES.iter().flat_map(|query| PACES.map(|pace| (query, pace))) {
            let folder = folders.path().join(format!("{name}-{pace:?}"));
            std::fs::create_dir_all(&folder)?;
            let limit = pace.map(|rows| format!(", max_offsets_per_trigger: {rows}")).unwrap_or_default();
            let input = source(&kafka, "events", &format!("{COLUMNS}{limit}"));
            run(&folder, &pipeline(name, steps, &input, &folder)?)?;
        }
    }
    for ((name, _), rows) in QUERIES.iter().zip(&expected) {
        for pace in PACES {
            let found = sorted(&folders.path().join(format!("{name}-{pace:?}")))?;
            let differs = found.iter().zip(rows).find(|(a, b)| a != b);
            ensure!(
                &found == rows,
                "{name} at {pace:?} rows a micro-batch: {} rows instead of {}; {differs:?}",
                found.len(),
                rows.len()
            );
        }
    }
    Ok(())
}
