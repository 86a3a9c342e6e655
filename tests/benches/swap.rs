//! `cargo xtask bench swap`: how long a query at full speed pauses when its plugin is swapped. Two versions of a function
//! with state that differ in a custom section only take turns; a pause is what lies between the beginnings of two
//! micro-batches.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use anyhow::{Context, Result, ensure};
use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use pelton_tests::{BID_SCHEMA, BidFormat, Pelton, plugin, target_folder, write_bids};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

const SWAPS: usize = 200;
/// A micro-batch; small, so that a pause is not hidden in it.
const ROWS_A_FILE: u64 = 5_000;
/// Micro-batches from one swap to the next, about.
const APART: usize = 20;

fn main() -> Result<()> {
    let folder = target_folder()?.join("bench");
    let (input, run) = (folder.join("bids-small"), folder.join("run"));
    if run.exists() {
        std::fs::remove_dir_all(&run)?;
    }
    std::fs::create_dir_all(&run)?;
    generate(&input)?;
    let versions = ["one", "two"].map(|mark| version(&run, mark));
    let [first, second] = versions;
    let (first, second) = (first?, second?);
    let file = pipeline(&input, &run, &first)?;
    let log = run.join("progress");
    let mut running = command(&run, &["run", "--progress", "json"])?
        .arg(&file)
        .start_telling(std::fs::File::create(&log)?)?;
    let mut progress = Progress::of(&log)?;
    let swapped = (0..SWAPS).try_for_each(|number| {
        let next = if number % 2 == 0 { &second } else { &first };
        progress.wait_for(progress.batches.len() + APART)?;
        let plugin = format!("bench={}", next.display());
        command(&run, &["swap", "bench"])?.arg(plugin).succeed().map(drop)
    });
    let last = swapped.and_then(|()| progress.wait_for(progress.batches.len() + APART));
    running.kill()?;
    running.wait()?;
    last?;
    report(&progress.batches)
}

/// More micro-batches than are needed, as copies of one file's rows.
fn generate(input: &Path) -> Result<()> {
    let files = SWAPS * APART * 4;
    let done = input.join("done");
    if done.is_file() {
        return Ok(());
    }
    let one = input.join("one");
    write_bids(&one, BidFormat::Json, ROWS_A_FILE)?;
    let file = std::fs::read_dir(&one)?.next().context("no bids")??.path();
    for number in 0..files {
        std::fs::hard_link(&file, input.join(format!("{number:06}.json")))
            .or_else(|_| std::fs::copy(&file, input.join(format!("{number:06}.json"))).map(drop))?;
    }
    Ok(std::fs::write(done, "")?)
}

/// The plugin with a custom section more, which says nothing to anybody.
fn version(folder: &Path, mark: &str) -> Result<PathBuf> {
    let mut bytes = std::fs::read(plugin("bench.wasm")?)?;
    let name = u8::try_from(mark.len())?;
    bytes.extend([0, name + 1, name]);
    bytes.extend(mark.as_bytes());
    let path = folder.join(format!("{mark}.wasm"));
    std::fs::write(&path, bytes)?;
    Ok(path)
}

fn pipeline(input: &Path, run: &Path, plugin: &Path) -> Result<PathBuf> {
    let file = run.join("pipeline.yaml");
    let text = format!(
        "name: bench\nplugins: {{bench: {plugin}}}\nsources:\n  bids: {{connector: file, path: '{input}/*.json', format: json, \
         schema: '{BID_SCHEMA}', max_files_per_trigger: 1, watermark: {{column: date_time, delay: 3 seconds}}}}\nsteps:\n  - \
         select: [bidder AS user, price, date_time]\n  - {{plugin: bench.paid_by_user, key: [user], output_mode: update}}\n\
         output_mode: update\nsink: {{connector: console, num_rows: 1}}\ncheckpoint: {run}/checkpoint\n",
        plugin = plugin.display(),
        input = input.display(),
        run = run.display(),
    );
    std::fs::write(&file, text)?;
    Ok(file)
}

/// A command that sees the runs of this measurement alone.
fn command(run: &Path, arguments: &[&str]) -> Result<Pelton> {
    Ok(Pelton::new(arguments.iter().copied())?.env("XDG_RUNTIME_DIR", run).env("PELTON_API", ""))
}

/// What a run tells of its micro-batches, as it goes on.
struct Progress {
    log: BufReader<std::fs::File>,
    line: String,
    batches: Vec<Value>,
}

impl Progress {
    fn of(log: &Path) -> Result<Self> {
        let log = BufReader::new(std::fs::File::open(log)?);
        Ok(Self { log, line: String::new(), batches: Vec::new() })
    }

    /// Waits until so many micro-batches are done.
    fn wait_for(&mut self, count: usize) -> Result<()> {
        let mut looks = 0;
        while self.batches.len() < count {
            if self.log.read_line(&mut self.line)? == 0 {
                looks += 1;
                ensure!(looks < 30_000, "{} micro-batches are done, not {count}", self.batches.len());
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            if !self.line.ends_with('\n') {
                continue;
            }
            let told: Option<Value> = serde_json::from_str(&self.line).ok();
            self.batches.extend(told.filter(|of| of["batch_id"].is_u64()));
            self.line.clear();
        }
        Ok(())
    }
}

fn report(batches: &[Value]) -> Result<()> {
    let at = |batch: &Value| {
        let text = batch["timestamp"].as_str().context("a micro-batch has no timestamp")?;
        Ok::<_, anyhow::Error>(string_to_timestamp_nanos(text)? / 1_000_000)
    };
    let (mut among, mut alone) = (Vec::new(), Vec::new());
    for three in batches.windows(3) {
        let digest = |batch: &Value| batch["plugins"]["bench"]["digest"].as_str().map(str::to_owned);
        let pause = at(&three[2])? - at(&three[1])?;
        let before = at(&three[1])? - at(&three[0])?;
        match digest(&three[0]) == digest(&three[1]) {
            true => alone.push(pause),
            false => among.push(pause.max(before)),
        }
    }
    ensure!(among.len() == SWAPS, "{} changes of the version in {SWAPS} swaps", among.len());
    println!(
        "{} micro-batches of {ROWS_A_FILE} rows, {SWAPS} swaps; milliseconds from one to the next\n",
        batches.len()
    );
    println!("{:<32} {:>7} {:>7} {:>7} {:>7}", "", "p50", "p90", "p99", "most");
    for (what, mut of) in [("without a swap", alone), ("with a swap, it or the one before", among)] {
        of.sort_unstable();
        let share = |share: f64| of[((of.len() as f64 * share) as usize).min(of.len() - 1)];
        println!("{what:<32} {:>7} {:>7} {:>7} {:>7}", share(0.5), share(0.9), share(0.99), share(1.0));
    }
    Ok(())
}
