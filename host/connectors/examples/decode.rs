//! How fast rows decode here, beside what bounds it: reading the bytes, and Arrow's own readers.
//!
//! `cargo run -p pelton-connectors --example decode` prints rows and megabytes a second on one core.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use arrow::datatypes::{Schema, SchemaRef};
use pelton_connectors::decode::csv::{CsvDecoder, CsvOptions};
use pelton_connectors::decode::json::{JsonDecoder, JsonOptions};
use pelton_connectors::decode::{Decoder, DecoderSettings, Input};
use pelton_core::types::parse_columns;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

const ROWS: usize = 400_000;
const ROUNDS: usize = 5;
const BLOCK: usize = 4 << 20;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Bids as Nexmark makes them, about 240 bytes a row.
fn bids() -> (String, String) {
    let (mut json, mut csv, mut state) = (String::new(), String::new(), 42);
    for i in 0..ROWS as u64 {
        let (auction, bidder) = (1000 + random(&mut state) % 100_000, 1000 + random(&mut state) % 50_000);
        let price = random(&mut state) % 10_000_000;
        let channel = ["Google", "Facebook", "Baidu", "Apple"][(random(&mut state) % 4) as usize];
        let page = random(&mut state) % 1_000_000;
        let (second, milli) = (i / 10_000, i / 10 % 1000);
        let time = format!(
            "2026-01-01T{:02}:{:02}:{:02}.{milli:03}Z",
            second / 3600 % 24,
            second / 60 % 60,
            second % 60
        );
        let url = format!("https://www.nexmark.com/item/{page:06}/index.htm?query=1");
        let extra: String = (0..6).map(|_| format!("{:08x}", random(&mut state))).collect();
        writeln!(
            json,
            r#"{{"event_type":2,"auction":{auction},"bidder":{bidder},"price":{price},"channel":"{channel}","url":"{url}","date_time":"{time}","extra":"{extra}"}}"#
        )
        .unwrap();
        writeln!(csv, "2,{auction},{bidder},{price},{channel},{url},{time},{extra}").unwrap();
    }
    (json, csv)
}

/// The text in blocks, cut at line feeds.
fn blocks(text: &str) -> Vec<&[u8]> {
    let mut rest = text.as_bytes();
    let mut blocks = Vec::new();
    while rest.len() > BLOCK {
        let end = memchr::memrchr(b'\n', &rest[..BLOCK]).unwrap() + 1;
        blocks.push(&rest[..end]);
        rest = &rest[end..];
    }
    blocks.push(rest);
    blocks
}

fn measure(name: &str, text: &str, mut run: impl FnMut(&[u8]) -> usize) {
    let blocks = blocks(text);
    let mut seconds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let rows: usize = blocks.iter().map(|block| run(block)).sum();
            assert_eq!(rows, ROWS);
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let (rows, bytes) = (ROWS as f64 / 1e6, text.len() as f64 / 1e6);
    println!(
        "{name:<42} {:>6.2} M rows/s {:>7.0} MB/s   best {:>6.2} M rows/s",
        rows / seconds[ROUNDS / 2],
        bytes / seconds[ROUNDS / 2],
        rows / seconds[0]
    );
}

fn decode(decoder: &dyn Decoder, bytes: &[u8]) -> usize {
    let decoded = decoder.decode(&Input { bytes, file: "bids", first_line: 1, starts_file: false }).unwrap();
    decoded.batches.iter().map(|batch| batch.num_rows()).sum()
}

fn main() {
    let (json, csv) = bids();
    println!("{ROWS} rows of {} bytes in JSON, {} in CSV", json.len() / ROWS, csv.len() / ROWS);
    let columns = "event_type int, auction long, bidder long, price long, channel string, url string, date_time timestamp, extra string";
    let schema: SchemaRef = Arc::new(Schema::new(parse_columns(columns, "UTC").unwrap()));
    let all = DecoderSettings::new(schema.clone());
    let five: Vec<String> = ["auction", "bidder", "price", "channel", "date_time"].map(str::to_owned).into();
    let some = DecoderSettings { columns: Some(five), ..all.clone() };
    let seven = DecoderSettings {
        columns: Some(
            columns
                .split(", ")
                .map(|c| c.split(' ').next().unwrap().to_owned())
                .filter(|c| c != "extra")
                .collect(),
        ),
        ..all.clone()
    };
    measure("lines counted (reading the bytes)", &json, |block| memchr::memchr_iter(b'\n', block).count());
    for (name, settings) in
        [("JSON, 5 of 8 columns", &some), ("JSON, 7 of 8 columns", &seven), ("JSON, all columns", &all)]
    {
        let decoder = JsonDecoder::new(settings, &JsonOptions::default()).unwrap();
        measure(name, &json, |block| decode(&decoder, block));
    }
    let five = JsonDecoder::new(&some, &JsonOptions::default()).unwrap().schema();
    let seven = JsonDecoder::new(&seven, &JsonOptions::default()).unwrap().schema();
    for (name, schema) in [("arrow-json, 5 of 8 columns", five), ("arrow-json, 7 of 8 columns", seven)] {
        measure(name, &json, |block| {
            let reader =
                arrow_json::ReaderBuilder::new(schema.clone()).with_batch_size(8192).build(block).unwrap();
            reader.map(|batch| batch.unwrap().num_rows()).sum()
        });
    }
    for (name, settings) in [("CSV, 5 of 8 columns", &some), ("CSV, all columns", &all)] {
        let decoder = CsvDecoder::new(settings, &CsvOptions::default()).unwrap();
        measure(name, &csv, |block| decode(&decoder, block));
    }
    measure("arrow-csv, all columns", &csv, |block| {
        let reader =
            arrow_csv::ReaderBuilder::new(schema.clone()).with_batch_size(8192).build(block).unwrap();
        reader.map(|batch| batch.unwrap().num_rows()).sum()
    });
}
