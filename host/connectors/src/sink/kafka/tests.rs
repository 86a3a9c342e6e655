//! The sink over a real broker: what a `read_committed` reader sees, whatever happened to the writer.
#![allow(clippy::unwrap_used, reason = "a test ends where something goes wrong")]

use super::*;
use crate::sink::file::test_rows::batch_info;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::{StreamExt, stream};
use pelton_core::{ErrorKind, QueryId};
use pelton_tests::Kafka;

fn options(kafka: &Kafka, topic: &str) -> KafkaSinkOptions {
    KafkaSinkOptions { key: Some("k".into()), ..KafkaSinkOptions::new(&kafka.bootstrap_servers(), topic) }
}

fn rows(of: &[i64]) -> RecordBatch {
    let k: ArrayRef = Arc::new(of.iter().map(|n| Some(format!("k{n}"))).collect::<StringArray>());
    let n: ArrayRef = Arc::new(Int64Array::from(of.to_vec()));
    RecordBatch::try_from_iter_with_nullable([("k", k, true), ("n", n, true)]).unwrap()
}

fn stream_of(batches: Vec<Result<RecordBatch>>) -> RowStream {
    stream::iter(batches).boxed()
}

fn context(query: &str, last_committed: Option<u64>, unfinished: Option<u64>) -> SinkContext {
    SinkContext {
        query_id: QueryId(query.into()),
        schema: rows(&[]).schema(),
        output_mode: OutputMode::Append,
        last_committed: last_committed.map(BatchId),
        unfinished: unfinished.map(BatchId),
    }
}

/// A sink of the query, opened.
async fn opened(options: KafkaSinkOptions, context: SinkContext) -> Result<KafkaSink> {
    let sink = KafkaSink::new(options)?;
    sink.open(context).await?;
    Ok(sink)
}

fn info(query: &str, batch: u64) -> BatchInfo {
    BatchInfo { query_id: QueryId(query.into()), ..batch_info(batch) }
}

async fn write(sink: &KafkaSink, query: &str, batch: u64, of: &[i64]) -> Result<SinkReport> {
    sink.write(&info(query, batch), stream_of(vec![Ok(rows(of))])).await
}

/// What a reader of committed messages sees, in the order of the numbers.
fn seen(kafka: &Kafka, topic: &str) -> Vec<String> {
    let mut values: Vec<String> =
        kafka.consume(topic).unwrap().iter().map(|message| message.text()).collect();
    values.sort();
    values
}

fn values(of: &[i64]) -> Vec<String> {
    of.iter().map(|n| format!("{{\"k\":\"k{n}\",\"n\":{n}}}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_micro_batch_that_comes_again_is_there_once() {
    let (kafka, topic) = (Kafka::shared().unwrap(), "sink-again");
    kafka.create_topic(topic, 2).unwrap();
    let sink = opened(options(&kafka, topic), context(topic, None, None)).await.unwrap();
    let report = write(&sink, topic, 0, &[1, 2]).await.unwrap();
    assert_eq!((report.rows, report.already_committed), (2, false));
    assert!(write(&sink, topic, 0, &[1, 2]).await.unwrap().already_committed);
    drop(sink);
    // Its commit was not written before the process died.
    let sink = opened(options(&kafka, topic), context(topic, None, Some(0))).await.unwrap();
    assert!(write(&sink, topic, 0, &[1, 2]).await.unwrap().already_committed);
    assert!(!write(&sink, topic, 1, &[3]).await.unwrap().already_committed);
    assert_eq!(seen(&kafka, topic), values(&[1, 2, 3]));
    let keys: Vec<_> =
        kafka.consume(topic).unwrap().into_iter().map(|message| message.key.unwrap()).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.contains(&b"k1".to_vec()), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_micro_batch_that_failed_is_seen() {
    let (kafka, topic) = (Kafka::shared().unwrap(), "sink-failed");
    kafka.create_topic(topic, 1).unwrap();
    let sink = opened(options(&kafka, topic), context(topic, None, None)).await.unwrap();
    let broken = stream_of(vec![Ok(rows(&[1])), Err(Error::data("a bad row"))]);
    let failed = sink.write(&info(topic, 0), broken).await.unwrap_err();
    assert_eq!(failed.message(), "a bad row");
    assert!(seen(&kafka, topic).is_empty());
    write(&sink, topic, 0, &[1]).await.unwrap();
    assert_eq!(seen(&kafka, topic), values(&[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_that_was_opened_last_may_write() {
    let (kafka, topic) = (Kafka::shared().unwrap(), "sink-fenced");
    kafka.create_topic(topic, 1).unwrap();
    let zombie = opened(options(&kafka, topic), context(topic, None, None)).await.unwrap();
    write(&zombie, topic, 0, &[1]).await.unwrap();
    let heir = opened(options(&kafka, topic), context(topic, Some(0), None)).await.unwrap();
    let fenced = write(&zombie, topic, 1, &[2]).await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
    // The zombie has fenced the heir's producer when it looked; the heir's note says that it may go on.
    write(&heir, topic, 1, &[3]).await.unwrap();
    assert_eq!(seen(&kafka, topic), values(&[1, 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoint_and_cluster_must_not_contradict_each_other() {
    let (kafka, topic) = (Kafka::shared().unwrap(), "sink-contradicted");
    kafka.create_topic(topic, 1).unwrap();
    let undecided = opened(options(&kafka, topic), context(topic, Some(4), Some(5))).await.err().unwrap();
    assert!(undecided.message().contains("micro-batch 5 was written"), "{undecided}");
    let sink = opened(options(&kafka, topic), context(topic, Some(4), None)).await.unwrap();
    write(&sink, topic, 5, &[5]).await.unwrap();
    let older = opened(options(&kafka, topic), context(topic, Some(3), None)).await.err().unwrap();
    assert!(older.message().contains("the checkpoint is older"), "{older}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_least_once_messages_are_there_when_a_write_returns() {
    let (kafka, topic) = (Kafka::shared().unwrap(), "sink-plain");
    kafka.create_topic(topic, 1).unwrap();
    let options = KafkaSinkOptions { delivery: Delivery::AtLeastOnce, ..options(&kafka, topic) };
    let sink = opened(options, context(topic, None, None)).await.unwrap();
    write(&sink, topic, 0, &[1, 2]).await.unwrap();
    assert_eq!(seen(&kafka, topic), values(&[1, 2]));
    write(&sink, topic, 0, &[1, 2]).await.unwrap();
    assert_eq!(seen(&kafka, topic), values(&[1, 1, 2, 2]), "it knows nothing of micro-batches");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_at_the_start() {
    let kafka = Kafka::shared().unwrap();
    kafka.create_topic("sink-wrong", 1).unwrap();
    let slow = KafkaSinkOptions {
        transaction_timeout: pelton_core::Interval::from_millis(24 * 3600 * 1000),
        ..options(&kafka, "sink-wrong")
    };
    let told = opened(slow, context("sink-wrong", None, None)).await.err().unwrap();
    assert!(
        told.kind() == ErrorKind::Invalid && told.message().contains("transaction.max.timeout.ms"),
        "{told}"
    );
    let told = opened(options(&kafka, "sink wrong"), context("sink-wrong", None, None)).await.err().unwrap();
    assert_eq!(told.kind(), ErrorKind::Invalid, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_fails_the_micro_batch_as_data() {
    let (kafka, topic) = (Kafka::shared().unwrap(), "sink-large");
    kafka.create_topic(topic, 1).unwrap();
    let sink = opened(options(&kafka, topic), context(topic, None, None)).await.unwrap();
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(2 << 20)]));
    let large = RecordBatch::try_from_iter_with_nullable([
        ("k", text, true),
        ("n", rows(&[1]).column(1).clone(), true),
    ]);
    let told = sink.write(&info(topic, 0), stream_of(vec![Ok(large.unwrap())])).await.unwrap_err();
    assert!(told.kind() == ErrorKind::Data && told.message().contains(topic), "{told}");
    write(&sink, topic, 0, &[1]).await.unwrap();
    assert_eq!(seen(&kafka, topic), values(&[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_stops_of_the_broker_are_waited_for_and_double_nothing() {
    let (kafka, topic) = (Arc::new(Kafka::start().unwrap()), "sink-stops");
    kafka.create_topic(topic, 2).unwrap();
    let sink = opened(options(&kafka, topic), context(topic, None, None)).await.unwrap();
    write(&sink, topic, 0, &[10]).await.unwrap();
    for batch in 1..4_i64 {
        // In the middle of the micro-batch, between its rows.
        let stopped = Arc::clone(&kafka);
        let rows = stream::iter(0..4_i64).then(move |n| {
            let kafka = Arc::clone(&stopped);
            async move {
                match n {
                    2 => kafka.hard_stop().unwrap(),
                    3 => kafka.start_again().unwrap(),
                    _ => {}
                }
                Ok(rows(&[10 + batch * 10 + n]))
            }
        });
        sink.write(&info(topic, batch as u64), rows.boxed()).await.unwrap();
    }
    let of_batch = |batch: i64| (0..4).map(move |n| 10 + batch * 10 + n);
    let expected: Vec<i64> = [10].into_iter().chain((1..4).flat_map(of_batch)).collect();
    assert_eq!(seen(&kafka, topic), values(&expected));
}
