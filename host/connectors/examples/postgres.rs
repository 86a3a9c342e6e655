//! How fast rows get into a table of PostgreSQL, by output mode, and what a small micro-batch costs. The server is one of
//! the tests' own: what it would take to flush to disk is not in the figures.
//! `cargo run -p pelton-connectors --example postgres [ROWS]`
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures, and tells a person")]

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use futures::StreamExt;
use pelton_connectors::sink::{PostgresSink, PostgresSinkOptions};
use pelton_core::{BatchId, BatchInfo, OutputMode, QueryId, Sink, SinkContext};
use pelton_tests::Postgres;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const BATCH_ROWS: i64 = 8192;
const SMALL: i64 = 100;
const SMALL_BATCHES: u64 = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let rows: i64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let server = Postgres::start()?;
    for mode in [OutputMode::Append, OutputMode::Update, OutputMode::Complete] {
        let sink = open(&server, mode, &format!("large_{mode}")).await?;
        let batches: Vec<_> = (0..rows / BATCH_ROWS).map(|nth| batch(nth * BATCH_ROWS, BATCH_ROWS)).collect();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        for (nth, what) in ["new", "again"].into_iter().enumerate() {
            let start = Instant::now();
            let report = write(&sink, nth as u64, batches.clone()).await?;
            let seconds = start.elapsed().as_secs_f64();
            let (rows, bytes) = (rows as f64 / seconds, report.bytes as f64 / seconds);
            println!("{mode:8} {what:5} {:7.0} k rows/s  {:4.0} MB/s", rows / 1e3, bytes / 1e6);
        }
        let sink = open(&server, mode, &format!("small_{mode}")).await?;
        let mut times = Vec::new();
        for nth in 0..SMALL_BATCHES {
            let start = Instant::now();
            write(&sink, nth, vec![batch(nth as i64 * SMALL / 2, SMALL)]).await?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let [median, p99] = [0.5, 0.99].map(|share| times[(times.len() as f64 * share) as usize]);
        println!("{mode:8} {SMALL} rows: {median:.2} ms p50, {p99:.2} ms p99");
    }
    Ok(())
}

async fn open(server: &Postgres, mode: OutputMode, table: &str) -> Result<PostgresSink, Box<dyn Error>> {
    let key = if mode == OutputMode::Update { vec!["id".to_owned()] } else { vec![] };
    let (url, table, create_table) = (server.url(), table.to_owned(), true);
    let sink = PostgresSink::new(PostgresSinkOptions {
        url,
        password: None,
        table: table.clone(),
        key,
        create_table,
    })?;
    let schema = batch(0, 1).schema();
    sink.open(SinkContext {
        query_id: QueryId(table),
        schema,
        output_mode: mode,
        last_committed: None,
        unfinished: None,
    })
    .await?;
    Ok(sink)
}

async fn write(
    sink: &PostgresSink,
    batch_id: u64,
    rows: Vec<RecordBatch>,
) -> Result<pelton_core::SinkReport, Box<dyn Error>> {
    let batch = BatchInfo {
        query_id: QueryId("query".into()),
        batch_id: BatchId(batch_id),
        time_ms: 0,
        watermark_ms: None,
        late_watermark_ms: None,
    };
    Ok(sink.write(&batch, futures::stream::iter(rows.into_iter().map(Ok)).boxed()).await?)
}

/// An id, a name, an amount and a time.
fn batch(first: i64, rows: i64) -> RecordBatch {
    let range = first..first + rows;
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(range.clone()));
    let name = range.clone().map(|n| format!("bidder-{}", n * 31 % 1000));
    let name: ArrayRef = Arc::new(StringArray::from_iter_values(name));
    let amount: ArrayRef = Arc::new(Float64Array::from_iter_values(range.clone().map(|n| n as f64 * 0.37)));
    let time = range.map(|n| 1_357_034_400_000_000 + n * 100_000);
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(time).with_timezone("UTC"));
    let columns = [("id", id), ("name", name), ("amount", amount), ("time", time)];
    RecordBatch::try_from_iter(columns).unwrap_or_else(|e| panic!("the columns make a batch: {e}"))
}
