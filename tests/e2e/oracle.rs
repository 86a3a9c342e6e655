//! The stateless cases that real Spark answered (tests/oracle), through the real binary: the same input in the same
//! micro-batches gives the same rows, and what Spark refuses is refused.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Finished, Pelton, committed_files, repository};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};

fn case(name: &str) -> Result<Value> {
    let path = repository().join(format!("tests/oracle/01_stateless/{name}.json"));
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

/// The case's query over its input, a file a micro-batch.
fn run(case: &Value, folder: &Path) -> Result<Finished> {
    let stream = &case["input"]["streams"]["s"];
    let columns = stream["schema"].as_array().context("no schema")?;
    let schema =
        columns.iter().map(|c| (c["name"].as_str().unwrap_or_default().to_owned(), c["type"].clone()));
    let input = folder.join("input");
    std::fs::create_dir_all(&input)?;
    for (at, step) in case["batches"].as_array().context("no batches")?.iter().enumerate() {
        let rows = step["add"]["s"].as_array().context("a step that adds nothing")?;
        let lines: String = rows
            .iter()
            .map(|row| row.as_str().map_or_else(|| row.to_string(), str::to_owned) + "\n")
            .collect();
        let path = input.join(format!("{at:03}.json"));
        std::fs::write(&path, lines)?;
        // Files are taken in the order of their times.
        let time = SystemTime::now() - Duration::from_secs(1000 - at as u64);
        std::fs::File::options().append(true).open(&path)?.set_modified(time)?;
    }
    let sql = case["query"]["sql"].as_str().context("a case without SQL")?;
    let pipeline = json!({
        "name": case["name"],
        "sources": {"s": {
            "connector": "file", "format": "json", "path": input,
            "schema": schema.collect::<serde_json::Map<_, _>>(), "max_files_per_trigger": 1, "on_malformed": "null",
        }},
        // The query's words are Spark's; only the table has another name here.
        "steps": [{"sql": format!("{} ", sql).replace(" FROM s ", " FROM input ").replace(" FROM s)", " FROM input)")}],
        "output_mode": case["query"]["output_mode"],
        "trigger": "available_now",
        "sink": {"connector": "file", "format": "json", "path": folder.join("output")},
        "checkpoint": folder.join("checkpoint"),
    });
    let file = folder.join("pipeline.json");
    std::fs::write(&file, pipeline.to_string())?;
    Pelton::new(["run"])?.arg(&file).output()
}

fn answers_as_spark(name: &str) -> Result<()> {
    let (case, folder) = (case(name)?, tempfile::tempdir()?);
    let finished = run(&case, folder.path())?;
    ensure!(finished.code == Some(0), "{name}: exit {:?}\n{}", finished.code, finished.stderr);
    let files = committed_files(&folder.path().join("output"))?;
    let batches = case["batches"].as_array().into_iter().flatten();
    let expected = batches.flat_map(|step| step["expect"].as_array().into_iter().flatten());
    for batch in expected {
        let id = batch["batch_id"].as_u64().context("no batch_id")?;
        let of_batch = files.iter().filter(|(path, _)| path.starts_with(&format!("part-{id:05}-")));
        let text: String = of_batch.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect();
        let found = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        same_rows(batch["rows"].as_array().context("no rows")?, found)
            .with_context(|| format!("{name}, micro-batch {id}"))?;
    }
    Ok(())
}

/// As multisets.
fn same_rows(expected: &[Value], mut found: Vec<Value>) -> Result<()> {
    for row in expected {
        let at = found.iter().position(|candidate| same(row, candidate));
        let at =
            at.with_context(|| format!("Spark's row {row} is not among {}", Value::from(found.clone())))?;
        found.swap_remove(at);
    }
    ensure!(found.is_empty(), "Spark has no {}", Value::from(found));
    Ok(())
}

/// The oracle's way to write a value and the JSON sink's: nulls are left out, decimals are numbers, a `float` has
/// its shortest text.
fn same(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let absent = Value::Null;
            let known = found.keys().all(|key| expected.contains_key(key));
            known && expected.iter().all(|(key, value)| same(value, found.get(key).unwrap_or(&absent)))
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len() && expected.iter().zip(found).all(|(e, f)| same(e, f))
        }
        (Value::String(decimal), Value::Number(number)) => decimal.parse().ok() == number.as_f64(),
        (Value::Number(expected), Value::Number(found)) if expected.is_f64() || found.is_f64() => {
            let (expected, found) =
                (expected.as_f64().unwrap_or(f64::NAN), found.as_f64().unwrap_or(f64::NAN));
            expected == found || expected as f32 == found as f32
        }
        _ => expected == found,
    }
}

fn is_refused(name: &str, words: &str) -> Result<()> {
    let (case, folder) = (case(name)?, tempfile::tempdir()?);
    let finished = run(&case, folder.path())?;
    ensure!(finished.code == Some(2), "{name}: exit {:?}\n{}", finished.code, finished.stderr);
    ensure!(finished.stderr.to_lowercase().contains(words), "{name}: no '{words}' in\n{}", finished.stderr);
    Ok(())
}

#[test]
fn explode_and_split() -> Result<()> {
    answers_as_spark("explode_split_flatmap")
}

#[test]
fn from_json_keeps_the_text_of_what_does_not_parse() -> Result<()> {
    answers_as_spark("from_json_corrupt_record")
}

#[test]
fn from_json_gives_nulls_for_what_does_not_parse() -> Result<()> {
    answers_as_spark("from_json_malformed_permissive")
}

#[test]
fn nested_types_pass_through() -> Result<()> {
    answers_as_spark("nested_types_passthrough")
}

#[test]
fn try_functions_give_null() -> Result<()> {
    answers_as_spark("try_functions")
}

#[test]
fn complete_mode_needs_an_aggregation() -> Result<()> {
    is_refused("complete_mode_refused", "complete")
}

#[test]
fn a_stream_cannot_be_sorted() -> Result<()> {
    is_refused("sort_append_refused", "order by")
}

/// Spark counts over the whole stream, which needs state: refused until there is some, not answered wrongly.
#[test]
fn a_limit_is_refused_as_long_as_nothing_can_count_over_the_stream() -> Result<()> {
    is_refused("limit_append", "limit")
}
