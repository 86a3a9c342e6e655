//! Rollover: what is visible when, and that runs which die anywhere leave the same files in the end.

use super::test_rows::{batch_info, context, numbers, stream};
use super::*;
use bytes::Bytes;
use pelton_core::ErrorKind;
use pelton_core::files::{Fault, FaultyFiles, MemoryFiles};
use serde_json::json;
use std::collections::BTreeMap;

const BATCHES: u64 = 20;

/// A micro-batch a second; every fourth is empty.
fn rows(batch: u64) -> RowStream {
    let from = batch as i64 * 10;
    stream(if batch % 4 == 3 { vec![] } else { vec![numbers(from..from + 4)] })
}

fn options(format: FileFormat, rule: Rollover) -> FileSinkOptions {
    let options = match format {
        FileFormat::Csv => OptionMap::from([("header".to_owned(), json!(true))]),
        _ => OptionMap::new(),
    };
    FileSinkOptions {
        format,
        options,
        partition_by: vec!["key".into()],
        rollover: Some(rule),
        ..FileSinkOptions::default()
    }
}

const FIVE_SECONDS: Rollover = Rollover { size_bytes: 1 << 20, interval_ms: 5000 };

fn sink(files: Arc<dyn FileManager>, format: FileFormat) -> FileSink {
    FileSink::new(files, options(format, FIVE_SECONDS))
}

async fn open(files: &MemoryFiles, rule: Rollover, last: Option<u64>) -> FileSink {
    let sink = FileSink::new(Arc::new(files.clone()), options(FileFormat::Json, rule));
    sink.open(context(numbers(0..1).schema(), last)).await.unwrap();
    sink
}

/// Runs the query from what is committed to its end.
async fn run(files: Arc<dyn FileManager>, format: FileFormat, committed: &mut Option<u64>) -> Result<()> {
    let sink = sink(files, format);
    sink.open(context(numbers(0..1).schema(), *committed)).await?;
    for batch in committed.map_or(0, |last| last + 1)..BATCHES {
        sink.write(&batch_info(batch), rows(batch)).await?;
        *committed = Some(batch);
    }
    sink.finish().await
}

async fn visible(files: &MemoryFiles) -> BTreeMap<String, Bytes> {
    let mut found = BTreeMap::new();
    for file in files.list("").await.unwrap() {
        if !file.path.starts_with("_pelton/") {
            found.insert(file.path.clone(), files.read(&file.path).await.unwrap().unwrap());
        }
    }
    found
}

async fn names(files: &MemoryFiles) -> Vec<String> {
    visible(files).await.into_keys().collect()
}

async fn undisturbed(format: FileFormat) -> (BTreeMap<String, Bytes>, u64) {
    let files = MemoryFiles::new();
    let counted = FaultyFiles::new(Arc::new(files.clone()), None);
    run(Arc::new(counted.clone()), format, &mut None).await.unwrap();
    (visible(&files).await, counted.operations())
}

#[tokio::test]
async fn rows_of_several_micro_batches_are_in_one_file_of_their_partition() {
    let (files, _) = undisturbed(FileFormat::Csv).await;
    let names: Vec<&str> =
        files.keys().map(|path| path.strip_prefix("key=k 0/").unwrap_or_default()).collect();
    // Parts of 0 to 4 roll over with micro-batch 5, those of 6 to 10 with the empty 11, and so on; the rest at the end.
    let expected =
        ["part-00005-00000.csv", "part-00011-00000.csv", "part-00017-00000.csv", "part-00018-00000.csv"];
    assert_eq!(names[..4], expected);
    let first = std::str::from_utf8(&files["key=k 0/part-00005-00000.csv"]).unwrap();
    assert_eq!(first, "n\n0\n3\n12\n21\n42\n51\n", "one header, and the rows in order");
}

#[tokio::test]
async fn what_waits_is_committed_and_not_visible() {
    let files = MemoryFiles::new();
    let sink = open(&files, FIVE_SECONDS, None).await;
    let report = sink.write(&batch_info(0), rows(0)).await.unwrap();
    assert_eq!((report.rows, report.files), (4, 0));
    assert_eq!(names(&files).await, [""; 0]);
    let found = output_files(&files).await.unwrap();
    assert_eq!((found.live.len(), found.waiting.len()), (0, 3));
    assert_eq!(found.waiting.iter().map(|part| part.rows).sum::<u64>(), 4);
    assert!(files.read(&found.waiting[0].path).await.unwrap().is_some());
    drop(sink);
    let sink = open(&files, FIVE_SECONDS, Some(0)).await;
    let again = sink.write(&batch_info(0), rows(0)).await.unwrap();
    assert_eq!((again.rows, again.already_committed), (4, true));
    sink.rest(4999).await.unwrap();
    assert_eq!(names(&files).await, [""; 0]);
    sink.rest(5000).await.unwrap();
    assert_eq!(names(&files).await.len(), 3, "no micro-batch came, but time has passed");
    let again = sink.write(&batch_info(0), rows(0)).await.unwrap();
    assert_eq!((again.rows, again.bytes), (4, report.bytes), "the count of the micro-batch stays");
}

#[tokio::test]
async fn a_partition_rolls_over_by_its_size_alone() {
    let files = MemoryFiles::new();
    let rule = Rollover { size_bytes: 30, interval_ms: i64::MAX };
    let sink = open(&files, rule, None).await;
    // Key `k 0` gets two rows of 8 bytes, the others one.
    for batch in [0, 1, 2] {
        sink.write(&batch_info(batch), stream(vec![numbers(0..4)])).await.unwrap();
    }
    assert_eq!(names(&files).await, ["key=k 0/part-00001-00000.json"]);
    assert_eq!(visible(&files).await["key=k 0/part-00001-00000.json"].len(), 32);
    sink.finish().await.unwrap();
    let seen = names(&files).await;
    assert_eq!(
        seen[1..],
        ["key=k 0/part-00002-00000.json", "key=k 1/part-00002-00001.json", "key=k 2/part-00002-00002.json"]
    );
    assert_eq!(files.list("_pelton/pending").await.unwrap(), []);
}

#[tokio::test]
async fn many_small_micro_batches_keep_the_log_small() {
    let files = MemoryFiles::new();
    let sink = open(&files, Rollover { size_bytes: 1 << 20, interval_ms: i64::MAX }, None).await;
    for batch in 0..300 {
        sink.write(&batch_info(batch), stream(vec![numbers(batch as i64..batch as i64 + 1)])).await.unwrap();
    }
    let waiting = output_files(&files).await.unwrap().waiting;
    assert!(waiting.len() < 3 * 70, "{}", waiting.len());
    sink.finish().await.unwrap();
    let seen = visible(&files).await;
    assert_eq!(seen.len(), 3);
    for (key, (_, content)) in seen.iter().enumerate() {
        let numbers: Vec<i64> = content
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap()["n"].as_i64().unwrap())
            .collect();
        assert_eq!(numbers, (0..300).filter(|n| n % 3 == key as i64).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn what_waits_in_another_layout_rolls_over_when_the_sink_is_opened() {
    let files = MemoryFiles::new();
    let sink = open(&files, FIVE_SECONDS, None).await;
    sink.write(&batch_info(0), rows(0)).await.unwrap();
    sink.write(&batch_info(1), rows(1)).await.unwrap();
    drop(sink);
    let csv = super::rollover_tests::sink(Arc::new(files.clone()), FileFormat::Csv);
    csv.open(context(numbers(0..1).schema(), Some(1))).await.unwrap();
    let before = names(&files).await;
    assert_eq!(before.len(), 3);
    assert!(before.iter().all(|path| path.ends_with(".json")), "{before:?}");
    csv.write(&batch_info(2), rows(2)).await.unwrap();
    drop(csv);
    let plain = FileSinkOptions { rollover: None, ..options(FileFormat::Csv, FIVE_SECONDS) };
    let plain = FileSink::new(Arc::new(files.clone()), plain);
    plain.open(context(numbers(0..1).schema(), Some(2))).await.unwrap();
    assert_eq!(names(&files).await.len(), 6, "without a rollover nothing waits");
}

/// A run that dies at any operation, before or after it took effect; then one that does not.
async fn dies_anywhere(format: FileFormat, step: usize) {
    let (expected, operations) = undisturbed(format).await;
    for at in (1..=operations).step_by(step) {
        for after_effect in [false, true] {
            let fault = Fault { at, after_effect, crash: true };
            let files = MemoryFiles::new();
            let faulty = FaultyFiles::new(Arc::new(files.clone()), Some(fault));
            let mut committed = None;
            run(Arc::new(faulty), format, &mut committed).await.unwrap_err();
            let seen = visible(&files).await;
            assert!(seen.iter().all(|(path, content)| expected.get(path) == Some(content)), "{fault:?}");
            run(Arc::new(files.clone()), format, &mut committed)
                .await
                .unwrap_or_else(|e| panic!("{fault:?}: {e}"));
            assert_eq!(visible(&files).await, expected, "{fault:?}");
            assert_eq!(files.list("_pelton/pending").await.unwrap(), [], "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_run_that_dies_at_any_operation_is_finished_by_the_next() {
    dies_anywhere(FileFormat::Json, 1).await;
    dies_anywhere(FileFormat::Csv, 3).await;
}

#[tokio::test]
async fn parquet_files_come_out_the_same_too() {
    dies_anywhere(FileFormat::Parquet, 17).await;
}

#[tokio::test]
async fn a_write_that_fails_once_can_be_tried_again_by_the_same_run() {
    let (expected, operations) = undisturbed(FileFormat::Json).await;
    for at in 1..=operations {
        for after_effect in [false, true] {
            let fault = Fault { at, after_effect, crash: false };
            let files = MemoryFiles::new();
            let sink =
                sink(Arc::new(FaultyFiles::new(Arc::new(files.clone()), Some(fault))), FileFormat::Json);
            let open = || sink.open(context(numbers(0..1).schema(), None));
            if open().await.is_err() {
                open().await.unwrap();
            }
            for batch in 0..BATCHES {
                if sink.write(&batch_info(batch), rows(batch)).await.is_err() {
                    let again = sink.write(&batch_info(batch), rows(batch)).await;
                    again.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
                }
            }
            if sink.finish().await.is_err() {
                sink.finish().await.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
            }
            assert_eq!(visible(&files).await, expected, "{fault:?}");
            assert_eq!(files.list("_pelton/pending").await.unwrap(), [], "{fault:?}");
        }
    }
}

#[test]
fn what_cannot_roll_over_is_refused() {
    let schema = numbers(0..1).schema();
    let both = FileSinkOptions { max_records_per_file: Some(5), ..options(FileFormat::Json, FIVE_SECONDS) };
    let error = both.check(&schema).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.message(), "rollover and max_records_per_file exclude each other");
    let none = options(FileFormat::Json, Rollover { size_bytes: 0, ..FIVE_SECONDS });
    assert!(none.check(&schema).unwrap_err().message().contains("between 1 byte and 4GiB"));
}
