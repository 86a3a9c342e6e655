//! Dead letters in a topic, beside their files: with the lost record, its key and what is known of it, each once.

use super::{run, source, values, written};
use crate::kills::{Kills, timed};
use anyhow::{Context, Result, ensure};
use pelton_tests::{Kafka, Message, Pelton, Record};
use std::path::Path;

const ORDERS: &str = "format: json, schema: 'user string, amount double', on_malformed: dead_letter";

/// Orders to files; what does not decode goes to a topic.
fn pipeline(kafka: &Kafka, folder: &Path, (topic, rest): (&str, &str), letters: &str) -> String {
    format!(
        "name: orders\nsources:\n  orders: {}\nsink: {{connector: file, path: '{}/output', format: json}}\n\
         dead_letters: {{connector: kafka, bootstrap_servers: '{}', topic: {letters}}}",
        source(kafka, topic, &format!("{ORDERS}, {rest}")),
        folder.display(),
        kafka.bootstrap_servers(),
    )
}

#[test]
fn a_lost_record_goes_to_a_topic_with_its_key_and_what_is_known_of_it() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("letters-in", 1)?;
    kafka.create_topic("letters-out", 1)?;
    let good = || Record::new("{\"user\":\"ann\",\"amount\":1}");
    kafka.produce("letters-in", [good(), Record::new("{\"user\": \"bob\", \"am").key("bob"), good()])?;
    let text = pipeline(&kafka, folder.path(), ("letters-in", ""), "letters-out");
    run(folder.path(), &text)?.succeed()?;
    let letters = kafka.consume("letters-out")?;
    let [letter] = letters.as_slice() else { anyhow::bail!("{letters:?}") };
    ensure!(
        letter.text() == "{\"user\": \"bob\", \"am" && letter.key.as_deref() == Some(b"bob"),
        "{letter:?}"
    );
    for (name, text) in [
        ("query", "orders"),
        ("batch_id", "0"),
        ("sequence", "0"),
        ("kind", "malformed"),
        ("source", "orders"),
        ("position", "letters-in-0@1"),
        ("topic", "letters-in"),
        ("partition", "0"),
        ("offset", "1"),
    ] {
        ensure!(letter.header(&format!("pelton.{name}")) == Some(text), "{name}: {letter:?}");
    }
    ensure!(letter.header("pelton.reason").is_some_and(|reason| reason.contains("JSON")), "{letter:?}");
    let metadata = std::fs::read_to_string(folder.path().join("checkpoint/metadata"))?;
    let id = letter.header("pelton.query_id").context("no id")?;
    ensure!(metadata.contains(id), "{id} is not in {metadata}");

    // The files are there, too, so letters are shown and fed back as ever.
    let file = folder.path().join("pipeline.yaml");
    let shown = Pelton::new(["dead-letters", "show", "--format", "json"])?.arg(&file).succeed()?.stdout;
    ensure!(shown.contains("letters-in-0@1") && shown.contains("\"key\":\"bob\""), "{shown}");
    Pelton::new(["dead-letters", "replay"])?.arg(&file).succeed()?;
    run(folder.path(), &text)?.succeed()?;
    let letters = kafka.consume("letters-out")?;
    let places: Vec<_> = letters.iter().filter_map(|letter| letter.header("pelton.position")).collect();
    ensure!(places == ["letters-in-0@1", "letters-in-0@1 (again)"], "{places:?}");
    Ok(())
}

#[test]
fn rows_that_a_step_loses_say_which_step() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("late-letters", 1)?;
    let rows = (0..3).map(|n| format!("{{\"n\":{n},\"at\":\"2026-01-01T0{}:00:00Z\"}}\n", 3 - n));
    for (n, row) in rows.enumerate() {
        std::fs::write(folder.path().join(format!("{n}.jsonl")), row)?;
    }
    let pipeline = format!(
        "name: late\nsources:\n  numbers: {{connector: file, path: '{}/*.jsonl', format: json, max_files_per_trigger: 1, \
         schema: 'n long, at timestamp', watermark: {{column: at, delay: 1 minute}}}}\nsteps:\n- sql: SELECT window.start AS \
         hour, count(*) AS c FROM input GROUP BY window(at, '1 minute')\n  name: counts\non_late: dead_letter\n\
         sink: {{connector: console, format: json}}\ndead_letters: {{connector: kafka, bootstrap_servers: '{}', topic: late-letters}}",
        folder.path().display(),
        kafka.bootstrap_servers(),
    );
    run(folder.path(), &pipeline)?.succeed()?;
    let letters = kafka.consume("late-letters")?;
    let known = |letter: &Message| {
        let of = |name| letter.header(name).unwrap_or("-").to_owned();
        (of("pelton.kind"), of("pelton.step"), of("pelton.source"), letter.key.is_some())
    };
    // The one of the second file is late for the watermark that the first has moved, but counted with it as in Spark.
    let [letter] = letters.as_slice() else { anyhow::bail!("{letters:?}") };
    ensure!(known(letter) == ("late".into(), "counts.aggregate".into(), "-".into(), false), "{letter:?}");
    ensure!(letter.text().contains("\"n\":2"), "{letter:?}");
    Ok(())
}

#[test]
fn kills_neither_double_nor_lose_a_letter() -> Result<()> {
    let kafka = Kafka::shared()?;
    kafka.create_topic("killed-orders", 3)?;
    let order = |n: i32| match n % 7 {
        0 => Record::new(format!("{{\"user\": {n}, ")).key(format!("k{n}")),
        _ => Record::new(format!("{{\"user\":\"u{n}\",\"amount\":{n}}}")),
    };
    kafka.produce("killed-orders", (0..9_000).map(|n| order(n).partition(n % 3)))?;
    let of = |folder: &Path, letters: &str| {
        let rest = "max_offsets_per_trigger: 300";
        run(folder, &pipeline(&kafka, folder, ("killed-orders", rest), letters))
    };
    let found = |topic: &str| -> Result<Vec<(String, String, String)>> {
        let letters = kafka.consume(topic)?;
        let of = |letter: &Message, name| letter.header(name).unwrap_or("-").to_owned();
        let letters = letters.iter().map(|letter| {
            let sequence = of(letter, "pelton.sequence");
            (of(letter, "pelton.batch_id"), format!("{sequence:0>5}"), letter.text())
        });
        let mut letters: Vec<_> = letters.collect();
        letters.sort();
        Ok(letters)
    };
    kafka.create_topic("undisturbed-letters", 2)?;
    let folder = tempfile::tempdir()?;
    let whole_run = timed(of(folder.path(), "undisturbed-letters")?)?;
    let expected = found("undisturbed-letters")?;
    ensure!(expected.len() == 1_286, "{} letters", expected.len());
    let mut kills = Kills::new(15, whole_run)?;
    let mut number = 0;
    while kills.are_left() {
        let (folder, topic) = (tempfile::tempdir()?, format!("letters-{number}"));
        number += 1;
        kafka.create_topic(&topic, 2)?;
        kills.until_done(|| of(folder.path(), &topic))?;
        let found = found(&topic)?;
        ensure!(found == expected, "{kills}: {} letters instead of {}", found.len(), expected.len());
    }
    println!("{kills}");
    Ok(())
}

#[test]
fn a_place_where_letters_cannot_go_is_told_at_the_start() -> Result<()> {
    let (kafka, folder) = (Kafka::shared()?, tempfile::tempdir()?);
    kafka.create_topic("round", 1)?;
    let text = pipeline(&kafka, folder.path(), ("round", ""), "round");
    let told = Pelton::new(["check"])?.arg(written(folder.path(), &text)?).output()?;
    ensure!(told.code == Some(2), "{told:?}");
    for words in ["pipeline.yaml:5:", "the source 'orders' reads the topic of the dead letters"] {
        ensure!(told.stderr.contains(words), "no '{words}' in\n{}", told.stderr);
    }
    let text = pipeline(&kafka, folder.path(), ("round", ""), "'no topic'");
    let told = run(folder.path(), &text)?.output()?;
    ensure!(told.code.is_some_and(|code| code > 0), "{told:?}");
    ensure!(told.stderr.contains("dead_letters: ") && told.stderr.contains("'no topic'"), "{}", told.stderr);
    ensure!(values(&kafka, "round")?.is_empty(), "something was written");
    Ok(())
}
