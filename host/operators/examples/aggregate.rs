//! Measures aggregations over event time without any I/O: rows a second of both halves, over state in memory.
//!
//! `cargo run --example aggregate -p pelton-operators [-- WORD]` prints a line for each shape of query (with the word in
//! its name).

#![allow(clippy::print_stdout, reason = "it prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use pelton_core::types::parse_columns;
use pelton_core::{BatchId, BatchInfo, Dataflow, Error, QueryId, Result, StateStore};
use pelton_operators::QueryDataflow;
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use pelton_state::MemoryStateStore;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

const ROWS: usize = 250_000;
const ROWS_PER_PART: usize = 4096;
const BATCHES: usize = 8;
const EVENTS_PER_SECOND: i64 = 10_000;

struct Shape {
    name: &'static str,
    sql: &'static str,
    keys: i64,
}

const SHAPES: [Shape; 7] = [
    Shape {
        name: "tumbling 10 s: count, sum, max by 100 keys",
        sql: "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS s, max(v) AS m FROM input GROUP BY 1, 2",
        keys: 100,
    },
    Shape {
        name: "tumbling 10 s: count, sum, max by 10 k keys",
        sql: "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS s, max(v) AS m FROM input GROUP BY 1, 2",
        keys: 10_000,
    },
    Shape {
        name: "tumbling 10 s: count, sum, max by 50 k keys",
        sql: "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS s, max(v) AS m FROM input GROUP BY 1, 2",
        keys: 50_000,
    },
    Shape {
        name: "tumbling 10 s: count, sum, max by 1 M keys",
        sql: "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS s, max(v) AS m FROM input GROUP BY 1, 2",
        keys: 1_000_000,
    },
    Shape {
        name: "sliding 60 s / 10 s: count by 100 keys",
        sql: "SELECT window(ts, '60 seconds', '10 seconds') AS w, k, count(*) AS n FROM input GROUP BY 1, 2",
        keys: 100,
    },
    Shape {
        name: "sliding 60 s / 10 s: count by 10 k keys",
        sql: "SELECT window(ts, '60 seconds', '10 seconds') AS w, k, count(*) AS n FROM input GROUP BY 1, 2",
        keys: 10_000,
    },
    Shape {
        name: "session, gap 10 s: count by 10 k keys",
        sql: "SELECT session_window(ts, '10 seconds') AS w, k, count(*) AS n FROM input GROUP BY 1, 2",
        keys: 10_000,
    },
];

fn main() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{ROWS} rows a micro-batch in parts of {ROWS_PER_PART}; state in memory; medians of {BATCHES}");
    let word = std::env::args().nth(1).unwrap_or_default();
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&word)) {
        measure(shape, threads)?;
    }
    Ok(())
}

fn measure(shape: &Shape, threads: usize) -> Result<()> {
    let columns = parse_columns("k long, v long, ts timestamp", "UTC");
    let columns = columns.map_err(|e| Error::invalid(e.to_string()))?;
    let schema = Arc::new(arrow::datatypes::Schema::new(columns));
    let (flow, columns) = flow(shape.sql, &schema)?;
    let mut store = MemoryStateStore::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut watermark_ms = Some(0);
    let mut groups = 0;
    for batch in 0..BATCHES {
        let info = BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(batch as u64),
            time_ms: 0,
            watermark_ms,
            late_watermark_ms: watermark_ms,
        };
        let parts = rows(&schema, batch, shape.keys)?;
        let started = Instant::now();
        let mut made = Vec::new();
        for (at, rows) in parts.into_iter().enumerate() {
            made.push(flow.part(&info, 0, at as u64, vec![rows.project(&columns)?])?);
        }
        first.push(started.elapsed().as_secs_f64());
        let latest = made.iter().filter_map(|part| part.event_times[0]).max();
        let started = Instant::now();
        let mut gather = flow.clone().gather(Arc::new(info));
        made.into_iter().try_for_each(|part| gather.add(part))?;
        let gathered = gather.finish(&mut store, threads)?;
        futures::executor::block_on(store.commit(BatchId(batch as u64)))?;
        second.push(started.elapsed().as_secs_f64());
        groups = gathered.operators[0].rows_total;
        watermark_ms = latest.map(|ms| ms - 3000);
    }
    let (first, second) = (median(first), median(second));
    let million = |seconds: f64| ROWS as f64 / seconds / 1e6;
    println!(
        "{:<45} first half {:>6.2} M rows/s on one thread, second half {:>6.2} on {threads}, {groups} groups in state",
        shape.name,
        million(first),
        million(second)
    );
    Ok(())
}

/// The query, and the columns that it reads.
fn flow(sql: &str, schema: &SchemaRef) -> Result<(Arc<dyn Dataflow>, Vec<usize>)> {
    let text = format!(
        "name: q\nsources: {{s: {{connector: rate, watermark: {{column: ts, delay: 3 seconds}}}}}}\n\
         output_mode: append\nsink: {{connector: memory}}\nsteps:\n- sql: \"{sql}\"\n"
    );
    let file = PipelineFile::read(&text, "measured", &[])?;
    let sources = BTreeMap::from([("s".to_owned(), schema.clone())]);
    let inputs = PlanInputs { sources, ..PlanInputs::default() };
    let plan = PhysicalPlan::build(&LogicalPlan::resolve(&file, &inputs)?)?;
    let columns = plan.inputs[0].required_columns.iter().map(|name| schema.index_of(name));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let flow = QueryDataflow::bind(&plan, &[Arc::new(schema.project(&columns)?)])?;
    Ok((flow, columns))
}

/// Rows of one micro-batch, in the order of time but for a little noise.
fn rows(schema: &SchemaRef, batch: usize, keys: i64) -> Result<Vec<RecordBatch>> {
    let mut parts = Vec::new();
    let mut at = (batch * ROWS) as i64;
    let mut left = ROWS;
    while left > 0 {
        let count = left.min(ROWS_PER_PART);
        let numbers: Vec<i64> = (at..at + count as i64).collect();
        let noise = |n: &i64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) >> 33).rem_euclid(1 << 30);
        let ts: Vec<i64> = numbers
            .iter()
            .map(|n| 1_767_225_600_000_000 + n * 1_000_000 / EVENTS_PER_SECOND - noise(n) % 200_000)
            .collect();
        let k: Int64Array = numbers.iter().map(|n| noise(&(n + 7)) % keys).collect::<Vec<_>>().into();
        let v: Int64Array = numbers.iter().map(|n| noise(&(n + 13)) % 1000).collect::<Vec<_>>().into();
        let ts = TimestampMicrosecondArray::from(ts).with_timezone_opt(zone(schema));
        let columns: Vec<ArrayRef> = vec![Arc::new(k), Arc::new(v), Arc::new(ts)];
        parts.push(RecordBatch::try_new(schema.clone(), columns)?);
        at += count as i64;
        left -= count;
    }
    Ok(parts)
}

fn zone(schema: &SchemaRef) -> Option<Arc<str>> {
    match schema.field(2).data_type() {
        arrow::datatypes::DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
