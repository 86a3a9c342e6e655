//! The decoder against Spark's rules.

use super::*;
use crate::decode::options::OptionMap;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pelton_core::MalformedPolicy;
use pelton_core::types::parse_columns;
use serde_json::{Value, json};
use std::sync::Arc;

fn decoder(columns: &str, policy: MalformedPolicy, options: Value) -> CsvDecoder {
    let map: OptionMap = serde_json::from_value(options).unwrap();
    let schema = Arc::new(Schema::new(parse_columns(columns, "UTC").unwrap()));
    let settings = DecoderSettings { on_malformed: policy, ..DecoderSettings::new(schema) };
    CsvDecoder::new(&settings, &CsvOptions::from_map(&map).unwrap()).unwrap()
}

fn input(text: &str) -> Input<'_> {
    Input { bytes: text.as_bytes(), file: "in.csv", first_line: 1, starts_file: true }
}

fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let format = FormatOptions::new().with_null("null");
    let row = |batch: &RecordBatch, row: usize| {
        let value =
            |c: &arrow::array::ArrayRef| ArrayFormatter::try_new(c, &format).unwrap().value(row).to_string();
        batch.columns().iter().map(value).collect::<Vec<_>>().join("|")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |i| row(batch, i))).collect()
}

fn check(columns: &str, options: Value, text: &str, expected: &[&str]) {
    let decoded = decoder(columns, MalformedPolicy::Null, options).decode(&input(text)).unwrap();
    assert_eq!(shown(&decoded.batches), expected, "{text}");
}

#[test]
fn fields_become_values() {
    check(
        "s string, i int, l long, d double, b boolean, dt date, ts timestamp, dec decimal(5,2), bin binary",
        json!({}),
        "x,1,-2,1.5,TRUE,2024-02-29,2026-01-01 00:00:00,\"1,2.345\",hi\n,,,,,,,,\n\"a,\"\"b\",+7,0,-Inf,false,2024-02-29,2026-01-01T01:00:00+01:00,.5,x",
        &[
            "x|1|-2|1.5|true|2024-02-29|2026-01-01T00:00:00Z|12.35|6869",
            "null|null|null|null|null|null|null|null|null",
            "a,\"b|7|0|-inf|false|2024-02-29|2026-01-01T00:00:00Z|0.50|78",
        ],
    );
}

#[test]
fn null_and_empty_values_follow_spark() {
    check("a string, b int", json!({}), "\"\",1\n,2", &["null|1", "null|2"]);
    check(
        "a string, b int",
        json!({"null_value": "NA"}),
        "\"\",NA\n,2\nNA,3\n\"NA\",4",
        &["|null", "null|2", "null|3", "null|4"],
    );
    check("a string", json!({"null_value": "-", "empty_value": "E"}), "\"\"\nx", &["E", "x"]);
}

#[test]
fn too_few_and_too_many_fields_are_malformed() {
    let text = "1,x\n2\n3,y,z\n4,w";
    check(
        "a int, b string, _corrupt_record string",
        json!({}),
        text,
        &["1|x|null", "2|null|2", "3|y|3,y,z", "4|w|null"],
    );
    let decoded =
        decoder("a int, b string", MalformedPolicy::DeadLetter, json!({})).decode(&input(text)).unwrap();
    assert_eq!(shown(&decoded.batches), ["1|x", "4|w"]);
    let letters: Vec<_> =
        decoded.dead_letters.iter().map(|l| (l.position.clone().unwrap(), l.reason.as_str())).collect();
    assert_eq!(
        letters,
        [("in.csv:2".into(), "1 fields instead of 2"), ("in.csv:3".into(), "3 fields instead of 2")]
    );
}

#[test]
fn failing_names_file_line_column_and_reason() {
    let failing = decoder("a int, b string", MalformedPolicy::Fail, json!({"header": true}));
    let error = failing.decode(&input("a,b\n1,x\n\none,y\n")).unwrap_err();
    assert_eq!(error.message(), "in.csv:4: column 'a': \"one\" is not int; the record: one,y");
    let error = failing.decode(&input("a,b\n\"1,x\n")).unwrap_err();
    assert_eq!(error.message(), "in.csv:2: a quote is not closed; the record: \"1,x");
}

#[test]
fn headers_comments_marks_and_blank_lines_are_no_rows() {
    let options = json!({"header": true, "comment": "#", "sep": ";"});
    check("a int, b int", options, "\u{feff}# hello\r\n\r\na;b\r\n1;2\r\n#3;4\r\n  \r\n5;6", &["1|2", "5|6"]);
    check("a int, b int", json!({"header": true}), "a,b\n", &[]);
    check("a int", json!({"header": true}), "", &[]);
    let later = Input { starts_file: false, first_line: 9, ..input("1\n") };
    let decoded = decoder("a int", MalformedPolicy::Fail, json!({"header": true})).decode(&later).unwrap();
    assert_eq!(shown(&decoded.batches), ["1"]);
}

#[test]
fn a_header_that_differs_is_an_error_only_if_asked_for() {
    check("a int, b int", json!({"header": true}), "b,a\n1,2", &["1|2"]);
    let strict =
        decoder("a int, b int", MalformedPolicy::Null, json!({"header": true, "enforce_schema": false}));
    assert_eq!(shown(&strict.decode(&input("A,b\n1,2")).unwrap().batches), ["1|2"]);
    let error = strict.decode(&input("b,a\n1,2")).unwrap_err();
    assert_eq!(
        error.message(),
        "in.csv: the header does not fit the schema: the file has (b, a), the schema (a, b)"
    );
}

#[test]
fn line_breaks_in_quotes_are_read_if_wanted() {
    let text = "1,\"x\ny\"\nbad\n2,z\n";
    check("a int, b string", json!({"multi_line": true}), text, &["1|x\ny", "null|null", "2|z"]);
    let decoded = decoder("a int, b string", MalformedPolicy::DeadLetter, json!({"multi_line": true}))
        .decode(&input(text))
        .unwrap();
    assert_eq!(decoded.dead_letters[0].position.as_deref(), Some("in.csv:3"));
    let decoded = decoder("a int, b string", MalformedPolicy::Drop, json!({})).decode(&input(text)).unwrap();
    assert_eq!((shown(&decoded.batches), decoded.dropped_rows), (vec!["2|z".to_owned()], 3));
}

#[test]
fn only_wanted_columns_are_decoded_but_fields_are_counted() {
    let schema = Arc::new(Schema::new(parse_columns("a int, b int, c string", "UTC").unwrap()));
    let settings = DecoderSettings {
        columns: Some(vec!["c".into()]),
        on_malformed: MalformedPolicy::Drop,
        ..DecoderSettings::new(schema)
    };
    let decoder = CsvDecoder::new(&settings, &CsvOptions::default()).unwrap();
    let decoded = decoder.decode(&input("1,x,y\n1,2\n")).unwrap();
    assert_eq!((shown(&decoded.batches), decoded.dropped_rows), (vec!["y".to_owned()], 1));
}

#[test]
fn options_are_checked() {
    let refused = |options: Value| {
        let map: OptionMap = serde_json::from_value(options).unwrap();
        CsvOptions::from_map(&map).unwrap_err().to_string()
    };
    assert_eq!(
        refused(json!({"nullValue": "NA"})),
        "format csv has no option 'nullValue'; did you mean 'null_value'?"
    );
    assert!(refused(json!({"sep": "\""})).contains("must differ"));
    assert!(refused(json!({"date_format": "QQ"})).contains("not a datetime pattern"));
}
