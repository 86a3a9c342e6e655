//! `cargo xtask bench file`: rows a second from files to files, where the time goes, and what the bare work costs
//! on the same machine in the same minute. Medians of three runs.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark looks at the clock and prints"
)]

use anyhow::{Context, Result};
use pelton_connectors::decode::json::{JsonDecoder, JsonOptions};
use pelton_connectors::decode::{Decoder, DecoderSettings, Input};
use pelton_core::types::parse_columns;
use pelton_tests::{BID_SCHEMA, BidFormat, Pelton, plugin, target_folder, write_bids};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const RUNS: usize = 3;
const API_RUNS: usize = 15;
const BLOCK_BYTES: usize = 4 << 20;
const QUERY_A: &str = "SELECT auction, bidder, price * CAST(0.908 AS DOUBLE) AS price, upper(channel) AS channel, \
                       date_time FROM input WHERE price > 10000 AND channel <> 'Apple'";

fn main() -> Result<()> {
    let rows = rows()?;
    let folder = target_folder()?.join("bench");
    std::fs::create_dir_all(&folder)?;
    let cores = std::thread::available_parallelism()?;
    println!("{rows} bids, {cores} cores, medians of {RUNS} runs\n");
    println!(
        "{:<28} {:>12} {:>9}   busy seconds: read decode process sink log; peak memory",
        "", "rows/s", "MB/s"
    );
    for format in [BidFormat::Json, BidFormat::Csv] {
        let input = folder.join(format!("bids-{}-{rows}", format.as_str()));
        let bytes = generated(&input, format, rows)?;
        let name = format.as_str();
        report(&format!("{name}: bytes read"), rows, bytes, median(|| read_only(&input))?, "");
        if format == BidFormat::Json {
            report("json: decoded, nothing else", rows, bytes, median(|| decode_only(&input))?, "");
        }
        let sql = query(&input, format, &[("sql", QUERY_A)], &folder)?;
        report(&format!("{name}: A in SQL"), rows, bytes, sql.seconds, &sql.stages);
        let wasm = query(&input, format, &[("plugin", "bench.priced")], &folder)?;
        report(&format!("{name}: A in Wasm"), rows, bytes, wasm.seconds, &wasm.stages);
        println!("{name}: Wasm runs at {:.0} % of SQL's speed\n", 100.0 * sql.seconds / wasm.seconds);
    }
    api(&folder.join(format!("bids-csv-{rows}")), &folder)?;
    flights(&folder)
}

/// What the HTTP API and its metrics cost a query that nobody asks, by turns with and without them.
fn api(input: &Path, folder: &Path) -> Result<()> {
    let (file, run) = pipeline(input, BidFormat::Csv, &[("sql", QUERY_A)], folder)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..API_RUNS {
        with.push(measured(&file, &run, &[])?.seconds);
        without.push(measured(&file, &run, &["--no-api"])?.seconds);
    }
    let [with, without] = [with, without].map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[API_RUNS / 2]
    });
    println!(
        "csv: A in SQL with the API takes {:+.1} % of the time without\n",
        100.0 * (with / without - 1.0)
    );
    Ok(())
}

/// `--rows N`; cargo's own arguments are passed over.
fn rows() -> Result<u64> {
    let arguments: Vec<String> = std::env::args().collect();
    let given =
        arguments.iter().position(|argument| argument == "--rows").and_then(|at| arguments.get(at + 1));
    given.map_or(Ok(1_000_000), |text| text.parse().context("--rows wants a number"))
}

fn report(what: &str, rows: u64, bytes: u64, seconds: f64, more: &str) {
    let (rows, megabytes) = (rows as f64 / seconds, bytes as f64 / seconds / 1e6);
    println!("{what:<28} {rows:>12.0} {megabytes:>9.0}   {more}");
}

fn median(mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut times = (0..RUNS).map(|_| run()).collect::<Result<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

/// The input, made once and kept.
fn generated(folder: &Path, format: BidFormat, rows: u64) -> Result<u64> {
    let done = folder.join("done");
    if !done.is_file() {
        eprintln!("generating {rows} bids as {}", format.as_str());
        let bytes = write_bids(folder, format, rows)?;
        std::fs::write(&done, bytes.to_string())?;
    }
    Ok(std::fs::read_to_string(&done)?.trim().parse()?)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some());
    files.sort();
    Ok(files)
}

fn read_only(folder: &Path) -> Result<f64> {
    let start = Instant::now();
    for file in files(folder)? {
        std::hint::black_box(std::fs::read(file)?);
    }
    Ok(start.elapsed().as_secs_f64())
}

/// The floor: the same blocks through the same decoder on all cores, and nothing else.
fn decode_only(folder: &Path) -> Result<f64> {
    let schema = Arc::new(arrow::datatypes::Schema::new(parse_columns(BID_SCHEMA, "UTC")?));
    let columns = ["auction", "bidder", "price", "channel", "date_time"].map(str::to_owned).to_vec();
    let settings = DecoderSettings { columns: Some(columns), ..DecoderSettings::new(schema) };
    let decoder = JsonDecoder::new(&settings, &JsonOptions::default())?;
    let texts = files(folder)?.into_iter().map(std::fs::read).collect::<std::io::Result<Vec<_>>>()?;
    let blocks: Vec<&[u8]> = texts.iter().flat_map(|text| blocks(text)).collect();
    let (next, start) = (AtomicUsize::new(0), Instant::now());
    let work = || -> Result<()> {
        while let Some(bytes) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let input = Input { bytes, file: "bids", first_line: 1, starts_file: true };
            std::hint::black_box(decoder.decode(&input)?);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..std::thread::available_parallelism()?.get()).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a thread died")))
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// Pieces of about 4 MiB, cut at line ends.
fn blocks(mut text: &[u8]) -> Vec<&[u8]> {
    let mut blocks = Vec::new();
    while text.len() > BLOCK_BYTES {
        let end = text[..BLOCK_BYTES].iter().rposition(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1);
        let (block, rest) = text.split_at(end);
        blocks.push(block);
        text = rest;
    }
    blocks.push(text);
    blocks
}

/// How a query ran, in the median.
struct Measured {
    seconds: f64,
    stages: String,
}

/// Runs a pipeline from files to files with a checkpoint, three times from nothing.
fn query(input: &Path, format: BidFormat, steps: &[(&str, &str)], folder: &Path) -> Result<Measured> {
    let (file, run) = pipeline(input, format, steps, folder)?;
    let mut runs = (0..RUNS).map(|_| measured(&file, &run, &[])).collect::<Result<Vec<_>>>()?;
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(runs.swap_remove(RUNS / 2))
}

/// Its file, and the folder that it writes to.
fn pipeline(
    input: &Path,
    format: BidFormat,
    steps: &[(&str, &str)],
    folder: &Path,
) -> Result<(PathBuf, PathBuf)> {
    let run = folder.join("run");
    let steps: String = steps.iter().map(|(kind, text)| format!("  - {kind}: \"{text}\"\n")).collect();
    let (name, header) = (format.as_str(), format == BidFormat::Csv);
    let pipeline = format!(
        "name: bench\nplugins: {{bench: {plugin}}}\nsources:\n  bids:\n    connector: file\n    path: {input}/*.{name}\n    \
         format: {name}\n    options: {{{options}}}\n    schema: {BID_SCHEMA}\n    max_files_per_trigger: 1\nsteps:\n{steps}\
         sink: {{connector: file, path: {run}/out, format: json}}\ncheckpoint: {run}/checkpoint\n",
        plugin = plugin("bench.wasm")?.display(),
        input = input.display(),
        options = if header { "header: true" } else { "" },
        run = run.display(),
    );
    let file = folder.join("pipeline.yaml");
    std::fs::write(&file, pipeline)?;
    Ok((file, run))
}

fn measured(pipeline: &Path, run: &Path, more: &[&str]) -> Result<Measured> {
    if run.exists() {
        std::fs::remove_dir_all(run)?;
    }
    let arguments = ["run", "--trigger", "available_now", "--progress", "none", "--summary", "json"];
    let (finished, peak) = Pelton::new(arguments)?.args(more).arg(pipeline).succeed_measured()?;
    let summary: Value = finished
        .stderr
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok())
        .context("no summary")?;
    let seconds = summary["seconds"].as_f64().context("the summary has no seconds")?;
    let stage = |name: &str| summary["stages"][name].as_f64().unwrap_or(f64::NAN);
    let stages =
        ["read", "decode", "process", "sink", "log"].map(|name| format!("{:.2}", stage(name))).join(" ");
    Ok(Measured { seconds, stages: format!("{stages}; {} MB", peak / 1_000_000) })
}

/// The demo's pipeline: small, so it says more of what a micro-batch costs than of throughput.
fn flights(folder: &Path) -> Result<()> {
    let run = folder.join("run");
    if run.exists() {
        std::fs::remove_dir_all(&run)?;
    }
    let flights = plugin("flights-rust.wasm")?;
    let finished = Pelton::new(["run", "examples/01-flights/pipeline.yaml", "--trigger", "available_now"])?
        .args(["--progress", "none", "--summary", "json"])
        .arg("--plugin")
        .arg(format!("flights={}", flights.display()))
        .set("sink.path", &run.join("out"))
        .set("checkpoint", &run.join("checkpoint"))
        .succeed()?;
    let summary: Value = finished
        .stderr
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok())
        .context("no summary")?;
    let number = |key: &str| summary[key].as_f64().unwrap_or(f64::NAN);
    let (rows, batches, seconds) = (number("rows_in"), number("batches"), number("seconds"));
    println!("flights: {rows} rows in {batches} micro-batches, {seconds:.2} s, {:.0} rows/s", rows / seconds);
    Ok(())
}
