//! What users meet, a topic each.

use super::{run, sink, source, values, written};
use anyhow::{Context, Result, ensure};
use pelton_tests::{Finished, Kafka, Pelton, Record, committed_rows};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ORDERS: &str = "format: json, schema: 'user string, amount double'";

fn order(user: &str, amount: u32) -> Record {
    Record::new(format!("{{\"user\":\"{user}\",\"amount\":{amount}}}"))
}

/// From a topic to files in a folder.
fn to_files(kafka: &Kafka, topic: &str, rest: &str, folder: &Path) -> Result<Pelton> {
    let output = folder.join("output").display().to_string();
    let source = source(kafka, topic, rest);
    let pipeline = format!(
        "name: orders\nsources:\n  orders: {source}\nsink: {{connector: file, path: '{output}', format: json}}"
    );
    run(folder, &pipeline)
}

/// The rows in the files, without regard to their order.
fn written_rows(folder: &Path) -> Result<Vec<String>> {
    let mut rows = committed_rows(&folder.join("output"))?;
    rows.sort();
    Ok(rows)
}

fn failed(finished: &Finished, words: &[&str]) -> Result<()> {
    ensure!(finished.code.is_some_and(|code| code > 0), "exit {:?}\n{}", finished.code, finished.stderr);
    for word in words {
        ensure!(finished.stderr.contains(word), "no '{word}' in\n{}", finished.stderr);
    }
    Ok(())
}

#[test]
fn malformed_values_become_dead_letters_with_their_place() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("malformed", 1)?;
    kafka
        .produce("malformed", [order("ann", 1), Record::new("{\"user\": \"bob\", \"am"), order("cem", 3)])?;
    let rest = format!("{ORDERS}, on_malformed: dead_letter");
    to_files(&kafka, "malformed", &rest, folder.path())?.succeed()?;
    let rows = ["{\"user\":\"ann\",\"amount\":1.0}", "{\"user\":\"cem\",\"amount\":3.0}"];
    ensure!(written_rows(folder.path())? == rows, "{:?}", written_rows(folder.path())?);
    let letters = std::fs::read_to_string(folder.path().join("checkpoint/dead-letters/0.jsonl"))?;
    ensure!(letters.lines().count() == 1, "{letters}");
    for word in ["malformed-0@1", "{\\\"user\\\": \\\"bob\\\", \\\"am"] {
        ensure!(letters.contains(word), "no '{word}' in {letters}");
    }
    let strict = tempfile::tempdir()?;
    failed(&to_files(&kafka, "malformed", ORDERS, strict.path())?.output()?, &["malformed-0@1"])
}

#[test]
fn a_tombstone_is_a_row_of_nulls_with_its_key() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("tombstones", 1)?;
    kafka.produce("tombstones", [order("ann", 1).key("a"), Record::tombstone("a")])?;
    let source = source(&kafka, "tombstones", &format!("{ORDERS}, metadata_columns: [key, offset]"));
    let pipeline = format!(
        "name: tombstones\nsources:\n  orders: {source}\nsteps:\n  - select: [CAST(key AS string) AS key, offset, user, \
         amount]\nsink: {{connector: console, format: json}}"
    );
    let told = run(folder.path(), &pipeline)?.succeed()?.stdout;
    let expected = "{\"key\":\"a\",\"offset\":0,\"user\":\"ann\",\"amount\":1.0}\n\
                    {\"key\":\"a\",\"offset\":1,\"user\":null,\"amount\":null}\n";
    // JSON leaves nulls out, as Spark's writer does.
    let without_nulls = expected.replace(",\"user\":null,\"amount\":null", "");
    ensure!(told == expected || told == without_nulls, "{told}");
    Ok(())
}

#[test]
fn a_query_tells_how_many_records_wait_and_since_when() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("waits", 1)?;
    kafka
        .produce("waits", (0..10).map(|n| order("ann", n).at_ms(1_767_225_600_000 + i64::from(n) * 1000)))?;
    let rest = format!("{ORDERS}, max_offsets_per_trigger: 4");
    let run = to_files(&kafka, "waits", &rest, folder.path())?.args(["--progress", "json"]).succeed()?;
    let told = run.stderr.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let metrics: Vec<_> = told.map(|batch| batch["sources"][0]["metrics"].clone()).collect();
    let waiting = |records, second| {
        let oldest = format!("2026-01-01T00:00:0{second}.000Z");
        serde_json::json!({"num_records_outstanding": records, "oldest_outstanding": oldest})
    };
    let nothing = serde_json::json!({"num_records_outstanding": 0});
    ensure!(metrics == [waiting(6, 4), waiting(2, 8), nothing], "{metrics:#?}");
    ensure!(written_rows(folder.path())?.len() == 10, "none is passed over");
    Ok(())
}

#[test]
fn new_partitions_are_read_from_their_beginning_while_the_query_runs() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("grows", 1)?;
    kafka.create_topic("grown", 1)?;
    kafka.produce("grows", [order("ann", 1)])?;
    let source = source(&kafka, "grows", ORDERS);
    let pipeline = format!("name: grows\nsources:\n  orders: {source}\nsink: {}", sink(&kafka, "grown", ""));
    let mut running = Pelton::new(["run"])?.arg(written(folder.path(), &pipeline)?).start()?;
    let arrived = |number: usize| within_a_minute(|| Ok(values(&kafka, "grown")?.len() == number));
    let grow = || -> Result<()> {
        arrived(1)?;
        kafka.add_partitions("grows", 3)?;
        kafka.produce("grows", [order("bob", 2).partition(1), order("cem", 3).partition(2)])?;
        arrived(3)
    };
    let grew = grow();
    running.kill()?;
    running.wait()?;
    grew?;
    let users = values(&kafka, "grown")?;
    ensure!(["ann", "bob", "cem"].iter().zip(&users).all(|(user, row)| row.contains(user)), "{users:?}");
    Ok(())
}

fn within_a_minute(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so()? {
        ensure!(Instant::now() < deadline, "it did not come to pass within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn records_that_are_gone_unread_fail_the_query_naming_the_range_unless_it_may_lose_them() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("retention", 1)?;
    kafka.produce("retention", (0..5).map(|n| order("ann", n)))?;
    to_files(&kafka, "retention", ORDERS, folder.path())?.succeed()?;
    kafka.produce("retention", (5..20).map(|n| order("bob", n)))?;
    kafka.delete_records("retention", 0, 12)?;
    let strict = to_files(&kafka, "retention", ORDERS, folder.path())?.output()?;
    failed(&strict, &["retention-0", "5", "12", "fail_on_data_loss"])?;
    let lenient = format!("{ORDERS}, fail_on_data_loss: false");
    let told = to_files(&kafka, "retention", &lenient, folder.path())?.succeed()?.stderr;
    ensure!(told.contains("retention-0"), "the gap was not told of:\n{told}");
    let rows = written_rows(folder.path())?;
    let lost = |n: u32| rows.iter().any(|row| row.contains(&format!("\"amount\":{n}.0")));
    ensure!(rows.len() == 13 && (5..12).all(|n| !lost(n)), "{rows:?}");
    Ok(())
}

#[test]
fn a_topic_that_was_made_anew_is_told_from_one_that_was_read() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("recreated", 1)?;
    kafka.produce("recreated", (0..5).map(|n| order("ann", n)))?;
    to_files(&kafka, "recreated", ORDERS, folder.path())?.succeed()?;
    kafka.delete_topic("recreated")?;
    kafka.create_topic("recreated", 1)?;
    kafka.produce("recreated", [order("bob", 7)])?;
    let strict = to_files(&kafka, "recreated", ORDERS, folder.path())?.output()?;
    failed(&strict, &["recreated-0", "fail_on_data_loss"])?;
    let lenient = format!("{ORDERS}, fail_on_data_loss: false");
    to_files(&kafka, "recreated", &lenient, folder.path())?.succeed()?;
    let rows = written_rows(folder.path())?;
    ensure!(rows.len() == 6 && rows.iter().any(|row| row.contains("bob")), "{rows:?}");
    Ok(())
}

#[test]
fn a_zombie_is_fenced_by_the_run_that_took_its_place() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("contended", 1)?;
    kafka.create_topic("fenced", 1)?;
    kafka.produce("contended", [order("ann", 1)])?;
    let pipeline = |columns: &str| {
        let source = source(&kafka, "contended", columns);
        format!("name: contended\nsources:\n  orders: {source}\nsink: {}", sink(&kafka, "fenced", ""))
    };
    let file = written(folder.path(), &pipeline(ORDERS))?;
    let log = folder.path().join("zombie.log");
    let mut zombie = Pelton::new(["run"])?.arg(&file).start_telling(std::fs::File::create(&log)?)?;
    let arrived = |number: usize| within_a_minute(|| Ok(values(&kafka, "fenced")?.len() >= number));
    let committed = || Ok(folder.path().join("checkpoint/commits/0").is_file());
    let taken_over = arrived(1).and_then(|()| within_a_minute(committed)).and_then(|()| {
        // The same query elsewhere: the lock of the local checkpoint does not see it.
        let copy = tempfile::tempdir()?;
        let from = folder.path().join("checkpoint");
        let copied = std::process::Command::new("cp").arg("-r").arg(from).arg(copy.path()).status()?;
        ensure!(copied.success(), "the checkpoint could not be copied");
        run(copy.path(), &pipeline(ORDERS))?.succeed()?;
        kafka.produce("contended", [order("bob", 2)])?;
        Ok(())
    });
    let ended = taken_over.and_then(|()| within_a_minute(|| Ok(zombie.try_wait()?.is_some())));
    let _ = zombie.kill();
    let status = zombie.wait()?;
    let told = std::fs::read_to_string(&log)?;
    ended.with_context(|| format!("the zombie went on:\n{told}"))?;
    ensure!(status.code() == Some(1) && told.contains("fenced"), "{status}:\n{told}");
    ensure!(values(&kafka, "fenced")?.len() == 1, "the zombie wrote: {:?}", values(&kafka, "fenced")?);
    Ok(())
}

#[test]
fn lag_is_seen_in_the_consumer_group() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("lag", 2)?;
    kafka.produce("lag", (0..6).map(|n| order("ann", n).partition(n as i32 % 2)))?;
    let rest = format!("{ORDERS}, group_id: lag-of-the-orders");
    to_files(&kafka, "lag", &rest, folder.path())?.succeed()?;
    let offsets = kafka.group_offsets("lag-of-the-orders", "lag")?;
    ensure!(
        offsets.into_iter().eq([(0, 3), (1, 3)]),
        "{:?}",
        kafka.group_offsets("lag-of-the-orders", "lag")?
    );
    Ok(())
}

#[test]
fn a_query_begins_at_a_time() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("times", 1)?;
    let day = |n: u32| 1_767_225_600_000 + i64::from(n) * 86_400_000;
    kafka.produce("times", (0..10).map(|n| order("ann", n).at_ms(day(n))))?;
    let source = source(&kafka, "times", &format!("{ORDERS}, starting_timestamp: {}", day(7) - 1));
    let source = source.replace("starting_offsets: earliest, ", "");
    let pipeline =
        format!("name: times\nsources:\n  orders: {source}\nsink: {{connector: console, format: json}}");
    let told = run(folder.path(), &pipeline)?.succeed()?.stdout;
    let expected: String = (7..10).map(|n| format!("{{\"user\":\"ann\",\"amount\":{n}.0}}\n")).collect();
    ensure!(told == expected, "{told}");
    Ok(())
}

#[test]
fn at_least_once_writes_without_transactions() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("plain", 1)?;
    kafka.create_topic("copied", 1)?;
    kafka.produce("plain", (0..10).map(|n| order("ann", n)))?;
    let pipeline = format!(
        "name: plain\nsources:\n  orders: {}\nsink: {}",
        source(&kafka, "plain", ORDERS),
        sink(&kafka, "copied", "key: user, delivery: at_least_once")
    );
    run(folder.path(), &pipeline)?.succeed()?;
    let messages = kafka.consume("copied")?;
    // No marker of a transaction takes an offset.
    let places: Vec<i64> = messages.iter().map(|message| message.offset).collect();
    ensure!(places == (0..10).collect::<Vec<_>>(), "{places:?}");
    ensure!(messages.iter().all(|message| message.key.as_deref() == Some(b"ann")), "{messages:?}");
    Ok(())
}

/// Nothing is under way that would have to be finished, whether the source or the sink is waited for.
#[test]
fn a_query_that_waits_for_a_cluster_ends_at_the_first_signal() -> Result<()> {
    let nobody = "bootstrap_servers: '127.0.0.1:1'";
    for (name, source, sink) in [
        (
            "source",
            format!("{{connector: kafka, {nobody}, subscribe: t}}"),
            "{connector: console}".to_owned(),
        ),
        (
            "sink",
            "{connector: rate}".to_owned(),
            format!("{{connector: kafka, {nobody}, topic: t, format: json}}"),
        ),
    ] {
        let folder = tempfile::tempdir()?;
        let pipeline = format!("name: waits\nsources:\n  s: {source}\nsink: {sink}");
        let mut waiting = run(folder.path(), &pipeline)?.start()?;
        std::thread::sleep(Duration::from_secs(2));
        let ended = waiting.try_wait()?;
        ensure!(ended.is_none(), "{name}: it does not wait: {ended:?}");
        Command::new("kill").args(["-INT", &waiting.id().to_string()]).status()?;
        let begun = Instant::now();
        let status = loop {
            match waiting.try_wait()? {
                Some(status) => break status,
                None if begun.elapsed() > Duration::from_secs(30) => {
                    waiting.kill()?;
                    anyhow::bail!("{name}: it waits on");
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        ensure!(status.success(), "{name}: {status}");
    }
    Ok(())
}
