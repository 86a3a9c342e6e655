//! `cargo xtask bench boundary`: what a call of a plugin costs, all in: encode, cross, compute, cross, decode.
//! Beside it, what the same columns cost natively. The lowest of many runs: the machine's other work is noise.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark looks at the clock and prints"
)]

use anyhow::Result;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pelton_core::{BatchId, BatchInfo, CallScope, Plugin, QueryId};
use pelton_tests::plugin;
use pelton_wasm::{HostOptions, PluginHost, PluginSettings};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: [usize; 4] = [1, 128, 1024, 8192];
const TIME_PER_LINE: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let host = PluginHost::new(HostOptions::default())?;
    let bytes = std::fs::read(plugin("bench.wasm")?)?;
    let plugin = host.load("bench", &bytes, PluginSettings::default())?;
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Int64, true),
    ]));
    let identity = plugin.transform("identity", Arc::clone(&schema))?;
    let add = plugin.scalar("add", Arc::clone(&schema))?;
    let batch = BatchInfo {
        query_id: QueryId("bench".into()),
        batch_id: BatchId(0),
        time_ms: 0,
        watermark_ms: None,
        late_watermark_ms: None,
    };
    let scope = CallScope { batch: &batch, operator: "bench", partition: 0, call: 0 };

    println!("{:<26} {:>6} {:>12} {:>10}", "", "rows", "µs a call", "ns a row");
    for rows in ROWS {
        let input = pairs(&schema, rows)?;
        report("identity, two int64", rows, || drop(black_box(identity.process(&scope, &input))));
        report("add, two int64", rows, || drop(black_box(add.evaluate(&scope, &input))));
        report("add natively", rows, || drop(black_box(add_natively(&input))));
    }
    println!("\nmetrics: {:?}", plugin.metrics());
    Ok(())
}

fn pairs(schema: &SchemaRef, rows: usize) -> Result<RecordBatch> {
    let column =
        |from: i64| -> ArrayRef { Arc::new((0..rows as i64).map(|n| n + from).collect::<Int64Array>()) };
    Ok(RecordBatch::try_new(Arc::clone(schema), vec![column(0), column(1 << 40)])?)
}

fn add_natively(input: &RecordBatch) -> Option<Int64Array> {
    let column = |at: usize| input.column(at).as_any().downcast_ref::<Int64Array>();
    arrow::compute::binary(column(0)?, column(1)?, i64::wrapping_add).ok()
}

/// The lowest time of one call.
fn report(what: &str, rows: usize, mut call: impl FnMut()) {
    let (start, mut lowest) = (Instant::now(), Duration::MAX);
    while start.elapsed() < TIME_PER_LINE {
        // Some calls at a time: the stopwatch costs as much as a short call.
        const CALLS: u32 = 16;
        let since = Instant::now();
        (0..CALLS).for_each(|_| call());
        lowest = lowest.min(since.elapsed() / CALLS);
    }
    let micros = lowest.as_secs_f64() * 1e6;
    println!("{what:<26} {rows:>6} {micros:>12.2} {:>10.2}", micros * 1e3 / rows as f64);
}
