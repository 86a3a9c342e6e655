//! What crossing the sandbox's wall costs: `identity` (rows in, the same rows out) and `add` (two columns of 64-bit
//! integers in, one out), everything included: encode, cross, compute, cross back, check and decode.
//! `cargo run -p pelton-wasm --example boundary [PLUGIN]` takes a plugin with these two functions, else boundary.wat
//! beside it, a guest that adds nothing of an SDK's to the wall. It prints medians; it judges nothing.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "it measures, and tells a person")]

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use pelton_core::{BatchId, BatchInfo, CallScope, Plugin, QueryId, Result};
use pelton_wasm::{HostOptions, PluginHost, PluginSettings};
use std::sync::Arc;
use std::time::Instant;

/// Calls that are measured together, and how often: short rounds, so that few are disturbed by other work.
const CALLS: u32 = 10;
const ROUNDS: usize = 501;

fn columns(rows: i64) -> Result<RecordBatch> {
    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let b: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).rev()));
    Ok(RecordBatch::try_from_iter([("a", a), ("b", b)])?)
}

/// The median time of one call, in nanoseconds.
fn median(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let since = Instant::now();
        for _ in 0..CALLS {
            call()?;
        }
        rounds.push(since.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 2])
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let bytes = match std::env::args_os().nth(1) {
        Some(path) => std::fs::read(path)?,
        None => include_bytes!("boundary.wat").to_vec(),
    };
    let host = PluginHost::new(HostOptions::default())?;
    let plugin = host.load("boundary", &bytes, PluginSettings::default())?;
    let identity = plugin.transform("identity", columns(0)?.schema())?;
    let add = plugin.scalar("add", columns(0)?.schema())?;
    let query_id = QueryId("bench".to_owned());
    let batch =
        BatchInfo { query_id, batch_id: BatchId(1), time_ms: 0, watermark_ms: None, late_watermark_ms: None };
    let scope = CallScope { batch: &batch, operator: "bench", partition: 0, call: 0 };
    println!("{:<10} {:>6} {:>12} {:>10}", "function", "rows", "µs a call", "ns a row");
    for rows in [16, 1024, 8192] {
        let input = columns(rows)?;
        let line = |name: &str, nanos: f64| {
            println!("{name:<10} {rows:>6} {:>12.2} {:>10.2}", nanos / 1000.0, nanos / rows as f64);
        };
        line("identity", median(|| identity.process(&scope, &input).map(drop))?);
        line("add", median(|| add.evaluate(&scope, &input).map(drop))?);
    }
    let metrics = plugin.metrics();
    println!(
        "{} calls, {} instances, {} KiB of guest memory",
        metrics.calls,
        metrics.instances,
        metrics.memory_bytes_max >> 10
    );
    Ok(())
}
