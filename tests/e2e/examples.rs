//! Every example runs as it stands, and gives what it is known to give.
//!
//! A numbered folder under `examples/` has a test here, or the last one fails.

use anyhow::{Result, ensure};
use pelton_tests::{Pelton, committed_rows, plugin, repository};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The examples that the tests below run.
const TESTED: [&str; 7] = [
    "01-flights",
    "02-rate-console",
    "03-malformed",
    "04-credit-limits",
    "05-flights-joins",
    "06-kafka-parquet",
    "07-kafka-credit-limits",
];

/// A run of a pipeline file, with its checkpoint in a folder.
fn run(pipeline: &str, folder: &Path) -> Result<Pelton> {
    let pipeline = format!("examples/{pipeline}");
    Ok(Pelton::new(["run", pipeline.as_str()])?.set("checkpoint", &folder.join("checkpoint")))
}

fn summary(stderr: &str) -> Result<Value> {
    let mut lines = stderr.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.next().ok_or_else(|| anyhow::anyhow!("no summary in\n{stderr}"))
}

/// Compares with a file of the repository that shows the rows.
fn same_as(rows: &[String], golden: &str) -> Result<()> {
    let path = repository().join(golden);
    let expected = std::fs::read_to_string(&path)?;
    let expected: Vec<&str> = expected.lines().collect();
    for (at, (row, wanted)) in rows.iter().zip(&expected).enumerate() {
        ensure!(row == wanted, "row {} is\n{row}\nbut {golden} has\n{wanted}", at + 1);
    }
    ensure!(rows.len() == expected.len(), "{} rows, but {golden} has {}", rows.len(), expected.len());
    Ok(())
}

/// A folder's files with times of change in the order of their names: files are taken by their times, and a checkout
/// gives them any.
pub(crate) fn in_order(data: &str, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    let entries = std::fs::read_dir(repository().join("examples/data").join(data))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    for (at, from) in files.iter().enumerate() {
        let copy = to.join(from.file_name().unwrap_or_default());
        std::fs::copy(from, &copy)?;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + at as u64);
        std::fs::File::options().append(true).open(&copy)?.set_modified(time)?;
    }
    Ok(())
}

#[test]
fn flights_are_filtered_mapped_and_written_as_json() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));
    in_order("flights", &input)?;
    let finished = run("01-flights/pipeline.yaml", folder.path())?
        .set("sources.flights.path", &input)
        .args(["--trigger", "available_now", "--summary", "json"])
        .arg("--plugin")
        .arg(format!("flights={}", plugin("flights-rust.wasm")?.display()))
        .set("sink.path", &output)
        .succeed()?;
    let summary = summary(&finished.stderr)?;
    ensure!(summary["rows_in"] == 20_013, "{summary}");
    ensure!(summary["batches"] == 23, "one file a micro-batch: {summary}");

    let rows = committed_rows(&output)?;
    ensure!(summary["rows_out"] == rows.len(), "{} rows in the output, {summary}", rows.len());
    // The whole is some thousand rows: the golden file shows some of them.
    let shown: Vec<String> = rows.iter().step_by(500).cloned().collect();
    same_as(&shown, "examples/01-flights/expected.jsonl")
}

#[test]
fn rate_prints_tables_until_it_is_told_to_stop() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let finished = run("02-rate-console/pipeline.yaml", folder.path())?.interrupt_at("|4     |")?;
    ensure!(finished.code == Some(0), "Ctrl-C is a good end: {finished:?}");
    ensure!(finished.stdout.contains("|value|square|"), "no table in\n{}", finished.stdout);
    ensure!(finished.stdout.contains("|2    |4     |"), "no row in\n{}", finished.stdout);
    Ok(())
}

#[test]
fn malformed_lines_go_to_the_dead_letters_and_harm_no_neighbour() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("output");
    run("03-malformed/pipeline.yaml", folder.path())?.set("sink.path", &output).succeed()?;
    same_as(&committed_rows(&output)?, "examples/03-malformed/expected.csv")?;

    let letters = std::fs::read_to_string(folder.path().join("checkpoint/dead-letters/0.jsonl"))?;
    let letters = letters.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let places: Vec<&str> = letters.iter().filter_map(|letter| letter["position"].as_str()).collect();
    ensure!(places.len() == 3, "{letters:#?}");
    for (place, line) in places.iter().zip(["17", "59", "102"]) {
        ensure!(place.ends_with(&format!("departures.jsonl:{line}")), "{place} instead of line {line}");
    }
    Ok(())
}

#[test]
fn users_who_pass_a_limit_are_told_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let input = folder.path().join("input");
    in_order("transactions", &input)?;
    let printed = run("04-credit-limits/alerts.yaml", folder.path())?
        .set("sources.transactions.path", &input)
        .arg("--plugin")
        .arg(format!("totals={}", plugin("running-total.wasm")?.display()))
        .succeed()?
        .stdout;
    let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    same_as(&lines, "examples/04-credit-limits/expected-alerts.jsonl")
}

#[test]
fn transactions_come_out_in_each_output_mode_as_it_gives_them() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));
    in_order("transactions", &input)?;
    let mode = |name: &str| -> Result<Pelton> {
        let pipeline = format!("04-credit-limits/{name}.yaml");
        Ok(run(&pipeline, &folder.path().join(name))?.set("sources.transactions.path", &input))
    };
    mode("append")?.set("sink.path", &output).succeed()?;
    same_as(&committed_rows(&output)?, "examples/04-credit-limits/expected-append.jsonl")?;
    for (name, golden) in [("update", "expected-update.jsonl"), ("complete", "expected-complete.txt")] {
        let printed = mode(name)?.succeed()?.stdout;
        let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
        same_as(&lines, &format!("examples/04-credit-limits/{golden}"))?;
    }
    for (batch, transaction) in [(5, "4002"), (10, "4121")] {
        let path = folder.path().join(format!("update/checkpoint/dead-letters/{batch}.jsonl"));
        let letters = std::fs::read_to_string(path)?;
        ensure!(letters.lines().count() == 1 && letters.contains(transaction), "{letters}");
    }
    Ok(())
}

#[test]
fn flights_are_joined_with_airlines_and_planes_and_counted_by_the_hour() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));
    in_order("flights", &input)?;
    let finished = run("05-flights-joins/pipeline.yaml", folder.path())?
        .set("sources.flights.path", &input)
        .set("sink.path", &output)
        .args(["--trigger", "available_now", "--summary", "json"])
        .succeed()?;
    let summary = summary(&finished.stderr)?;
    ensure!(summary["rows_in"] == 20_013 && summary["rows_late"] == 0, "{summary}");
    ensure!(summary["batches"] == 24, "23 days, then one without data that closes the last hours: {summary}");

    let shown: Vec<String> = committed_rows(&output)?.iter().step_by(200).cloned().collect();
    same_as(&shown, "examples/05-flights-joins/expected.jsonl")
}

/// A run of a pipeline file of an example with Kafka, with these values set.
#[cfg(unix)]
fn with_kafka(pipeline: &str, folder: &Path, set: &[(&str, &str)]) -> Result<Pelton> {
    let name = pipeline.split('/').next_back().unwrap_or_default();
    let pelton = run(pipeline, &folder.join(name))?.args(["--trigger", "available_now"]);
    Ok(set.iter().fold(pelton, |pelton, (key, value)| pelton.set(key, Path::new(value))))
}

#[cfg(unix)]
#[test]
fn flights_go_from_a_topic_to_parquet_files_by_date() -> Result<()> {
    let (kafka, folder) = (pelton_tests::Kafka::shared()?, tempfile::tempdir()?);
    let (servers, output) = (kafka.bootstrap_servers(), folder.path().join("output").display().to_string());
    let example = |file: &str, set: &[_]| with_kafka(&format!("06-kafka-parquet/{file}"), folder.path(), set);
    example("produce.yaml", &[("sink.bootstrap_servers", &servers)])?.succeed()?;
    let set = [("sources.flights.bootstrap_servers", servers.as_str()), ("sink.path", output.as_str())];
    example("pipeline.yaml", &set)?.succeed()?;
    ensure!(folder.path().join("output/date=2013-01-05").is_dir(), "a directory for each date");
    let printed = example("show.yaml", &[("sources.flights.path", &output)])?.succeed()?.stdout;
    let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    same_as(&lines, "examples/06-kafka-parquet/expected.jsonl")
}

#[cfg(unix)]
#[test]
fn alerts_go_from_topic_to_topic() -> Result<()> {
    let (kafka, folder) = (pelton_tests::Kafka::shared()?, tempfile::tempdir()?);
    let (servers, input) = (kafka.bootstrap_servers(), folder.path().join("input"));
    in_order("transactions", &input)?;
    let (servers, input) = (servers.as_str(), input.display().to_string());
    let example =
        |file: &str, set: &[_]| with_kafka(&format!("07-kafka-credit-limits/{file}"), folder.path(), set);
    let from = [("sources.transactions.path", input.as_str()), ("sink.bootstrap_servers", servers)];
    example("produce.yaml", &from)?.succeed()?;
    let both = [("sources.transactions.bootstrap_servers", servers), ("sink.bootstrap_servers", servers)];
    let totals = format!("totals={}", plugin("running-total.wasm")?.display());
    example("pipeline.yaml", &both)?.arg("--plugin").arg(totals).succeed()?;
    let printed = example("show.yaml", &[("sources.alerts.bootstrap_servers", servers)])?.succeed()?.stdout;
    let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    lines.sort();
    same_as(&lines, "examples/07-kafka-credit-limits/expected.jsonl")
}

#[test]
fn no_example_is_left_out() -> Result<()> {
    for entry in std::fs::read_dir(repository().join("examples"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name.starts_with(|first: char| first.is_ascii_digit()) {
            ensure!(TESTED.contains(&name.as_str()), "examples/{name} has no test");
            ensure!(path.join("README.md").is_file(), "examples/{name} has no README.md");
        }
    }
    Ok(())
}
