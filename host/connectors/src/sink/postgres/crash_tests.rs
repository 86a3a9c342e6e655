//! The PostgreSQL sink in bad weather: the connection breaks at every message, runs die, the server dies, two run at once.
#![allow(clippy::unwrap_used, reason = "a test ends where something goes wrong")]

use super::proxy::{Cut, Proxy};
use super::tests::{context, hurried, info, options, pairs};
use super::*;
use crate::sink::file::test_rows::stream;
use arrow::array::RecordBatch;
use pelton_core::ErrorKind;
use pelton_tests::Postgres;

const BATCHES: u64 = 3;
const MODES: [OutputMode; 3] = [OutputMode::Append, OutputMode::Update, OutputMode::Complete];

/// The second micro-batch is empty.
fn rows(batch: u64) -> Vec<RecordBatch> {
    let n = batch as i64;
    match batch {
        1 => vec![],
        _ => vec![pairs(&[(Some("a"), n), (None, n)]), pairs(&[(Some("b"), n), (Some("a"), n + 10)])],
    }
}

/// Runs the query that is named as its table from what is committed to the end; `committed` moves on as the engine's
/// commit log would.
async fn run(url: String, table: &str, mode: OutputMode, committed: &mut Option<u64>) -> Result<()> {
    let key: &[&str] = if mode == OutputMode::Update { &["k"] } else { &[] };
    let sink = hurried(options(url, table, key));
    sink.open(context(table, pairs(&[]).schema(), mode, *committed)).await?;
    for batch in committed.map_or(0, |last| last + 1)..BATCHES {
        sink.write(&info(table, batch), stream(rows(batch))).await?;
        *committed = Some(batch);
    }
    Ok(())
}

fn content(server: &Postgres, table: &str) -> String {
    server.sql(&format!("SELECT * FROM {table} ORDER BY k, n")).unwrap()
}

/// Breaks the connection at every message in turn, until a run gets through without a break. A table for each.
async fn at_every_message(mode: OutputMode, for_good: bool) {
    let server = Postgres::shared().unwrap();
    let schema = format!("{mode}_{}", if for_good { "dies" } else { "breaks" });
    server.sql(&format!("CREATE SCHEMA {schema}")).unwrap();
    let table = |name: &str| format!("{schema}.{name}");
    run(server.url(), &table("undisturbed"), mode, &mut None).await.unwrap();
    let expected = content(&server, &table("undisturbed"));
    // To die before a message has an effect is to die after the one before it had.
    let effects: &[bool] = if for_good { &[true] } else { &[false, true] };
    for &after_effect in effects {
        for at in 1.. {
            let cut = Cut { at, after_effect, for_good };
            let proxy = Proxy::start(server.socket(), Some(cut)).await;
            let table = table(&format!("at_{at}_{after_effect}"));
            let mut committed = None;
            let through = run(proxy.url(), &table, mode, &mut committed).await;
            if !proxy.was_cut() {
                assert!(at > 20, "{mode}: only {at} messages");
                break;
            }
            match through {
                Err(error) if for_good => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode} {cut:?}: {error}");
                    run(server.url(), &table, mode, &mut committed).await.unwrap();
                }
                // Good-byes may be lost.
                through => through.unwrap_or_else(|error| panic!("{mode} {cut:?}: {error}")),
            }
            assert_eq!(content(&server, &table), expected, "{mode} {cut:?}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_at_any_message_is_made_again() {
    for mode in MODES {
        at_every_message(mode, false).await;
    }
}

#[tokio::test]
async fn a_run_that_dies_at_any_message_is_finished_by_the_next() {
    for mode in MODES {
        at_every_message(mode, true).await;
    }
}

/// A stream that says that its first row was taken, and goes on when it is told to.
fn slow(
    rows: Vec<RecordBatch>,
) -> (RowStream, tokio::sync::oneshot::Receiver<()>, tokio::sync::oneshot::Sender<()>) {
    use futures::StreamExt;
    let (taken, was_taken) = tokio::sync::oneshot::channel();
    let (go, may_go) = tokio::sync::oneshot::channel::<()>();
    let first = futures::stream::iter(rows.into_iter().map(Ok));
    let then = futures::stream::once(async move {
        let _ = taken.send(());
        let _ = may_go.await;
        Ok(pairs(&[(Some("last"), 0)]))
    });
    (first.chain(then).boxed(), was_taken, go)
}

#[tokio::test]
async fn a_server_that_dies_in_a_micro_batch_gets_it_when_it_is_back() {
    let server = Arc::new(Postgres::start().unwrap());
    let sink = PostgresSink::new(options(server.url(), "t", &["k"])).unwrap();
    sink.open(context("t", pairs(&[]).schema(), OutputMode::Update, None)).await.unwrap();
    sink.write(&info("t", 0), stream(rows(0))).await.unwrap();
    let (stream, was_taken, go) = slow(rows(2));
    let info = info("t", 1);
    let write = sink.write(&info, stream);
    let disturb = async {
        was_taken.await.unwrap();
        server.crash().unwrap();
        go.send(()).unwrap();
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.restart()).await.unwrap().unwrap();
    };
    let (written, ()) = tokio::join!(write, disturb);
    assert_eq!(written.unwrap().rows, 5);
    assert_eq!(content(&server, "t"), "a|12\nb|2\nlast|0\n|2");
}

#[tokio::test]
async fn the_run_that_was_opened_last_has_the_query() {
    let server = Postgres::shared().unwrap();
    let schema = pairs(&[]).schema();
    let open = async || {
        let sink = hurried(options(server.url(), "fenced", &[]));
        sink.open(context("fenced", schema.clone(), OutputMode::Append, None)).await.unwrap();
        sink
    };
    let old = open().await;
    let new = open().await;
    let error = old.write(&info("fenced", 0), stream(rows(0))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(error.message().contains("another run of this query has taken over"), "{error}");
    assert_eq!(content(&server, "fenced"), "");
    new.write(&info("fenced", 0), stream(rows(0))).await.unwrap();
    assert_eq!(old.write(&info("fenced", 0), stream(rows(0))).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(content(&server, "fenced").lines().count(), 4);
}

#[tokio::test]
async fn a_run_that_is_writing_is_waited_for_and_its_micro_batch_counts() {
    let server = Postgres::shared().unwrap();
    let schema = pairs(&[]).schema();
    let old = hurried(options(server.url(), "waited", &[]));
    old.open(context("waited", schema.clone(), OutputMode::Append, None)).await.unwrap();
    let (stream_of_old, was_taken, go) = slow(rows(0));
    let info = info("waited", 0);
    let first = old.write(&info, stream_of_old);
    let second = async {
        was_taken.await.unwrap();
        let new = hurried(options(server.url(), "waited", &[]));
        let context = context("waited", schema, OutputMode::Append, None);
        let opened = new.open(context);
        let until_old_is_done = async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            go.send(()).unwrap();
        };
        tokio::join!(opened, until_old_is_done).0.unwrap();
        new.write(&info, stream(rows(0))).await.unwrap()
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.unwrap().rows, second.already_committed), (5, true));
    assert_eq!(content(&server, "waited").lines().count(), 5);
}
