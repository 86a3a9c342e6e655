//! Files and records that fastavro wrote, schemas that change, and bytes that are none.

use super::*;
use crate::decode::DecoderSettings;
use crate::testing::{data, hex, json_lines, text};
use pelton_core::MalformedPolicy;
use pelton_core::types::{columns_name, parse_columns};
use proptest::prelude::*;
use serde_json::{Value, json};

const ROWS: &str = r#"{"flag":true,"whole":-7,"big":1099511627776,"single":0.5,"dbl":-2.25,"text":"häuser","bin":"AP8=","fix":"YWJjZA==","suit":"HEARTS","day":"2013-01-01","millis":"2013-01-01T09:20:00.123Z","micros":"1969-12-31T23:59:59.999Z","local":"2013-01-01T09:20:00.000","price":-12.34,"cost":12345678901234567.891,"tags":["a",null],"counts":{"x":1},"inner":{"a":3,"b":["MTIzNA==","NTY3OA=="]},"either":{"member0":null,"member1":"word","member2":null},"number":5}
{"flag":false,"whole":-7,"big":null,"single":0.5,"dbl":null,"text":"häuser","bin":"AP8=","fix":"YWJjZA==","suit":"HEARTS","day":"2013-01-01","millis":"2013-01-01T09:20:00.123Z","micros":"1969-12-31T23:59:59.999Z","local":"2013-01-01T09:20:00.000","price":0.00,"cost":12345678901234567.891,"tags":[],"counts":{},"inner":null,"either":null,"number":5}
{"flag":true,"whole":-7,"big":1099511627776,"single":0.5,"dbl":-2.25,"text":"häuser","bin":"AP8=","fix":"YWJjZA==","suit":"SPADES","day":"2013-01-01","millis":"2013-01-01T09:20:00.123Z","micros":"1969-12-31T23:59:59.999Z","local":"2013-01-01T09:20:00.000","price":-12.34,"cost":12345678901234567.891,"tags":["a",null],"counts":{"x":1},"inner":{"a":3,"b":["MTIzNA==","NTY3OA=="]},"either":{"member0":null,"member1":null,"member2":{"a":1,"b":[]}},"number":8589934592}
"#;

fn options(pairs: &[(&str, Value)]) -> AvroOptions {
    let map = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    AvroOptions::from_map(&map).unwrap()
}

fn settings(columns: Schema) -> DecoderSettings {
    DecoderSettings { on_malformed: MalformedPolicy::DeadLetter, ..DecoderSettings::new(Arc::new(columns)) }
}

fn declared(columns: &str) -> Schema {
    Schema::new(parse_columns(columns, "UTC").unwrap())
}

/// A decoder of records that were written with a schema, for the columns that it has.
fn of_schema(schema: &str) -> AvroDecoder {
    let options = options(&[("avro_schema", json!(schema))]);
    let columns = options.columns("UTC").unwrap().unwrap();
    AvroDecoder::of_records(&settings(columns), &options).unwrap()
}

fn position(n: u64) -> String {
    format!("t-0@{n}")
}

fn golden() -> (Vec<Vec<u8>>, String) {
    let json: Value = serde_json::from_str(&text("all_types.avro.json")).unwrap();
    let values = json["values"].as_array().unwrap().iter().map(|value| hex(value.as_str().unwrap()));
    (values.collect(), json["fingerprint"].as_str().unwrap().to_owned())
}

#[test]
fn files_of_every_codec_are_read() {
    for codec in ["null", "deflate", "snappy", "zstandard"] {
        let file = data(&format!("all_types.{codec}.avro"));
        let header = Header::read(&mut file.as_slice()).unwrap();
        let options = AvroOptions::default();
        let columns = options.columns_of(&header.schema, "UTC").unwrap();
        let decoder = AvroDecoder::new(&settings(columns), &options).unwrap();
        let input = Input { bytes: &file, file: "f.avro", first_line: 1, starts_file: true };
        assert_eq!(json_lines(&decoder.decode(&input).unwrap().batches), ROWS, "{codec}");
        // Cut off or damaged anywhere, it is refused by its name or it is still the same.
        for len in 0..file.len() {
            let cut = Input { bytes: &file[..len], ..input };
            if let Err(e) = decoder.decode(&cut) {
                assert!(e.message().starts_with("f.avro: not readable as Avro: "), "{e}");
            }
            let mut damaged = file.clone();
            damaged[len] ^= 0x55;
            let _ = decoder.decode(&Input { bytes: &damaged, ..input });
        }
    }
}

#[test]
fn columns_are_found_by_name_and_others_are_skipped() {
    let file = data("all_types.snappy.avro");
    let columns =
        declared("NUMBER: long, new: string, inner: struct<b: array<binary>, c: int>, whole: double");
    let decoder = AvroDecoder::new(&settings(columns), &AvroOptions::default()).unwrap();
    let input = Input { bytes: &file, file: "f", first_line: 1, starts_file: true };
    let lines = json_lines(&decoder.decode(&input).unwrap().batches);
    let first = r#"{"NUMBER":5,"new":null,"inner":{"b":["MTIzNA==","NTY3OA=="],"c":null},"whole":-7.0}"#;
    assert_eq!(lines.lines().next().unwrap(), first);
    for (columns, why) in [
        ("text: long", "field 'text': Avro type string cannot be read as long"),
        (
            "price: decimal(9,2)",
            "field 'price': Avro type bytes (decimal(10,2)) cannot be read as decimal(9,2)",
        ),
        (
            "micros: timestamp_ntz",
            "field 'micros': Avro type long (timestamp-micros) cannot be read as timestamp_ntz",
        ),
        ("either: string", "field 'either': a union of 3 types is read as struct<member0: …>, not string"),
    ] {
        let decoder = AvroDecoder::new(&settings(declared(columns)), &AvroOptions::default()).unwrap();
        assert_eq!(decoder.decode(&input).unwrap_err().message(), format!("f: not readable as Avro: {why}"));
    }
}

#[test]
fn records_are_read_plain_and_in_single_object_encoding() {
    let (values, fingerprint) = golden();
    let plain: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let decoded = of_schema(&text("all_types.avsc")).decode_records(&plain, &position).unwrap();
    assert_eq!(json_lines(&decoded.batches), ROWS);
    assert_eq!(decoded.records, [0, 1, 2]);

    let schema = ("avro_schema", json!(text("all_types.avsc")));
    let options = options(&[schema, ("single_object_encoding", json!(true))]);
    let columns = options.columns("UTC").unwrap().unwrap();
    let decoder = AvroDecoder::of_records(&settings(columns), &options).unwrap();
    let framed = |print: &str, value: &[u8]| [&[0xC3, 1][..], &hex(print), value].concat();
    let records = [framed(&fingerprint, &values[0]), framed("0011223344556677", &values[1]), vec![0xC3]];
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    let decoded = decoder.decode_records(&records, &position).unwrap();
    assert_eq!(json_lines(&decoded.batches), ROWS.lines().next().unwrap().to_owned() + "\n");
    let reasons: Vec<_> = decoded.dead_letters.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "not readable as Avro: it was written with another schema, of fingerprint 7766554433221100",
            "not readable as Avro: it is not in single-object encoding"
        ]
    );
    assert_eq!(decoded.dead_letters[0].position.as_deref(), Some("t-0@1"));
    assert_eq!(decoded.records, [0]);
}

#[test]
fn a_writer_schema_is_resolved_to_the_readers() {
    let record = |fields: &str| format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#);
    let writer = AvroSchema::parse(&record(
        r#"{"name": "old", "type": "int"}, {"name": "gone", "type": {"type": "map", "values": "string"}},
           {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}}, {"name": "u", "type": ["int", "string"]}"#,
    ))
    .unwrap();
    let reader = record(
        r#"{"name": "new", "type": ["null", "double"], "aliases": ["old"]},
           {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["B", "?"], "default": "?"}},
           {"name": "u", "type": "string"}, {"name": "d", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
           {"name": "r", "type": {"type": "record", "name": "S", "fields": [{"name": "x", "type": "bytes", "default": "\u00ff"}]}, "default": {}}"#,
    );
    let options = options(&[("avro_schema", json!(reader))]);
    let columns = options.columns("UTC").unwrap().unwrap();
    assert_eq!(
        columns_name(columns.fields()),
        "new: double, e: string, u: string, d: array<long>, r: struct<x: binary>"
    );
    let decoder = AvroDecoder::new(&settings(columns), &options).unwrap();
    let plan = decoder.plan(Arc::new(writer)).unwrap();
    let read = |bytes: &[u8]| {
        let mut rows = Rows::new(&decoder.rows, &position).unwrap();
        run::record(&plan.schema, &plan.steps, &mut Cursor::new(bytes), &mut rows.columns)
            .map_err(String::from)?;
        rows.good(1).unwrap();
        Ok::<_, String>(json_lines(&rows.finish().unwrap().batches))
    };
    let row = r#"{"new":7.0,"e":"?","u":"s","d":[1,2],"r":{"x":"/w=="}}"#;
    assert_eq!(read(&[14, 2, 2, b'k', 2, b'v', 0, 0, 2, 2, b's']).unwrap(), row.to_owned() + "\n");
    // A branch that the reader does not have is the record's fault.
    assert!(read(&[14, 0, 2, 0, 2]).unwrap_err().contains("int cannot be read as string"));
    let narrower = AvroSchema::parse(&record(r#"{"name": "e", "type": "string"}"#)).unwrap();
    assert!(decoder.plan(Arc::new(narrower)).is_err());
}

#[test]
fn malformed_records_go_by_the_policy_and_harm_no_neighbour() {
    let schema = r#"{"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}, {"name": "a", "type": {"type": "array", "items": "int"}}]}"#;
    let good: &[u8] = &[2, b'x', 2, 4, 0];
    // The string is whole, the array is not.
    let bad: &[u8] = &[2, b'y', 4, 4];
    let options = options(&[("avro_schema", json!(schema))]);
    let columns = options.columns("UTC").unwrap().unwrap();
    let decoded = |policy| {
        let settings = DecoderSettings { on_malformed: policy, ..settings(columns.clone()) };
        AvroDecoder::of_records(&settings, &options).unwrap().decode_records(&[good, bad, good], &position)
    };
    let row = "{\"s\":\"x\",\"a\":[2]}\n";
    let dropped = decoded(MalformedPolicy::Drop).unwrap();
    assert_eq!((json_lines(&dropped.batches), dropped.dropped_rows), (row.repeat(2), 1));
    let null = decoded(MalformedPolicy::Null).unwrap();
    assert_eq!(json_lines(&null.batches), format!("{row}{{\"s\":null,\"a\":null}}\n{row}"));
    assert_eq!(null.records, [0, 1, 2]);
    let letters = decoded(MalformedPolicy::DeadLetter).unwrap().dead_letters;
    assert_eq!(letters[0].reason, "not readable as Avro: the bytes end within a number");
    assert_eq!(&letters[0].payload[..], bad);
    let failed = decoded(MalformedPolicy::Fail).unwrap_err();
    assert!(failed.message().starts_with("t-0@1: not readable as Avro: the bytes end"), "{failed}");
}

#[test]
fn options_are_checked() {
    let wrong = |pairs: &[(&str, Value)]| {
        let map = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        AvroOptions::from_map(&map).unwrap_err().message().to_owned()
    };
    assert_eq!(
        wrong(&[("avro_shema", json!("long"))]),
        "format avro has no option 'avro_shema'; did you mean 'avro_schema'?"
    );
    assert!(
        wrong(&[("avro_schema_file", json!("/no/such.avsc"))]).contains("'/no/such.avsc' cannot be read")
    );
    assert!(wrong(&[("schema_registry", json!("localhost:8081"))]).contains("http://localhost:8081"));
    assert!(wrong(&[("recursive_field_max_depth", json!(13))]).contains("from 1 to 12"));
    assert!(wrong(&[("subject", json!("s"))]).contains("needs schema_registry"));
    let columns = declared("a: int");
    let error = AvroDecoder::of_records(&settings(columns), &AvroOptions::default()).unwrap_err();
    assert_eq!(error.message(), "records of format avro need a schema");
}

proptest! {
    #[test]
    fn any_bytes_end_as_rows_or_reasons(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..300, with: u8) {
        let decoder = of_schema(&text("all_types.avsc"));
        let (values, _) = golden();
        let mut changed = values[0].clone();
        let place = at % changed.len();
        changed[place] = with;
        let records: [&[u8]; 4] = [&bytes, &changed, &values[0][..place], &values[1]];
        let decoded = decoder.decode_records(&records, &position).unwrap();
        let rows: usize = decoded.batches.iter().map(|batch| batch.num_rows()).sum();
        prop_assert_eq!(rows + decoded.dead_letters.len(), 4);
        prop_assert_eq!(rows, decoded.records.len());
        let file = Input { bytes: &bytes, file: "f", first_line: 1, starts_file: true };
        prop_assert!(decoder.decode(&file).is_err());
    }
}
