//! Tests of [`super`].

use super::*;
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int8Array, Int64Array,
    ListArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema};
use serde_json::json;
use std::sync::Arc;

fn lines(encoder: &JsonEncoder, columns: Vec<(&str, ArrayRef)>) -> Vec<String> {
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    let mut out = Vec::new();
    encoder.encode(&batch, &mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

fn one(column: impl arrow::array::Array + 'static) -> Vec<String> {
    lines(&JsonEncoder::default(), vec![("x", Arc::new(column))])
}

#[test]
fn null_fields_are_left_out_unless_told_otherwise() {
    let columns = || -> Vec<(&str, ArrayRef)> {
        vec![
            ("a", Arc::new(Int64Array::from(vec![None, Some(1), None]))),
            ("b", Arc::new(BooleanArray::from(vec![Some(true), None, None]))),
        ]
    };
    assert_eq!(lines(&JsonEncoder::default(), columns()), [r#"{"b":true}"#, r#"{"a":1}"#, "{}"]);
    assert_eq!(
        lines(&JsonEncoder::default().with_null_fields(), columns()),
        [r#"{"a":null,"b":true}"#, r#"{"a":1,"b":null}"#, r#"{"a":null,"b":null}"#]
    );
}

#[test]
fn strings_are_escaped_as_by_jackson() {
    let texts = ["plain é 😀 /", "\"q\" \\ \n\r\t\u{8}\u{c}\u{1f}", ""];
    let found = one(StringArray::from(texts.to_vec()));
    assert_eq!(found[0], r#"{"x":"plain é 😀 /"}"#);
    assert_eq!(found[1], r#"{"x":"\"q\" \\ \n\r\t\b\f\u001F"}"#);
    assert_eq!(found[2], r#"{"x":""}"#);
    for (line, text) in found.iter().zip(texts) {
        assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap()["x"], text);
    }
}

#[test]
fn every_plain_type_has_its_form() {
    let floats = Float64Array::from(vec![1.0, 1e10, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    let expected = ["1.0", "1.0E10", "\"NaN\"", "\"Infinity\"", "\"-Infinity\""];
    assert_eq!(one(floats), expected.map(|x| format!("{{\"x\":{x}}}")));
    assert_eq!(one(Int8Array::from(vec![-128])), [r#"{"x":-128}"#]);
    let decimals = Decimal128Array::from(vec![-150]).with_precision_and_scale(10, 2).unwrap();
    assert_eq!(one(decimals), [r#"{"x":-1.50}"#]);
    assert_eq!(one(Date32Array::from(vec![15_706])), [r#"{"x":"2013-01-01"}"#]);
    assert_eq!(one(BinaryArray::from(vec![&b"hi\xff"[..]])), [r#"{"x":"aGn/"}"#]);
    let time = TimestampMicrosecondArray::from(vec![1_357_034_400_123_456]);
    assert_eq!(one(time.clone().with_timezone("UTC")), [r#"{"x":"2013-01-01T10:00:00.123Z"}"#]);
    assert_eq!(one(time.clone().with_timezone("Asia/Tokyo")), [r#"{"x":"2013-01-01T19:00:00.123+09:00"}"#]);
    assert_eq!(one(time), [r#"{"x":"2013-01-01T10:00:00.123"}"#]);
}

#[test]
fn nested_values_keep_their_nulls_where_spark_does() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(1), None]),
        Some(vec![]),
        None,
    ]);
    assert_eq!(one(list), [r#"{"x":[1,null]}"#, r#"{"x":[]}"#, "{}"]);

    let fields =
        Fields::from(vec![Field::new("a b", DataType::Int64, true), Field::new("c", DataType::Utf8, true)]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None])),
        Arc::new(StringArray::from(vec![None::<&str>, None])),
    ];
    let inner = StructArray::new(fields, columns, None);
    assert_eq!(one(inner), [r#"{"x":{"a b":1}}"#, r#"{"x":{}}"#]);
}

#[test]
fn maps_are_objects_whatever_their_keys() {
    use arrow::array::{Int32Builder, MapBuilder, StringBuilder};
    let mut map = MapBuilder::new(None, Int32Builder::new(), StringBuilder::new());
    map.keys().append_value(7);
    map.values().append_value("seven");
    map.keys().append_value(8);
    map.values().append_null();
    map.append(true).unwrap();
    assert_eq!(one(map.finish()), [r#"{"x":{"7":"seven","8":null}}"#]);
}

#[test]
fn slices_are_written_from_their_start() {
    let column: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c"), Some("d")]));
    let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..4).map(|n| Some((0..n).map(Some).collect::<Vec<_>>())),
    ));
    let batch = RecordBatch::try_from_iter_with_nullable([("s", column, true), ("l", list, true)]).unwrap();
    let mut out = Vec::new();
    JsonEncoder::default().encode(&batch.slice(1, 2), &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "{\"l\":[0]}\n{\"s\":\"c\",\"l\":[0,1]}\n");
    assert_eq!(JsonEncoder::default().encode_row(&batch, 3).unwrap(), br#"{"s":"d","l":[0,1,2]}"#);
}

#[test]
fn formats_come_from_options() {
    let options = OptionMap::from([
        ("timestamp_format".to_owned(), json!("yyyy/MM/dd HH:mm")),
        ("ignore_null_fields".to_owned(), json!("false")),
    ]);
    let encoder = JsonEncoder::with_options(&Schema::empty(), &options).unwrap();
    let time = TimestampMicrosecondArray::from(vec![Some(0), None]).with_timezone("UTC");
    assert_eq!(
        lines(&encoder, vec![("x", Arc::new(time))]),
        [r#"{"x":"1970/01/01 00:00"}"#, r#"{"x":null}"#]
    );
    let wrong = OptionMap::from([("timestampFormat".to_owned(), json!("yyyy"))]);
    let error = JsonEncoder::with_options(&Schema::empty(), &wrong).unwrap_err();
    assert!(error.message().contains("did you mean 'timestamp_format'?"), "{error}");
}
