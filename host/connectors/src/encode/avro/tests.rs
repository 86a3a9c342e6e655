//! The bytes that fastavro writes for the same rows, what Pelton reads back, and what has no place in Avro.

use super::*;
use crate::decode::avro::{AvroDecoder, AvroOptions};
use crate::decode::{Decoder, DecoderSettings, Input};
use crate::encode::{Encoder, FileFormat};
use crate::testing::{data, hex, json_lines, text};
use arrow::compute::concat_batches;
use pelton_core::types::parse_columns;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn map(pairs: &[(&str, Value)]) -> OptionMap {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// The rows of a file, with the columns that it says to have.
fn read(file: &[u8]) -> RecordBatch {
    let header = Header::read(&mut { file }).unwrap();
    let options = AvroOptions::default();
    let columns = Arc::new(options.columns_of(&header.schema, "UTC").unwrap());
    let decoder = AvroDecoder::new(&DecoderSettings::new(columns), &options).unwrap();
    let input = Input { bytes: file, file: "f", first_line: 1, starts_file: true };
    concat_batches(&decoder.schema(), &decoder.decode(&input).unwrap().batches).unwrap()
}

fn written(encoder: &AvroEncoder, pieces: &[RecordBatch]) -> Vec<u8> {
    let mut file = encoder.head();
    pieces.iter().for_each(|piece| file.extend(encoder.block(std::slice::from_ref(piece)).unwrap()));
    file
}

#[test]
fn records_are_the_bytes_that_another_implementation_writes() {
    let rows = read(&data("all_types.null.avro"));
    let options = map(&[("avro_schema", json!(text("all_types.avsc")))]);
    let encoder = AvroEncoder::new(&rows.schema(), &options).unwrap();
    let mut records = Records::default();
    encoder.encode_records(&rows, &mut records).unwrap();
    let expected: Value = serde_json::from_str(&text("all_types.avro.json")).unwrap();
    for (nth, value) in expected["values"].as_array().unwrap().iter().enumerate() {
        // A long of a union of int and long is written as a long, as Spark does; the other writes what fits.
        let mut value = hex(value.as_str().unwrap());
        let len = value.len();
        if nth < 2 {
            value[len - 2] = 2;
        }
        assert_eq!(records.get(nth).unwrap(), value, "record {nth}");
    }
    let framed = AvroEncoder::new(
        &rows.schema(),
        &map(&[("avro_schema", json!(text("all_types.avsc"))), ("single_object_encoding", json!(true))]),
    );
    let mut records = Records::default();
    framed.unwrap().encode_records(&rows, &mut records).unwrap();
    let prefix = [vec![0xC3, 1], hex(expected["fingerprint"].as_str().unwrap())].concat();
    assert!(records.get(0).unwrap().starts_with(&prefix));
}

#[test]
fn files_come_back_in_every_codec_and_are_the_same_each_time() {
    let rows = read(&data("all_types.null.avro"));
    for codec in ["uncompressed", "deflate", "snappy", "zstandard"] {
        let encoder = AvroEncoder::new(&rows.schema(), &map(&[("compression", json!(codec))])).unwrap();
        let file = written(&encoder, &[rows.slice(0, 2), rows.slice(2, 1)]);
        assert_eq!(json_lines(&[read(&file)]), json_lines(std::slice::from_ref(&rows)), "{codec}");
        assert_eq!(file, written(&encoder, &[rows.slice(0, 2), rows.slice(2, 1)]));
    }
}

#[test]
fn another_reader_reads_what_is_written() {
    let rows = read(&data("all_types.null.avro"));
    for codec in ["deflate", "snappy", "zstandard"] {
        let encoder = AvroEncoder::new(&rows.schema(), &map(&[("compression", json!(codec))])).unwrap();
        let file = written(&encoder, &[rows.slice(0, 1), rows.slice(1, 2)]);
        let reader = arrow_avro::reader::ReaderBuilder::new().build(file.as_slice()).unwrap();
        let batches: Vec<RecordBatch> = reader.collect::<std::result::Result<_, _>>().unwrap();
        let found = concat_batches(&batches[0].schema(), &batches).unwrap();
        assert_eq!(found.num_rows(), 3);
        for (name, column) in rows.schema().fields().iter().zip(rows.columns()).map(|(f, c)| (f.name(), c)) {
            let found = found.column_by_name(name).unwrap();
            let found = arrow::compute::cast(found, column.data_type()).unwrap();
            assert_eq!(&found, column, "{name} in {codec}");
        }
    }
}

#[test]
fn what_avro_has_no_place_for_is_refused() {
    let wrong = |columns: &str, pairs: &[(&str, Value)]| {
        let schema = Schema::new(parse_columns(columns, "UTC").unwrap());
        AvroEncoder::new(&schema, &map(pairs)).unwrap_err().message().to_owned()
    };
    assert_eq!(
        wrong("a: int", &[("compression", json!("snapy"))]),
        "avro files cannot be compressed with 'snapy'; did you mean 'snappy'?"
    );
    let long = r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}"#;
    let start = "the rows cannot be written with the Avro schema: ";
    assert_eq!(
        wrong("a: int", &[("avro_schema", json!(long))]),
        format!("{start}column 'a' is int, its field long")
    );
    assert_eq!(wrong("b: long", &[("avro_schema", json!(long))]), format!("{start}it has no field 'b'"));
    let two = r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "int"}]}"#;
    assert_eq!(
        wrong("a: long", &[("avro_schema", json!(two))]),
        format!("{start}there is no column for its field 'b'")
    );
    let rows = read(&data("all_types.null.avro")).project(&[2]).unwrap();
    let strict = r#"{"type": "record", "name": "R", "fields": [{"name": "big", "type": "long"}]}"#;
    let encoder = AvroEncoder::new(&rows.schema(), &map(&[("avro_schema", json!(strict))])).unwrap();
    let error = encoder.encode_records(&rows, &mut Records::default()).unwrap_err();
    assert_eq!(error.message(), "column 'big' is null, which its Avro type does not allow");
    let registry = map(&[("schema_registry", json!("http://localhost:1"))]);
    let encoder = Encoder::new(FileFormat::Avro, &rows.schema(), &registry).unwrap();
    assert!(encoder.check_files().unwrap_err().message().contains("one by one"));
}

proptest! {
    /// Any rows of all types, by way of JSON, which has its own tests.
    #[test]
    fn all_rows_come_back(rows in proptest::collection::vec((any::<Option<i64>>(), any::<i16>(), ".{0,9}", -99_999_999_i64..99_999_999, any::<f64>(), proptest::collection::vec(any::<Option<bool>>(), 0..4)), 1..20)) {
        use crate::decode::json::{JsonDecoder, JsonOptions};
        let columns = "a: long, s: short, t: string, d: decimal(10,3), f: double, l: array<boolean>, m: map<string, struct<x: date, y: timestamp_ntz>>, z: timestamp";
        let schema = Arc::new(Schema::new(parse_columns(columns, "UTC").unwrap()));
        let lines: Vec<String> = rows.iter().map(|(a, s, t, d, f, l)| json!({
            "a": a, "s": s, "t": t, "d": *d as f64 / 1000.0, "f": f, "l": l,
            "m": {t: {"x": "2020-02-29", "y": "1900-01-01T00:00:00.000001"}}, "z": s.checked_abs().map(|_| "2020-01-01T00:00:00Z"),
        }).to_string()).collect();
        let records: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        let json = JsonDecoder::new(&DecoderSettings::new(schema.clone()), &JsonOptions::default()).unwrap();
        let batch = concat_batches(&json.schema(), &json.decode_records(&records, &|n| n.to_string()).unwrap().batches).unwrap();
        let encoder = AvroEncoder::new(&batch.schema(), &OptionMap::new()).unwrap();
        let back = read(&written(&encoder, std::slice::from_ref(&batch)));
        // A short comes back as an int, as in Spark.
        prop_assert_eq!(json_lines(&[back]), json_lines(&[batch]));
    }
}
