//! Messages that Google's library wrote, Spark's options, and bytes that are none.

use super::*;
use crate::decode::DecoderSettings;
use crate::testing::{hex, json_lines, path, text};
use pelton_core::MalformedPolicy;
use pelton_core::types::{columns_name, parse_columns};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

const COLUMNS: &str = "flag: boolean, whole: int, zigzag: long, unsigned: int, huge: long, f32: int, sf64: long, single: float, \
    dbl: double, text: string, bin: binary, suit: string, packed: array<int>, inners: array<struct<a: int, b: array<string>>>, \
    counts: map<string, long>, inner: struct<a: int, b: array<string>>, number: int, word: string, maybe: int, at: timestamp, \
    took: struct<seconds: long, nanos: int>, wrapped: struct<value: long>, suits: array<string>";
const ROWS: &str = r#"{"flag":true,"whole":-7,"zigzag":-1099511627776,"unsigned":-1,"huge":-1,"f32":7,"sf64":-8,"single":0.5,"dbl":-2.25,"text":"häuser","bin":"AP8=","suit":"HEARTS","packed":[1,-1,300],"inners":[{"a":1,"b":["x",""]},{"a":null,"b":[]}],"counts":{"x":1},"inner":{"a":null,"b":[]},"number":null,"word":"w","maybe":0,"at":"1969-12-31T23:59:59.999Z","took":{"seconds":1,"nanos":500000000},"wrapped":{"value":9},"suits":["HEARTS","SPADES"]}
{"flag":null,"whole":null,"zigzag":null,"unsigned":null,"huge":null,"f32":null,"sf64":null,"single":null,"dbl":null,"text":null,"bin":null,"suit":null,"packed":[],"inners":[],"counts":{},"inner":null,"number":null,"word":null,"maybe":null,"at":null,"took":null,"wrapped":null,"suits":[]}
"#;

fn map(message: &str, pairs: &[(&str, Value)]) -> OptionMap {
    let file = path("all_types.desc").display().to_string();
    let own = [("message_name", json!(message)), ("desc_file_path", json!(file))];
    own.iter().chain(pairs).map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn options(message: &str, pairs: &[(&str, Value)]) -> ProtobufOptions {
    ProtobufOptions::from_map(&map(message, pairs)).unwrap()
}

fn decoder(options: &ProtobufOptions, columns: Option<&str>) -> Result<ProtobufDecoder> {
    let schema = match columns {
        Some(columns) => Schema::new(parse_columns(columns, "UTC").unwrap()),
        None => options.columns("UTC").unwrap(),
    };
    let policy = MalformedPolicy::DeadLetter;
    let settings = DecoderSettings { on_malformed: policy, ..DecoderSettings::new(Arc::new(schema)) };
    ProtobufDecoder::new(&settings, options)
}

fn golden() -> Vec<Vec<u8>> {
    let values: Vec<String> = serde_json::from_str(&text("all_types.proto.json")).unwrap();
    values.iter().map(|value| hex(value)).collect()
}

fn lines(options: &ProtobufOptions, columns: Option<&str>, records: &[&[u8]]) -> String {
    let decoded = decoder(options, columns).unwrap().decode_records(records, &|n| n.to_string()).unwrap();
    json_lines(&decoded.batches)
}

#[test]
fn messages_have_sparks_types_and_values() {
    let values = golden();
    let options = options("test.pelton.All", &[]);
    assert_eq!(columns_name(options.columns("UTC").unwrap().fields()), COLUMNS);
    assert_eq!(lines(&options, None, &[&values[0], &values[1]]), ROWS);
}

#[test]
fn sparks_options_change_types_and_defaults() {
    let values = golden();
    let options = options(
        "All",
        &[
            ("enums_as_ints", json!(true)),
            ("upcast_unsigned_ints", json!(true)),
            ("unwrap_primitive_wrapper_types", json!(true)),
            ("emit_default_values", json!(true)),
        ],
    );
    let columns = columns_name(options.columns("UTC").unwrap().fields());
    for column in [
        "unsigned: long",
        "huge: decimal(20,0)",
        "f32: int",
        "suit: int",
        "wrapped: long",
        "suits: array<int>",
    ] {
        assert!(columns.contains(column), "no '{column}' in {columns}");
    }
    let columns =
        "unsigned: long, huge: decimal(20,0), wrapped: long, suit: int, inner: struct<a: int>, maybe: int";
    let rows = lines(&options, Some(columns), &[&values[0], &values[1]]);
    assert_eq!(
        rows,
        "{\"unsigned\":4294967295,\"huge\":18446744073709551615,\"wrapped\":9,\"suit\":1,\"inner\":{\"a\":0},\"maybe\":0}\n\
         {\"unsigned\":0,\"huge\":0,\"wrapped\":null,\"suit\":0,\"inner\":null,\"maybe\":null}\n"
    );
}

#[test]
fn recursion_is_refused_or_cut() {
    let error = options("Tree", &[]).columns("UTC").unwrap_err();
    assert!(error.message().contains("'test.pelton.Tree' contains itself"), "{error}");
    let depth = |depth: u32| options("Tree", &[("recursive_fields_max_depth", json!(depth))]);
    assert_eq!(columns_name(depth(1).columns("UTC").unwrap().fields()), "value: int");
    let two = "value: int, left: struct<value: int>, more: array<struct<value: int>>";
    assert_eq!(columns_name(depth(2).columns("UTC").unwrap().fields()), two);
    let mut deep = vec![8, 1];
    for _ in 0..2000 {
        let mut outer = vec![0x12];
        prost_reflect::prost::encoding::encode_varint(deep.len() as u64, &mut outer);
        outer.append(&mut deep);
        deep = outer;
    }
    let decoded = decoder(&depth(2), None).unwrap().decode_records(&[&deep], &|n| n.to_string()).unwrap();
    assert!(decoded.dead_letters[0].reason.contains("recursion limit"), "{}", decoded.dead_letters[0].reason);
}

#[test]
fn the_frame_of_a_registry_says_which_type_it_holds() {
    let framed = |options: &ProtobufOptions, frames: &[&[u8]]| {
        let records: Vec<Vec<u8>> =
            frames.iter().map(|frame| [&[0, 0, 0, 0, 7][..], frame, &[8, 5]].concat()).collect();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).chain([&[1, 2][..]]).collect();
        let decoded = decoder(options, None).unwrap().decode_records(&records, &|n| n.to_string()).unwrap();
        let reasons: Vec<_> = decoded.dead_letters.iter().map(|letter| letter.reason.clone()).collect();
        (json_lines(&decoded.batches), reasons.join("\n"))
    };
    let confluent = ("confluent_wire_format", json!(true));
    // Inner is the file's first type, All its second.
    let inner = options("Inner", std::slice::from_ref(&confluent));
    let (rows, reasons) = framed(&inner, &[&[0], &[2, 0], &[2, 2], &[4, 0, 0]]);
    assert_eq!(rows, "{\"a\":5,\"b\":[]}\n".repeat(2));
    assert_eq!(
        reasons,
        "not readable as protobuf: it holds type [1] of its file, not 'test.pelton.Inner', which is [0]\n\
         not readable as protobuf: it holds a type that is nested 2 deep, not 'test.pelton.Inner'\n\
         not readable as protobuf: it does not begin with the 0 of a schema registry's wire format"
    );
    let (rows, _) =
        framed(&options("Tree", &[confluent, ("recursive_fields_max_depth", json!(1))]), &[&[2, 4]]);
    assert_eq!(rows, "{\"value\":5}\n");
}

#[test]
fn unknown_symbols_keep_their_number_and_columns_their_types() {
    let all = options("test.pelton.All", &[]);
    assert_eq!(
        lines(&all, Some("suit: string, new: int"), &[&[0x60, 7]]),
        "{\"suit\":\"UNKNOWN_ENUM_VALUE_Suit_7\",\"new\":null}\n"
    );
    let wrong = |columns| decoder(&all, Some(columns)).unwrap_err().message().to_owned();
    let start = "message 'test.pelton.All' cannot be read so: column ";
    assert_eq!(wrong("whole: string"), format!("{start}'whole': int32 cannot be read as string"));
    assert_eq!(wrong("packed: int"), format!("{start}'packed': a repeated int32 cannot be read as int"));
    let wrong = |message, pairs: &[_]| {
        ProtobufOptions::from_map(&map(message, pairs)).unwrap_err().message().to_owned()
    };
    assert!(
        wrong("test.pelton.Al", &[])
            .ends_with("has no message 'test.pelton.Al'; did you mean 'test.pelton.All'?")
    );
    assert!(wrong("All", &[("desc_file_path", json!("/no/such"))]).contains("'/no/such' cannot be read"));
    assert!(wrong("All", &[("enum_as_ints", json!(true))]).contains("did you mean 'enums_as_ints'?"));
    let nothing = ProtobufOptions::from_map(&OptionMap::new()).unwrap_err();
    assert_eq!(nothing.message(), "format protobuf needs options message_name and desc_file_path");
}

proptest! {
    #[test]
    fn any_bytes_end_as_rows_or_reasons(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..300, with: u8) {
        let decoder = decoder(&options("All", &[]), None).unwrap();
        let values = golden();
        let mut changed = values[0].clone();
        let place = at % changed.len();
        changed[place] = with;
        let decoded = decoder.decode_records(&[&bytes, &changed, &values[0][..place], &values[0]], &|n| n.to_string()).unwrap();
        let rows: usize = decoded.batches.iter().map(|batch| batch.num_rows()).sum();
        prop_assert_eq!(rows + decoded.dead_letters.len(), 4);
        prop_assert_eq!(decoded.records.last(), Some(&3));
    }
}
