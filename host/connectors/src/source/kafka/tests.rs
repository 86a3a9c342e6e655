//! The source over a cluster that librdkafka plays: what is read, in which micro-batches, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test ends where something goes wrong")]

use super::*;
use crate::decode::options::OptionMap;
use crate::encode::JsonEncoder;
use crate::source::file::FileFormat;
use arrow::datatypes::Schema;
use pelton_core::types::parse_columns;
use pelton_core::{Error, MemoryFiles};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::TopicPartitionList;
use serde_json::json;
use std::time::Duration;

type Mock = MockCluster<'static, DefaultProducerContext>;

fn cluster(topics: &[(&str, i32)]) -> Mock {
    let mock = MockCluster::new(1).unwrap();
    topics.iter().for_each(|(topic, partitions)| mock.create_topic(topic, *partitions, 1).unwrap());
    mock
}

fn produce(mock: &Mock, topic: &str, partition: i32, values: &[&str]) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", mock.bootstrap_servers()).create().unwrap();
    for value in values {
        producer
            .send(BaseRecord::<(), str>::to(topic).partition(partition).payload(*value))
            .map_err(|e| e.0)
            .unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
}

fn options(mock: &Mock, topic: &str) -> KafkaSourceOptions {
    KafkaSourceOptions {
        starting: Boundary::Earliest,
        format: Some((FileFormat::Json, OptionMap::new())),
        schema: Some(Arc::new(Schema::new(parse_columns("n long", "UTC").unwrap()))),
        metadata_columns: vec!["partition".into(), "offset".into()],
        ..KafkaSourceOptions::new(&mock.bootstrap_servers(), topic)
    }
}

fn source(options: &KafkaSourceOptions, log: &Arc<MemoryFiles>) -> KafkaSource {
    KafkaSource::new("s", options, Arc::clone(log) as Arc<dyn FileManager>).unwrap()
}

/// Rows as `partition/offset:n`, a block after the other.
async fn read(source: &KafkaSource, start: Option<&Offset>, end: &Offset) -> Result<Vec<String>> {
    let range = OffsetRange { start: start.cloned(), end: end.clone() };
    let mut blocks = source.read(BatchId(0), &range).await?;
    let mut rows = Vec::new();
    while let Some(block) = blocks.next().await {
        let block = block?;
        let partition = block.partition().to_owned();
        let mut out = Vec::new();
        for batch in block.decode()?.batches {
            JsonEncoder::default().encode(&batch, &mut out)?;
        }
        for line in String::from_utf8(out).unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(partition.ends_with(&format!("-{}", row["partition"])), "{partition}: {line}");
            rows.push(format!("{partition}@{}:{}", row["offset"], row["n"]));
        }
    }
    Ok(rows)
}

async fn next(source: &KafkaSource, start: Option<&Offset>, now_ms: i64) -> Option<Offset> {
    source.latest_offset(start, ReadLimit::Configured, now_ms).await.unwrap()
}

fn offset(json: serde_json::Value) -> Offset {
    Offset(json)
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_partition_by_partition_and_go_on_where_the_last_micro_batch_ended() {
    let mock = cluster(&[("t", 2)]);
    produce(&mock, "t", 1, &["{\"n\":10}", "{\"n\":11}"]);
    produce(&mock, "t", 0, &["{\"n\":1}"]);
    let log = Arc::new(MemoryFiles::new());
    let source = source(&options(&mock, "t"), &log);
    let first = next(&source, None, 0).await.unwrap();
    assert_eq!(first, offset(json!({"t": {"0": 1, "1": 2}})));
    assert_eq!(read(&source, None, &first).await.unwrap(), ["t-0@0:1", "t-1@0:10", "t-1@1:11"]);
    assert_eq!(next(&source, Some(&first), 1).await, None);
    for n in 0..3 {
        produce(&mock, "t", n % 2, &["{\"n\":5}"]);
    }
    let second = next(&source, Some(&first), 2).await.unwrap();
    assert_eq!(second, offset(json!({"t": {"0": 3, "1": 3}})));
    let rows = ["t-0@1:5", "t-0@2:5", "t-1@2:5"];
    assert_eq!(read(&source, Some(&first), &second).await.unwrap(), rows);
    assert_eq!(read(&source, Some(&first), &second).await.unwrap(), rows, "a rerun reads the same");
    assert_eq!(read(&source, None, &first).await.unwrap().len(), 3, "and an older one, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_cuts_micro_batches_in_proportion() {
    let mock = cluster(&[("t", 2)]);
    let values = vec!["{\"n\":1}"; 90];
    produce(&mock, "t", 0, &values[..30]);
    produce(&mock, "t", 1, &values);
    let limited = KafkaSourceOptions { max_offsets_per_trigger: Some(40), ..options(&mock, "t") };
    let source = source(&limited, &Arc::new(MemoryFiles::new()));
    let (mut start, mut count) = (None, Vec::new());
    while let Some(end) = next(&source, start.as_ref(), 0).await {
        count.push(read(&source, start.as_ref(), &end).await.unwrap().len());
        start = Some(end);
    }
    assert_eq!(count, [40, 40, 40]);
    let all = source.latest_offset(None, ReadLimit::All, 0).await.unwrap();
    assert_eq!(all, Some(offset(json!({"t": {"0": 30, "1": 90}}))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minimum_is_waited_for() {
    let mock = cluster(&[("t", 1)]);
    produce(&mock, "t", 0, &["{}"]);
    let patient = KafkaSourceOptions {
        min_offsets_per_trigger: Some(3),
        max_trigger_delay: pelton_core::Interval::from_millis(1_000),
        ..options(&mock, "t")
    };
    let source = source(&patient, &Arc::new(MemoryFiles::new()));
    let first = next(&source, None, 0).await;
    assert!(first.is_some(), "the first micro-batch does not wait");
    produce(&mock, "t", 0, &["{}", "{}"]);
    assert_eq!(next(&source, first.as_ref(), 999).await, None);
    assert_eq!(next(&source, first.as_ref(), 1_000).await, Some(offset(json!({"t": {"0": 3}}))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_begins_where_it_is_told_and_only_once() {
    let mock = cluster(&[("t", 2)]);
    produce(&mock, "t", 0, &["{\"n\":1}", "{\"n\":2}"]);
    produce(&mock, "t", 1, &["{\"n\":3}"]);
    let log = Arc::new(MemoryFiles::new());
    let latest = KafkaSourceOptions { starting: Boundary::Latest, ..options(&mock, "t") };
    assert_eq!(next(&source(&latest, &log), None, 0).await, None);
    produce(&mock, "t", 0, &["{\"n\":4}"]);
    // A restart before the first micro-batch, with another wish.
    let again = source(&options(&mock, "t"), &log);
    let end = next(&again, None, 0).await.unwrap();
    assert_eq!(read(&again, None, &end).await.unwrap(), ["t-0@2:4"]);

    let offsets = Boundary::parse("starting_offsets", &json!({"t": {"0": 1, "1": -2}})).unwrap();
    let from = KafkaSourceOptions { starting: offsets, ..options(&mock, "t") };
    let from = source(&from, &Arc::new(MemoryFiles::new()));
    let end = next(&from, None, 0).await.unwrap();
    assert_eq!(read(&from, None, &end).await.unwrap(), ["t-0@1:2", "t-0@2:4", "t-1@0:3"]);

    let few = Boundary::parse("starting_offsets", &json!({"t": {"0": 1}})).unwrap();
    let few =
        source(&KafkaSourceOptions { starting: few, ..options(&mock, "t") }, &Arc::new(MemoryFiles::new()));
    let told = few.latest_offset(None, ReadLimit::Configured, 0).await.unwrap_err();
    assert!(told.message().contains("does not name t-1"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_may_have_an_end() {
    let mock = cluster(&[("t", 1)]);
    produce(&mock, "t", 0, &["{}", "{}", "{}"]);
    let ending = Boundary::parse("ending_offsets", &json!({"t": {"0": 2}})).unwrap();
    let source = source(
        &KafkaSourceOptions { ending: Some(ending), ..options(&mock, "t") },
        &Arc::new(MemoryFiles::new()),
    );
    let end = next(&source, None, 0).await.unwrap();
    assert_eq!(end, offset(json!({"t": {"0": 2}})));
    assert_eq!(next(&source, Some(&end), 5_000).await, None);
    let partitions = source.partitions(Some(&end), Some(&end), 0).await.unwrap();
    assert!(partitions[0].caught_up && !partitions[0].has_data, "{partitions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn available_now_ends_where_the_topic_ended_at_the_start() {
    let mock = cluster(&[("t", 1)]);
    produce(&mock, "t", 0, &["{}"]);
    let source = source(&options(&mock, "t"), &Arc::new(MemoryFiles::new()));
    source.prepare_for_available_now().await.unwrap();
    produce(&mock, "t", 0, &["{}"]);
    let end = next(&source, None, 10_000).await.unwrap();
    assert_eq!(end, offset(json!({"t": {"0": 1}})));
    let partitions = source.partitions(None, Some(&end), 10_000).await.unwrap();
    let shown: Vec<_> = partitions.iter().map(|p| (p.name.as_str(), p.has_data, p.caught_up)).collect();
    assert_eq!(shown, [("t-0", true, false)]);
    assert_eq!(next(&source, Some(&end), 20_000).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_that_come_later_are_read_from_their_beginning() {
    let mock = cluster(&[("a1", 1)]);
    produce(&mock, "a1", 0, &["{\"n\":1}"]);
    let pattern = KafkaSourceOptions {
        subscription: Subscription::pattern("a[0-9]").unwrap(),
        starting: Boundary::Latest,
        ..options(&mock, "")
    };
    let source = source(&pattern, &Arc::new(MemoryFiles::new()));
    assert_eq!(next(&source, None, 0).await, None);
    mock.create_topic("a2", 1, 1).unwrap();
    mock.create_topic("ab", 1, 1).unwrap();
    produce(&mock, "a2", 0, &["{\"n\":2}"]);
    produce(&mock, "ab", 0, &["{\"n\":3}"]);
    assert_eq!(next(&source, None, 1_000).await, None, "what is known is not old yet");
    let end = next(&source, None, 20_000).await.unwrap();
    assert_eq!(end, offset(json!({"a1": {"0": 1}, "a2": {"0": 1}})));
    assert_eq!(read(&source, None, &end).await.unwrap(), ["a2-0@0:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn assigned_partitions_are_read_and_no_others() {
    let mock = cluster(&[("t", 3)]);
    (0..3).for_each(|n| produce(&mock, "t", n, &["{\"n\":7}"]));
    let assign = |of: &[i32]| Subscription::Assign([("t".to_owned(), of.iter().copied().collect())].into());
    let some = KafkaSourceOptions { subscription: assign(&[0, 2]), ..options(&mock, "t") };
    let some = source(&some, &Arc::new(MemoryFiles::new()));
    let end = next(&some, None, 0).await.unwrap();
    assert_eq!(read(&some, None, &end).await.unwrap(), ["t-0@0:7", "t-2@0:7"]);
    let missing = KafkaSourceOptions { subscription: assign(&[3]), ..options(&mock, "t") };
    let told = source(&missing, &Arc::new(MemoryFiles::new())).latest_offset(None, ReadLimit::All, 0).await;
    assert!(told.unwrap_err().message().contains("'t-3'"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_there_is_named_with_the_nearest() {
    let mock = cluster(&[("orders", 1)]);
    // Asked for by name, the played cluster makes it: so what is not there is a failure that it is told to give.
    mock.topic_error("ordrs", rdkafka::types::RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        .unwrap();
    let source = source(&options(&mock, "ordrs"), &Arc::new(MemoryFiles::new()));
    let told = source.latest_offset(None, ReadLimit::All, 0).await.unwrap_err().to_string();
    assert!(told.contains("there is no topic 'ordrs'") && told.contains("did you mean 'orders'?"), "{told}");
}

async fn lost_records(fail_on_data_loss: bool) -> Result<Vec<String>, Error> {
    let mock = cluster(&[("t", 1)]);
    produce(&mock, "t", 0, &["{\"n\":1}", "{\"n\":2}"]);
    let options = KafkaSourceOptions { fail_on_data_loss, ..options(&mock, "t") };
    let source = source(&options, &Arc::new(MemoryFiles::new()));
    // The topic was made anew: it ends before the query has come.
    let start = offset(json!({"t": {"0": 100}}));
    let end = source.latest_offset(Some(&start), ReadLimit::Configured, 0).await?.unwrap();
    assert_eq!(end, offset(json!({"t": {"0": 2}})));
    read(&source, Some(&start), &end).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_made_anew_is_a_loss_or_is_read_from_its_beginning() {
    let told = lost_records(true).await.unwrap_err().to_string();
    assert!(
        told.contains("t-0: the offsets 2 to 99 are gone") && told.contains("fail_on_data_loss"),
        "{told}"
    );
    assert_eq!(lost_records(false).await.unwrap(), ["t-0@0:1", "t-0@1:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_behind_the_end_are_lost_while_reading() {
    let mock = cluster(&[("t", 1)]);
    produce(&mock, "t", 0, &["{\"n\":1}", "{\"n\":2}"]);
    let range = (offset(json!({"t": {"0": 0}})), offset(json!({"t": {"0": 5}})));
    let strict = source(&options(&mock, "t"), &Arc::new(MemoryFiles::new()));
    let told = read(&strict, Some(&range.0), &range.1).await.unwrap_err().to_string();
    assert!(told.contains("t-0: the offsets 2 to 4 are gone"), "{told}");
    let lenient = KafkaSourceOptions { fail_on_data_loss: false, ..options(&mock, "t") };
    let lenient = source(&lenient, &Arc::new(MemoryFiles::new()));
    assert_eq!(read(&lenient, Some(&range.0), &range.1).await.unwrap(), ["t-0@0:1", "t-0@1:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_waited_for() {
    let mock = cluster(&[("t", 1)]);
    produce(&mock, "t", 0, &["{\"n\":1}"]);
    let source = source(&options(&mock, "t"), &Arc::new(MemoryFiles::new()));
    let first = next(&source, None, 0).await.unwrap();
    assert_eq!(read(&source, None, &first).await.unwrap().len(), 1);
    produce(&mock, "t", 0, &["{\"n\":2}"]);
    mock.broker_down(1).unwrap();
    let asked = next(&source, Some(&first), 1);
    let back = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        mock.broker_up(1).unwrap();
    };
    let (second, ()) = tokio::join!(asked, back);
    assert_eq!(read(&source, Some(&first), &second.unwrap()).await.unwrap(), ["t-0@1:2"]);

    let told = of_nobody().latest_offset(None, ReadLimit::All, 0).await.unwrap_err();
    assert_eq!(told.kind(), pelton_core::ErrorKind::Unavailable);
    assert!(told.message().contains("did not answer within broker_timeout"), "{told}");
}

/// A source of a cluster that is not there.
fn of_nobody() -> KafkaSource {
    let mut options = KafkaSourceOptions::new("127.0.0.1:1", "t");
    options.client.broker_timeout = Some(pelton_core::Interval::from_millis(1));
    source(&options, &Arc::new(MemoryFiles::new()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_group_shows_how_far_the_query_is() {
    let mock = cluster(&[("t", 1)]);
    produce(&mock, "t", 0, &["{}", "{}"]);
    let grouped = KafkaSourceOptions { group_id: "lag".into(), ..options(&mock, "t") };
    let source = source(&grouped, &Arc::new(MemoryFiles::new()));
    let end = next(&source, None, 0).await.unwrap();
    read(&source, None, &end).await.unwrap();
    source.commit(&end).await.unwrap();
    let asker: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("group.id", "lag")
        .create()
        .unwrap();
    let mut tries = 0;
    loop {
        let mut list = TopicPartitionList::new();
        list.add_partition("t", 0);
        let found = asker.committed_offsets(list, Duration::from_secs(5)).unwrap();
        if found.elements()[0].offset() == rdkafka::Offset::Offset(2) {
            break;
        }
        tries += 1;
        assert!(tries < 100, "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_range_comes_in_blocks_that_are_the_same_every_time() {
    let mock = cluster(&[("t", 1)]);
    let values: Vec<String> = (0..20_000).map(|n| format!("{{\"n\":{n}}}")).collect();
    produce(&mock, "t", 0, &values.iter().map(String::as_str).collect::<Vec<_>>());
    let parts = |min_partitions: Option<u64>| {
        let options = KafkaSourceOptions { min_partitions, ..options(&mock, "t") };
        async move {
            let source = source(&options, &Arc::new(MemoryFiles::new()));
            let range = OffsetRange {
                start: Some(offset(json!({"t": {"0": 0}}))),
                end: offset(json!({"t": {"0": 20_000}})),
            };
            let blocks = source.read(BatchId(0), &range).await.unwrap();
            let sizes = blocks.map(|block| {
                block.unwrap().decode().unwrap().batches.iter().map(|b| b.num_rows()).sum::<usize>()
            });
            sizes.collect::<Vec<usize>>().await
        }
    };
    assert_eq!(parts(None).await, [16_384, 3_616]);
    assert_eq!(parts(Some(4)).await, [5_000; 4]);
}
