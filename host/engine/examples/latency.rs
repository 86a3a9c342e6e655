//! How long a micro-batch takes: rows that wait in memory, steps that pass them on or count them, a sink that keeps
//! them, and a real checkpoint on a local disk. `cargo run --release -p pelton-engine --example latency -- [DIR] [BATCHES] [ROWS]`
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark prints and measures")]

use pelton_checkpoint::files::LocalFiles;
use pelton_core::{Error, FileManager, MemoryFiles, Result};
use pelton_engine::testing::{
    FileState, MemorySource, RecordingSink, WindowCounts, event_rows, event_schema, pass_through,
};
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
    let local: Arc<dyn FileManager> = Arc::new(local);
    for stateful in [false, true] {
        measure(Arc::new(MemoryFiles::new()), stateful, batches, rows).await?;
        measure(local.subtree(if stateful { "stateful" } else { "stateless" }), stateful, batches, rows)
            .await?;
    }
    Ok(())
}

async fn measure(files: Arc<dyn FileManager>, stateful: bool, batches: usize, rows: usize) -> Result<()> {
    let source = Arc::new(MemorySource::new(event_schema()).additions_per_batch(1));
    let told = Arc::new(Mutex::new(Vec::<Progress>::new()));
    let listener = Arc::clone(&told);
    let what =
        format!("{}, {}", if stateful { "10 keys counted by second" } else { "stateless" }, files.url());
    let start = Start::new("latency", files, Arc::new(SystemClock));
    let recovered = start.recover().await?;
    let state = FileState::open(recovered.checkpoint().state_files(), recovered.state_commit()?).await?;
    let builder = Query::builder(recovered);
    let builder = match stateful {
        true => builder.logic(Logic::new(Arc::new(WindowCounts::new(1000, &[1000])))).state(Box::new(state)),
        false => builder.logic(Logic::new(pass_through(event_schema()))),
    };
    let mut query = builder
        .input("memory", Arc::clone(&source) as _)
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
        source.add(event_rows((0..rows as i64).map(|row| (row % 10, batch * 10))));
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
    println!("  stateful       {}", stage(|progress| progress.duration_ms.stateful));
    println!("  state_commit   {}", stage(|progress| progress.duration_ms.state_commit));
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
