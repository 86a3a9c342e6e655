//! The Kafka source and sink in the real binary, on a real broker.

/// What users meet: malformed values, tombstones, new partitions, lost records, zombies, lag.
mod basics;
/// Dead letters in a topic.
mod letters;
/// Offsets without records: those that are lost, and those that are not.
mod loss;
/// Each row once, whatever dies.
mod once;
/// The rows that files would have given, at any pace.
mod pace;
/// Encrypted, as a user; and what is told if that fails.
mod secure;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use pelton_tests::{Kafka, Message, Pelton, Record, repository};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A run to the end of what is there, of a pipeline that is written into a folder, with its checkpoint there too.
fn run(folder: &Path, pipeline: &str) -> Result<Pelton> {
    Ok(Pelton::new(["run", "--trigger", "available_now"])?.arg(written(folder, pipeline)?))
}

fn written(folder: &Path, pipeline: &str) -> Result<std::path::PathBuf> {
    let file = folder.join("pipeline.yaml");
    std::fs::write(&file, format!("{pipeline}\ncheckpoint: '{}/checkpoint'\n", folder.display()))?;
    Ok(file)
}

/// `source: {…}` over a topic from its beginning.
fn source(kafka: &Kafka, topic: &str, rest: &str) -> String {
    let servers = kafka.bootstrap_servers();
    format!(
        "{{connector: kafka, bootstrap_servers: '{servers}', subscribe: {topic}, starting_offsets: earliest, {rest}}}"
    )
}

/// `sink: {…}`.
fn sink(kafka: &Kafka, topic: &str, rest: &str) -> String {
    let servers = kafka.bootstrap_servers();
    format!("{{connector: kafka, bootstrap_servers: '{servers}', topic: {topic}, format: json, {rest}}}")
}

/// The values of a topic, without regard to their order.
fn values(kafka: &Kafka, topic: &str) -> Result<Vec<String>> {
    let mut values: Vec<String> = kafka.consume(topic)?.iter().map(Message::text).collect();
    values.sort();
    Ok(values)
}

/// The real flights of the first files as JSON, those of a row number in turn to one of so many partitions.
fn flights(files: usize, partitions: i32) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for number in 0..files {
        let path = repository().join(format!("tests/data/flights/{number:02}.csv.gz"));
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let mut lines = BufReader::new(GzDecoder::new(file)).lines();
        let header = lines.next().context("an empty file")??;
        for line in lines {
            let (line, partition) = (line?, i32::try_from(records.len())? % partitions);
            let fields: Vec<(&str, &str)> = header.split(',').zip(line.split(',')).collect();
            let tail = fields.iter().find(|(name, _)| *name == "tailnum").map_or("", |(_, value)| *value);
            records.push(Record::new(object(&fields)).key(tail).partition(partition));
        }
    }
    ensure!(!records.is_empty(), "no flights");
    Ok(records)
}

/// A JSON object; `NA` is null, and numbers are numbers.
fn object(fields: &[(&str, &str)]) -> String {
    let value = |value: &str| match value {
        "NA" => "null".to_owned(),
        number if number.parse::<f64>().is_ok() => number.to_owned(),
        text => format!("\"{text}\""),
    };
    let fields = fields.iter().map(|(name, text)| format!("\"{name}\":{}", value(text)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}
