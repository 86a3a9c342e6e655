//! What the measuring programs `aggregate` and `groups` share: rows of `k long, v long, ts timestamp`, and the times of both
//! halves of micro-batches over state in memory.

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::types::parse_columns;
use pelton_core::{BatchId, BatchInfo, Dataflow, Error, QueryId, Result, StateStore};
use pelton_state::MemoryStateStore;
use std::sync::Arc;
use std::time::Instant;

const ROWS: usize = 250_000;
const ROWS_PER_PART: usize = 4096;
const EVENTS_PER_SECOND: i64 = 10_000;
/// The watermark stays behind the latest time by so much.
const DELAY_MS: i64 = 3000;

/// What is measured alike for each shape of query.
pub(crate) struct Halves {
    /// How many micro-batches.
    pub(crate) batches: usize,
    /// How many keys the rows have.
    pub(crate) keys: i64,
    /// Times come too late by up to so many microseconds.
    pub(crate) noise_us: i64,
    /// The columns that the query reads.
    pub(crate) columns: Vec<usize>,
}

/// A schema in Spark's words.
pub(crate) fn schema(columns: &str) -> Result<SchemaRef> {
    let columns = parse_columns(columns, "UTC").map_err(|e| Error::invalid(e.to_string()))?;
    Ok(Arc::new(Schema::new(columns)))
}

/// The schema of the rows.
pub(crate) fn rows_schema() -> Result<SchemaRef> {
    schema("k long, v long, ts timestamp")
}

/// Says what is measured; the shapes whose names hold the word that was given.
pub(crate) fn chosen<S>(shapes: &[S], batches: usize, name: fn(&S) -> &str) -> Vec<&S> {
    println!("{ROWS} rows a micro-batch in parts of {ROWS_PER_PART}; state in memory; medians of {batches}");
    let word = std::env::args().nth(1).unwrap_or_default();
    shapes.iter().filter(|shape| name(shape).contains(&word)).collect()
}

impl Halves {
    /// Runs the micro-batches and prints a line.
    pub(crate) fn measure(&self, name: &str, flow: &Arc<dyn Dataflow>) -> Result<()> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut store = MemoryStateStore::new();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let (mut watermark_ms, mut groups) = (Some(0), 0);
        for batch in 0..self.batches {
            let info = BatchInfo {
                query_id: QueryId("q".into()),
                batch_id: BatchId(batch as u64),
                time_ms: 0,
                watermark_ms,
                late_watermark_ms: watermark_ms,
            };
            let parts = self.rows(batch)?;
            let started = Instant::now();
            let mut made = Vec::new();
            for (at, rows) in parts.into_iter().enumerate() {
                made.push(flow.part(&info, 0, at as u64, vec![rows.project(&self.columns)?])?);
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
            watermark_ms = latest.map(|ms| ms - DELAY_MS);
        }
        let million = |seconds: Vec<f64>| ROWS as f64 / median(seconds) / 1e6;
        println!(
            "{name:<45} first half {:>6.2} M rows/s on one thread, second half {:>6.2} on {threads}, {groups} groups in \
             state",
            million(first),
            million(second)
        );
        Ok(())
    }

    /// Rows of one micro-batch, keys uniform.
    fn rows(&self, batch: usize) -> Result<Vec<RecordBatch>> {
        let schema = rows_schema()?;
        let first = (batch * ROWS) as i64;
        let part = |from: usize| {
            let numbers = first + from as i64..first + ROWS.min(from + ROWS_PER_PART) as i64;
            let ts = numbers.clone().map(|n| {
                1_767_225_600_000_000 + n * 1_000_000 / EVENTS_PER_SECOND - spread(n) % self.noise_us.max(1)
            });
            let ts = TimestampMicrosecondArray::from_iter_values(ts).with_timezone("UTC");
            let k = Int64Array::from_iter_values(numbers.clone().map(|n| spread(n + 7) % self.keys));
            let v = Int64Array::from_iter_values(numbers.map(|n| spread(n + 13) % 1000));
            let columns: Vec<ArrayRef> = vec![Arc::new(k), Arc::new(v), Arc::new(ts)];
            Ok(RecordBatch::try_new(schema.clone(), columns)?)
        };
        (0..ROWS).step_by(ROWS_PER_PART).map(part).collect()
    }
}

/// A number from a number, as good as by chance.
fn spread(n: i64) -> i64 {
    (n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) >> 33).rem_euclid(1 << 30)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
