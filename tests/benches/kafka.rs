//! `cargo xtask bench kafka`: from topic to topic on a broker of its own, on the same machine. Rows a second with exactly
//! once, in medians of three runs, and the time from producer to consumer at 10,000 rows a second; beside it what a
//! bare client of librdkafka takes for the same.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark looks at the clock and prints"
)]

use anyhow::{Context, Result, ensure};
use pelton_tests::{BID_SCHEMA, BidFormat, Kafka, Pelton, Record, plugin, target_folder, write_bids};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RUNS: usize = 3;
const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

/// A query over bids: its name, its steps and the columns that its sink writes.
const QUERIES: [(&str, &str); 3] = [
    ("pass-through", "  - filter: price >= 0\n"),
    ("filter and map in Wasm", "  - plugin: bench.priced\n"),
    (
        "count by auction and 10 s",
        "  - sql: SELECT window(date_time, '10 seconds') AS w, auction, count(*) AS n FROM input GROUP BY 1, 2\n",
    ),
];

/// Rows a second while the latency is measured, in as many pieces.
const LATENCY_RATE: u64 = 10_000;
const PIECES_PER_SECOND: u64 = 1_000;
/// The broker's code is compiled meanwhile.
const WARM_UP: Duration = Duration::from_secs(20);
const MEASURED: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    let rows = number("--rows", 1_000_000)?;
    let folder = target_folder()?.join("bench");
    std::fs::create_dir_all(&folder)?;
    let kafka = Kafka::start_lasting()?;
    let cores = std::thread::available_parallelism()?;
    println!("{rows} bids as JSON in {PARTITIONS} partitions, {cores} cores, medians of {RUNS} runs\n");
    println!("{:<32} {:>12} {:>9}   busy seconds: read decode process sink log", "", "rows/s", "MB/s");
    throughput(&kafka, &folder, rows)?;
    println!("\n{LATENCY_RATE} rows a second, milliseconds from producer to consumer\n");
    println!("{:<32} {:>9} {:>9} {:>9} {:>9}", "", "p50", "p90", "p99", "most");
    report_latency("a bare consumer", &latency(&kafka, &folder, None)?);
    for delivery in ["at_least_once", "exactly_once"] {
        report_latency(&format!("Pelton, {delivery}"), &latency(&kafka, &folder, Some(delivery))?);
    }
    Ok(())
}

/// `--name N`; cargo's own arguments are passed over.
fn number(name: &str, unless_given: u64) -> Result<u64> {
    let arguments: Vec<String> = std::env::args().collect();
    let given = arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
    given.map_or(Ok(unless_given), |text| text.parse().with_context(|| format!("{name} wants a number")))
}

fn throughput(kafka: &Kafka, folder: &Path, rows: u64) -> Result<()> {
    let input = folder.join(format!("bids-json-{rows}"));
    if !input.join("done").is_file() {
        eprintln!("generating {rows} bids");
        let bytes = write_bids(&input, BidFormat::Json, rows)?;
        std::fs::write(input.join("done"), bytes.to_string())?;
    }
    let bytes: u64 = std::fs::read_to_string(input.join("done"))?.trim().parse()?;
    kafka.create_topic("bids", PARTITIONS)?;
    let started = Instant::now();
    kafka.produce("bids", lines(&input)?)?;
    report("a bare producer", rows, bytes, started.elapsed().as_secs_f64(), "");
    let mut drained = (0..RUNS).map(|_| drain(kafka, "bids", rows)).collect::<Result<Vec<_>>>()?;
    drained.sort_by(f64::total_cmp);
    report("a bare consumer", rows, bytes, drained[RUNS / 2], "");
    for (name, steps) in QUERIES {
        let mut runs = (0..RUNS)
            .map(|run| query(kafka, folder, steps, &format!("{}-{run}", name.replace(' ', "-"))))
            .collect::<Result<Vec<_>>>()?;
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (seconds, stages) = runs.swap_remove(RUNS / 2);
        report(name, rows, bytes, seconds, &stages);
    }
    Ok(())
}

fn report(what: &str, rows: u64, bytes: u64, seconds: f64, more: &str) {
    let (rows, megabytes) = (rows as f64 / seconds, bytes as f64 / seconds / 1e6);
    println!("{what:<32} {rows:>12.0} {megabytes:>9.0}   {more}");
}

/// The lines of all files, in turn to the partitions.
fn lines(folder: &Path) -> Result<impl Iterator<Item = Record>> {
    let entries = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    let opened = files.into_iter().map(std::fs::File::open).collect::<std::io::Result<Vec<_>>>()?;
    let lines = opened.into_iter().flat_map(|file| BufReader::new(file).split(b'\n')).map_while(Result::ok);
    let partitions = (0..PARTITIONS).cycle();
    Ok(lines.zip(partitions).map(|(line, partition)| Record::new(line).partition(partition)))
}

/// The floor: every record through librdkafka, and nothing else.
fn drain(kafka: &Kafka, topic: &str, rows: u64) -> Result<f64> {
    let reader = reader(kafka, topic, Offset::Beginning)?;
    let (started, mut read) = (Instant::now(), 0);
    while read < rows {
        ensure!(started.elapsed() < PATIENCE, "{read} of {rows} records in {PATIENCE:?}");
        match reader.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => read += u64::from(std::hint::black_box(message.payload()).is_some()),
            Some(Err(why)) => return Err(why.into()),
            None => {}
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

fn reader(kafka: &Kafka, topic: &str, from: Offset) -> Result<BaseConsumer> {
    let mut config = kafka.config();
    config.set("group.id", "bench").set("enable.auto.commit", "false");
    config.set("isolation.level", "read_committed");
    let reader: BaseConsumer = config.create()?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        partitions.add_partition_offset(topic, partition, from)?;
    }
    reader.assign(&partitions)?;
    Ok(reader)
}

/// A pipeline from topic to topic, with a checkpoint on local disk.
fn pipeline(kafka: &Kafka, run: &Path, source: &str, steps: &str, sink: &str) -> Result<std::path::PathBuf> {
    if run.exists() {
        std::fs::remove_dir_all(run)?;
    }
    std::fs::create_dir_all(run)?;
    let file = run.join("pipeline.yaml");
    let servers = kafka.bootstrap_servers();
    let text = format!(
        "name: bench\nplugins: {{bench: {plugin}}}\nsources:\n  bids: {{connector: kafka, bootstrap_servers: '{servers}', \
         format: json, {source}}}\nsteps:\n{steps}sink: {{connector: kafka, bootstrap_servers: '{servers}', format: json, \
         {sink}}}\ncheckpoint: {checkpoint}\n",
        plugin = plugin("bench.wasm")?.display(),
        checkpoint = run.join("checkpoint").display(),
    );
    std::fs::write(&file, text)?;
    Ok(file)
}

/// Seconds of a run, and what they went into.
fn query(kafka: &Kafka, folder: &Path, steps: &str, output: &str) -> Result<(f64, String)> {
    kafka.create_topic(output, PARTITIONS)?;
    let source = format!(
        "subscribe: bids, starting_offsets: earliest, max_offsets_per_trigger: 250000, schema: '{BID_SCHEMA}', watermark: \
         {{column: date_time, delay: 3 seconds}}"
    );
    let file = pipeline(kafka, &folder.join("run"), &source, steps, &format!("topic: {output}"))?;
    let arguments = ["run", "--trigger", "available_now", "--progress", "none", "--summary", "json"];
    let finished = Pelton::new(arguments)?.arg(file).succeed()?;
    let mut told = finished.stderr.lines().rev();
    let summary: Value = told.find_map(|line| serde_json::from_str(line).ok()).context("no summary")?;
    let stage = |name: &str| summary["stages"][name].as_f64().unwrap_or(f64::NAN);
    let stages = ["read", "decode", "process", "sink", "log"].map(|name| format!("{:.2}", stage(name)));
    kafka.delete_topic(output)?;
    Ok((summary["seconds"].as_f64().context("the summary has no seconds")?, stages.join(" ")))
}

/// Microseconds of each record, sorted: through Pelton, or straight to a consumer.
fn latency(kafka: &Kafka, folder: &Path, delivery: Option<&str>) -> Result<Vec<u64>> {
    let name = delivery.unwrap_or("bare");
    let (input, output) = (format!("sent-{name}"), format!("received-{name}"));
    kafka.create_topic(&input, PARTITIONS)?;
    kafka.create_topic(&output, PARTITIONS)?;
    let running = delivery.map(|delivery| {
        let source =
            format!("subscribe: {input}, starting_offsets: earliest, schema: 'sent_us long, text string'");
        let sink = format!("topic: {output}, delivery: {delivery}");
        let file = pipeline(kafka, &folder.join("run"), &source, "  - filter: sent_us >= 0\n", &sink)?;
        Pelton::new(["run"])?.arg(file).start()
    });
    let mut running = running.transpose()?;
    let over = AtomicBool::new(false);
    let started = Instant::now();
    let measured = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(kafka, &input, started, &over));
        let topic = if delivery.is_some() { &output } else { &input };
        let received = receive(kafka, topic, started);
        over.store(true, Ordering::SeqCst);
        sender.join().unwrap_or_else(|_| anyhow::bail!("the sender died"))?;
        received
    });
    if let Some(running) = &mut running {
        running.kill()?;
        running.wait()?;
    }
    measured
}

/// A steady stream of records that say when they were sent.
fn send(kafka: &Kafka, topic: &str, started: Instant, over: &AtomicBool) -> Result<()> {
    let mut config = kafka.config();
    config.set("linger.ms", "1").set("acks", "1");
    let producer: BaseProducer = config.create()?;
    let text = "x".repeat(200);
    for piece in 0.. {
        let due = Duration::from_micros(piece * 1_000_000 / PIECES_PER_SECOND);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        if over.load(Ordering::SeqCst) {
            break;
        }
        for _ in 0..LATENCY_RATE / PIECES_PER_SECOND {
            let value = format!("{{\"sent_us\":{},\"text\":\"{text}\"}}", started.elapsed().as_micros());
            let record = BaseRecord::<(), str>::to(topic).payload(&value);
            producer.send(record).map_err(|(why, _)| why)?;
        }
        producer.poll(Duration::ZERO);
    }
    Ok(producer.flush(PATIENCE)?)
}

/// How old records are when they come, after a while of warming up.
fn receive(kafka: &Kafka, topic: &str, started: Instant) -> Result<Vec<u64>> {
    let reader = reader(kafka, topic, Offset::Beginning)?;
    let mut ages = Vec::new();
    let mut first = None;
    loop {
        ensure!(started.elapsed() < PATIENCE, "{} records came in {PATIENCE:?}", ages.len());
        let message = match reader.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => message,
            Some(Err(KafkaError::PartitionEOF(_))) | None => continue,
            Some(Err(why)) => return Err(why.into()),
        };
        let now = started.elapsed();
        let since = now - *first.get_or_insert(now);
        if since > WARM_UP + MEASURED {
            ages.sort_unstable();
            return Ok(ages);
        }
        if since > WARM_UP {
            ages.push(
                (now.as_micros() as u64).saturating_sub(sent_us(message.payload().unwrap_or_default())?),
            );
        }
    }
}

fn sent_us(value: &[u8]) -> Result<u64> {
    let digits =
        value.iter().skip_while(|byte| !byte.is_ascii_digit()).take_while(|byte| byte.is_ascii_digit());
    let digits = String::from_utf8(digits.copied().collect())?;
    digits.parse().with_context(|| format!("no time in {}", String::from_utf8_lossy(value)))
}

fn report_latency(what: &str, sorted: &[u64]) {
    let at =
        |share: f64| sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0) as f64 / 1e3;
    let most = sorted.last().copied().unwrap_or(0) as f64 / 1e3;
    println!("{what:<32} {:>9.1} {:>9.1} {:>9.1} {most:>9.1}", at(0.5), at(0.9), at(0.99));
}
