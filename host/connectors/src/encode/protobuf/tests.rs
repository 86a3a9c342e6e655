//! The bytes that Google's library writes for the same rows, and what has no place in a message.

use super::*;
use crate::decode::protobuf::{ProtobufDecoder, ProtobufOptions};
use crate::decode::{Decoder, DecoderSettings};
use crate::testing::{hex, json_lines, path, text};
use arrow::array::{ArrayRef, Int32Array, StringArray};
use serde_json::json;
use std::sync::Arc;

fn map(message: &str) -> OptionMap {
    let file = path("all_types.desc").display().to_string();
    let pairs = [("message_name", json!(message)), ("desc_file_path", json!(file))];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

fn decode(message: &str, records: &[&[u8]]) -> Vec<RecordBatch> {
    let options = ProtobufOptions::from_map(&map(message)).unwrap();
    let settings = DecoderSettings::new(Arc::new(options.columns("UTC").unwrap()));
    let decoder = ProtobufDecoder::new(&settings, &options).unwrap();
    decoder.decode_records(records, &|n| n.to_string()).unwrap().batches
}

#[test]
fn messages_are_the_bytes_that_another_implementation_writes() {
    let values: Vec<String> = serde_json::from_str(&text("all_types.proto.json")).unwrap();
    let values: Vec<Vec<u8>> = values.iter().map(|value| hex(value)).collect();
    let batches = decode("All", &[&values[0], &values[1]]);
    let mut records = Records::default();
    let encoder = ProtobufEncoder::new(&batches[0].schema(), &map("test.pelton.All")).unwrap();
    encoder.encode_records(&batches[0], &mut records).unwrap();
    assert_eq!(records.get(0).unwrap(), values[0]);
    assert_eq!(records.get(1).unwrap(), values[1]);
}

#[test]
fn of_a_oneof_the_last_column_counts() {
    let number: ArrayRef = Arc::new(Int32Array::from(vec![Some(0), Some(2), None]));
    let word: ArrayRef = Arc::new(StringArray::from(vec![None, Some("w"), Some("")]));
    let encoded = |columns: Vec<(&str, ArrayRef)>| {
        let rows =
            RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let mut records = Records::default();
        ProtobufEncoder::new(&rows.schema(), &map("All"))
            .unwrap()
            .encode_records(&rows, &mut records)
            .unwrap();
        let all: Vec<Vec<u8>> = (0..3).filter_map(|nth| records.get(nth)).map(<[u8]>::to_vec).collect();
        all
    };
    let word_last = encoded(vec![("number", number.clone()), ("word", word.clone())]);
    assert_eq!(word_last, [vec![0x88, 1, 0], vec![0x92, 1, 1, b'w'], vec![0x92, 1, 0]]);
    let number_last = encoded(vec![("word", word), ("number", number)]);
    assert_eq!(number_last[1], [0x88, 1, 2]);
    assert!(json_lines(&decode("All", &[&number_last[1]])).contains(r#""number":2,"word":null"#));
}

#[test]
fn what_a_message_has_no_place_for_is_refused() {
    let column: ArrayRef = Arc::new(StringArray::from(vec!["CLUBS"]));
    let rows = |name: &str| RecordBatch::try_from_iter([(name, column.clone())]).unwrap();
    let encoder = |name: &str| ProtobufEncoder::new(&rows(name).schema(), &map("All"));
    let start = "the rows cannot be written as 'test.pelton.All': ";
    assert_eq!(encoder("new").unwrap_err().message(), format!("{start}it has no field 'new'"));
    let error = encoder("whole").unwrap_err();
    assert_eq!(error.message(), format!("{start}column 'whole': string cannot be written as int32"));
    let error = encoder("suit").unwrap().encode_records(&rows("suit"), &mut Records::default()).unwrap_err();
    assert_eq!(error.message(), "column 'suit' is 'CLUBS', which is none of the values of test.pelton.Suit");
}
