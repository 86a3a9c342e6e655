//! Tests of the file sink in good weather: layout, formats, rolling, ownership.

use super::test_rows::{batch_info, context, numbers, stream};
use super::*;
use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use pelton_core::files::MemoryFiles;
use pelton_core::{BatchId, ErrorKind, QueryId};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Read;

async fn open(files: &MemoryFiles, options: FileSinkOptions, last: Option<u64>) -> Result<FileSink> {
    let sink = FileSink::new(Arc::new(files.clone()), options);
    sink.open(context(numbers(0..1).schema(), last)).await?;
    Ok(sink)
}

fn options(format: FileFormat) -> FileSinkOptions {
    FileSinkOptions { format, ..FileSinkOptions::default() }
}

/// What a reader sees that knows nothing of the log.
async fn visible(files: &MemoryFiles) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for file in files.list("").await.unwrap() {
        if !file.path.starts_with("_pelton/") {
            let content = files.read(&file.path).await.unwrap().unwrap();
            found.insert(file.path, content.to_vec());
        }
    }
    found
}

fn text(content: &[u8]) -> &str {
    std::str::from_utf8(content).unwrap()
}

#[tokio::test]
async fn a_micro_batch_is_one_file_and_an_empty_one_none() {
    let files = MemoryFiles::new();
    let sink = open(&files, options(FileFormat::Json), None).await.unwrap();
    let report = sink.write(&batch_info(0), stream(vec![numbers(0..2), numbers(2..3)])).await.unwrap();
    assert_eq!((report.rows, report.files, report.already_committed), (3, 1, false));
    let empty = sink.write(&batch_info(1), stream(vec![numbers(0..0)])).await.unwrap();
    assert_eq!((empty.rows, empty.files), (0, 0));
    sink.write(&batch_info(2), stream(vec![numbers(3..4)])).await.unwrap();

    let seen = visible(&files).await;
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["part-00000-00000.json", "part-00002-00000.json"]);
    let first = "{\"n\":0,\"key\":\"k 0\"}\n{\"n\":1,\"key\":\"k 1\"}\n{\"n\":2,\"key\":\"k 2\"}\n";
    assert_eq!(text(&seen["part-00000-00000.json"]), first);
    assert_eq!(report.bytes, first.len() as u64);
    assert_eq!(files.list("_pelton/pending").await.unwrap(), []);

    let committed = committed_files(&files).await.unwrap();
    assert_eq!(committed.len(), 2);
    assert_eq!(
        (committed[1].batch_id, committed[1].rows, &committed[1].pending),
        (BatchId(2), Some(1), &None)
    );
}

#[tokio::test]
async fn a_second_write_changes_nothing() {
    let files = MemoryFiles::new();
    let sink = open(&files, options(FileFormat::Json), None).await.unwrap();
    let first = sink.write(&batch_info(0), stream(vec![numbers(0..3)])).await.unwrap();
    let before = visible(&files).await;
    let again = sink.write(&batch_info(0), stream(vec![numbers(7..9)])).await.unwrap();
    assert_eq!((again.rows, again.bytes, again.files), (3, first.bytes, 1));
    assert!(again.already_committed);
    drop(sink);
    let sink = open(&files, options(FileFormat::Json), None).await.unwrap();
    assert!(sink.write(&batch_info(0), stream(vec![numbers(7..9)])).await.unwrap().already_committed);
    assert_eq!(visible(&files).await, before);
}

#[tokio::test]
async fn partitions_become_directories_and_leave_the_files() {
    let files = MemoryFiles::new();
    let by_key = FileSinkOptions { partition_by: vec!["key".into()], ..options(FileFormat::Csv) };
    let sink = open(&files, by_key, None).await.unwrap();
    let report = sink.write(&batch_info(4), stream(vec![numbers(0..4), numbers(4..7)])).await.unwrap();
    assert_eq!((report.rows, report.files), (7, 3));
    let seen: Vec<(String, Vec<u8>)> = visible(&files).await.into_iter().collect();
    let seen: Vec<(&str, &str)> = seen.iter().map(|(path, content)| (path.as_str(), text(content))).collect();
    assert_eq!(
        seen,
        [
            ("key=k 0/part-00004-00000.csv", "0\n3\n6\n"),
            ("key=k 1/part-00004-00001.csv", "1\n4\n"),
            ("key=k 2/part-00004-00002.csv", "2\n5\n"),
        ]
    );
}

#[tokio::test]
async fn a_value_that_can_name_no_directory_is_told_before_anything_is_decided() {
    let files = MemoryFiles::new();
    let by_key = FileSinkOptions { partition_by: vec!["key".into()], ..options(FileFormat::Csv) };
    let sink = open(&files, by_key, None).await.unwrap();
    let key: ArrayRef = Arc::new(StringArray::from(vec!["L".repeat(252)]));
    let rows = RecordBatch::try_from_iter([("n", numbers(0..1).column(0).clone()), ("key", key)]).unwrap();
    let told = sink.write(&batch_info(0), stream(vec![rows])).await.unwrap_err();
    assert!(told.message().contains("column 'key' would name a directory with 256 bytes"), "{told}");
    sink.write(&batch_info(0), stream(vec![numbers(0..1)])).await.unwrap();
    assert_eq!(visible(&files).await.len(), 1);
}

#[tokio::test]
async fn files_end_at_their_number_of_rows() {
    let files = MemoryFiles::new();
    let rolled = FileSinkOptions {
        max_records_per_file: Some(4),
        options: OptionMap::from([("header".to_owned(), json!(true))]),
        ..options(FileFormat::Csv)
    };
    let sink = open(&files, rolled, None).await.unwrap();
    sink.write(&batch_info(0), stream(vec![numbers(0..3), numbers(3..9), numbers(9..12)])).await.unwrap();
    let seen = visible(&files).await;
    assert_eq!(seen.len(), 3);
    assert_eq!(text(&seen["part-00000-00001.csv"]), "n,key\n4,k 1\n5,k 2\n6,k 0\n7,k 1\n");
}

#[test]
fn files_end_at_their_size() {
    let limits =
        Limits { file_bytes: 100, piece_rows: 4, ..Limits::for_format(FileFormat::Json, None).unwrap() };
    let splitter = Splitter::new(&numbers(0..1).schema(), &[], limits).unwrap();
    let (mut split, mut ready) = (splitter.start().unwrap(), std::collections::VecDeque::new());
    split.push(&numbers(0..10), &mut ready).unwrap();
    split.finish(&mut ready);
    // Four rows are 4 × 8 bytes of numbers, 4 × 3 of text and its five offsets: two pieces make a file.
    let pieces: Vec<(usize, bool)> = ready.iter().map(|piece| (piece.file, piece.last)).collect();
    assert_eq!(pieces, [(0, false), (0, true), (1, false)]);
}

/// Few rows at a time and few files: what otherwise takes gigabytes.
async fn write_with_tight_limits(files: &MemoryFiles, batches: Vec<RecordBatch>) {
    let mut limits = Limits::for_format(FileFormat::Json, Some(5)).unwrap();
    (limits.piece_rows, limits.open_files, limits.waiting_bytes) = (2, 2, 200);
    let sink = open(files, options(FileFormat::Json), None).await.unwrap();
    {
        let mut run = sink.run.lock().await;
        let run = run.as_mut().unwrap();
        run.splitter = Splitter::new(&numbers(0..1).schema(), &["key".into()], limits).unwrap();
    }
    sink.write(&batch_info(0), stream(batches)).await.unwrap();
}

#[tokio::test]
async fn many_partitions_share_few_open_files_and_lose_nothing() {
    let files = MemoryFiles::new();
    write_with_tight_limits(&files, vec![numbers(0..10), numbers(10..11), numbers(11..40)]).await;
    let mut by_key: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (path, content) in visible(&files).await {
        let rows: Vec<serde_json::Value> =
            text(&content).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert!((1..=5).contains(&rows.len()), "{path}");
        let key = path.split_once('/').unwrap().0.to_owned();
        by_key.entry(key).or_default().extend(rows.iter().map(|row| row["n"].as_i64().unwrap()));
    }
    for (rest, (_, rows)) in by_key.into_iter().enumerate() {
        let expected: Vec<i64> = (0..40).filter(|n| n % 3 == rest as i64).collect();
        assert_eq!(rows, expected, "rows of a partition stay in order");
    }
    let again = MemoryFiles::new();
    write_with_tight_limits(&again, vec![numbers(0..10), numbers(10..11), numbers(11..40)]).await;
    assert_eq!(visible(&again).await, visible(&files).await);
}

#[tokio::test]
async fn compressed_files_are_whole_and_named_so() {
    for (name, extension) in [("gzip", ".json.gz"), ("zstd", ".json.zst")] {
        let files = MemoryFiles::new();
        let compressed = FileSinkOptions {
            options: OptionMap::from([("compression".to_owned(), json!(name))]),
            ..options(FileFormat::Json)
        };
        let sink = open(&files, compressed, None).await.unwrap();
        let batches = (0..8).map(|n| numbers(n * 5000..(n + 1) * 5000)).collect();
        sink.write(&batch_info(0), stream(batches)).await.unwrap();
        let seen = visible(&files).await;
        let content = &seen[&format!("part-00000-00000{extension}")];
        let mut plain = String::new();
        match name {
            "gzip" => {
                flate2::read::MultiGzDecoder::new(content.as_slice()).read_to_string(&mut plain).unwrap()
            }
            _ => zstd::Decoder::new(content.as_slice()).unwrap().read_to_string(&mut plain).unwrap(),
        };
        assert_eq!(plain.lines().count(), 40_000);
        assert_eq!(plain.lines().last().unwrap(), "{\"n\":39999,\"key\":\"k 0\"}");
    }
}

#[tokio::test]
async fn parquet_files_hold_the_rows_in_order() {
    let files = MemoryFiles::new();
    let sink = open(&files, options(FileFormat::Parquet), None).await.unwrap();
    let batches = (0..40).map(|n| numbers(n * 5000..(n + 1) * 5000)).collect();
    sink.write(&batch_info(0), stream(batches)).await.unwrap();
    let content = visible(&files).await.remove("part-00000-00000.parquet").unwrap();
    let reader =
        ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(content));
    let reader = reader.unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 2);
    let mut next = 0;
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let column = batch.column(0).as_primitive::<Int64Type>();
        assert!(column.values().iter().zip(next..).all(|(found, expected)| *found == expected));
        next += column.len() as i64;
    }
    assert_eq!(next, 200_000);
}

#[tokio::test]
async fn avro_and_arrow_files_hold_the_rows_in_order() {
    use crate::decode::{Decoder, DecoderSettings, Input, arrow::ArrowDecoder, avro::AvroDecoder};
    for (format, name) in
        [(FileFormat::Avro, "part-00000-00000.avro"), (FileFormat::Arrow, "part-00000-00000.arrow")]
    {
        let mut contents = Vec::new();
        for _ in 0..2 {
            let files = MemoryFiles::new();
            let sink = open(&files, options(format), None).await.unwrap();
            let batches = (0..40).map(|n| numbers(n * 1000..(n + 1) * 1000)).collect();
            sink.write(&batch_info(0), stream(batches)).await.unwrap();
            contents.push(visible(&files).await.remove(name).unwrap());
        }
        assert_eq!(contents[0], contents[1], "the same rows give the same bytes");
        let settings = DecoderSettings::new(numbers(0..1).schema());
        let decoder: Box<dyn Decoder> = match format {
            FileFormat::Avro => Box::new(AvroDecoder::new(&settings, &Default::default()).unwrap()),
            _ => Box::new(ArrowDecoder::new(&settings).unwrap()),
        };
        let input = Input { bytes: &contents[0], file: name, first_line: 1, starts_file: true };
        let mut next = 0;
        for batch in decoder.decode(&input).unwrap().batches {
            let column = batch.column(0).as_primitive::<Int64Type>();
            assert!(column.values().iter().zip(next..).all(|(found, expected)| *found == expected));
            next += column.len() as i64;
        }
        assert_eq!(next, 40_000);
    }
}

#[tokio::test]
async fn another_querys_directory_is_refused_with_the_way_out() {
    let files = MemoryFiles::new();
    drop(open(&files, options(FileFormat::Json), None).await.unwrap());
    let other = FileSink::new(Arc::new(files.clone()), options(FileFormat::Json));
    let mut foreign = context(numbers(0..1).schema(), None);
    foreign.query_id = QueryId("other".into());
    let refused = other.open(foreign).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(refused.message(), "memory:/// belongs to another query (id query)");
    assert!(refused.hint_text().unwrap().contains("another path"));

    files.delete("_pelton/query").await.unwrap();
    files.replace("a=1/part-00003-00000.json", bytes::Bytes::from("{}\n")).await.unwrap();
    let refused = open(&files, options(FileFormat::Json), None).await.unwrap_err();
    assert!(refused.message().contains("a=1/part-00003-00000.json"), "{refused}");
}

#[tokio::test]
async fn a_checkpoint_older_than_the_output_is_refused() {
    let files = MemoryFiles::new();
    let sink = open(&files, options(FileFormat::Json), None).await.unwrap();
    for batch in 0..3 {
        sink.write(&batch_info(batch), stream(vec![numbers(0..1)])).await.unwrap();
    }
    drop(sink);
    let refused = open(&files, options(FileFormat::Json), Some(0)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Data);
    assert!(refused.message().contains("already holds micro-batch 2"), "{refused}");
    open(&files, options(FileFormat::Json), Some(1)).await.unwrap();
}

#[tokio::test]
async fn the_log_stays_short_and_is_read_by_people() {
    let files = MemoryFiles::new();
    let sink = open(&files, options(FileFormat::Json), None).await.unwrap();
    for batch in 0..100 {
        sink.write(&batch_info(batch), stream(vec![numbers(0..2)])).await.unwrap();
    }
    let entries = files.list("_pelton/log").await.unwrap();
    assert!((16..32).contains(&entries.len()), "{}", entries.len());
    let last = files.read("_pelton/log/99").await.unwrap().unwrap();
    let (version, json) = text(&last).split_once('\n').unwrap();
    assert_eq!(version, "v1");
    let entry: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(entry["total"], json!({"batches": 100, "files": 100, "rows": 200, "bytes": 4000}));
    assert_eq!(committed_files(&files).await.unwrap().len(), 100);
    assert!(sink.write(&batch_info(3), stream(vec![numbers(0..2)])).await.unwrap().already_committed);
}

#[tokio::test]
async fn a_damaged_or_newer_log_is_refused() {
    for (content, message) in [
        ("v1\n{\"query", "_pelton/log/0 is damaged"),
        ("v3\n{}", "has format v3; this release reads v1 and v2"),
        ("", "is damaged: its first line is not a version"),
    ] {
        let files = MemoryFiles::new();
        let sink = open(&files, options(FileFormat::Json), None).await.unwrap();
        sink.write(&batch_info(0), stream(vec![numbers(0..2)])).await.unwrap();
        drop(sink);
        files.replace("_pelton/log/0", bytes::Bytes::from(content)).await.unwrap();
        let refused = open(&files, options(FileFormat::Json), Some(0)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Data);
        assert!(refused.message().contains(message), "{refused}");
    }
}

#[test]
fn wrong_options_are_refused_before_anything_is_written() {
    let schema = numbers(0..1).schema();
    let message = |options: FileSinkOptions| options.check(&schema).unwrap_err().message().to_owned();
    let by = |name: &str| FileSinkOptions { partition_by: vec![name.into()], ..options(FileFormat::Json) };
    assert_eq!(message(by("kye")), "partition_by: there is no column 'kye'; there are: n, key");
    let both = FileSinkOptions { partition_by: vec!["n".into(), "key".into()], ..FileSinkOptions::default() };
    assert!(message(both).contains("names all columns"));
    let none = FileSinkOptions { max_records_per_file: Some(0), ..FileSinkOptions::default() };
    assert_eq!(message(none), "max_records_per_file must be at least 1");
    let text = FileSinkOptions { partition_by: vec!["n".into()], ..options(FileFormat::Text) };
    text.check(&schema).unwrap();
    let raw = options(FileFormat::Raw).check(&schema.project(&[1]).unwrap()).unwrap_err();
    assert!(raw.message().contains("raw is one of messages"), "{raw}");
    assert!("jsno".parse::<FileFormat>().unwrap_err().message().contains("did you mean 'json'"));
}
