//! The decoder against what Spark answered, and against itself: cuts, neighbours, projections.

use super::*;
use crate::decode::options::OptionMap;
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pelton_core::MalformedPolicy;
use pelton_core::types::parse_columns;
use proptest::prelude::*;
use std::sync::Arc;

fn settings(columns: &str, policy: MalformedPolicy) -> DecoderSettings {
    let schema = Arc::new(Schema::new(parse_columns(columns, "UTC").unwrap()));
    DecoderSettings { on_malformed: policy, ..DecoderSettings::new(schema) }
}

fn input(bytes: &[u8]) -> Input<'_> {
    Input { bytes, file: "in.jsonl", first_line: 1, starts_file: true }
}

fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let format = FormatOptions::new().with_null("null");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> =
            batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &format).unwrap()).collect();
        rows.extend(
            (0..batch.num_rows())
                .map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|")),
        );
    }
    rows
}

fn decode(columns: &str, policy: MalformedPolicy, text: &str) -> Decoded {
    let decoder = JsonDecoder::new(&settings(columns, policy), &JsonOptions::default()).unwrap();
    decoder.decode(&input(text.as_bytes())).unwrap()
}

fn check(columns: &str, text: &str, expected: &[&str]) {
    assert_eq!(shown(&decode(columns, MalformedPolicy::Null, text).batches), expected, "{text}");
}

#[test]
fn values_arrive_as_in_spark() {
    check(
        "id int, st struct<a: int, b: struct<c: string>>, ar array<struct<x: int>>, m map<string, int>, \
         dec decimal(10,2), d double, f float, dt date, bin binary",
        concat!(
            r#"{"id": 1, "st": {"a": 1, "b": {"c": "q"}}, "ar": [{"x": 1}, {"x": null}, null], "m": {"k": 5}, "dec": 12.345, "d": "NaN", "f": 1.5, "dt": "2024-02-29", "bin": "aGk="}"#,
            "\n",
            r#"{"id": 2, "st": null, "ar": null, "m": {}, "dec": null, "d": "-Infinity", "f": null, "dt": null, "bin": null}"#,
            "\n",
            r#"{"id": 3, "st": {"a": null, "b": null}, "ar": [], "m": null, "dec": -0.005, "d": -0.0, "f": "NaN", "dt": "1900-01-01", "bin": ""}"#,
        ),
        &[
            "1|{a: 1, b: {c: q}}|[{x: 1}, {x: null}, null]|{k: 5}|12.35|NaN|1.5|2024-02-29|6869",
            "2|null|null|{}|null|-inf|null|null|null",
            "3|{a: null, b: null}|[]|null|-0.01|-0.0|NaN|1900-01-01|",
        ],
    );
}

#[test]
fn strings_take_everything_as_it_is_written() {
    let text = concat!(
        r#"{"s": {"a": [1,  2.50]}}"#,
        "\n",
        r#"{"s": 1.50}"#,
        "\n",
        r#"{"s": true}"#,
        "\n",
        r#"{"s": "q\"\u00e9"}"#,
    );
    check("s string", text, &[r#"{"a": [1,  2.50]}"#, "1.50", "true", "q\"é"]);
}

#[test]
fn a_wrong_type_is_null_in_its_struct_and_the_rest_stays() {
    let text = concat!(
        r#"{"a": "x", "b": 1, "s": {"u": 1, "v": "w"}, "l": [1, "2"], "m": {"k": "v"}}"#,
        "\n",
        r#"{"a": 1.5, "b": 99999999999, "s": 7, "l": [3], "m": {"k": 4}}"#,
    );
    let columns =
        "a int, b int, s struct<u: int, v: int>, l array<int>, m map<string, int>, _corrupt_record string";
    let rows = shown(&decode(columns, MalformedPolicy::Null, text).batches);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(rows[0], format!("null|1|{{u: 1, v: null}}|null|null|{}", lines[0]));
    assert_eq!(rows[1], format!("null|null|null|[3]|{{k: 4}}|{}", lines[1]));
}

#[test]
fn numbers_and_times_follow_spark() {
    let text = concat!(
        r#"{"b": 127, "s": -32768, "l": 9223372036854775807, "t": 1.0e2, "ts": "2026-01-01T01:00:00+01:00", "n": "2026-01-01 00:00:00"}"#,
        "\n",
        r#"{"b": 128, "s": 40000, "l": 9223372036854775808, "t": 7, "ts": 1767225600, "n": 5}"#,
        "\n",
        r#"{"b": "", "s": " 1", "l": "1", "t": "1.5", "ts": "", "n": ""}"#,
        "\n",
        r#"{"t": Infinity}"#,
        "\n",
        r#"{"t": "-INF"}"#,
    );
    check(
        "b byte, s short, l long, t double, ts timestamp, n timestamp_ntz",
        text,
        &[
            "127|-32768|9223372036854775807|100.0|2026-01-01T00:00:00Z|2026-01-01T00:00:00",
            "null|null|null|7.0|2026-01-01T00:00:00Z|null",
            "null|null|null|null|null|null",
            "null|null|null|inf|null|null",
            "null|null|null|-inf|null|null",
        ],
    );
}

#[test]
fn keys_may_come_in_any_order_twice_or_escaped() {
    let text = concat!(
        r#"{"a":1,"b":2}"#,
        "\n",
        r#"{"b":2,"x":[{}],"a":1}"#,
        "\n",
        r#"{"a":1,"a":3}"#,
        "\n",
        r#"{ "\u0062" : 4 , "A": 9 }"#,
        "\n",
        "{}\n",
        r#"{"b":5}"#,
        "\n",
        r#"{"a":1,"b":2,"a":null}"#,
    );
    check("a int, b int", text, &["1|2", "1|2", "3|null", "null|4", "null|null", "null|5", "null|2"]);
}

#[test]
fn white_space_may_vary_from_line_to_line() {
    let text = "{\"a\":1,\"b\":2}\n{\"a\": 3, \"b\":  4 }\n{ \"a\" :5,\"b\" :6}\n{\"a\":\t7,\"b\":8}";
    check("a int, b int", text, &["1|2", "3|4", "5|6", "7|8"]);
}

#[test]
fn a_bad_line_never_harms_its_neighbours() {
    let bad = [
        "{\"a\": 1",
        "not json",
        "{\"a\": 1}}",
        "{\"a\": 1} {\"a\": 2}",
        "null",
        "7",
        "[1]",
        "{\"a\": \"x\u{1}\"}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\" 1}",
        "{\"a\":1{\"b\":2}",
    ];
    for bad in bad {
        let text = format!("{{\"a\": 1}}\n{bad}\r\n{{\"a\": 3}}\n");
        let kept = decode("a int, _corrupt_record string", MalformedPolicy::Null, &text);
        assert_eq!(shown(&kept.batches), ["1|null".to_owned(), format!("null|{bad}"), "3|null".to_owned()]);
        let dropped = decode("a int", MalformedPolicy::Drop, &text);
        assert_eq!(
            (shown(&dropped.batches), dropped.dropped_rows),
            (vec!["1".into(), "3".into()], 1),
            "{bad}"
        );
        let letters = decode("a int", MalformedPolicy::DeadLetter, &text).dead_letters;
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].position.as_deref(), Some("in.jsonl:2"));
        assert_eq!(letters[0].payload, bad);
    }
}

#[test]
fn bytes_that_are_no_text_make_one_line_malformed() {
    let decoder =
        JsonDecoder::new(&settings("a string", MalformedPolicy::DeadLetter), &JsonOptions::default())
            .unwrap();
    let decoded = decoder.decode(&input(b"{\"a\": \"x\"}\n{\"a\": \"\xFF\"}\n{\"a\": \"y\"}")).unwrap();
    assert_eq!(shown(&decoded.batches), ["x", "y"]);
    assert_eq!(decoded.dead_letters[0].reason, "not UTF-8 at byte 8");
    assert_eq!(decoded.dead_letters[0].payload, &b"{\"a\": \"\xFF\"}"[..]);
}

#[test]
fn failing_names_file_line_column_and_reason() {
    let decoder =
        JsonDecoder::new(&settings("a int", MalformedPolicy::Fail), &JsonOptions::default()).unwrap();
    let error = decoder.decode(&input(b"{\"a\": 1}\n\n{\"a\": \"one\"}")).unwrap_err();
    assert_eq!(error.message(), r#"in.jsonl:3: column 'a': "one" is not int; the record: {"a": "one"}"#);
    let error = decoder.decode(&input(b"{\"a\": 1}\n{\"a\" 1}")).unwrap_err();
    assert_eq!(
        error.message(),
        "in.jsonl:2: not JSON at byte 6: expected ':' after the field's name; the record: {\"a\" 1}"
    );
}

#[test]
fn marks_blank_lines_and_carriage_returns_are_nothing() {
    check("a int", "\u{feff}{\"a\": 1}\r\n\r\n  \n{\"a\": 2}\r\n \t{\"a\": 3} ", &["1", "2", "3"]);
    check("a int", "", &[]);
}

#[test]
fn an_array_gives_a_row_for_each_element() {
    check("a int", "[{\"a\": 1}, {\"a\": 2} ]\n[]\n{\"a\": 3}", &["1", "2", "3"]);
    let decoded = decode("a int", MalformedPolicy::Drop, "[{\"a\": 1}, {\"a\": \"x\"}]\n{\"a\": 3}");
    assert_eq!((shown(&decoded.batches), decoded.dropped_rows), (vec!["3".to_owned()], 1));
}

#[test]
fn what_spark_tolerates_is_read() {
    check("a string", "{'a': 'it\\'s'}", &["it's"]);
    let map = OptionMap::from([
        ("allow_comments".to_owned(), true.into()),
        ("allow_unquoted_field_names".to_owned(), true.into()),
        ("allow_single_quotes".to_owned(), false.into()),
    ]);
    let options = JsonOptions::from_map(&map).unwrap();
    let decoder = JsonDecoder::new(&settings("a string", MalformedPolicy::Null), &options).unwrap();
    let decoded = decoder.decode(&input(b"{a: /* why */ \"x\"}\n{'a': 1}")).unwrap();
    assert_eq!(shown(&decoded.batches), ["x", "null"]);
}

#[test]
fn options_are_checked() {
    let refused = |name: &str, value: serde_json::Value| {
        JsonOptions::from_map(&OptionMap::from([(name.to_owned(), value)])).unwrap_err().to_string()
    };
    assert_eq!(
        refused("dateFormat", "x".into()),
        "format json has no option 'dateFormat'; did you mean 'date_format'?"
    );
    assert!(refused("timestamp_format", "yyyy-QQ".into()).starts_with("'yyyy-QQ' is not a datetime pattern"));
    assert!(refused("encoding", "latin1".into()).contains("must be utf-8"));
    assert!(refused("mode", "FAILFAST".into()).contains("on_malformed"));
}

#[test]
fn patterns_of_the_options_count() {
    let map = OptionMap::from([
        ("date_format".to_owned(), "dd.MM.yyyy".into()),
        ("timestamp_format".to_owned(), "dd.MM.yyyy HH:mm".into()),
    ]);
    let settings = settings("d date, t timestamp", MalformedPolicy::Null);
    let decoder = JsonDecoder::new(&settings, &JsonOptions::from_map(&map).unwrap()).unwrap();
    let decoded = decoder.decode(&input(br#"{"d": "29.02.2024", "t": "01.01.2026 12:30"}"#)).unwrap();
    assert_eq!(shown(&decoded.batches), ["2024-02-29|2026-01-01T12:30:00Z"]);
}

#[test]
fn only_wanted_columns_are_decoded_but_structure_is_checked() {
    let mut settings = settings("a int, b int, c string", MalformedPolicy::Drop);
    settings.columns = Some(vec!["c".into(), "a".into()]);
    let decoder = JsonDecoder::new(&settings, &JsonOptions::default()).unwrap();
    let decoded =
        decoder.decode(&input(b"{\"a\": 1, \"b\": \"x\", \"c\": \"y\"}\n{\"a\": 1, \"b\": [}")).unwrap();
    assert_eq!((shown(&decoded.batches), decoded.dropped_rows), (vec!["1|y".to_owned()], 1));
    settings.columns = Some(vec![]);
    let decoder = JsonDecoder::new(&settings, &JsonOptions::default()).unwrap();
    let decoded = decoder.decode(&input(b"{\"a\": 1}\n{}\n")).unwrap();
    assert_eq!(decoded.batches[0].num_rows(), 2);
}

#[test]
fn records_that_come_alone_may_have_line_breaks() {
    let decoder =
        JsonDecoder::new(&settings("a int", MalformedPolicy::DeadLetter), &JsonOptions::default()).unwrap();
    let records: [&[u8]; 3] = [b"{\n  \"a\": 1\n}", b"{\"a\"\n: \"x\ny\"}", b"{\"a\": 2}"];
    let decoded = decoder.decode_records(&records, &|n| format!("topic-0@{n}")).unwrap();
    assert_eq!(shown(&decoded.batches), ["1", "2"]);
    assert_eq!(decoded.dead_letters[0].position.as_deref(), Some("topic-0@1"));
}

#[test]
fn batches_are_cut() {
    let text = "{\"a\": 1}\n".repeat(20_000);
    let decoded = decode("a int", MalformedPolicy::Fail, &text);
    assert_eq!(decoded.batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [8192, 8192, 3616]);
    let text = format!("[{}]", vec!["{\"a\": 1}"; 20_000].join(","));
    let decoded = decode("a int", MalformedPolicy::Fail, &text);
    assert_eq!(decoded.batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [8192, 8192, 3616]);
    assert!(decoded.batches.iter().all(|b| b.column(0).len() == b.num_rows()));
}

/// A record or nonsense; nonsense is cut and changed JSON.
fn record() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(|f| format!("{f:e}")),
        "[a-zA-Zäöü \\\\\"\\u{1}\\n]{0,20}".prop_map(|s| serde_json::Value::String(s).to_string()),
        Just(r#"{"x": [1, "y", {}]}"#.to_owned()),
    ];
    let field = ("[abc]", value).prop_map(|(key, value)| format!("\"{key}\":{value}"));
    let object = prop::collection::vec(field, 0..5).prop_map(|fields| format!("{{{}}}", fields.join(", ")));
    (object, 0_u8..10, any::<prop::sample::Index>()).prop_map(|(object, fate, at)| match fate {
        0 => object.chars().take(at.index(object.chars().count())).collect(),
        _ => object,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_lines_decode_as_serde_json_reads_them(records in prop::collection::vec(record(), 0..20)) {
        let text = records.join("\n");
        let decoded = decode("a string, b string, c string", MalformedPolicy::Drop, &text);
        let parsed = |r: &String| serde_json::from_str::<serde_json::Value>(r).ok().filter(serde_json::Value::is_object);
        let good: Vec<serde_json::Value> = records.iter().filter_map(parsed).collect();
        let bad = records.iter().filter(|r| !r.is_empty() && parsed(r).is_none()).count();
        prop_assert_eq!(decoded.dropped_rows as usize, bad, "{}", text);
        prop_assert_eq!(decoded.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), good.len());
        for (i, value) in good.iter().enumerate() {
            for (c, name) in ["a", "b", "c"].into_iter().enumerate() {
                let strings = decoded.batches[0].column(c).as_any().downcast_ref::<arrow::array::StringArray>().unwrap();
                let ours = strings.is_valid(i).then(|| strings.value(i));
                match value.get(name) {
                    None | Some(serde_json::Value::Null) => prop_assert_eq!(ours, None),
                    Some(serde_json::Value::String(text)) => prop_assert_eq!(ours, Some(text.as_str())),
                    Some(other) => prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(ours.unwrap()).unwrap(), other),
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in prop::collection::vec("[{}\\[\\]\",:ab0\\\\ \n]{0,30}", 0..4)) {
        let decoder = JsonDecoder::new(&settings("a int, b array<string>", MalformedPolicy::Null), &JsonOptions::default()).unwrap();
        let mut text = bytes;
        cut.iter().for_each(|piece| text.extend_from_slice(piece.as_bytes()));
        prop_assert!(decoder.decode(&input(&text)).is_ok());
    }
}
