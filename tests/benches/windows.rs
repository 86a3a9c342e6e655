//! `cargo xtask bench windows`: event time and state. Rows a second of windows, deduplication and a join from files to
//! files with a durable checkpoint, and what a micro-batch of 100 rows costs as the keys in the state grow.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use anyhow::Result;
use pelton_tests::{
    BID_SCHEMA, Pelton, bench_folder, bids, last_json, made_once, micro_batch_ms, number, percentile, remove,
};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

const RUNS: usize = 3;
const WATERMARK: &str = "watermark: {column: date_time, delay: 3 seconds}";
/// Rows of the small micro-batches that are timed.
const SMALL_ROWS: u64 = 100;
const SMALL_BATCHES: u64 = 40;

/// A query over bids: its name and its steps.
const QUERIES: [(&str, &str); 6] = [
    (
        "B tumbling 10 s by auction",
        "  - sql: SELECT window(date_time, '10 seconds') AS w, auction, count(*) AS n, sum(price) AS total, max(price) AS \
         most FROM input GROUP BY 1, 2\n",
    ),
    (
        "C sliding 60 s / 10 s",
        "  - sql: SELECT window(date_time, '60 seconds', '10 seconds') AS w, auction, count(*) AS n FROM input GROUP BY 1, \
         2\n",
    ),
    (
        "D session by bidder, gap 10 s",
        "  - sql: SELECT bidder, session_window(date_time, '10 seconds') AS w, count(*) AS n FROM input GROUP BY 1, 2\n",
    ),
    (
        "F dedup within watermark",
        "  - dedup: {columns: [extra], within_watermark: true}\n  - select: [auction, extra]\n",
    ),
    (
        "tumbling 10 s, 100 keys",
        "  - sql: SELECT window(date_time, '10 seconds') AS w, auction % 100 AS k, count(*) AS n FROM input GROUP BY 1, 2\n",
    ),
    (
        "tumbling 10 s, 1 M keys",
        "  - sql: SELECT window(date_time, '10 seconds') AS w, price * 10 + auction % 10 AS k, count(*) AS n FROM input \
         GROUP BY 1, 2\n",
    ),
];

/// Two thin streams out of the same events, joined by user and window.
const JOIN: &str = "  - sql: \"SELECT l.bidder AS bidder, l.w AS w, r.auction AS auction FROM (SELECT bidder, \
     window(date_time, '10 seconds') AS w FROM bids WHERE bidder % 50 = 0) AS l JOIN (SELECT bidder, auction, \
     window(date_time, '10 seconds') AS w FROM more WHERE auction % 16 = 0) AS r ON l.bidder = r.bidder AND l.w = \
     r.w\"\n";

fn main() -> Result<()> {
    let rows = number("--rows", 1_000_000)?;
    let keys_max = number("--keys-max", 10_000_000)?;
    let folder = bench_folder()?;
    let input = bids(&folder, rows)?;
    println!("{rows} bids in files of 250,000, one a micro-batch; medians of {RUNS} runs\n");
    println!("{:<32} {:>12}   seconds: read decode process sink log; peak memory", "", "rows/s");
    for (name, steps) in QUERIES {
        throughput(name, &pipeline(&input, &folder, &["bids"], steps, "append"), &folder)?;
    }
    throughput(
        "G join by user and window",
        &pipeline(&input, &folder, &["bids", "more"], JOIN, "append"),
        &folder,
    )?;
    println!(
        "\n{:<32} {:>12} {:>12}   a micro-batch of {SMALL_ROWS} rows, milliseconds",
        "keys in the state", "p50", "p90"
    );
    let sizes = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    for keys in sizes.into_iter().filter(|keys| *keys <= keys_max) {
        growth(keys, &folder)?;
    }
    Ok(())
}

fn pipeline(input: &Path, folder: &Path, sources: &[&str], steps: &str, mode: &str) -> String {
    let mut text = String::from("name: bench\nsources:\n");
    for source in sources {
        let _ = write!(
            text,
            "  {source}:\n    connector: file\n    path: {}/*.json\n    format: json\n    schema: {BID_SCHEMA}\n    \
             max_files_per_trigger: 1\n    {WATERMARK}\n",
            input.display()
        );
    }
    let run = folder.join("run");
    let _ = write!(
        text,
        "steps:\n{steps}output_mode: {mode}\nsink: {{connector: file, path: {run}/out, format: json}}\ncheckpoint: \
         {run}/checkpoint\n",
        run = run.display()
    );
    text
}

fn throughput(name: &str, pipeline: &str, folder: &Path) -> Result<()> {
    let file = folder.join("pipeline.yaml");
    std::fs::write(&file, pipeline)?;
    let mut runs = (0..RUNS).map(|_| measured(&file, folder)).collect::<Result<Vec<_>>>()?;
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (rate, stages) = &runs[RUNS / 2];
    println!("{name:<32} {rate:>12.0}   {stages}");
    Ok(())
}

/// Rows a second and where the time went.
fn measured(pipeline: &Path, folder: &Path) -> Result<(f64, String)> {
    remove(&folder.join("run"))?;
    let arguments = ["run", "--trigger", "available_now", "--progress", "none", "--summary", "json"];
    let (finished, peak) = Pelton::new(arguments)?.arg(pipeline).succeed_measured()?;
    let summary = last_json(&finished.stderr)?;
    let of = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let stage = |name: &str| format!("{:.2}", of(&summary["stages"][name]));
    let stages = ["read", "decode", "process", "sink", "log"].map(stage).join(" ");
    Ok((of(&summary["rows_in"]) / of(&summary["seconds"]), format!("{stages}; {} MB", peak / 1_000_000)))
}

/// A count by key in update mode: first all keys, then small micro-batches over some of them.
fn growth(keys: u64, folder: &Path) -> Result<()> {
    let input = folder.join(format!("keys-{keys}"));
    made_once(&input, || {
        let mut file = BufWriter::new(std::fs::File::create(input.join("part-000.json"))?);
        for key in 0..keys {
            writeln!(file, "{{\"k\":{key}}}")?;
        }
        file.flush()?;
        for batch in 0..SMALL_BATCHES {
            let rows = (0..SMALL_ROWS).map(|row| (batch * SMALL_ROWS + row).wrapping_mul(0x9e37_79b9) % keys);
            let text: String = rows.map(|key| format!("{{\"k\":{key}}}\n")).collect();
            std::fs::write(input.join(format!("part-{:03}.json", batch + 1)), text)?;
        }
        Ok(())
    })?;
    let (file, run): (PathBuf, PathBuf) = (folder.join("pipeline.yaml"), folder.join("run"));
    remove(&run)?;
    std::fs::write(
        &file,
        format!(
            "name: growth\nsources:\n  s: {{connector: file, path: {}/*.json, format: json, schema: {{k: long}}, \
             max_files_per_trigger: 1}}\nsteps:\n  - sql: SELECT k, count(*) AS n FROM input GROUP BY k\noutput_mode: \
             update\nsink: {{connector: console, num_rows: 1}}\ncheckpoint: {}\n",
            input.display(),
            run.display()
        ),
    )?;
    let finished =
        Pelton::new(["run", "--trigger", "available_now", "--progress", "json", "--summary", "none"])?
            .arg(&file)
            .succeed()?;
    let times = micro_batch_ms(&finished.stderr, SMALL_ROWS);
    println!("{keys:<32} {:>12.2} {:>12.2}", percentile(&times, 0.5), percentile(&times, 0.9));
    Ok(())
}
