//! Offsets without records: what retention took is counted, what compaction took is no loss.

use super::{run, source, values};
use anyhow::{Context, Result, ensure};
use pelton_tests::{Kafka, Record, committed_rows};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

fn to_files(kafka: &Kafka, topic: &str, rest: &str, folder: &Path) -> Result<pelton_tests::Pelton> {
    let rest = format!("format: json, schema: 'k string, n long', {rest}");
    let pipeline = format!(
        "name: loss\nsources:\n  numbers: {}\nsink: {{connector: file, path: '{}/output', format: json}}",
        source(kafka, topic, &rest),
        folder.display()
    );
    run(folder, &pipeline)
}

fn number(n: u32) -> Record {
    Record::new(format!("{{\"k\":\"k{}\",\"n\":{n}}}", n % 10)).key(format!("k{}", n % 10))
}

#[test]
fn offsets_that_are_gone_unread_are_counted_in_the_progress() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("counted-loss", 1)?;
    kafka.produce("counted-loss", (0..5).map(number))?;
    let lenient = "fail_on_data_loss: false, max_offsets_per_trigger: 10";
    let ran = || -> Result<Vec<u64>> {
        let run = to_files(&kafka, "counted-loss", lenient, folder.path())?.args(["--progress", "json"]);
        let told = run.succeed()?.stderr;
        let lines = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lost = lines.map(|line| line["sources"][0]["metrics"]["num_lost_offsets"].as_u64());
        lost.map(|lost| lost.context("a micro-batch says nothing of it")).collect()
    };
    ensure!(ran()? == [0], "nothing is lost yet");
    kafka.produce("counted-loss", (5..30).map(number))?;
    kafka.delete_records("counted-loss", 0, 17)?;
    let lost = ran()?;
    ensure!(lost.iter().sum::<u64>() == 12, "{lost:?}");
    ensure!(committed_rows(&folder.path().join("output"))?.len() == 18, "5 and 13 rows");
    Ok(())
}

/// Waits until compaction has left each key but once or twice.
fn compacted(kafka: &Kafka, topic: &str, written: u32) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = values(kafka, topic)?.len();
        if left <= 40 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{left} of {written} records are left: nothing was compacted");
        // A segment is closed when the next record comes.
        kafka.produce(topic, [Record::new("{\"k\":\"last\",\"n\":-1}").key("last")])?;
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn what_compaction_took_is_no_loss() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("max.compaction.lag.ms", "200"),
    ];
    kafka.create_topic_with("compacted", 1, &settings)?;
    kafka.produce("compacted", (0..5).map(number))?;
    // Where the query stands, and where its next micro-batches end, there soon are no records any more.
    to_files(&kafka, "compacted", "", folder.path())?.succeed()?;
    for part in 0..5 {
        kafka.produce("compacted", (5 + part * 60..65 + part * 60).map(number))?;
        std::thread::sleep(Duration::from_millis(150));
    }
    compacted(&kafka, "compacted", 305)?;
    let messages = kafka.consume("compacted")?;
    let expected = messages.iter().filter(|message| message.offset >= 5).count();
    let holes = messages.last().map_or(0, |last| last.offset + 1) - i64::try_from(messages.len())?;
    ensure!(holes > 200, "only {holes} offsets are without a record");
    to_files(&kafka, "compacted", "max_offsets_per_trigger: 17", folder.path())?.succeed()?;
    let rows = committed_rows(&folder.path().join("output"))?.len();
    ensure!(rows == 5 + expected, "{rows} rows, and {expected} records were left");

    let anew = tempfile::tempdir()?;
    to_files(&kafka, "compacted", "max_offsets_per_trigger: 17", anew.path())?.succeed()?;
    let rows = committed_rows(&anew.path().join("output"))?.len();
    ensure!(rows == messages.len(), "{rows} rows from the beginning, of {} records", messages.len());
    Ok(())
}
