//! Spark's functions and operators: what they give and where they fail.

use super::run;
use serde_json::{Value, json};

const COLUMNS: &str = "i int, l long, d double, s string, ts timestamp, dt date, ai array<int>, m map<string, int>, \
                       st struct<a: int, b: struct<c: string>>, z int, dec decimal(10,2), e array<int>";

fn row() -> Value {
    json!({"i": 7, "l": 9_000_000_000_i64, "d": 2.5, "s": "Hello World", "ts": "2026-03-29T12:34:56.789Z",
           "dt": "2026-02-28", "ai": [3, null, 1], "m": {"k": 5}, "st": {"a": 1, "b": {"c": "q"}}, "z": 0,
           "dec": 12.34, "e": []})
}

fn eval(expr: &str) -> Result<Value, String> {
    let steps = format!("- sql: |\n    SELECT {expr} AS x FROM input\n");
    match run(&steps, COLUMNS, &[row()]) {
        Ok(rows) => Ok(rows.first().map_or(Value::Null, |row| row["x"].clone())),
        Err(error) => Err(error.message().to_owned()),
    }
}

/// All failures at once, so that one run of the test says what is wrong.
fn check(cases: &[(&str, Value)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(expr, wanted)| match eval(expr) {
            Ok(value) if value == *wanted => None,
            Ok(value) => Some(format!("{expr}: {value} instead of {wanted}")),
            Err(error) => Some(format!("{expr}: {error}")),
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn fails(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(expr, wanted)| match eval(expr) {
            Err(error) if error.to_lowercase().contains(&wanted.to_lowercase()) => None,
            other => Some(format!("{expr}: {other:?} instead of an error with '{wanted}'")),
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn arithmetic_is_sparks_ansi_mode() {
    check(&[
        ("i / 2", json!(3.5)),
        ("i div 2", json!(3)),
        ("i % 4", json!(3)),
        ("d % 2", json!(0.5)),
        ("i + 1", json!(8)),
        ("86400 * 1000 * 1000L", json!(86_400_000_000_i64)),
        ("2 + 3 * 4 - 1", json!(13)),
        ("i * d", json!(17.5)),
        ("dec * 2", json!(24.68)),
        ("1 == 1", json!(true)),
        ("NULL <=> NULL", json!(true)),
        ("i <=> NULL", json!(false)),
        ("!(i > 3)", json!(false)),
        ("try_add(2147483647, 1)", Value::Null),
        ("try_divide(i, z)", Value::Null),
        ("try_divide(i, 2)", json!(3.5)),
        ("try_subtract(i, 2)", json!(5)),
        ("try_multiply(l, l)", Value::Null),
        ("try_cast('x' AS INT)", Value::Null),
        ("try_cast('12' AS LONG)", json!(12)),
        ("CAST('12' AS BIGINT) + 1", json!(13)),
        ("CAST(i AS STRING)", json!("7")),
        ("round(2.5)", json!(3)),
        ("log(e())", json!(1.0)),
        ("log(2, 8)", json!(3.0)),
        ("pow(2, 3)", json!(8.0)),
        ("i + '1'", json!(8)),
        ("typeof(i + '1')", json!("bigint")),
        ("'1.5' * d", json!(3.75)),
        ("dec - '1'", json!(11.34)),
        ("'9' % i", json!(2)),
        ("abs(-3)", json!(3)),
        ("sign(-3.0)", json!(-1.0)),
        ("greatest(1, 3, 2)", json!(3)),
        ("mod(i, 4)", json!(3)),
        ("pmod(-7, 4)", json!(1)),
    ]);
    fails(&[
        ("i / z", "division by zero"),
        ("d / z", "division by zero"),
        ("i % z", "by zero"),
        ("i div z", "division by zero"),
        ("i + 2147483647", "overflow"),
        ("l * l", "overflow"),
        ("2147483647 + 1", "overflow"),
        ("86400 * 1000 * 1000", "write one of them as a long"),
        ("9223372036854775807 + 1", "overflow"),
        ("CAST(s AS INT)", "cannot cast 'Hello World' to int; use try_cast(… AS int) to get NULL instead"),
        ("s + 1", "cannot cast 'Hello World' to long"),
        ("make_timestamp(2026, 13, 1, 0, 0, 0)", "make_timestamp(2026, 13, 1, 0, 0, 0.000000) is no time"),
        ("make_timestamp(2026, 1, 1, 0, 0, 0, 'Mars')", "'Mars' is no time zone"),
        ("CAST(l AS INT)", "cannot cast 9000000000 to int; use try_cast(… AS int) to get NULL instead"),
    ]);
}

#[test]
fn casts_are_functions_as_well() {
    check(&[
        ("string(i)", json!("7")),
        ("int('12')", json!(12)),
        ("typeof(bigint(i))", json!("bigint")),
        ("typeof(smallint(i))", json!("smallint")),
        ("typeof(tinyint(i))", json!("tinyint")),
        ("typeof(binary(s))", json!("binary")),
        ("double('1.5')", json!(1.5)),
        ("typeof(float(i))", json!("float")),
        ("boolean('true')", json!(true)),
        ("string(timestamp('2026-01-02 03:04:05'))", json!("2026-01-02 03:04:05")),
        ("string(date('2026-01-02'))", json!("2026-01-02")),
        ("typeof(decimal(i))", json!("decimal(10,0)")),
        ("year('2026-05-06')", json!(2026)),
        ("dayofyear('2026-02-01')", json!(32)),
        ("string(make_timestamp(2026, 1, 2, 3, 4, 5.5))", json!("2026-01-02 03:04:05.5")),
        ("string(make_timestamp(2026, 1, 2, 3, 4, 60))", json!("2026-01-02 03:05:00")),
        ("string(make_timestamp(2026, 7, 2, 3, 4, 5, 'Europe/Berlin'))", json!("2026-07-02 01:04:05")),
        ("make_timestamp(NULL, 1, 2, 3, 4, 5)", Value::Null),
    ]);
}

#[test]
fn a_type_has_the_name_of_sparks_catalog() {
    check(&[
        ("typeof(1)", json!("int")),
        ("typeof(l)", json!("bigint")),
        ("typeof(d)", json!("double")),
        ("typeof(s)", json!("string")),
        ("typeof(dec)", json!("decimal(10,2)")),
        ("typeof(ts)", json!("timestamp")),
        ("typeof(ai)", json!("array<int>")),
        ("typeof(m)", json!("map<string,int>")),
        ("typeof(st)", json!("struct<a:int,b:struct<c:string>>")),
    ]);
}

#[test]
fn text_functions_are_sparks() {
    check(&[
        ("lower(s)", json!("hello world")),
        ("ucase(s)", json!("HELLO WORLD")),
        ("concat(s, '!', NULL)", Value::Null),
        ("concat_ws('-', 'a', NULL, 'b')", json!("a-b")),
        ("s || '!'", json!("Hello World!")),
        ("\"double\" || 'single'", json!("doublesingle")),
        ("substring(s, 1, 5)", json!("Hello")),
        ("substr(s, -5)", json!("World")),
        ("instr(s, 'World')", json!(7)),
        ("locate('o', s, 6)", json!(8)),
        ("length(s)", json!(11)),
        ("char_length(s)", json!(11)),
        ("split(s, ' ')", json!(["Hello", "World"])),
        ("split('a1b22c', '[0-9]+')", json!(["a", "b", "c"])),
        ("split('a,b,c', ',', 2)", json!(["a", "b,c"])),
        ("split('a,b,', ',')", json!(["a", "b", ""])),
        ("split(' lead  double ', ' ')", json!(["", "lead", "", "double", ""])),
        ("regexp_extract('100-200', '(\\\\d+)-(\\\\d+)', 2)", json!("200")),
        ("regexp_extract('x', '(\\\\d+)', 1)", json!("")),
        ("regexp_replace('a1b2', '(\\\\d)', '<$1>')", json!("a<1>b<2>")),
        ("regexp_extract_all('a1b2', '\\\\d', 0)", json!(["1", "2"])),
        ("s RLIKE '^Hel'", json!(true)),
        ("s NOT RLIKE '^Hel'", json!(false)),
        ("rlike(s, 'W.r')", json!(true)),
        ("s LIKE 'Hel%'", json!(true)),
        ("s ILIKE 'hel%'", json!(true)),
        ("initcap('hELLO o''neil-x')", json!("Hello O'neil-x")),
        ("trim('  x ')", json!("x")),
        ("lpad('7', 3, '0')", json!("007")),
        ("replace(s, 'World', 'x')", json!("Hello x")),
        ("reverse('abc')", json!("cba")),
        ("repeat('ab', 2)", json!("abab")),
        ("startswith(s, 'Hello')", json!(true)),
        ("contains(s, 'lo W')", json!(true)),
        ("translate('abc', 'ab', 'x')", json!("xc")),
        ("format_string('%d-%s', i, s)", json!("7-Hello World")),
        ("md5('a')", json!("0cc175b9c0f1b6a831c399e269772661")),
        ("sha2('a', 256)", json!("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")),
        ("ascii('A')", json!(65)),
        ("levenshtein('kitten', 'sitting')", json!(3)),
    ]);
    fails(&[("s RLIKE '('", "not a regular expression"), ("regexp_extract(s, '(l)', 2)", "no group 2")]);
}

#[test]
fn conditions_are_sparks() {
    check(&[
        ("coalesce(NULL, i)", json!(7)),
        ("nvl(NULL, 'x')", json!("x")),
        ("ifnull(NULL, 'x')", json!("x")),
        ("nvl2(NULL, 1, 2)", json!(2)),
        ("nullif(1, 1)", Value::Null),
        ("if(i > 3, 'big', 'small')", json!("big")),
        ("CASE WHEN i > 10 THEN 'a' WHEN i > 5 THEN 'b' ELSE 'c' END", json!("b")),
        ("CASE i WHEN 7 THEN 'seven' END", json!("seven")),
        ("i IN (1, 7)", json!(true)),
        ("i BETWEEN 1 AND 7", json!(true)),
        ("isnull(s)", json!(false)),
        ("isnotnull(s)", json!(true)),
        ("equal_null(NULL, NULL)", json!(true)),
        ("zeroifnull(CAST(NULL AS INT))", json!(0)),
        ("nullifzero(0)", Value::Null),
        ("dayname(dt)", json!("Sat")),
        ("regexp_substr(s, 'o W')", json!("o W")),
        ("date_from_unix_date(1)", json!("1970-01-02")),
        ("log1p(0)", json!(0.0)),
    ]);
}

#[test]
fn times_are_sparks() {
    check(&[
        ("to_timestamp('2026-01-02 03:04:05')", json!("2026-01-02T03:04:05.000Z")),
        ("to_timestamp('02/01/2026 03:04', 'dd/MM/yyyy HH:mm')", json!("2026-01-02T03:04:00.000Z")),
        ("try_to_timestamp('garbage')", Value::Null),
        ("to_date('2026-01-02')", json!("2026-01-02")),
        ("to_date('02.01.26', 'dd.MM.yy')", json!("2026-01-02")),
        ("to_date(ts)", json!("2026-03-29")),
        ("date_format(ts, 'yyyy/MM/dd HH:mm:ss.SSS EEE')", json!("2026/03/29 12:34:56.789 Sun")),
        ("date_format(dt, 'd MMM')", json!("28 Feb")),
        ("date_trunc('HOUR', ts)", json!("2026-03-29T12:00:00.000Z")),
        ("trunc(dt, 'MM')", json!("2026-02-01")),
        ("unix_timestamp(ts)", json!(1_774_787_696)),
        ("unix_timestamp('1970-01-01 00:01:00')", json!(60)),
        ("unix_timestamp()", json!(1_767_225_600)),
        ("from_unixtime(60)", json!("1970-01-01 00:01:00")),
        ("from_unixtime(60, 'HH:mm')", json!("00:01")),
        ("timestamp_millis(1500)", json!("1970-01-01T00:00:01.500Z")),
        ("timestamp_seconds(1.5)", json!("1970-01-01T00:00:01.500Z")),
        ("unix_millis(ts)", json!(1_774_787_696_789_i64)),
        ("year(ts)", json!(2026)),
        ("month(dt)", json!(2)),
        ("day(dt)", json!(28)),
        ("dayofweek(dt)", json!(7)),
        ("dayofyear(dt)", json!(59)),
        ("weekofyear(dt)", json!(9)),
        ("quarter(ts)", json!(1)),
        ("hour(ts)", json!(12)),
        ("minute(ts)", json!(34)),
        ("CAST(extract(SECOND FROM ts) AS STRING)", json!("56.789000")),
        ("CAST(date_part('second', ts) AS STRING)", json!("56.789000")),
        ("unix_timestamp(TIMESTAMP '1969-12-31 23:59:59.5')", json!(0)),
        ("date_add(dt, 1)", json!("2026-03-01")),
        ("date_sub(dt, 28)", json!("2026-01-31")),
        ("datediff(dt, DATE '2026-02-01')", json!(27)),
        ("add_months(dt, 1)", json!("2026-03-28")),
        ("last_day(dt)", json!("2026-02-28")),
        ("ts + INTERVAL 10 MINUTES", json!("2026-03-29T12:44:56.789Z")),
        ("ts - INTERVAL '1' HOUR", json!("2026-03-29T11:34:56.789Z")),
        ("ts > TIMESTAMP '2026-01-01'", json!(true)),
        ("current_timestamp()", json!("2026-01-01T00:00:00.123Z")),
        ("current_timestamp", json!("2026-01-01T00:00:00.123Z")),
        ("now()", json!("2026-01-01T00:00:00.123Z")),
        ("current_date()", json!("2026-01-01")),
        ("current_date", json!("2026-01-01")),
        ("CAST('2026-01-02' AS DATE)", json!("2026-01-02")),
        ("CAST('2026-01-02T03:04:05Z' AS TIMESTAMP)", json!("2026-01-02T03:04:05.000Z")),
        ("CAST(0 AS TIMESTAMP)", json!("1970-01-01T00:00:00.000Z")),
        ("CAST(100 AS TIMESTAMP)", json!("1970-01-01T00:01:40.000Z")),
        ("CAST(ts AS LONG)", json!(1_774_787_696)),
        ("CAST(ts AS STRING)", json!("2026-03-29 12:34:56.789")),
    ]);
    fails(&[
        ("to_timestamp('garbage')", "is not a timestamp"),
        ("date_format(ts, 'YYYY')", "letter 'Y'"),
        ("to_date('2026-13-01')", "is not a date"),
    ]);
}

#[test]
fn nested_values_are_reached_as_in_spark() {
    check(&[
        ("st.a", json!(1)),
        ("st.b.c", json!("q")),
        ("ST.B.C", json!("q")),
        ("ai[0]", json!(3)),
        ("m['k']", json!(5)),
        ("m['nope']", Value::Null),
        ("element_at(ai, 1)", json!(3)),
        ("element_at(ai, -1)", json!(1)),
        ("element_at(m, 'k')", json!(5)),
        ("try_element_at(ai, 9)", Value::Null),
        ("get(ai, 9)", Value::Null),
        ("size(ai)", json!(3)),
        ("size(m)", json!(1)),
        ("array_size(ai)", json!(3)),
        ("array(1, 2)", json!([1, 2])),
        ("map('a', 1, 'b', 2)", json!({"a": 1, "b": 2})),
        ("struct(i, s AS t, 1)", json!({"i": 7, "t": "Hello World", "col3": 1})),
        ("named_struct('x', i)", json!({"x": 7})),
        ("array_contains(ai, 1)", json!(true)),
        ("array_position(ai, 1)", json!(3)),
        ("array_position(ai, 9)", json!(0)),
        ("concat(ai, array(7))", json!([3, null, 1, 7])),
        ("ai || array(7)", json!([3, null, 1, 7])),
        ("concat(ai, NULL)", Value::Null),
        ("reverse(ai)", json!([1, null, 3])),
        ("reverse('héj')", json!("jéh")),
        ("array_remove(array(2, NULL, 2, 1), 2)", json!([null, 1])),
        ("array_sort(ai)", json!([1, 3, null])),
        ("array_append(ai, 9)", json!([3, null, 1, 9])),
        ("array_append(CAST(NULL AS array<int>), 9)", Value::Null),
        ("array_prepend(ai, 9)", json!([9, 3, null, 1])),
        ("flatten(array(ai, array(7)))", json!([3, null, 1, 7])),
        ("flatten(array(ai, CAST(NULL AS array<int>)))", Value::Null),
        ("size(CAST(NULL AS array<int>))", Value::Null),
        ("cardinality(m)", json!(1)),
        ("isnan(CAST(NULL AS double))", json!(false)),
        ("nvl2(s, 1, 2)", json!(1)),
        ("sort_array(ai)", json!([null, 1, 3])),
        ("sort_array(ai, false)", json!([3, 1, null])),
        ("array_distinct(array(1, 1, 2))", json!([1, 2])),
        ("array_join(array('a', 'b'), '-')", json!("a-b")),
        ("array_max(array(1, 3))", json!(3)),
        ("map_keys(m)", json!(["k"])),
        ("map_values(m)", json!([5])),
        ("map_contains_key(m, 'k')", json!(true)),
        ("transform(array(1, 2), x -> x + 1)", json!([2, 3])),
        ("filter(array(1, 2), x -> x > 1)", json!([2])),
        ("exists(array(1, 2), x -> x > 1)", json!(true)),
        ("sequence(1, 3)", json!([1, 2, 3])),
    ]);
    fails(&[
        ("ai[3]", "no element 3"),
        ("element_at(ai, 0)", "counts from 1"),
        ("i.x", "no field 'x'"),
        ("i[0]", "no items"),
    ]);
}

#[test]
fn json_functions_are_sparks() {
    check(&[
        ("to_json(st)", json!(r#"{"a":1,"b":{"c":"q"}}"#)),
        (
            "to_json(named_struct('t', ts, 'n', CAST(NULL AS INT)))",
            json!(r#"{"t":"2026-03-29T12:34:56.789Z"}"#),
        ),
        ("get_json_object('{\"a\": {\"b\": [1, {\"c\": \"x\"}]}}', '$.a.b[1].c')", json!("x")),
        ("get_json_object('{\"a\": [1, 2]}', '$.a')", json!("[1,2]")),
        ("get_json_object('nope', '$.a')", Value::Null),
        ("json_array_length('[1, 2]')", json!(2)),
        ("from_json('[1, 2]', 'array<int>')", json!([1, 2])),
        ("from_json('{\"a\": {\"b\": 1.5}}', 'a struct<b: double>').a.b", json!(1.5)),
        ("from_json('{\"a\": {\"k\": 1}}', 'a map<string, int>').a['k']", json!(1)),
        ("from_json('{\"a\": \"1.255\"}', 'a decimal(5,2)').a", json!(1.26)),
        (
            "from_json('{\"t\": \"02.01.2026\"}', 't date', map('dateFormat', 'dd.MM.yyyy')).t",
            json!("2026-01-02"),
        ),
    ]);
    fails(&[
        ("from_json('{', 'a int', map('mode', 'FAILFAST'))", "malformed record"),
        ("from_json(s, 'a itn')", "there is no type 'itn'"),
        ("from_json(s, 'a int', map('nope', 'x'))", "does not know the option 'nope'"),
    ]);
}

fn rows(sql: &str) -> Vec<Value> {
    run(&format!("- sql: |\n    {sql}\n"), COLUMNS, &[row()]).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

#[test]
fn explode_and_its_kin_make_rows() {
    assert_eq!(
        rows("SELECT explode(ai) FROM input"),
        [json!({"col": 3}), json!({"col": null}), json!({"col": 1})]
    );
    assert_eq!(rows("SELECT i, explode(e) AS x FROM input"), Vec::<Value>::new());
    assert_eq!(rows("SELECT explode_outer(e) AS x FROM input"), [json!({"x": null})]);
    assert_eq!(rows("SELECT explode(m) FROM input"), [json!({"key": "k", "value": 5})]);
    assert_eq!(
        rows("SELECT posexplode(array('a', 'b')) AS (p, v) FROM input"),
        [json!({"p": 0, "v": "a"}), json!({"p": 1, "v": "b"})]
    );
    assert_eq!(
        rows("SELECT input.i, t.c FROM input LATERAL VIEW explode(ai) t AS c WHERE c > 1"),
        [json!({"i": 7, "c": 3})]
    );
    assert_eq!(
        rows("SELECT i, c FROM input LATERAL VIEW OUTER explode(e) t AS c"),
        [json!({"i": 7, "c": null})]
    );
    assert_eq!(
        rows("SELECT x.a FROM (SELECT st AS x FROM input) UNION ALL SELECT i FROM input"),
        [json!({"a": 1}), json!({"a": 7})]
    );
    let nested = run("- select: [upper(explode(array('a')))]\n", COLUMNS, &[row()]).expect_err("refused");
    assert!(nested.message().contains("stands alone in the SELECT list"), "{nested}");
}

/// All values are real Spark's.
#[test]
fn decimals_calculate_as_in_spark() {
    let types = [
        ("dec + dec", "decimal(11,2)"),
        ("dec - l", "decimal(23,2)"),
        ("dec * dec", "decimal(21,4)"),
        ("dec / 3", "decimal(14,6)"),
        ("dec % 3", "decimal(3,2)"),
        ("1.5 * 2", "decimal(4,1)"),
        ("100 / 3.0", "decimal(10,6)"),
        ("CAST(1 AS decimal(38,10)) * CAST(1 AS decimal(38,10))", "decimal(38,6)"),
        ("CAST(1 AS decimal(38,10)) / CAST(1 AS decimal(38,10))", "decimal(38,6)"),
        ("CAST(1 AS decimal(38,18)) + CAST(1 AS decimal(38,2))", "decimal(38,6)"),
        ("round(dec, 1)", "decimal(10,1)"),
        ("round(dec)", "decimal(9,0)"),
        ("round(dec, -1)", "decimal(9,0)"),
        ("nvl(dec, 1)", "decimal(12,2)"),
        ("CAST(1 AS float) * i", "double"),
    ];
    let types: Vec<(String, Value)> =
        types.iter().map(|(expr, of)| (format!("typeof({expr})"), json!(of))).collect();
    check(&types.iter().map(|(expr, of)| (expr.as_str(), of.clone())).collect::<Vec<_>>());
    check(&[
        ("string(2.0 / 3)", json!("0.666667")),
        ("string(-2.0 / 3)", json!("-0.666667")),
        ("string(1 / 3.0)", json!("0.333333")),
        ("string(CAST(2 AS decimal(38,18)) / 3)", json!("0.666666666666666667")),
        ("string(CAST(2 AS decimal(38,10)) * CAST(1.2345678901 AS decimal(38,10)))", json!("2.469136")),
        ("string(round(dec, 1))", json!("12.3")),
        ("string(round(-2.5))", json!("-3")),
        ("string(round(1.005, 2))", json!("1.01")),
        ("string(round(dec, -1))", json!("10")),
        ("string(-7.5 % 2)", json!("-1.5")),
        ("string(CAST(ts AS decimal(20,3)))", json!("1774787696.789")),
    ]);
    fails(&[
        ("dec / z", "division by zero"),
        ("dec % z", "division by zero"),
        ("CAST(9e37 AS decimal(38,0)) * 10", "overflow"),
    ]);
}

/// All values are real Spark's.
#[test]
fn numbers_become_text_as_in_spark() {
    check(&[
        ("string(CAST(1e-7 AS double))", json!("1.0E-7")),
        ("string(CAST(12345678.9 AS double))", json!("1.23456789E7")),
        ("string(CAST(1e10 AS float))", json!("1.0E10")),
        ("string(double('Infinity'))", json!("Infinity")),
        ("concat('x', CAST(1e20 AS double))", json!("x1.0E20")),
        ("CAST(1e20 AS double) || ''", json!("1.0E20")),
        ("length(CAST(12345678.9 AS double))", json!(12)),
        ("lpad(CAST(1e20 AS double), 8, '*')", json!("**1.0E20")),
        ("format_string('%s %.1f %s', dec, dec, CAST(1e20 AS double))", json!("12.34 12.3 1.0E20")),
        ("string(ai)", json!("[3, null, 1]")),
        ("string(m)", json!("{k -> 5}")),
        ("string(st)", json!("{1, {q}}")),
        ("string(array(CAST(1e20 AS double)))", json!("[1.0E20]")),
        ("string(array(ts))", json!("[2026-03-29 12:34:56.789]")),
        (
            "to_json(struct(CAST(1e20 AS double) AS d, CAST(1 AS decimal(3,2)) AS c))",
            json!(r#"{"d":1.0E20,"c":1.00}"#),
        ),
        (
            "to_json(struct(timestamp'2026-01-01 00:00:00.123456' AS t))",
            json!(r#"{"t":"2026-01-01T00:00:00.123Z"}"#),
        ),
        ("to_json(array(double('NaN'), NULL))", json!(r#"["NaN",null]"#)),
        ("to_json(map(1, 2.5))", json!(r#"{"1":2.5}"#)),
        ("log1p(1e-10)", json!(9.999999999500001e-11)),
    ]);
}
