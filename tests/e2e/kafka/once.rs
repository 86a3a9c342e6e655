//! Real flights through user code that keeps a total for each aircraft, while Pelton and the broker are killed again and again:
//! a `read_committed` reader, or a reader of the files, sees what an undisturbed run gives.

use super::{flights, sink, source, written};
use crate::kills::{Kills, same_files, seed, soak, timed};
use anyhow::{Result, ensure};
use pelton_tests::{Kafka, Pelton, committed_files, plugin};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FILES: usize = 40;
const PARTITIONS: i32 = 4;
const TOPIC: &str = "flights";
const STEPS: &str = "\
steps:
  - filter: tailnum IS NOT NULL AND distance IS NOT NULL
  - select: {key: tailnum, amount: 'CAST(distance AS decimal(18,2))', ts: time_hour}
  - plugin: totals.running_total
    key: [key]
";

/// The total of each aircraft that flew in a micro-batch, to a sink.
fn totals(kafka: &Kafka, folder: &Path, config: &str, output: &str) -> Result<Pelton> {
    let rest = "format: json, schema: 'tailnum string, distance double, time_hour timestamp', \
                max_offsets_per_trigger: 2500";
    let pipeline = format!(
        "name: totals\nplugins: {{totals: {{path: '{}', config: {{{config}}}}}}}\nsources:\n  flights: {}\n{STEPS}{output}",
        plugin("running-total.wasm")?.display(),
        source(kafka, TOPIC, rest)
    );
    Ok(Pelton::new(["run", "--trigger", "available_now"])?.arg(written(folder, &pipeline)?))
}

fn to_kafka(kafka: &Kafka, folder: &Path, topic: &str) -> Result<Pelton> {
    totals(kafka, folder, "", &format!("output_mode: update\nsink: {}", sink(kafka, topic, "key: key")))
}

/// Which aircraft passes 20,000 miles with which flight.
fn to_files(kafka: &Kafka, folder: &Path) -> Result<Pelton> {
    let output = folder.join("output").display().to_string();
    let sink = format!("output_mode: append\nsink: {{connector: file, path: '{output}', format: json}}");
    totals(kafka, folder, "limit: 20000, alerts_only: true", &sink)
}

/// What a reader gets, without the places of records: those of markers and of aborted transactions lie between.
type Rows = BTreeMap<i32, Vec<(Option<Vec<u8>>, String)>>;

fn rows(kafka: &Kafka, topic: &str) -> Result<Rows> {
    let mut rows = Rows::new();
    for message in kafka.consume(topic)? {
        let text = message.text();
        rows.entry(message.partition).or_default().push((message.key, text));
    }
    Ok(rows)
}

/// The flights that the last totals count.
fn flights_counted(rows: &Rows) -> Result<i64> {
    let mut counts = BTreeMap::new();
    for (key, text) in rows.values().flatten() {
        let row: serde_json::Value = serde_json::from_str(text)?;
        counts.insert(key.clone(), row["payments"].as_i64().unwrap_or(0));
    }
    Ok(counts.values().sum())
}

/// Stops the broker hard so many times, and starts it again, until told that it is over. Returns how often.
fn stop_again_and_again(kafka: &Kafka, times: usize, over: &AtomicBool) -> Result<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let times = times * soak()?;
    for stops in 0..times {
        std::thread::sleep(Duration::from_millis(random.random_range(200..1500)));
        if over.load(Ordering::SeqCst) {
            return Ok(stops);
        }
        kafka.hard_stop()?;
        std::thread::sleep(Duration::from_millis(random.random_range(0..500)));
        kafka.start_again()?;
    }
    Ok(times)
}

/// Runs one after the other until there have been enough kills and stops.
fn disturbed(
    kafka: &Kafka,
    kills: &mut Kills,
    stops_max: usize,
    mut run: impl FnMut(&mut Kills, usize) -> Result<()>,
) -> Result<usize> {
    let (over, finished) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stops = scope.spawn(|| {
            let stops = stop_again_and_again(kafka, stops_max, &over);
            finished.store(true, Ordering::SeqCst);
            stops
        });
        let mut number = 0;
        let mut runs = || -> Result<()> {
            while kills.are_left() || !finished.load(Ordering::SeqCst) {
                run(kills, number)?;
                number += 1;
            }
            Ok(())
        };
        let ran = runs();
        over.store(true, Ordering::SeqCst);
        let stops = stops.join().unwrap_or_else(|_| anyhow::bail!("the thread that stops the broker died"));
        ran.and(stops)
    })
}

#[test]
fn fifty_kills_and_ten_stops_of_the_broker_change_no_record() -> Result<()> {
    let kafka = Kafka::start()?;
    kafka.create_topic(TOPIC, PARTITIONS)?;
    let records = flights(FILES, PARTITIONS)?;
    kafka.produce(TOPIC, records)?;
    kafka.create_topic("undisturbed", PARTITIONS)?;
    let folder = tempfile::tempdir()?;
    let whole_run = timed(to_kafka(&kafka, folder.path(), "undisturbed")?)?;
    let expected = rows(&kafka, "undisturbed")?;
    ensure!(flights_counted(&expected)? > 100_000, "{} flights", flights_counted(&expected)?);
    let mut kills = Kills::new(50, whole_run)?;
    let stops = disturbed(&kafka, &mut kills, 10, |kills, number| {
        let (folder, topic) = (tempfile::tempdir()?, format!("totals-{number}"));
        create(&kafka, &topic)?;
        kills.until_done(|| to_kafka(&kafka, folder.path(), &topic))?;
        let found = again(|| rows(&kafka, &topic))?;
        ensure!(found == expected, "{kills}: {}", difference(&expected, &found));
        Ok(())
    })?;
    println!("{kills}; {stops} hard stops of the broker");
    Ok(())
}

/// The broker may be on its way down while the topic is made.
fn create(kafka: &Kafka, topic: &str) -> Result<()> {
    again(|| match kafka.create_topic(topic, PARTITIONS) {
        Err(why) if why.to_string().contains("already exists") => Ok(()),
        made => made,
    })
}

/// A few times, for the broker comes back.
fn again<T>(mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..3 {
        if let Ok(answer) = ask() {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_secs(2));
    }
    ask()
}

/// Where a partition first differs.
fn difference(expected: &Rows, found: &Rows) -> String {
    let count = |rows: &Rows| rows.values().map(Vec::len).sum::<usize>();
    let mut said = format!("{} records instead of {}", count(found), count(expected));
    for (partition, rows) in expected {
        let found = found.get(partition).map(Vec::as_slice).unwrap_or_default();
        let longest = rows.len().max(found.len());
        if let Some(at) = (0..longest).find(|at| rows.get(*at) != found.get(*at)) {
            said += &format!(
                "; partition {partition}, record {at}: {:?} instead of {:?}",
                found.get(at).map(|(_, text)| text),
                rows.get(at).map(|(_, text)| text)
            );
        }
    }
    said
}

#[test]
fn fifty_kills_and_ten_stops_of_the_broker_change_no_file() -> Result<()> {
    let kafka = Kafka::start()?;
    kafka.create_topic(TOPIC, PARTITIONS)?;
    kafka.produce(TOPIC, flights(FILES, PARTITIONS)?)?;
    let folder = tempfile::tempdir()?;
    let whole_run = timed(to_files(&kafka, folder.path())?)?;
    let expected = committed_files(&folder.path().join("output"))?;
    ensure!(expected.len() > 20, "{} files", expected.len());
    let mut kills = Kills::new(50, whole_run)?;
    let stops = disturbed(&kafka, &mut kills, 10, |kills, _| {
        let folder = tempfile::tempdir()?;
        kills.until_done(|| to_files(&kafka, folder.path()))?;
        same_files(&expected, &committed_files(&folder.path().join("output"))?, kills)
    })?;
    println!("{kills}; {stops} hard stops of the broker");
    Ok(())
}
