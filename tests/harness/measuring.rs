//! What the measuring programs share: their arguments, the input that they make once, what the binary says of itself.

use crate::{BidFormat, target_folder, write_bids};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// `--name N`; cargo's own arguments are passed over.
pub fn number(name: &str, default: u64) -> Result<u64> {
    let arguments: Vec<String> = std::env::args().collect();
    let given = arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
    given.map_or(Ok(default), |text| text.parse().with_context(|| format!("{name} wants a number")))
}

/// The folder of the measuring programs.
pub fn bench_folder() -> Result<PathBuf> {
    let folder = target_folder()?.join("bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// So many bids as JSON lines, made if they are not there yet.
pub fn bids(folder: &Path, rows: u64) -> Result<PathBuf> {
    let input = folder.join(format!("bids-json-{rows}"));
    made_once(&input, || {
        eprintln!("generating {rows} bids");
        write_bids(&input, BidFormat::Json, rows).map(drop)
    })?;
    Ok(input)
}

/// Makes the content of a folder, unless that was done before.
pub fn made_once(folder: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = folder.join("done");
    if done.is_file() {
        return Ok(());
    }
    remove(folder)?;
    std::fs::create_dir_all(folder)?;
    make()?;
    Ok(std::fs::write(done, "")?)
}

/// Removes a folder, if it is there.
pub fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}

/// The last line that is JSON: the summary of a run.
pub fn last_json(text: &str) -> Result<Value> {
    text.lines().rev().find_map(|line| serde_json::from_str(line).ok()).context("no summary")
}

/// How long the micro-batches of so many rows took, in milliseconds, ascending; from the progress as JSON.
pub fn micro_batch_ms(progress: &str, rows: u64) -> Vec<f64> {
    let batches = progress.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_size = batches.filter(|batch| batch["num_input_rows"].as_u64() == Some(rows));
    let mut times: Vec<f64> =
        of_size.filter_map(|batch| batch["duration_ms"]["trigger_execution"].as_f64()).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// That share of ascending values is not greater.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}
