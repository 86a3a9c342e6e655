//! `cargo xtask bench state`: a count and a sum by user in user code, in Wasm, with a timeout, from files to files with a
//! durable checkpoint; beside it the same by the native operator. Users uniform and Zipf, from a thousand to ten million.
//! Then what small micro-batches cost on the state that is there, what they write, and how long a restart takes; and how much
//! memory a state takes that is five times as large as what it is given.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints, and reads the clock"
)]

use anyhow::Result;
use pelton_tests::{
    BID_SCHEMA, Pelton, bench_folder, bids, last_json, made_once, micro_batch_ms, number, percentile, plugin,
    remove,
};
use serde_json::Value;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

const RUNS: usize = 3;
/// Rows of the small micro-batches that are timed.
const SMALL_ROWS: u64 = 100;
const SMALL_BATCHES: u64 = 100;

/// How a bid gets its user, of so many: each as often as any other, or the n-th user 1/n as often as the first.
const DISTRIBUTIONS: [(&str, &str); 2] = [
    ("uniform", "(price * 10000 + auction * 7 + bidder) % {users}"),
    ("Zipf", "CAST(floor(pow({users}.0, (price * 10000 + auction) % 1000003 / 1000003.0)) AS long)"),
];

const PLUGIN: &str = "  - plugin: bench.paid_by_user\n    key: [user]\n    output_mode: update\n";
const NATIVE: &str = "  - sql: SELECT user, count(*) AS n, sum(price) AS total FROM input GROUP BY user\n";

fn main() -> Result<()> {
    let rows = number("--rows", 1_000_000)?;
    let users_max = number("--users-max", 10_000_000)?;
    let folder = bench_folder()?;
    let input = bids(&folder, rows)?;
    println!(
        "{rows} bids in files of 250,000, one a micro-batch; medians of {RUNS} runs, rows/s; peak memory of Wasm\n"
    );
    println!("{:<28} {:>12} {:>12} {:>7} {:>9}", "users", "Wasm", "native", "ratio", "MB");
    let sizes = [1_000, 1_000_000, 10_000_000_u64].into_iter().filter(|users| *users <= users_max);
    for users in sizes.clone() {
        for (name, user) in DISTRIBUTIONS {
            let user = user.replace("{users}", &users.to_string());
            let ((wasm, peak), (native, _)) = (
                rate(&input, BID_SCHEMA, &folder, &user, PLUGIN)?,
                rate(&input, BID_SCHEMA, &folder, &user, NATIVE)?,
            );
            let label = format!("{users} {name}");
            println!("{label:<28} {wasm:>12.0} {native:>12.0} {:>7.2} {peak:>9}", wasm / native);
        }
    }
    println!(
        "\nmicro-batches of {SMALL_ROWS} rows on the state of so many users; bytes of state a changed user; seconds from \
         a start to the end of a micro-batch without rows\n\n{:<28} {:>9} {:>9} {:>9} {:>9}",
        "users", "p50 ms", "p99 ms", "bytes", "restart"
    );
    for users in sizes {
        small(users, &folder)?;
    }
    budget(&folder, rows)
}

/// How many times the memory that it is given the state would take.
const TIMES_BUDGET: u64 = 5;
/// Rows of a micro-batch: few, so that the work on it takes little beside the state.
const BUDGET_ROWS: u64 = 20_000;

/// A user a row, so that the state is as large as it can be: a part of the users and all of them without a bound, which
/// tells what their state takes and what all else does; then all with a fifth of the memory that they would take.
fn budget(folder: &Path, rows: u64) -> Result<()> {
    let users = (4 * rows).max(1_000_000).next_multiple_of(BUDGET_ROWS);
    let input = folder.join(format!("each-{users}"));
    made_once(&input, || {
        (0..users / BUDGET_ROWS).try_for_each(|batch| {
            let rows = batch * BUDGET_ROWS..(batch + 1) * BUDGET_ROWS;
            write_users(&input.join(format!("part-{batch:05}.json")), rows)
        })
    })?;
    let schema = "\"user long, price long, date_time timestamp\"";
    let run = |users: u64, memory: &str| {
        // An odd factor: all users are told apart, and come in no order.
        let user = format!("user * 2654435761 % 4294967296 % {users}");
        rate(&input, schema, folder, &user, &format!("{PLUGIN}state: {{memory: {memory}}}\n"))
    };
    let all = 1 << 32;
    let ((_, few), (_, whole)) = (run(users / 10, "64GiB")?, run(all, "64GiB")?);
    let state = whole.saturating_sub(few) * 10 / 9;
    let given = (state / TIMES_BUDGET).max(1);
    let (rate, taken) = run(all, &format!("{}KiB", given * 1_000_000 / 1024))?;
    let other = whole.saturating_sub(state);
    let taken = taken.saturating_sub(other);
    println!(
        "\na state of {state} MB that is given {given} MB takes {taken} MB ({:.2} of them) at {rate:.0} rows/s; all else {other} MB",
        taken as f64 / given as f64
    );
    Ok(())
}

/// The median of the rows a second, and the peak of memory in megabytes.
fn rate(input: &Path, schema: &str, folder: &Path, user: &str, step: &str) -> Result<(f64, u64)> {
    let run = folder.join("run");
    let file = folder.join("pipeline.yaml");
    std::fs::write(
        &file,
        format!(
            "name: bench\nplugins: {{bench: {}}}\nsources:\n  bids:\n    connector: file\n    path: {}/*.json\n    format: \
             json\n    schema: {schema}\n    max_files_per_trigger: 1\n    watermark: {{column: date_time, delay: 3 \
             seconds}}\nsteps:\n  - select: [\"{user} AS user\", price, date_time]\n{step}output_mode: update\nsink: \
             {{connector: console, num_rows: 1}}\ncheckpoint: {}/checkpoint\n",
            plugin("bench.wasm")?.display(),
            input.display(),
            run.display()
        ),
    )?;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        remove(&run)?;
        let arguments = ["run", "--trigger", "available_now", "--progress", "none", "--summary", "json"];
        let (finished, peak) = Pelton::new(arguments)?.arg(&file).succeed_measured()?;
        let summary = last_json(&finished.stderr)?;
        let of = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        runs.push((of(&summary["rows_in"]) / of(&summary["seconds"]), peak / 1_000_000));
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(runs[RUNS / 2])
}

/// First all users, then small micro-batches over some of them, then a restart.
fn small(users: u64, folder: &Path) -> Result<()> {
    let input = folder.join(format!("users-{users}"));
    made_once(&input, || {
        write_users(&input.join("part-000.json"), 0..users)?;
        for batch in 0..SMALL_BATCHES {
            let rows =
                (0..SMALL_ROWS).map(|row| (batch * SMALL_ROWS + row).wrapping_mul(0x9e37_79b9) % users);
            write_users(&input.join(format!("part-{:03}.json", batch + 1)), rows)?;
        }
        Ok(())
    })?;
    let (file, run): (PathBuf, PathBuf) = (folder.join("pipeline.yaml"), folder.join("run"));
    remove(&run)?;
    std::fs::write(
        &file,
        format!(
            "name: small\nplugins: {{bench: {}}}\nsources:\n  s: {{connector: file, path: {}/*.json, format: json, schema: \
             \"user long, price long, date_time timestamp\", max_files_per_trigger: 1, watermark: {{column: date_time, \
             delay: 3 seconds}}}}\nsteps:\n{PLUGIN}output_mode: update\nsink: {{connector: console, num_rows: \
             1}}\ncheckpoint: {}\n",
            plugin("bench.wasm")?.display(),
            input.display(),
            run.display()
        ),
    )?;
    let arguments = ["run", "--trigger", "available_now", "--progress", "json", "--summary", "none"];
    let finished = Pelton::new(arguments)?.arg(&file).succeed()?;
    let times = micro_batch_ms(&finished.stderr, SMALL_ROWS);
    let written = delta_bytes(&run.join("state/deltas"), SMALL_BATCHES)? as f64;
    let started = Instant::now();
    Pelton::new(arguments)?.arg(&file).succeed()?;
    let restart = started.elapsed().as_secs_f64();
    println!(
        "{users:<28} {:>9.2} {:>9.2} {:>9.0} {restart:>9.2}",
        percentile(&times, 0.5),
        percentile(&times, 0.99),
        written / (SMALL_BATCHES * SMALL_ROWS) as f64
    );
    Ok(())
}

fn write_users(path: &Path, users: impl Iterator<Item = u64>) -> Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for user in users {
        writeln!(
            file,
            "{{\"user\":{user},\"price\":{},\"date_time\":\"2026-01-01T00:00:00Z\"}}",
            user % 1000
        )?;
    }
    Ok(file.flush()?)
}

/// The bytes of the newest files of state.
fn delta_bytes(folder: &Path, files: u64) -> Result<u64> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_string_lossy().split('-').next().and_then(|number| number.parse::<u64>().ok());
        sizes.push((number.unwrap_or(0), entry.metadata()?.len()));
    }
    sizes.sort_unstable();
    Ok(sizes.iter().rev().take(usize::try_from(files)?).map(|(_, bytes)| bytes).sum())
}
