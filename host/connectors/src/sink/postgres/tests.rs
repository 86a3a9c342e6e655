//! The PostgreSQL sink over a real server: what arrives in a table, and what is refused before anything is written.
#![allow(clippy::unwrap_used, reason = "a test ends where something goes wrong")]

use super::*;
use crate::sink::file::test_rows::{batch_info, stream};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, SchemaRef};
use pelton_core::{ErrorKind, QueryId};
use pelton_tests::Postgres;
use std::time::Duration;

pub(super) fn options(url: String, table: &str, key: &[&str]) -> PostgresSinkOptions {
    PostgresSinkOptions {
        url,
        password: None,
        table: table.into(),
        key: key.iter().map(|&name| name.into()).collect(),
        create_table: true,
    }
}

/// A sink that does not wait long.
pub(super) fn hurried(options: PostgresSinkOptions) -> PostgresSink {
    let quick = Retries { first: Duration::from_millis(1), count: 6 };
    PostgresSink { opening: quick, writing: quick, ..PostgresSink::new(options).unwrap() }
}

pub(super) fn context(
    query: &str,
    schema: SchemaRef,
    mode: OutputMode,
    last_committed: Option<u64>,
) -> SinkContext {
    SinkContext {
        query_id: QueryId(query.into()),
        schema,
        output_mode: mode,
        last_committed: last_committed.map(BatchId),
        unfinished: Some(BatchId(last_committed.map_or(0, |last| last + 1))),
    }
}

pub(super) fn info(query: &str, batch: u64) -> BatchInfo {
    BatchInfo { query_id: QueryId(query.into()), ..batch_info(batch) }
}

/// Columns `k`, which may be null, and `n`.
pub(super) fn pairs(rows: &[(Option<&str>, i64)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(rows.iter().map(|(k, _)| *k).collect::<StringArray>());
    let n: ArrayRef = Arc::new(rows.iter().map(|(_, n)| Some(*n)).collect::<Int64Array>());
    RecordBatch::try_from_iter_with_nullable([("k", k, true), ("n", n, true)]).unwrap()
}

/// Opens the sink of a query that is named as its table, and writes these micro-batches.
async fn write(
    server: &Postgres,
    table: &str,
    mode: OutputMode,
    batches: Vec<Vec<RecordBatch>>,
) -> Result<Vec<SinkReport>> {
    let key: &[&str] = if mode == OutputMode::Update { &["k"] } else { &[] };
    let sink = hurried(options(server.url(), table, key));
    sink.open(context(table, pairs(&[]).schema(), mode, None)).await?;
    let mut reports = Vec::new();
    for (nth, rows) in batches.into_iter().enumerate() {
        reports.push(sink.write(&info(table, nth as u64), stream(rows)).await?);
    }
    Ok(reports)
}

async fn refused(server: &Postgres, table: &str, mode: OutputMode) -> String {
    let error = write(server, table, mode, vec![]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    error.to_string()
}

#[tokio::test]
async fn rows_are_appended_and_a_micro_batch_that_comes_again_is_passed_over() {
    let server = Postgres::shared().unwrap();
    let batches = || {
        vec![
            vec![pairs(&[(Some("a"), 1)]), pairs(&[(None, 2), (Some("a\\\tb"), 3)])],
            vec![],
            vec![pairs(&[(Some("c"), 4)])],
        ]
    };
    let first = write(&server, "appended", OutputMode::Append, batches()).await.unwrap();
    assert_eq!(first.iter().map(|report| report.rows).collect::<Vec<_>>(), [3, 0, 1]);
    let sink = hurried(options(server.url(), "appended", &[]));
    sink.open(context("appended", pairs(&[]).schema(), OutputMode::Append, Some(1))).await.unwrap();
    let again = sink.write(&info("appended", 2), stream(batches().remove(2))).await.unwrap();
    assert!(again.already_committed);
    sink.write(&info("appended", 3), stream(vec![pairs(&[(Some("d"), 5)])])).await.unwrap();
    assert_eq!(server.sql("SELECT * FROM appended ORDER BY n").unwrap(), "a|1\n|2\na\\\tb|3\nc|4\nd|5");
    let noted =
        server.sql("SELECT batch_id, target FROM pelton_commits WHERE query_id = 'appended'").unwrap();
    assert_eq!(noted, "3|\"public\".\"appended\"");
}

#[tokio::test]
async fn update_mode_replaces_rows_by_key_and_the_last_of_a_micro_batch_wins() {
    let server = Postgres::shared().unwrap();
    let batches = vec![
        vec![pairs(&[(Some("a"), 1), (None, 1), (Some("a"), 2)]), pairs(&[(Some("b"), 1), (Some("a"), 3)])],
        vec![pairs(&[(None, 2), (Some("b"), 2)])],
    ];
    write(&server, "updated", OutputMode::Update, batches).await.unwrap();
    assert_eq!(server.sql("SELECT * FROM updated ORDER BY k").unwrap(), "a|3\nb|2\n|2");
}

#[tokio::test]
async fn complete_mode_replaces_the_whole_table() {
    let server = Postgres::shared().unwrap();
    let batches = vec![vec![pairs(&[(Some("a"), 1), (Some("b"), 1)])], vec![pairs(&[(Some("b"), 2)])]];
    write(&server, "completed", OutputMode::Complete, batches).await.unwrap();
    assert_eq!(server.sql("SELECT * FROM completed").unwrap(), "b|2");
}

/// A row of every type, and one of nulls.
fn every_type() -> RecordBatch {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None]);
    let inner: ArrayRef = Arc::new(StringArray::from(vec![Some("x\n\"y\""), None]));
    let nested = StructArray::from(vec![(Arc::new(Field::new("s", DataType::Utf8, true)), inner)]);
    let decimals = Decimal128Array::from(vec![Some(-12_345), None]).with_precision_and_scale(38, 6).unwrap();
    let instants = || TimestampMicrosecondArray::from(vec![Some(1_357_034_400_000_001), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("boolean", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("byte", Arc::new(Int8Array::from(vec![Some(i8::MIN), None]))),
        ("short", Arc::new(Int16Array::from(vec![Some(i16::MAX), None]))),
        ("int", Arc::new(Int32Array::from(vec![Some(i32::MIN), None]))),
        ("long", Arc::new(Int64Array::from(vec![Some(i64::MIN), None]))),
        ("float", Arc::new(Float32Array::from(vec![Some(f32::MIN_POSITIVE), None]))),
        ("double", Arc::new(Float64Array::from(vec![Some(f64::INFINITY), None]))),
        ("decimal", Arc::new(decimals)),
        ("string", Arc::new(StringArray::from(vec![Some("é ✓"), None]))),
        ("binary", Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\x00\\"), None]))),
        ("date", Arc::new(Date32Array::from(vec![Some(15_706), None]))),
        ("timestamp", Arc::new(instants().with_timezone("Europe/Paris"))),
        ("timestamp_ntz", Arc::new(instants())),
        ("array", Arc::new(list)),
        ("struct", Arc::new(nested)),
    ];
    let nullable = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(nullable).unwrap()
}

#[tokio::test]
async fn every_type_arrives() {
    let server = Postgres::shared().unwrap();
    let (rows, query) = (every_type(), "every_type");
    for key in [None, Some("timestamp")] {
        let mode = if key.is_some() { OutputMode::Update } else { OutputMode::Append };
        let sink = hurried(options(server.url(), "types.\"every.Type\"", key.as_slice()));
        server.sql("DROP SCHEMA IF EXISTS types CASCADE; CREATE SCHEMA types").unwrap();
        sink.open(context(query, rows.schema(), mode, None)).await.unwrap();
        sink.write(&info(query, 0), stream(vec![rows.clone()])).await.unwrap();
        let found = server.sql("SET timezone = 'UTC'; SELECT * FROM types.\"every.Type\"").unwrap();
        let expected = "t|-128|32767|-2147483648|-9223372036854775808|1.1754944e-38|Infinity|-0.012345|é ✓|\\x005c|\
                        2013-01-01|2013-01-01 10:00:00.000001+00|2013-01-01 10:00:00.000001|[1, null]|\
                        {\"s\": \"x\\n\\\"y\\\"\"}\n||||||||||||||";
        assert!(found.starts_with(expected) || found.ends_with(expected.lines().next().unwrap()), "{found}");
    }
}

#[tokio::test]
async fn a_table_that_cannot_take_the_rows_is_refused() {
    let server = Postgres::shared().unwrap();
    server
        .sql(
            "CREATE TABLE unfit (\"N\" bigint, k varchar(3), x int NOT NULL, y int NOT NULL DEFAULT 1); \
              CREATE TABLE narrow (k int, n int GENERATED ALWAYS AS IDENTITY); \
              CREATE TABLE keyless (k text, n bigint); CREATE UNIQUE INDEX ON keyless (k) WHERE n > 0; \
              CREATE VIEW viewed AS SELECT 'a' AS k, 1 AS n",
        )
        .unwrap();
    let unfit = refused(&server, "unfit", OutputMode::Append).await;
    assert!(unfit.contains("it has no column 'n' (bigint); did you mean 'N'?"), "{unfit}");
    assert!(unfit.contains("its column 'x' must not be null, and the query does not give it"), "{unfit}");
    assert!(!unfit.contains("'y'"), "{unfit}");
    let narrow = refused(&server, "narrow", OutputMode::Append).await;
    assert!(narrow.contains("'k' is integer, which does not hold every string (text would)"), "{narrow}");
    assert!(narrow.contains("'n' is generated"), "{narrow}");
    let keyless = refused(&server, "keyless", OutputMode::Update).await;
    assert!(keyless.contains("no unique constraint on the key (\"k\")"), "{keyless}");
    assert!(keyless.contains("hint: ALTER TABLE \"public\".\"keyless\" ADD UNIQUE (\"k\")"), "{keyless}");
    assert!(refused(&server, "viewed", OutputMode::Append).await.contains("is not a table"));
    let no_schema = refused(&server, "nowhere.t", OutputMode::Append).await;
    assert!(no_schema.contains("schema \"nowhere\" does not exist"), "{no_schema}");
    let sink = hurried(PostgresSinkOptions { create_table: false, ..options(server.url(), "missing", &[]) });
    let missing =
        sink.open(context("missing", pairs(&[]).schema(), OutputMode::Append, None)).await.unwrap_err();
    assert!(missing.message().contains("there is no table"), "{missing}");
}

#[tokio::test]
async fn what_needs_no_server_is_refused_without_one() {
    let check = |mode, key: &[&str]| {
        let sink = hurried(options("postgresql://nobody@nowhere/x".into(), "t", key));
        sink.check(&pairs(&[]).schema(), mode)
            .map_or_else(|error| error.message().to_owned(), |()| "fine".into())
    };
    assert_eq!(check(OutputMode::Update, &["k"]), "fine");
    assert_eq!(
        check(OutputMode::Update, &[]),
        "output mode update needs the key of the rows that it replaces"
    );
    assert_eq!(
        check(OutputMode::Append, &["k"]),
        "output mode append replaces no single rows: it needs no `key`"
    );
    assert_eq!(check(OutputMode::Update, &["kk"]), "key: there is no column 'kk'; did you mean 'k'?");
}

#[tokio::test]
async fn null_keys_need_a_constraint_that_takes_them_for_equal() {
    let server = Postgres::shared().unwrap();
    server.sql("CREATE TABLE distinct_nulls (k text UNIQUE, n bigint)").unwrap();
    let null = vec![vec![pairs(&[(Some("a"), 1)])], vec![pairs(&[(None, 1)])]];
    let error = write(&server, "distinct_nulls", OutputMode::Update, null).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.message().contains("the key column 'k' is null"), "{error}");
    assert_eq!(server.sql("SELECT * FROM distinct_nulls").unwrap(), "a|1");
}

#[tokio::test]
async fn a_stream_or_a_row_that_fails_writes_nothing() {
    use futures::StreamExt;
    let server = Postgres::shared().unwrap();
    server.sql("CREATE TABLE checked (k text, n bigint CHECK (n < 10))").unwrap();
    let sink = hurried(options(server.url(), "checked", &[]));
    sink.open(context("checked", pairs(&[]).schema(), OutputMode::Append, None)).await.unwrap();
    let broken = futures::stream::iter([Ok(pairs(&[(None, 1)])), Err(Error::data("line 8 is bad"))]).boxed();
    assert_eq!(sink.write(&info("checked", 0), broken).await.unwrap_err().message(), "line 8 is bad");
    let error =
        sink.write(&info("checked", 0), stream(vec![pairs(&[(None, 1), (None, 10)])])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.message().contains("violates check constraint"), "{error}");
    assert_eq!(server.sql("SELECT count(*) FROM checked").unwrap(), "0");
    sink.write(&info("checked", 0), stream(vec![pairs(&[(None, 9)])])).await.unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM checked").unwrap(), "1");
}

#[tokio::test]
async fn database_and_checkpoint_must_agree() {
    let server = Postgres::shared().unwrap();
    let batches = || (0..4).map(|n| vec![pairs(&[(None, n)])]).collect();
    write(&server, "agreed", OutputMode::Append, batches()).await.unwrap();
    let open = async |query: &str, table: &str, last_committed| {
        let sink = hurried(options(server.url(), table, &[]));
        let opened = sink.open(context(query, pairs(&[]).schema(), OutputMode::Append, last_committed)).await;
        opened.map_or_else(|error| error.message().to_owned(), |()| "fine".into())
    };
    assert_eq!(open("agreed", "agreed", Some(3)).await, "fine");
    assert_eq!(open("agreed", "agreed", Some(2)).await, "fine");
    assert!(open("agreed", "agreed", Some(1)).await.contains("the checkpoint is older than the table"));
    assert!(open("agreed", "agreed", Some(4)).await.contains("the table has micro-batches up to 3 only"));
    assert!(open("unknown", "agreed", Some(0)).await.contains("knows nothing of this query"));
    assert!(open("agreed", "other", Some(3)).await.contains("have gone to \"public\".\"agreed\" so far"));
}

#[tokio::test]
async fn a_wrong_password_is_told_but_not_shown() {
    let server = Postgres::shared().unwrap();
    server
        .sql("CREATE ROLE locked LOGIN PASSWORD 's3cret'; CREATE SCHEMA vault AUTHORIZATION locked")
        .unwrap();
    let open = async |url: String, password: Option<&str>| {
        let options =
            PostgresSinkOptions { password: password.map(Into::into), ..options(url, "vault.t", &[]) };
        hurried(options).open(context("vault", pairs(&[]).schema(), OutputMode::Append, None)).await
    };
    open(server.url_with_password(Some("s3cret")), Some("wr0ng")).await.unwrap();
    open(server.url_with_password(None), Some("s3cret")).await.unwrap();
    for (in_url, given) in [(Some("wr0ng"), None), (None, Some("wr0ng")), (None, None)] {
        let error = open(server.url_with_password(in_url), given).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("PGPASSWORD") || error.message().contains("password"), "{error}");
        assert!(!format!("{error} {error:?}").contains("wr0ng"), "{error}");
    }
}
