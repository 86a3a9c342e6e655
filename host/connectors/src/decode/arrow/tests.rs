//! Files that pyarrow wrote, records of streams, and bytes that are none.

use super::*;
use crate::decode::DecoderSettings;
use crate::encode::{Encoder, FileFormat};
use crate::testing::{data, json_lines};
use pelton_core::MalformedPolicy;
use pelton_core::types::{columns_name, parse_columns};
use proptest::prelude::*;
use std::sync::Arc;

const FILES: [&str; 4] =
    ["three_rows.plain.arrow", "three_rows.lz4.arrow", "three_rows.zstd.arrow", "three_rows.arrows"];
const ROWS: &str = "{\"n\":1,\"word\":\"a\",\"at\":\"1970-01-01T01:00:00.000+01:00\",\"list\":[1],\"kept\":{\"x\":1}}\n\
    {\"n\":null,\"word\":\"b\",\"at\":\"1970-01-01T01:00:01.000+01:00\",\"list\":[],\"kept\":null}\n\
    {\"n\":3,\"word\":\"a\",\"at\":null,\"list\":null,\"kept\":{\"x\":2}}\n";

fn decoder(schema: Schema) -> ArrowDecoder {
    let policy = MalformedPolicy::DeadLetter;
    ArrowDecoder::new(&DecoderSettings { on_malformed: policy, ..DecoderSettings::new(Arc::new(schema)) })
        .unwrap()
}

fn input<'a>(bytes: &'a [u8]) -> Input<'a> {
    Input { bytes, file: "f.arrow", first_line: 1, starts_file: true }
}

#[test]
fn files_and_streams_are_read_in_sparks_types() {
    for file in FILES {
        let bytes = data(file);
        let schema = IpcReader::new(bytes.as_slice()).schema("Europe/Paris").unwrap();
        let columns = "n: int, word: string, at: timestamp, list: array<long>, kept: struct<x: int>";
        assert_eq!(columns_name(schema.fields()), columns);
        let decoded = decoder(schema).decode(&input(&bytes)).unwrap();
        assert_eq!(json_lines(&decoded.batches), ROWS, "{file}");
    }
    let schema = Schema::new(parse_columns("N: long, new: date", "UTC").unwrap());
    let decoded = decoder(schema).decode(&input(&data(FILES[0]))).unwrap();
    assert_eq!(json_lines(&decoded.batches).lines().next().unwrap(), "{\"N\":1,\"new\":null}");
    let schema = Schema::new(parse_columns("word: long", "UTC").unwrap());
    let error = decoder(schema).decode(&input(&data(FILES[0]))).unwrap_err();
    assert_eq!(error.message(), "f.arrow: column 'word': the file has string, the schema long");
}

#[test]
fn records_are_streams_and_may_have_many_rows() {
    let stream = data("three_rows.arrows");
    let schema = IpcReader::new(stream.as_slice()).schema("Europe/Paris").unwrap();
    let decoder = decoder(schema);
    let decoded = decoder.decode(&input(&stream)).unwrap();
    let encoder = Encoder::new(FileFormat::Arrow, &decoder.schema(), &OptionMap::new()).unwrap();
    let one_by_one = encoder.encode_records(&decoded.batches[0]).unwrap();
    let records = [one_by_one.get(0).unwrap(), &stream, b"nothing", one_by_one.get(2).unwrap(), b""];
    let decoded = decoder.decode_records(&records, &|n| format!("t-0@{n}")).unwrap();
    let lines: Vec<&str> = ROWS.lines().collect();
    assert_eq!(json_lines(&decoded.batches), format!("{}\n{ROWS}{}\n", lines[0], lines[2]));
    assert_eq!(decoded.records, [0, 1, 1, 1, 3]);
    let positions: Vec<_> =
        decoded.dead_letters.iter().map(|letter| letter.position.clone().unwrap()).collect();
    assert_eq!(positions, ["t-0@2", "t-0@4"]);
    assert!(
        decoded.dead_letters[1].reason.contains("it has no schema"),
        "{}",
        decoded.dead_letters[1].reason
    );
}

#[test]
fn a_damaged_file_is_refused_or_read_and_never_more() {
    for file in FILES {
        let bytes = data(file);
        let schema = IpcReader::new(bytes.as_slice()).schema("UTC").unwrap();
        let decoder = decoder(schema);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xA5;
            for bytes in [&damaged[..], &bytes[..at]] {
                if let Err(e) = decoder.decode(&input(bytes)) {
                    assert!(e.message().starts_with("f.arrow: "), "{e}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_end_as_rows_or_reasons(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..2000, with: u8) {
        let schema = Schema::new(parse_columns("n: int, word: string", "UTC").unwrap());
        let mut changed = data("three_rows.arrows");
        let place = at % changed.len();
        changed[place] = with;
        let decoded = decoder(schema).decode_records(&[&bytes, &changed], &|n| n.to_string()).unwrap();
        prop_assert!(decoded.dead_letters.len() <= 2);
    }
}
