//! How fast rows become bytes: Pelton's encoders beside arrow-json's writer, on one thread, the same rows.
//! `cargo run -p pelton-connectors --example encode [ROWS]`
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures, and tells a person")]

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use pelton_connectors::encode::{CsvEncoder, JsonEncoder};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const BATCH_ROWS: usize = 8192;

fn main() -> Result<(), Box<dyn Error>> {
    let rows: usize = std::env::args().nth(1).map_or(Ok(4_000_000), |text| text.parse())?;
    let batch = batch()?;
    let batches = rows.div_ceil(BATCH_ROWS);
    let json = JsonEncoder::default();
    let csv = CsvEncoder::new(&batch.schema(), &Default::default())?;
    report("json, pelton", batches, |out| Ok(json.encode(&batch, out)?))?;
    report("json, arrow-json", batches, |out| {
        let mut writer = arrow_json::LineDelimitedWriter::new(out);
        writer.write(&batch)?;
        Ok(writer.finish()?)
    })?;
    report("csv, pelton", batches, |out| Ok(csv.encode(&batch, out)?))?;
    report("csv, arrow-csv", batches, |out| Ok(arrow_csv::Writer::new(out).write(&batch)?))
}

/// Five columns as they are common in events: an id, a name, an amount, a time, a text; one value in ten is null.
fn batch() -> Result<RecordBatch, Box<dyn Error>> {
    let n = BATCH_ROWS as i64;
    let some = |n: i64| n % 10 != 3;
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values((0..n).map(|n| n * 7919)));
    let name = (0..n).map(|n| some(n).then(|| format!("bidder-{}", n * 31 % 1000)));
    let name: ArrayRef = Arc::new(name.collect::<StringArray>());
    let amount: ArrayRef =
        Arc::new((0..n).map(|n| some(n + 1).then_some(n as f64 * 0.37)).collect::<Float64Array>());
    let time = (0..n).map(|n| 1_357_034_400_000_000 + n * 100_000);
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(time).with_timezone("UTC"));
    let text = (0..n).map(|n| Some(format!("https://www.example.com/item/{}/page.html?query=1", n % 97)));
    let text: ArrayRef = Arc::new(text.collect::<StringArray>());
    let columns = [("id", id), ("name", name), ("amount", amount), ("time", time), ("url", text)];
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))?)
}

fn report(
    what: &str,
    batches: usize,
    mut encode: impl FnMut(&mut Vec<u8>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut out = Vec::new();
    encode(&mut out)?;
    let start = Instant::now();
    let mut bytes = 0;
    for _ in 0..batches {
        out.clear();
        encode(&mut out)?;
        bytes += out.len();
    }
    let seconds = start.elapsed().as_secs_f64();
    let rows = (batches * BATCH_ROWS) as f64;
    println!("{what:18} {:6.2} M rows/s  {:7.0} MB/s", rows / seconds / 1e6, bytes as f64 / seconds / 1e6);
    Ok(())
}
