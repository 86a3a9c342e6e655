//! Batch and stream are one: the same pipeline file over the same data gives the same table.

use anyhow::{Context, Result, ensure};
use pelton_tests::Pelton;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt::Write;
use std::path::Path;

const AGGREGATION: &str = "SELECT k, window(ts, '10 seconds', '5 seconds') AS w, count(*) AS n, sum(v) AS total, max(v) \
                           AS most FROM input GROUP BY 1, 2 ORDER BY 1, 2";

/// Rows in no order of time, cut at random into files, which are the micro-batches.
fn write_rows(folder: &Path, seed: u64) -> Result<()> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    std::fs::create_dir_all(folder)?;
    for file in 0..chance.random_range(1..8) {
        let mut lines = String::new();
        for _ in 0..chance.random_range(0..40) {
            let (key, value) = (chance.random_range(0..4), chance.random_range(-50..50));
            let second: u32 = chance.random_range(0..60);
            writeln!(lines, "{{\"k\":\"k{key}\",\"v\":{value},\"ts\":\"2026-01-01T00:00:{second:02}Z\"}}")?;
        }
        std::fs::write(folder.join(format!("{file}.jsonl")), lines)?;
    }
    Ok(())
}

const TIMED: &str = "schema: 'k string, v long, ts timestamp', watermark: {column: ts, delay: 5 seconds}";

fn pipeline(folder: &Path, source: &str, mode: &str, step: &str) -> Result<std::path::PathBuf> {
    let path = folder.join("pipeline.yaml");
    let text = format!(
        "name: both\nsources:\n  s: {{connector: file, path: '{}/in/*.jsonl', format: json, max_files_per_trigger: 1, \
         {source}}}\nsteps:\n  - {step}\noutput_mode: {mode}\nsink: {{connector: console, format: json}}\n",
        folder.display()
    );
    std::fs::write(&path, text)?;
    Ok(path)
}

fn lines(pipeline: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let finished = Pelton::new(["run"])?.arg(pipeline).args(arguments).succeed()?;
    Ok(finished.stdout.lines().map(str::to_owned).collect())
}

#[test]
fn any_cut_into_micro_batches_ends_with_the_table_of_one_batch() -> Result<()> {
    for seed in 0..12 {
        let folder = tempfile::tempdir()?;
        write_rows(&folder.path().join("in"), seed)?;
        let file = pipeline(folder.path(), TIMED, "complete", &format!("sql: {AGGREGATION}"))?;
        let batch = lines(&file, &["--batch"])?;
        let stream = lines(&file, &["--trigger", "available_now"])?;
        // Complete mode gives the whole table each time; the last one is the end.
        let last = stream.len().checked_sub(batch.len()).context("the stream gave less than the batch")?;
        ensure!(stream[last..] == batch, "seed {seed}: {:#?}\nis not\n{batch:#?}", &stream[last..]);
    }
    Ok(())
}

#[test]
fn at_the_end_of_a_batch_every_window_is_final_and_no_row_was_late() -> Result<()> {
    let folder = tempfile::tempdir()?;
    write_rows(&folder.path().join("in"), 99)?;
    let complete = pipeline(folder.path(), TIMED, "complete", &format!("sql: {AGGREGATION}"))?;
    let whole = lines(&complete, &["--batch"])?;
    let step = format!("sql: {}", AGGREGATION.replace(" ORDER BY 1, 2", ""));
    let append = pipeline(folder.path(), TIMED, "append", &step)?;
    let mut appended = lines(&append, &["--batch"])?;
    let mut sorted = whole.clone();
    appended.sort();
    sorted.sort();
    ensure!(!sorted.is_empty() && appended == sorted, "{appended:#?}\nis not\n{sorted:#?}");
    Ok(())
}

/// Rows as the batch gives them, in some order.
fn sorted(pipeline: &Path) -> Result<Vec<String>> {
    let mut rows = lines(pipeline, &["--batch"])?;
    rows.sort();
    Ok(rows)
}

#[test]
fn at_the_end_of_a_batch_what_has_no_time_is_final_too() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let input = folder.path().join("in");
    std::fs::create_dir_all(&input)?;
    let rows = "{\"k\":\"a\",\"v\":1,\"ts\":\"2026-01-01T00:00:01Z\"}\n{\"k\":\"b\",\"v\":2}\n";
    std::fs::write(input.join("0.jsonl"), rows)?;
    let grouped =
        pipeline(folder.path(), TIMED, "append", "sql: SELECT ts, count(*) AS n FROM input GROUP BY ts")?;
    let expected = ["{\"n\":1}", "{\"ts\":\"2026-01-01T00:00:01.000Z\",\"n\":1}"];
    ensure!(sorted(&grouped)? == expected, "{:#?}", sorted(&grouped)?);

    // No row of `b` is the match of another one, and its time says nothing.
    let join = "sql: SELECT l.k, r.v FROM input l LEFT JOIN input r ON l.k = r.k AND r.v > 5 AND r.ts >= l.ts AND r.ts <= \
                l.ts + INTERVAL 5 SECONDS";
    let joined = pipeline(folder.path(), TIMED, "append", join)?;
    let expected = ["{\"k\":\"a\"}", "{\"k\":\"b\"}"];
    ensure!(sorted(&joined)? == expected, "{:#?}", sorted(&joined)?);
    Ok(())
}

/// Real Spark's values, in whatever order the rows come.
#[test]
fn extremes_and_averages_are_sparks() -> Result<()> {
    let rows = [r#"{"d":"NaN","m":1.00}"#, r#"{"d":"-Infinity","m":2.00}"#, r#"{"d":1.5,"m":2.00}"#];
    let wanted = r#"{"lo":"-Infinity","hi":"NaN","average":1.666667,"third":1.666667}"#;
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let folder = tempfile::tempdir()?;
        let input = folder.path().join("in");
        std::fs::create_dir_all(&input)?;
        for (file, row) in order.into_iter().enumerate() {
            std::fs::write(input.join(format!("{file}.jsonl")), rows[row])?;
        }
        let step =
            "sql: SELECT min(d) AS lo, max(d) AS hi, avg(m) AS average, sum(m) / 3 AS third FROM input";
        let file = pipeline(folder.path(), "schema: 'd double, m decimal(10,2)'", "complete", step)?;
        for arguments in [&["--batch"][..], &["--trigger", "available_now"]] {
            let told = lines(&file, arguments)?;
            ensure!(told.last().is_some_and(|last| last == wanted), "{order:?} {arguments:?}: {told:#?}");
        }
    }
    Ok(())
}
