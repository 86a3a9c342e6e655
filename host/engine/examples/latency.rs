//! How long a micro-batch takes: rows that wait in memory, steps that pass them on, a sink that keeps them, and a
//! real checkpoint on a local disk. `cargo run --release -p pelton-engine --example latency -- [DIR] [BATCHES] [ROWS]`
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark prints and measures")]

use pelton_checkpoint::files::LocalFiles;
use pelton_core::{Error, FileManager, MemoryFiles, Result};
use pelton_engine::testing::{MemorySource, RecordingSink, int_rows, int_schema, pass_through};
use pelton_engine::{Logic, Progress, Query, Start, SystemClock};
use std::sync::{Arc, Mutex};
use std::time::Instant;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| {
        arguments
            .get(index)
            .map_or(Ok(default), |text| text.parse::<usize>())
            .map_err(|e| Error::invalid(e.to_string()))
    };
    let (batches, rows) = (number(1, 2000)?, number(2, 100)?);
    let scratch = tempfile::tempdir().map_err(|e| Error::unavailable(e.to_string()))?;
    let local = match arguments.first() {
        Some(dir) => LocalFiles::new(dir)?,
        None => LocalFiles::new(scratch.path())?,
    };
    measure("in memory", Arc::new(MemoryFiles::new()), batches, rows).await?;
    measure("local disk", Arc::new(local), batches, rows).await
}

async fn measure(what: &str, files: Arc<dyn FileManager>, batches: usize, rows: usize) -> Result<()> {
    let source = Arc::new(MemorySource::new(int_schema()).additions_per_batch(1));
    let told = Arc::new(Mutex::new(Vec::<Progress>::new()));
    let listener = Arc::clone(&told);
    let start = Start::new("latency", files, Arc::new(SystemClock));
    let mut query = Query::builder(start.recover().await?)
        .input("memory", Arc::clone(&source) as _)
        .logic(Logic::new(pass_through(int_schema())))
        .sink(Arc::new(RecordingSink::new()))
        .on_progress(move |progress| {
            if let Ok(mut told) = listener.lock() {
                told.push(progress.clone());
            }
        })
        .build()
        .await?;
    let mut millis = Vec::with_capacity(batches);
    for batch in 0..batches as i64 {
        source.add(int_rows(batch..batch + rows as i64));
        let started = Instant::now();
        query.run_once().await?;
        millis.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let stage = |of: fn(&Progress) -> f64| {
        let told = told.lock().map(|told| told.iter().map(of).collect::<Vec<_>>());
        quantiles(told.unwrap_or_default())
    };
    println!("{what}: {batches} micro-batches of {rows} rows, milliseconds p50 / p99 / max");
    println!("  whole          {}", quantiles(millis));
    println!("  latest_offset  {}", stage(|progress| progress.duration_ms.latest_offset));
    println!("  wal_commit     {}", stage(|progress| progress.duration_ms.wal_commit));
    println!("  add_batch      {}", stage(|progress| progress.duration_ms.add_batch));
    println!("  commit_offsets {}", stage(|progress| progress.duration_ms.commit_offsets));
    println!("  acknowledge    {}", stage(|progress| progress.duration_ms.acknowledge));
    Ok(())
}

fn quantiles(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at =
        |share: f64| values.get(((values.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(f64::NAN);
    format!("{:.3} / {:.3} / {:.3}", at(0.5), at(0.99), at(1.0))
}
