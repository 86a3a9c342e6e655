//! The source as the engine uses it: plan, read, commit, restart, over local directories and a store.

use super::*;
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions as Format};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use pelton_core::types::{columns_name, parse_columns};
use pelton_core::{ErrorKind, Interval, MalformedPolicy, MemoryFiles};
use std::io::Write;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A directory with files and a checkpoint.
struct Fixture {
    dir: TempDir,
    log: MemoryFiles,
}

impl Fixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), log: MemoryFiles::new() }
    }
    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
    /// Writes a file that was modified `second` seconds after some day.
    fn write(&self, name: &str, content: impl AsRef<[u8]>, second: u64) {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000 + second);
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    }
    fn options(&self, pattern: &str, format: FileFormat, columns: &str) -> FileSourceOptions {
        let mut options = FileSourceOptions::new([self.path(pattern)], format);
        options.schema =
            (!columns.is_empty()).then(|| Arc::new(Schema::new(parse_columns(columns, "UTC").unwrap())));
        options
    }
    async fn open(&self, options: &FileSourceOptions) -> Result<FileSource> {
        FileSource::open("s", options, Arc::new(self.log.clone()), &Stores::default()).await
    }
}

async fn next(source: &FileSource, start: Option<&Offset>) -> Option<Offset> {
    source.latest_offset(start, ReadLimit::Configured, 0).await.unwrap()
}

async fn batches(source: &FileSource, start: Option<&Offset>, end: &Offset) -> Result<Vec<RecordBatch>> {
    let range = OffsetRange { start: start.cloned(), end: end.clone() };
    let mut blocks = source.read(BatchId(0), &range).await?;
    let mut batches = Vec::new();
    while let Some(block) = blocks.next().await {
        batches.extend(block?.decode()?.batches);
    }
    assert!(batches.iter().all(|batch: &RecordBatch| batch.schema() == source.schema()));
    Ok(batches)
}

fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let format = Format::new().with_null("null");
    let row = |batch: &RecordBatch, i: usize| {
        let value =
            |c: &arrow::array::ArrayRef| ArrayFormatter::try_new(c, &format).unwrap().value(i).to_string();
        batch.columns().iter().map(value).collect::<Vec<_>>().join("|")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |i| row(batch, i))).collect()
}

async fn rows(source: &FileSource, start: Option<&Offset>, end: &Offset) -> Vec<String> {
    shown(&batches(source, start, end).await.unwrap())
}

/// All rows there are.
async fn all(source: &FileSource) -> Vec<String> {
    let end = source.latest_offset(None, ReadLimit::All, 0).await.unwrap().expect("something is there");
    rows(source, None, &end).await
}

#[tokio::test]
async fn files_come_once_in_the_order_of_their_age() {
    let fixture = Fixture::new();
    fixture.write("b.json", "{\"a\": 2}\n", 10);
    fixture.write("a.json", "{\"a\": 3}\n", 20);
    fixture.write("c.json", "{\"a\": 1}\n", 10);
    let mut options = fixture.options("*.json", FileFormat::Json, "a int");
    options.max_files_per_trigger = Some(2);
    let source = fixture.open(&options).await.unwrap();
    let first = next(&source, None).await.unwrap();
    assert_eq!(first, Offset(json!({"log_offset": 0})));
    assert_eq!(rows(&source, None, &first).await, ["2", "1"]);
    let second = next(&source, Some(&first)).await.unwrap();
    assert_eq!(rows(&source, Some(&first), &second).await, ["3"]);
    assert_eq!(next(&source, Some(&second)).await, None);
    fixture.write("late.json", "{\"a\": 4}", 5);
    let third = next(&source, Some(&second)).await.unwrap();
    assert_eq!(rows(&source, Some(&second), &third).await, ["4"]);
    assert_eq!(rows(&source, None, &third).await, ["2", "1", "3", "4"]);
}

#[tokio::test]
async fn a_restart_gives_the_same_files_and_goes_on() {
    let fixture = Fixture::new();
    fixture.write("1.json", "{\"a\": 1}", 1);
    fixture.write("2.json", "{\"a\": 2}", 2);
    let mut options = fixture.options("", FileFormat::Json, "a int");
    options.max_files_per_trigger = Some(1);
    let first = next(&fixture.open(&options).await.unwrap(), None).await.unwrap();
    // The offset was planned and not written down: it is given again, with the same file.
    let again = fixture.open(&options).await.unwrap();
    assert_eq!(next(&again, None).await.as_ref(), Some(&first));
    assert_eq!(rows(&again, None, &first).await, ["1"]);
    again.commit(&first).await.unwrap();
    let second = next(&fixture.open(&options).await.unwrap(), Some(&first)).await.unwrap();
    assert_eq!(rows(&again.with_columns(&["a".into()]).unwrap(), None, &first).await, ["1"]);
    let third = fixture.open(&options).await.unwrap();
    assert_eq!(rows(&third, Some(&first), &second).await, ["2"]);
    let beyond = Offset(json!({"log_offset": 7}));
    let error = third.latest_offset(Some(&beyond), ReadLimit::All, 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
}

#[tokio::test]
async fn limits_by_bytes_newest_first_and_by_name() {
    let fixture = Fixture::new();
    for (i, name) in ["x/1.txt", "x/2.txt", "x/3.txt", "y/3.txt"].into_iter().enumerate() {
        fixture.write(name, format!("{name}\n"), i as u64);
    }
    let mut options = fixture.options("*/*.txt", FileFormat::Text, "");
    options.max_bytes_per_trigger = Some(17);
    options.latest_first = true;
    let source = fixture.open(&options).await.unwrap();
    let first = next(&source, None).await.unwrap();
    assert_eq!(rows(&source, None, &first).await, ["y/3.txt", "x/3.txt"]);
    let fixture = Fixture { log: MemoryFiles::new(), ..fixture };
    options.max_bytes_per_trigger = None;
    options.latest_first = false;
    options.file_name_only = true;
    assert_eq!(all(&fixture.open(&options).await.unwrap()).await, ["x/1.txt", "x/2.txt", "x/3.txt"]);
}

#[tokio::test]
async fn old_files_are_not_read() {
    let fixture = Fixture::new();
    fixture.write("new.txt", "new", 1000);
    let mut options = fixture.options("*", FileFormat::Text, "");
    options.max_file_age = Interval::from_millis(10_000);
    let source = fixture.open(&options).await.unwrap();
    let first = next(&source, None).await.unwrap();
    fixture.write("old.txt", "old", 989);
    assert_eq!(next(&source, Some(&first)).await, None);
    fixture.write("older-but-fine.txt", "fine", 991);
    let second = next(&source, Some(&first)).await.unwrap();
    assert_eq!(rows(&source, Some(&first), &second).await, ["fine"]);
}

#[tokio::test]
async fn available_now_reads_what_was_there() {
    let fixture = Fixture::new();
    fixture.write("1.txt", "1", 1);
    fixture.write("2.txt", "2", 2);
    let mut options = fixture.options("*", FileFormat::Text, "");
    options.max_files_per_trigger = Some(1);
    let source = fixture.open(&options).await.unwrap();
    source.prepare_for_available_now().await.unwrap();
    fixture.write("3.txt", "3", 3);
    let first = next(&source, None).await.unwrap();
    let second = next(&source, Some(&first)).await.unwrap();
    assert_eq!(next(&source, Some(&second)).await, None);
    assert_eq!(rows(&source, None, &second).await, ["1", "2"]);
}

#[tokio::test]
async fn a_file_that_changed_or_went_is_an_error() {
    let fixture = Fixture::new();
    fixture.write("a.json", "{\"a\": 1}\n", 1);
    let source = fixture.open(&fixture.options("a.json", FileFormat::Json, "a int")).await.unwrap();
    let end = next(&source, None).await.unwrap();
    fixture.write("a.json", "{\"a\": 1}\n{\"a\": 2}\n", 2);
    let error = batches(&source, None, &end).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(
        error.message().ends_with("a.json has changed since it was listed: 9 bytes then, 18 now"),
        "{error}"
    );
    std::fs::remove_file(fixture.path("a.json")).unwrap();
    let error = batches(&source, None, &end).await.unwrap_err();
    assert!(error.message().ends_with("a.json has gone since it was listed"), "{error}");
}

#[tokio::test]
async fn directories_become_columns() {
    let fixture = Fixture::new();
    fixture.write("in/year=2024/m=01/a.csv", "1\n", 1);
    fixture.write("in/year=2025/m=x%2Fy/b.csv", "2\n", 2);
    fixture.write("in/year=__HIVE_DEFAULT_PARTITION__/m=z/c.csv", "3\n", 3);
    let options = fixture.options("in", FileFormat::Csv, "m: string, v: int");
    let source = fixture.open(&options).await.unwrap();
    assert_eq!(columns_name(source.schema().fields()), "v: int, year: int, m: string");
    assert_eq!(all(&source).await, ["1|2024|01", "2|2025|x/y", "3|null|z"]);
    // A restart has the same columns whatever has come since.
    fixture.write("in/year=soon/m=1/d.csv", "4\n", 4);
    let source = fixture.open(&options).await.unwrap().with_columns(&["year".into()]).unwrap();
    let end = source.latest_offset(None, ReadLimit::All, 0).await.unwrap().unwrap();
    assert_eq!(columns_name(source.schema().fields()), "year: int");
    let error = batches(&source, None, &end).await.unwrap_err();
    assert!(error.message().ends_with("d.csv: directory year=soon is not int"), "{error}");
}

#[tokio::test]
async fn compressed_files_are_read_as_what_they_hold() {
    let fixture = Fixture::new();
    let text: String = (0..300_000).map(|i| format!("{{\"a\": {i}}}\n")).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text.as_bytes()[..100]).unwrap();
    let mut members = gzip.finish().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text.as_bytes()[100..]).unwrap();
    members.extend(gzip.finish().unwrap());
    fixture.write("a.json.gz", members, 1);
    fixture.write("b.json.zst", zstd::encode_all(text.as_bytes(), 1).unwrap(), 2);
    fixture.write("c.json", &text, 3);
    let source = fixture.open(&fixture.options("*", FileFormat::Json, "a int")).await.unwrap();
    let rows = all(&source).await;
    assert_eq!(rows.len(), 900_000);
    assert!((0..300_000).step_by(7_001).all(|i| (0..3).all(|f| rows[f * 300_000 + i] == i.to_string())));
    fixture.write("d.json.gz", "no gzip", 4);
    let end = source.latest_offset(None, ReadLimit::All, 0).await.unwrap().unwrap();
    let error = batches(&source, None, &end).await.unwrap_err();
    assert!(error.message().contains("d.json.gz: cannot be decompressed"), "{error}");
}

#[tokio::test]
async fn schemas_are_inferred_once() {
    let fixture = Fixture::new();
    fixture.write("a.csv", "a,b\n1,x\n", 1);
    let mut options = fixture.options("*.csv", FileFormat::Csv, "");
    options.options.insert("header".into(), true.into());
    let error = fixture.open(&options).await.err().unwrap();
    assert_eq!(error.message(), "a source of format csv needs a schema");
    options.infer_schema = true;
    let source = fixture.open(&options).await.unwrap();
    assert_eq!(columns_name(source.schema().fields()), "a: int, b: string");
    fixture.write("0.csv", "a,b\none,x\n", 0);
    let source = fixture.open(&options).await.unwrap();
    assert_eq!(columns_name(source.schema().fields()), "a: int, b: string");
    let empty = Fixture::new();
    let error =
        empty.open(&FileSourceOptions { paths: vec![empty.path("*")], ..options }).await.err().unwrap();
    assert!(error.message().ends_with("no schema can be inferred: there are no files yet"), "{error}");
}

#[tokio::test]
async fn malformed_records_name_file_and_line() {
    let fixture = Fixture::new();
    let line = format!("{{\"a\": 1, \"pad\": \"{}\"}}\n", "x".repeat(980));
    fixture.write("big.json", line.repeat(6_000) + "oops\n" + &line, 1);
    let mut options = fixture.options("*", FileFormat::Json, "a int");
    let source = fixture.open(&options).await.unwrap();
    let end = next(&source, None).await.unwrap();
    let error = batches(&source, None, &end).await.unwrap_err();
    assert!(error.message().contains("big.json:6001: not JSON at byte 1"), "{error}");
    options.on_malformed = MalformedPolicy::Drop;
    assert_eq!(rows(&fixture.open(&options).await.unwrap(), None, &end).await.len(), 6_001);
}

#[tokio::test]
async fn object_stores_are_read_like_directories() {
    let store = Arc::new(InMemory::new());
    let stores = Stores::default();
    stores.put("memory://", store.clone());
    let text: String = (0..500_000).map(|i| format!("{i},x{i}\n")).collect();
    store.put(&Path::from("in/k=7/a.csv"), text.into()).await.unwrap();
    let schema = Arc::new(Schema::new(parse_columns("i int, s string", "UTC").unwrap()));
    let mut options = FileSourceOptions::new(["memory:///in/*/*.csv"], FileFormat::Csv);
    options.schema = Some(schema);
    let log = Arc::new(MemoryFiles::new());
    let source = FileSource::open("s", &options, log.clone(), &stores).await.unwrap();
    let rows = all(&source).await;
    assert_eq!((rows.len(), rows[499_999].as_str()), (500_000, "499999|x499999|7"));
    assert!(log.read("0").await.unwrap().unwrap().starts_with(b"v1\n{\"path\":\"memory:///in/k=7/a.csv\""));
    store.delete(&Path::from("in/k=7/a.csv")).await.unwrap();
    let error = batches(&source, None, &Offset(json!({"log_offset": 0}))).await.unwrap_err();
    assert_eq!(error.message(), "memory:///in/k=7/a.csv has gone since it was listed");
}

#[tokio::test]
async fn parquet_gives_a_block_for_each_row_group() {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::file::properties::WriterProperties;
    use arrow::array::{Int32Array, StringArray};
    let fixture = Fixture::new();
    let schema = Arc::new(Schema::new(parse_columns("A int, b string, c int", "UTC").unwrap()));
    let numbers = Arc::new(Int32Array::from_iter_values(0..20_000));
    let texts = Arc::new(StringArray::from_iter_values((0..20_000).map(|i| format!("t{i}"))));
    let batch = RecordBatch::try_new(schema.clone(), vec![numbers.clone(), texts, numbers]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(15_000)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    fixture.write("a.parquet", writer.into_inner().unwrap(), 1);
    let source = fixture
        .open(&fixture.options("*.parquet", FileFormat::Parquet, "a long, b string, new date"))
        .await
        .unwrap();
    let end = next(&source, None).await.unwrap();
    let range = OffsetRange { start: None, end: end.clone() };
    assert_eq!(source.read(BatchId(0), &range).await.unwrap().count().await, 2);
    let found = rows(&source, None, &end).await;
    assert_eq!((found.len(), found[17_000].as_str()), (20_000, "17000|t17000|null"));
    let only_new = source.with_columns(&["new".into()]).unwrap();
    assert_eq!(rows(&only_new, None, &end).await.len(), 20_000);
    let wrong = fixture.open(&fixture.options("*.parquet", FileFormat::Parquet, "b int")).await.unwrap();
    let error = batches(&wrong, None, &end).await.unwrap_err();
    assert!(
        error.message().ends_with("a.parquet: column 'b': the file has string, the schema int"),
        "{error}"
    );
    let mut infer = fixture.options("*.parquet", FileFormat::Parquet, "");
    infer.infer_schema = true;
    let fixture = Fixture { log: MemoryFiles::new(), ..fixture };
    let source = fixture.open(&infer).await.unwrap();
    assert_eq!(columns_name(source.schema().fields()), "A: int, b: string, c: int");
    fixture.write("b.parquet", "this is not Parquet", 2);
    let end = source.latest_offset(None, ReadLimit::All, 0).await.unwrap().unwrap();
    assert!(
        batches(&source, None, &end).await.unwrap_err().message().contains("b.parquet: not a Parquet file")
    );
}

#[tokio::test]
async fn nothing_is_read_after_the_stream_is_dropped() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "x\n".repeat(20_000_000), 1);
    let source = fixture.open(&fixture.options("*", FileFormat::Text, "")).await.unwrap();
    let end = next(&source, None).await.unwrap();
    let range = OffsetRange { start: None, end };
    let mut blocks = source.read(BatchId(0), &range).await.unwrap();
    let first = blocks.next().await.unwrap().unwrap();
    assert_eq!(first.input_bytes(), cut::BLOCK_BYTES as u64);
    drop(blocks);
}

#[tokio::test]
async fn wrong_options_are_refused() {
    let fixture = Fixture::new();
    let refused = async |change: &dyn Fn(&mut FileSourceOptions)| {
        let mut options = fixture.options("*", FileFormat::Json, "a int");
        change(&mut options);
        fixture.open(&options).await.err().unwrap().message().to_owned()
    };
    assert_eq!(
        refused(&|o| o.max_files_per_trigger = Some(0)).await,
        "max_files_per_trigger must be at least 1"
    );
    assert!(
        refused(&|o| (o.max_files_per_trigger, o.max_bytes_per_trigger) = (Some(1), Some(1)))
            .await
            .contains("exclude")
    );
    assert!(refused(&|o| o.paths = vec![]).await.contains("needs a path"));
    assert!(refused(&|o| o.paths = vec!["ftp://x/y".into()]).await.starts_with("'ftp://x' cannot be opened"));
    assert!("jsn".parse::<FileFormat>().unwrap_err().message().contains("did you mean 'json'?"));
}

#[tokio::test]
async fn avro_and_arrow_files_have_their_schema_in_them() {
    for (file, format, rows) in [
        ("all_types.deflate.avro", FileFormat::Avro, ["-7|2013-01-01", "-7|2013-01-01", "-7|2013-01-01"]),
        ("three_rows.lz4.arrow", FileFormat::Arrow, ["1|a", "null|b", "3|a"]),
    ] {
        let fixture = Fixture::new();
        let (ending, columns) = match format {
            FileFormat::Avro => ("avro", ["day", "whole"]),
            _ => ("arrow", ["word", "n"]),
        };
        fixture.write(&format!("k=5/a.{ending}"), crate::testing::data(file), 1);
        let mut options = fixture.options("", format, "");
        let undeclared = fixture.open(&options).await.map(drop).unwrap_err();
        assert!(undeclared.message().contains("needs a schema"), "{undeclared}");
        options.infer_schema = true;
        let source = fixture.open(&options).await.unwrap();
        assert_eq!(source.full_schema().fields().last().unwrap().name(), "k");
        let wanted = columns.map(str::to_owned);
        assert_eq!(all(&source.with_columns(&wanted).unwrap()).await, rows, "{file}");

        fixture.write(&format!("k=5/b.{ending}"), "neither", 2);
        let source = fixture.open(&options).await.unwrap();
        let end = source.latest_offset(None, ReadLimit::All, 0).await.unwrap().unwrap();
        let damaged = batches(&source, None, &end).await.unwrap_err();
        assert_eq!(damaged.kind(), ErrorKind::Data);
        assert!(damaged.message().contains(&format!("b.{ending}: not readable as A")), "{damaged}");
    }
}

#[tokio::test]
async fn an_avro_file_comes_in_blocks_and_from_a_store() {
    use crate::encode::{Encoder, FileFormat as Written};
    let column: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..500_000));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let uncompressed = [("compression".to_owned(), "uncompressed".into())].into();
    let encoder = Encoder::new(Written::Avro, &batch.schema(), &uncompressed).unwrap();
    let mut file = encoder.head().unwrap();
    for at in (0..500_000).step_by(1000) {
        let crate::encode::Encoded::Bytes(bytes) = encoder.encode(&[batch.slice(at, 1000)]).unwrap() else {
            panic!("bytes")
        };
        file.extend(bytes.repeat(4));
    }
    let store = Arc::new(InMemory::new());
    store.put(&Path::from("in/a.avro"), file.into()).await.unwrap();
    let stores = Stores::default();
    stores.put("memory://", store);
    let mut options = FileSourceOptions::new(["memory:///in/*.avro"], FileFormat::Avro);
    options.infer_schema = true;
    let source = FileSource::open("s", &options, Arc::new(MemoryFiles::new()), &stores).await.unwrap();
    let end = next(&source, None).await.unwrap();
    let blocks = source.read(BatchId(0), &OffsetRange { start: None, end: end.clone() }).await.unwrap();
    assert!(blocks.count().await > 1);
    let rows = batches(&source, None, &end).await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 2_000_000);
}

#[tokio::test]
async fn raw_files_are_rows_and_messages_are_no_files() {
    let fixture = Fixture::new();
    fixture.write("a.bin", b"\xFFa\nb", 1);
    let source = fixture.open(&fixture.options("*.bin", FileFormat::Raw, "")).await.unwrap();
    assert_eq!(columns_name(source.full_schema().fields()), "value: binary");
    assert_eq!(all(&source).await, ["ff610a62"]);
    let mut options = fixture.options("*.bin", FileFormat::Protobuf, "");
    options.options = [
        ("message_name", "All".to_owned()),
        ("desc_file_path", crate::testing::path("all_types.desc").display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value.into()))
    .into();
    let refused = fixture.open(&options).await.map(drop).unwrap_err();
    assert!(refused.message().contains("protobuf is one of messages"), "{refused}");
    options.format = FileFormat::Avro;
    options.options = [("schema_registry".to_owned(), "http://localhost:8081".into())].into();
    let refused = fixture.open(&options).await.map(drop).unwrap_err();
    assert!(refused.hint_text().unwrap().contains("has its schema in itself"), "{refused}");
}
