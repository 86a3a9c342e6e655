//! What crossing the sandbox's wall costs: `identity` (rows in, the same rows out) and `add` (two columns of 64-bit
//! integers in, one out), everything included: encode, cross, compute, cross back, check and decode.
//! Of a plugin that has it also `count_sum`: a count and a sum for each group, over a state that every group has.
//! `cargo run -p pelton-wasm --example boundary [PLUGIN]` takes a plugin with these two functions, else boundary.wat
//! beside it, a guest that adds nothing of an SDK's to the wall. It prints medians; it judges nothing.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "it measures, and tells a person")]

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::Schema;
use pelton_core::{
    BatchId, BatchInfo, CallScope, GroupInput, GroupReason, Plugin, QueryId, Result, StateEntries,
    StatefulFunction,
};
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

/// So many groups of so many rows, each with a state.
fn groups(function: &Arc<dyn StatefulFunction>, groups: u32, rows_each: u32) -> Result<GroupInput> {
    let longs = |count: u32| -> ArrayRef { Arc::new(Int64Array::from_iter_values(0..i64::from(count))) };
    let variables = function.signature().variables.iter().map(|variable| {
        let columns = variable.entries.fields().iter().map(|_| longs(groups)).collect();
        let rows = RecordBatch::try_new(variable.entries.clone(), columns)?;
        Ok(StateEntries { rows, offsets: (0..=groups).collect() })
    });
    Ok(GroupInput {
        reason: GroupReason::Data,
        state: variables.collect::<Result<_>>()?,
        keys: RecordBatch::try_from_iter([("k", longs(groups))])?,
        rows: RecordBatch::try_from_iter([("v", longs(groups * rows_each))])?,
        offsets: (0..=groups).map(|group| group * rows_each).collect(),
        fired: Vec::new(),
        pending: Vec::new(),
    })
}

/// Prints what a call over groups costs.
fn measure_groups(plugin: &dyn Plugin, scope: &CallScope<'_>) -> Result<()> {
    if !plugin.manifest().functions.iter().any(|function| function.name == "count_sum") {
        return Ok(());
    }
    let rows = columns(0)?.schema();
    let field = |at: usize, name: &str| Arc::new(rows.field(at).clone().with_name(name));
    let key = Arc::new(Schema::new(vec![field(0, "k")]));
    let input = Arc::new(Schema::new(vec![field(0, "k"), field(1, "v")]));
    let count_sum = plugin.stateful("count_sum", key, input)?;
    println!(
        "{:<10} {:>6} {:>6} {:>12} {:>10} {:>10}",
        "function", "groups", "rows", "µs a call", "ns a group", "ns a row"
    );
    for (count, each) in [(16, 1), (1024, 1), (4096, 1), (8192, 1), (8192, 2), (1, 8192)] {
        let input = groups(&count_sum, count, each)?;
        let nanos = median(|| count_sum.process(scope, &input).map(drop))?;
        let (groups, rows) = (f64::from(count), f64::from(count * each));
        let (micros, a_group, a_row) = (nanos / 1000.0, nanos / groups, nanos / rows);
        println!(
            "{:<10} {count:>6} {:>6} {micros:>12.2} {a_group:>10.2} {a_row:>10.2}",
            "count_sum",
            count * each
        );
    }
    Ok(())
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
    measure_groups(&*plugin, &scope)?;
    let metrics = plugin.metrics();
    println!(
        "{} calls, {} instances, {} KiB of guest memory",
        metrics.calls,
        metrics.instances,
        metrics.memory_bytes_max >> 10
    );
    Ok(())
}
