//! What is refused while SQL is planned, and how the messages look.

use crate::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs, RefusedBy, Rule, check};
use datafusion::arrow::datatypes::Schema;
use pelton_core::types::{columns_name, parse_columns};
use pelton_core::{Error, Result};
use std::sync::Arc;

const COLUMNS: &str = "carrier string, dep_delay double, distance int, ts timestamp, st struct<a: long, B: string>, \
                       ar array<struct<x: int>>, m map<string, int>, Mixed string";

fn resolve_with(steps: &str, rest: &str) -> Result<LogicalPlan> {
    let text = format!(
        "name: q\nsources: {{s: {{connector: rate}}}}\nsink: {{connector: memory}}\n{rest}steps:\n{steps}"
    );
    let file = PipelineFile::read(&text, "p.yaml", &[])?;
    let source_schema = Arc::new(Schema::new(parse_columns(COLUMNS, file.time_zone()).expect("columns")));
    let sources = file.sources.value.keys().map(|name| (name.clone(), source_schema.clone())).collect();
    LogicalPlan::resolve(&file, &PlanInputs { sources, ..PlanInputs::default() })
}

fn resolve(steps: &str) -> Result<LogicalPlan> {
    resolve_with(steps, "")
}

fn error(steps: &str) -> Error {
    match resolve(steps) {
        Ok(plan) => panic!("accepted, with {}", columns_name(plan.schema().fields())),
        Err(error) => error,
    }
}

fn schema(steps: &str) -> String {
    resolve(steps).map_or_else(|e| e.to_string(), |plan| columns_name(plan.schema().fields()))
}

fn first_line(error: &Error) -> &str {
    error.message().lines().next().unwrap_or_default()
}

#[test]
fn an_unknown_column_is_shown_in_its_place_with_the_nearest_and_all_columns() {
    let found = error("- filter: distance > 3 AND dep_dely > 15\n");
    assert_eq!(
        found.message(),
        "p.yaml:5:28: there is no column 'dep_dely'; did you mean 'dep_delay'?\n  |\n\
         5 | - filter: distance > 3 AND dep_dely > 15\n  |                            ^^^^^^^^"
    );
    assert!(found.hint_text().is_some_and(|h| h.contains("dep_delay: double, distance: int, ts: timestamp")));
}

#[test]
fn places_are_found_inside_block_scalars() {
    let found = error("- sql: |\n    SELECT carrier,\n      uper(carrier) AS c\n    FROM input\n");
    assert_eq!(first_line(&found), "p.yaml:7:7: there is no function 'uper'; did you mean 'upper'?");
    let found = error("- sql: |\n    SELECT carrier\n    FRM input WHERE\n");
    assert!(first_line(&found).starts_with("p.yaml:7:"), "{found}");
    let found = error("- select:\n    - carrier\n    - dep_delay +\n");
    assert!(first_line(&found).starts_with("p.yaml:7:"), "{found}");
}

#[test]
fn an_unknown_table_or_field_is_named() {
    assert!(first_line(&error("- sql: SELECT * FROM flights\n")).contains("there is no table 'flights'"));
    assert!(first_line(&error("- select: [st.c]\n")).contains("there is no field 'c'"));
    assert!(
        first_line(&error("- select: [carrier, carrier]\n"))
            .contains("two columns of the result are called 'carrier'")
    );
    assert!(
        first_line(&error("- sql: SELECT window(ts, '1 month') AS w FROM input\n"))
            .contains("must not have months")
    );
    assert!(first_line(&error("- plugin: flights.classify\n")).contains("there is no plugin 'flights'"));
}

/// What is said of an expression, with its place.
fn told(expr: &str) -> String {
    first_line(&error(&format!("- sql: \"SELECT {expr} AS x FROM input\"\n"))).to_owned()
}

#[test]
fn types_that_do_not_fit_are_told_in_sparks_words_at_their_place() {
    for (expr, column, wanted) in [
        ("distance + ts", 25, "+ does not take int and timestamp; CAST one of them"),
        ("distance = ts", 25, "int and timestamp cannot be compared; CAST one of them"),
        ("distance AND true", 25, "AND takes two booleans, not int and boolean"),
        ("distance LIKE 'a'", 25, "LIKE takes two strings, not int and string; CAST one of them"),
        ("NOT distance", 16, "NOT takes a boolean, not int"),
        ("-carrier", 16, "- takes a number or an interval; CAST what comes after it"),
        (
            "distance IN (1, ts)",
            25,
            "int cannot be compared with all of long and timestamp; CAST them to one type",
        ),
        ("distance BETWEEN 1 AND ts", 25, "int and timestamp cannot be compared; CAST one of them"),
        ("1 + upper(distance)", 20, "upper() takes string, not int; CAST the argument"),
        ("upper(carrier, carrier)", 16, "upper() takes 1 argument, not 2"),
        ("upper()", 16, "upper() needs arguments"),
        ("trim(distance)", 16, "trim() takes string, not int; CAST the argument"),
        ("abs(carrier)", 16, "abs() takes a number, not string; CAST the argument"),
        ("year(carrier)", 16, "year() takes timestamp or date, not string; CAST the argument"),
        ("size(carrier)", 16, "size() takes an array or a map, not string; CAST the argument"),
        ("to_json(distance)", 16, "to_json() takes a struct, a map or an array, not int"),
        ("avg(ts)", 16, "avg() takes a number, not timestamp"),
        ("max(distance, distance)", 16, "max() takes 1 argument, not 2"),
        ("sum(sum(distance))", 16, "an aggregate function cannot stand inside another"),
        ("CAST(ar AS int)", 8, "array<struct<x: int>> cannot be cast to int"),
        ("CAST(distance AS foo)", 33, "there is no type 'foo'"),
    ] {
        assert_eq!(told(expr), format!("p.yaml:5:{column}: {wanted}"), "{expr}");
    }
    let condition = error("- filter: distance\n");
    assert_eq!(first_line(&condition), "p.yaml:5:11: a condition must be boolean, not int");
    let having =
        error("- sql: SELECT carrier, count(*) AS n FROM input GROUP BY carrier HAVING distance > 1\n");
    let wanted = "the column 'distance' is neither a key of GROUP BY nor inside an aggregate function";
    assert_eq!(first_line(&having), format!("p.yaml:5:73: {wanted}"));
    let sides = error("- sql: SELECT distance FROM input UNION ALL SELECT ts FROM input\n");
    let wanted = "the column 'ts' is int on one side of UNION and timestamp on the other; CAST one of them";
    assert_eq!(first_line(&sides), format!("p.yaml:5:35: {wanted}"));
}

#[test]
fn a_constant_that_fails_is_refused_at_its_place() {
    let to_int = "to int; use try_cast(… AS int) to get NULL instead";
    for (expr, column, wanted) in [
        ("CAST('x' AS INT)", 21, format!("cannot cast 'x' {to_int}")),
        ("INT('x')", 20, format!("cannot cast 'x' {to_int}")),
        ("distance > 'x'", 27, format!("cannot cast 'x' {to_int}")),
        ("CAST(10000000000 AS INT)", 21, format!("cannot cast 10000000000 {to_int}")),
        ("CAST(concat('1', 'a') AS INT)", 28, format!("cannot cast '1a' {to_int}")),
        ("CASE WHEN distance > 0 THEN CAST('x' AS INT) END", 49, format!("cannot cast 'x' {to_int}")),
        (
            "DATE('x')",
            21,
            "date(): 'x' is not a date; use try_cast(… AS DATE) to get NULL instead".to_owned(),
        ),
        ("1 + 7 / 0", 20, "division by zero; use try_divide() to get NULL instead".to_owned()),
    ] {
        assert_eq!(told(expr), format!("p.yaml:5:{column}: {wanted}"), "{expr}");
    }
    let condition = error("- filter: distance = CAST('x' AS INT)\n");
    assert_eq!(first_line(&condition), format!("p.yaml:5:27: cannot cast 'x' {to_int}"));
    assert_eq!(condition.kind(), pelton_core::ErrorKind::Invalid);
    // In a branch that may never be taken, or where NULL is wanted.
    for expr in ["CASE WHEN distance > 0 THEN 1 / 0 END", "coalesce(distance, 7 % 0)", "try_cast('x' AS INT)"]
    {
        assert!(schema(&format!("- sql: SELECT {expr} AS x FROM input\n")).starts_with("x: "), "{expr}");
    }
}

#[test]
fn nothing_is_told_in_the_words_of_the_planner() {
    let interval = "INTERVAL takes a literal, for example INTERVAL '10' MINUTE; make_dt_interval(days, hours, mins, \
                    secs) makes one of columns";
    for (expr, column, wanted) in [
        ("interval(distance)", 16, interval),
        ("int(1, 2)", 16, "int() takes 1 argument, not 2"),
        ("isnull()", 16, "isnull() takes 1 argument, not 0"),
        ("year(ts, 2)", 16, "year() takes 1 argument, not 2"),
        ("date(distance)", 16, "date() takes text or a time, not int"),
        ("substr(carrier)", 16, "substr() takes 2 or 3 arguments, not 1"),
        ("transform(distance, x -> x)", 16, "transform() takes an array, not int"),
        ("g.nope(distance)", 16, "there is no plugin 'g'; name it under plugins:"),
        ("carrier COLLATE x", 24, "COLLATE is not supported"),
    ] {
        assert_eq!(told(expr), format!("p.yaml:5:{column}: {wanted}"), "{expr}");
    }
    let bare = error("- sql: SELECT distance\n");
    assert_eq!(first_line(&bare), "p.yaml:5:15: there is no column 'distance'");
    assert_eq!(bare.hint_text(), Some("a SELECT without FROM has no columns; add FROM input"));
}

#[test]
fn a_part_of_a_window_is_called_as_in_spark() {
    let sql = "SELECT window.start, window.end, count(*) AS n FROM input GROUP BY window(ts, '1 hour')";
    assert_eq!(schema(&format!("- sql: {sql}\n")), "start: timestamp, end: timestamp, n: long NOT NULL");
}

#[test]
fn names_do_not_mind_case_and_columns_keep_the_spelling_asked_for() {
    assert_eq!(schema("- select: [CARRIER, St.b, mixed]\n"), "CARRIER: string, b: string, mixed: string");
    assert_eq!(schema("- sql: SELECT MIXED AS Foo FROM INPUT\n- select: [foo]\n"), "foo: string");
    assert_eq!(schema("- sql: WITH T AS (SELECT Carrier AS c FROM input) SELECT t.C FROM t\n"), "C: string");
    assert_eq!(
        schema("- select: [upper(carrier), distance + 1]\n"),
        "`upper(carrier)`: string, `distance + 1`: int"
    );
}

#[test]
fn types_are_sparks() {
    assert_eq!(
        schema(
            "- select: [1 AS i, 3000000000 AS l, 10L AS k, 1.5 AS d, 1e3 AS e, distance / 2 AS q, dep_delay * 1.5 AS f]\n"
        ),
        "i: int NOT NULL, l: long NOT NULL, k: long NOT NULL, d: decimal(2,1) NOT NULL, e: double NOT NULL, \
         q: double, f: double"
    );
    assert_eq!(
        schema(
            "- select: [CAST(carrier AS LONG) AS a, CAST(ts AS STRING) AS b, TIMESTAMP '2026-01-01' AS c]\n"
        ),
        "a: long, b: string, c: timestamp"
    );
    assert_eq!(
        schema("- select: \"ar.x, ar[0].x AS first, m['k'] AS k\"\n"),
        "x: array<int>, first: int, k: int"
    );
    assert_eq!(schema("- select: [current_timestamp() AS n, rand() AS r]\n"), "n: timestamp, r: double");
}

#[test]
fn later_steps_see_what_earlier_ones_made() {
    let plan = resolve("- select: [carrier, dep_delay]\n- filter: dep_delay > 1\n- filter: carrier = 'x'\n  name: only-x\n- sql: SELECT * FROM input\n")
        .expect("resolves");
    let names: Vec<&str> = plan.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["select", "filter", "only-x", "sql"]);
    assert!(
        first_line(&error("- select: [carrier]\n- filter: dep_delay > 1\n"))
            .contains("no column 'dep_delay'")
    );
    let physical = PhysicalPlan::build(&plan).expect("builds");
    assert_eq!(physical.inputs[0].required_columns, ["carrier", "dep_delay"]);
    assert_eq!(physical.lanes[0].steps.len(), 1);
}

#[test]
fn what_spark_refuses_is_refused_by_its_rule() {
    let refusals = |sql: &str, mode: &str| {
        let plan =
            resolve_with(&format!("- sql: {sql}\n"), &format!("output_mode: {mode}\n")).expect("resolves");
        check(&plan).iter().map(|r| (r.rule, r.by)).collect::<Vec<_>>()
    };
    use RefusedBy::{Pelton, Spark};
    let check =
        |sql, mode, wanted: &[(Rule, RefusedBy)]| assert_eq!(refusals(sql, mode), wanted, "{sql} {mode}");
    check("SELECT * FROM input", "append", &[]);
    check("SELECT * FROM input", "update", &[]);
    check("SELECT * FROM input UNION ALL SELECT * FROM input", "append", &[]);
    check("SELECT carrier FROM input", "complete", &[(Rule::CompleteWithoutAggregation, Spark)]);
    check("SELECT * FROM input ORDER BY carrier", "append", &[(Rule::Sort, Spark)]);
    check("SELECT carrier, count(*) AS n FROM input GROUP BY carrier ORDER BY 2", "complete", &[]);
    let by_carrier = "SELECT carrier, count(*) AS n FROM input GROUP BY carrier";
    check(by_carrier, "complete", &[]);
    check(by_carrier, "append", &[(Rule::AppendWithoutWatermark, Spark)]);
    check("SELECT count(DISTINCT carrier) AS n FROM input", "update", &[(Rule::DistinctAggregate, Spark)]);
    check("SELECT DISTINCT carrier FROM input", "append", &[(Rule::AppendWithoutWatermark, Spark)]);
    check("SELECT * FROM input LIMIT 5", "append", &[]);
    check("SELECT * FROM input LIMIT 5", "update", &[(Rule::Limit, Spark)]);
    check("SELECT * FROM input LIMIT 5 OFFSET 2", "append", &[(Rule::Limit, Spark)]);
    check(
        "SELECT row_number() OVER (ORDER BY ts) AS n FROM input",
        "append",
        &[(Rule::WindowFunction, Spark)],
    );
    check("SELECT a.carrier FROM input a JOIN input b ON a.carrier = b.carrier", "append", &[]);
    check("SELECT a.carrier FROM input a CROSS JOIN input b", "append", &[(Rule::Join, Spark)]);
    check(
        "SELECT carrier FROM input INTERSECT SELECT carrier FROM s",
        "append",
        &[(Rule::SetOperation, Spark), (Rule::AppendWithoutWatermark, Spark), (Rule::Join, Spark)],
    );
    check("SELECT shuffle(ar) AS s FROM input", "append", &[(Rule::Nondeterministic, Pelton)]);
    check("SELECT rand() AS r, now() AS n, uuid() AS u FROM input", "append", &[]);
}

#[test]
fn a_refusal_is_an_error_with_the_way_out() {
    let plan = resolve("- sql: SELECT * FROM input ORDER BY carrier\n").expect("resolves");
    let error = PhysicalPlan::build(&plan).err().expect("refused");
    assert_eq!(
        first_line(&error),
        "p.yaml:5:8: sql: a stream cannot be sorted, unless it is aggregated in output_mode complete"
    );
    assert!(error.hint_text().is_some_and(|hint| hint.contains("leave out ORDER BY")));
}
