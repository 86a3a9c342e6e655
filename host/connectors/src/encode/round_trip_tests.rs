//! What the encoders write, the decoders read back as the same rows.

use super::{CsvEncoder, JsonEncoder};
use crate::decode::csv::{CsvDecoder, CsvOptions};
use crate::decode::json::{JsonDecoder, JsonOptions};
use crate::decode::options::OptionMap;
use crate::decode::{Decoder, DecoderSettings, Input};
use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int64Array,
    RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use pelton_core::types::parse_columns;
use serde_json::json;
use std::sync::Arc;

const COLUMNS: &str = "i: long, b: boolean, t: byte, f: float, d: double, m: decimal(20,12), s: string, day: date, \
                       ts: timestamp";

/// Values at the edges of their types, texts that need quotes and escapes, a null in every column.
fn rows() -> RecordBatch {
    let texts = [
        "plain",
        "a,b",
        "say \"hi\"",
        "back\\slash, and comma",
        "two\nlines",
        "\u{1}\u{7f}é日😀",
        "\\\"",
        "#x",
    ];
    let doubles = [0.0, -0.0, 1e-7, 1e7, f64::MAX, f64::MIN_POSITIVE, 0.1 + 0.2, -123_456.789];
    let floats = [0.1, 3.4e38, 1e-10, 1e7, 16_777_216.0, -2.5, 0.001, 9_999_999.0];
    let micros = [0, 1_357_034_400_123_000, -1_000, 951_782_399_999_000, 1, 2, 3, 4].map(|t| t / 1000 * 1000);
    let decimals = [0, 1, -1, 10_i128.pow(19), 123_456_789_012_345, -5, 7, 1_000_000_000_000];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter([
            Some(i64::MIN),
            Some(i64::MAX),
            Some(0),
            Some(-1),
            Some(7),
            Some(8),
            Some(9),
            Some(10),
            None,
        ])),
        Arc::new(BooleanArray::from_iter((0..9).map(|n| (n < 8).then_some(n % 3 == 0)))),
        Arc::new(Int8Array::from_iter((0..9).map(|n| (n < 8).then_some((n * 17 - 100) as i8)))),
        Arc::new(Float32Array::from_iter(floats.map(Some).into_iter().chain([None]))),
        Arc::new(Float64Array::from_iter(doubles.map(Some).into_iter().chain([None]))),
        Arc::new(
            Decimal128Array::from_iter(decimals.map(Some).into_iter().chain([None]))
                .with_precision_and_scale(20, 12)
                .unwrap(),
        ),
        Arc::new(StringArray::from_iter(texts.map(Some).into_iter().chain([None]))),
        Arc::new(Date32Array::from_iter([
            Some(0),
            Some(-1),
            Some(15_706),
            Some(19_782),
            Some(-25_567),
            Some(1),
            Some(2),
            Some(3),
            None,
        ])),
        Arc::new(
            TimestampMicrosecondArray::from_iter(micros.map(Some).into_iter().chain([None]))
                .with_timezone("Europe/Paris"),
        ),
    ];
    let schema = Schema::new(parse_columns(COLUMNS, "Europe/Paris").unwrap());
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn read(decoder: &dyn Decoder, bytes: &[u8]) -> RecordBatch {
    let input = Input { bytes, file: "test", first_line: 1, starts_file: true };
    let decoded =
        decoder.decode(&input).unwrap_or_else(|e| panic!("{e}\n{}", String::from_utf8_lossy(bytes)));
    concat_batches(&decoder.schema(), &decoded.batches).unwrap()
}

fn settings(rows: &RecordBatch) -> DecoderSettings {
    DecoderSettings { time_zone: "Europe/Paris".into(), ..DecoderSettings::new(rows.schema()) }
}

#[test]
fn json_lines_are_read_back_as_the_same_rows() {
    let rows = rows();
    for encoder in [JsonEncoder::default(), JsonEncoder::default().with_null_fields()] {
        let mut out = Vec::new();
        encoder.encode(&rows, &mut out).unwrap();
        let decoder = JsonDecoder::new(&settings(&rows), &JsonOptions::default()).unwrap();
        assert_eq!(read(&decoder, &out), rows);
    }
}

#[test]
fn nested_json_is_read_back_as_the_same_rows() {
    let plain = rows();
    let nested = StructArray::from(plain.clone());
    let rows = RecordBatch::try_from_iter_with_nullable([("n", Arc::new(nested) as ArrayRef, true)]).unwrap();
    let mut out = Vec::new();
    JsonEncoder::default().encode(&rows, &mut out).unwrap();
    let decoder = JsonDecoder::new(&settings(&rows), &JsonOptions::default()).unwrap();
    assert_eq!(read(&decoder, &out), rows);
}

#[test]
fn csv_is_read_back_as_the_same_rows() {
    let rows = rows();
    let options =
        OptionMap::from([("header".to_owned(), json!(true)), ("multi_line".to_owned(), json!(true))]);
    let written = OptionMap::from([("header".to_owned(), json!(true))]);
    let encoder = CsvEncoder::new(&rows.schema(), &written).unwrap();
    let mut out = encoder.header();
    encoder.encode(&rows, &mut out).unwrap();
    let options = CsvOptions::from_map(&options).unwrap();
    let decoder = CsvDecoder::new(&settings(&rows), &options).unwrap();
    assert_eq!(read(&decoder, &out), rows);
}
