//! Measures the encoding of rows: nanoseconds a row and column, each way. `cargo run --example rows -p pelton-state`.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures, and tells a person")]

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use pelton_core::Result;
use pelton_state::RowCodec;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const ROWS: usize = 8192;
const TURNS: usize = 200;

fn main() -> Result<()> {
    let longs: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let some: ArrayRef = Arc::new(Int64Array::from_iter((0..ROWS as i64).map(|n| (n % 7 > 0).then_some(n))));
    let doubles: ArrayRef = Arc::new(Float64Array::from_iter_values((0..ROWS).map(|n| n as f64)));
    let strings: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|n| format!("user-{n}"))));
    measure("long", &[Arc::clone(&longs)])?;
    measure("long, some null", &[some])?;
    measure("double", &[Arc::clone(&doubles)])?;
    measure("string", &[Arc::clone(&strings)])?;
    measure("string, long, long, double", &[strings, Arc::clone(&longs), longs, doubles])
}

fn measure(name: &str, columns: &[ArrayRef]) -> Result<()> {
    let codec = RowCodec::new(columns.iter().map(|column| column.data_type().clone()).collect())?;
    let cells = (ROWS * TURNS * columns.len()) as f64;
    let rows = codec.encode_keys(columns)?;
    let encode = time(|| codec.encode_keys(black_box(columns)).map(|rows| rows.len()))?;
    let group = time(|| Ok((0..ROWS).map(|row| usize::from(rows.key_group(row))).sum()))?;
    let decode = time(|| codec.decode(black_box(&rows).iter()).map(|columns| columns.len()))?;
    let [encode, decode] = [encode, decode].map(|nanos| nanos / cells);
    let group = group / (ROWS * TURNS) as f64;
    println!(
        "{name:28} encode {encode:5.1} ns, decode {decode:5.1} ns a row and column; key group {group:4.1} ns a row"
    );
    Ok(())
}

/// Nanoseconds of all turns.
fn time(work: impl Fn() -> Result<usize>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..TURNS {
        black_box(work()?);
    }
    Ok(start.elapsed().as_nanos() as f64)
}
