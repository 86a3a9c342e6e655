//! `state`, `checkpoint`, and the ways to begin anew: over a query that keeps state in user code and in SQL.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Pelton, plugin};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Totals of users, then how many totals are above the limit. One file a micro-batch.
fn pipeline(folder: &Path) -> Result<PathBuf> {
    let shown = folder.display();
    std::fs::create_dir_all(folder.join("in"))?;
    for (number, rows) in [[("ann", 3), ("bob", 4)], [("ann", 5), ("cem", 60)]].iter().enumerate() {
        let line = |(user, amount): &(&str, i64)| {
            format!("{{\"key\":\"{user}\",\"amount\":{amount},\"ts\":\"2026-01-01T12:0{number}:00Z\"}}\n")
        };
        let lines: String = rows.iter().map(line).collect();
        std::fs::write(folder.join(format!("in/{number}.jsonl")), lines)?;
    }
    let file = folder.join("totals.yaml");
    std::fs::write(
        &file,
        format!(
            "name: totals\nplugins:\n  totals: {{path: '{}', config: {{limit: 50}}}}\nsources:\n  payments:\n    connector: \
             file\n    path: '{shown}/in/*.jsonl'\n    format: json\n    schema: {{key: string, amount: \"decimal(18,2)\", ts: \
             timestamp}}\n    max_files_per_trigger: 1\nsteps:\n  - plugin: totals.running_total\n    key: [key]\n    \
             output_mode: append\n    name: totals\n  - sql: SELECT over_limit, count(*) AS n FROM input GROUP BY \
             over_limit\noutput_mode: update\nsink: {{connector: console, format: json}}\ncheckpoint: \
             '{shown}/checkpoint'\n",
            plugin("running-total.wasm")?.display()
        ),
    )?;
    Ok(file)
}

fn run(file: &Path, arguments: &[&str]) -> Result<String> {
    let run = Pelton::new(["run", "--trigger", "available_now"])?.args(arguments.iter().copied()).arg(file);
    Ok(run.succeed()?.stdout)
}

/// The lines of JSON that a command prints.
fn lines(command: &[&str], file: &Path, more: &[&str]) -> Result<Vec<Value>> {
    let command = Pelton::new(command.iter().copied())?.arg(file).args(more.iter().copied());
    let stdout = command.args(["--format", "json"]).succeed()?.stdout;
    stdout.lines().map(|line| serde_json::from_str(line).context("a line")).collect()
}

fn amounts(rows: &[Value]) -> Vec<(String, String)> {
    let mut all: Vec<_> = rows.iter().map(|row| (row["key"].to_string(), row["total"].to_string())).collect();
    all.sort();
    all
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, total)| (format!("\"{key}\""), (*total).to_owned())).collect()
}

#[test]
fn state_is_shown_now_and_as_it_was() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = pipeline(folder.path())?;
    run(&file, &[])?;
    let operators = lines(&["state", "ls"], &file, &[])?;
    let known: Vec<_> =
        operators.iter().map(|line| (line["operator"].as_str(), line["rows"].as_u64())).collect();
    ensure!(known == [(Some("totals"), Some(3)), (Some("sql.aggregate"), Some(2))], "{operators:?}");
    let now = lines(&["state", "show"], &file, &["totals"])?;
    ensure!(amounts(&now) == pairs(&[("ann", "8.0"), ("bob", "4.0"), ("cem", "60.0")]), "{now:?}");
    let before = lines(&["state", "show"], &file, &["totals", "--batch", "0"])?;
    ensure!(amounts(&before) == pairs(&[("ann", "3.0"), ("bob", "4.0")]), "{before:?}");
    let one = lines(&["state", "show"], &file, &["totals", "--key", "key=cem"])?;
    ensure!(amounts(&one) == pairs(&[("cem", "60.0")]) && one[0]["payments"] == 1, "{one:?}");
    let two = lines(&["state", "show"], &file, &["totals", "--limit", "2"])?;
    ensure!(two.len() == 2, "{two:?}");
    let drawn = Pelton::new(["state", "show"])?.arg(&file).args(["totals", "--limit", "2"]).succeed()?.stdout;
    let headers = drawn.lines().filter(|line| line.starts_with("|key")).count();
    ensure!(headers == 1 && drawn.contains("only showing top 2 rows"), "one table of all shards:\n{drawn}");
    let counts = lines(&["state", "show"], &file, &["sql.aggregate", "--key", "over_limit=false"])?;
    let has_three = |row: &Value| row.as_object().is_some_and(|row| row.values().any(|value| *value == 3));
    ensure!(counts.len() == 1 && has_three(&counts[0]), "as it would come out now: {counts:?}");
    Ok(())
}

#[test]
fn the_logs_are_shown() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = pipeline(folder.path())?;
    run(&file, &[])?;
    let batches = lines(&["checkpoint", "ls"], &file, &[])?;
    let ids: Vec<_> =
        batches.iter().map(|line| (line["batch_id"].as_u64(), line["committed"].as_bool())).collect();
    ensure!(ids == [(Some(0), Some(true)), (Some(1), Some(true))], "{batches:?}");
    let shown = lines(&["checkpoint", "show"], &file, &["--batch", "0"])?;
    ensure!(shown[0]["offsets"]["plugins"]["totals"].is_string(), "{shown:?}");
    ensure!(shown[0]["commit"]["sink"]["rows"] == 1, "{shown:?}");
    Ok(())
}

#[test]
fn what_is_not_there_is_said() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = pipeline(folder.path())?;
    let path = file.display().to_string();
    super::fails(&["state", "ls", &path], 2, &["there is no checkpoint", "has the query ever run?"])?;
    run(&file, &[])?;
    let near = ["no stateful operator 'total'", "did you mean 'totals'?"];
    super::fails(&["state", "show", &path, "total"], 2, &near)?;
    let columns = ["has no column 'user'", "its columns: key, total"];
    super::fails(&["state", "show", &path, "totals", "--key", "user=ann"], 2, &columns)?;
    let batches = ["does not remember micro-batch 9", "it remembers 0 to 1"];
    super::fails(&["state", "show", &path, "totals", "--batch", "9"], 2, &batches)
}

#[test]
fn an_operator_begins_anew_and_the_others_go_on() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = pipeline(folder.path())?;
    run(&file, &[])?;
    let more = "{\"key\":\"ann\",\"amount\":1,\"ts\":\"2026-01-01T12:05:00Z\"}\n";
    std::fs::write(folder.path().join("in/2.jsonl"), more)?;
    let given = run(&file, &["--reset-state", "totals"])?;
    ensure!(given.trim() == "{\"over_limit\":false,\"n\":4}", "the count goes on: {given}");
    let now = lines(&["state", "show"], &file, &["totals"])?;
    ensure!(amounts(&now) == pairs(&[("ann", "1.0")]), "{now:?}");
    std::fs::write(folder.path().join("in/3.jsonl"), more)?;
    let given = run(&file, &["--new-lineage"])?;
    ensure!(given.trim() == "{\"over_limit\":false,\"n\":1}", "nothing is known any more: {given}");
    Ok(())
}
