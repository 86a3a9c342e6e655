//! Compaction: beside a run, against another, dying anywhere; and what readers see meanwhile.

use super::test_rows::{batch_info, context, numbers, stream};
use super::*;
use crate::source::Stores;
use crate::source::file::{FileFormat as SourceFormat, FileSource, FileSourceOptions};
use futures::StreamExt;
use pelton_core::files::{Fault, FaultyFiles, MemoryFiles};
use pelton_core::{BatchId, ErrorKind, OffsetRange, ReadLimit, Source};
use std::collections::{BTreeMap, BTreeSet};

const HOUR_MS: i64 = 3600 * 1000;

fn sink(files: Arc<dyn FileManager>, format: FileFormat) -> FileSink {
    let options = match format {
        FileFormat::Csv => OptionMap::from([("header".to_owned(), serde_json::json!(true))]),
        _ => OptionMap::new(),
    };
    let partition_by = vec!["key".to_owned()];
    FileSink::new(files, FileSinkOptions { format, options, partition_by, ..FileSinkOptions::default() })
}

/// Micro-batches of ten rows, the first of them `from`.
async fn write(sink: &FileSink, from: u64, to: u64) -> Result<()> {
    sink.open(context(numbers(0..1).schema(), from.checked_sub(1))).await?;
    for batch in from..to {
        let first = batch as i64 * 10;
        sink.write(&batch_info(batch), stream(vec![numbers(first..first + 10)])).await?;
    }
    Ok(())
}

async fn written(format: FileFormat) -> MemoryFiles {
    let files = MemoryFiles::new();
    write(&sink(Arc::new(files.clone()), format), 0, 6).await.unwrap();
    files
}

fn options(delete_after_ms: i64) -> CompactOptions {
    CompactOptions { target_size_bytes: 1 << 20, delete_after_ms, dry_run: false }
}

async fn compact_at(files: &MemoryFiles, options: CompactOptions, now_ms: i64) -> Result<Compaction> {
    compact(&(Arc::new(files.clone()) as Arc<dyn FileManager>), options, now_ms).await
}

/// The rows that a reader of the log finds, by partition and in order.
async fn rows(files: &MemoryFiles) -> BTreeMap<String, Vec<String>> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in committed_files(files).await.unwrap() {
        let place = file.pending.as_ref().unwrap_or(&file.path);
        let content = files.read(place).await.unwrap().unwrap_or_else(|| panic!("{place} is missing"));
        assert_eq!(content.len() as u64, file.size_bytes, "{place}");
        let lines = String::from_utf8(content.to_vec()).unwrap();
        let partition = file.path.split_once('/').unwrap().0.to_owned();
        rows.entry(partition).or_default().extend(lines.lines().map(str::to_owned));
    }
    rows
}

async fn visible(files: &MemoryFiles) -> Vec<String> {
    let files = files.list("").await.unwrap();
    files.into_iter().map(|file| file.path).filter(|path| !path.starts_with("_pelton/")).collect()
}

#[tokio::test]
async fn small_files_become_one_a_partition_and_readers_never_notice() {
    let files = written(FileFormat::Json).await;
    let (before, names) = (rows(&files).await, visible(&files).await);
    let planned = compact_at(&files, CompactOptions { dry_run: true, ..options(HOUR_MS) }, 0).await.unwrap();
    assert_eq!((planned.groups.len(), planned.groups[0].replaces.len()), (3, 6));
    assert_eq!(files.list("_pelton/compacted").await.unwrap(), [], "a dry run writes nothing");

    let done = compact_at(&files, options(HOUR_MS), 0).await.unwrap();
    assert_eq!((done.groups.len(), done.deleted, done.kept), (3, 0, 18));
    assert_eq!(visible(&files).await, names, "who knows nothing of the log sees the old files");
    let found = output_files(&files).await.unwrap();
    assert_eq!((found.live.len(), found.replaced.len()), (3, 18));
    assert_eq!(found.replaced[0].delete_at_ms, HOUR_MS);
    assert_eq!(rows(&files).await, before);

    let later = compact_at(&files, options(HOUR_MS), HOUR_MS).await.unwrap();
    assert_eq!((later.groups.len(), later.deleted, later.kept), (0, 18, 0));
    let seen = visible(&files).await;
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|path| path.contains("/part-c00000-")), "{seen:?}");
    assert_eq!(rows(&files).await, before);
}

#[tokio::test]
async fn csv_keeps_one_header_and_files_of_the_target_size_are_left_alone() {
    let files = written(FileFormat::Csv).await;
    // The files of a partition have 12 and 11 bytes or so: two of them reach the target.
    let target = CompactOptions { target_size_bytes: 20, ..options(0) };
    let done = compact_at(&files, target, 0).await.unwrap();
    assert!(done.groups.iter().all(|group| (2..=3).contains(&group.replaces.len())), "{done:?}");
    for (_, lines) in rows(&files).await {
        let headers = lines.iter().filter(|line| *line == "n").count();
        assert_eq!(lines.len() - headers, 20);
        assert!(headers < 6, "{headers}");
        let numbers: BTreeSet<i64> = lines.iter().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(numbers.len(), 20, "{numbers:?}");
    }
}

#[tokio::test]
async fn compacted_files_are_compacted_again_in_the_order_of_their_rows() {
    let files = written(FileFormat::Json).await;
    compact_at(&files, options(HOUR_MS), 0).await.unwrap();
    write(&sink(Arc::new(files.clone()), FileFormat::Json), 6, 9).await.unwrap();
    let before = rows(&files).await;
    let again = compact_at(&files, options(0), 1).await.unwrap();
    assert_eq!((again.groups.len(), again.deleted), (3, 0), "the first readers still have their hour");
    assert_eq!(rows(&files).await.into_values().map(|rows| rows.len()).sum::<usize>(), 90);
    for (partition, mut rows) in rows(&files).await {
        let in_order = |row: &String| serde_json::from_str::<serde_json::Value>(row).unwrap()["n"].as_i64();
        assert!(rows.is_sorted_by_key(in_order), "{partition}");
        rows.sort();
        let mut expected = before[&partition].clone();
        expected.sort();
        assert_eq!(rows, expected);
    }
    compact_at(&files, options(0), HOUR_MS).await.unwrap();
    assert_eq!(visible(&files).await.len(), 3);
    assert_eq!(rows(&files).await.into_values().map(|rows| rows.len()).sum::<usize>(), 90);
    assert_eq!(files.list("_pelton/compacted").await.unwrap(), []);
}

#[tokio::test]
async fn a_run_goes_on_beside_a_compaction() {
    let files = MemoryFiles::new();
    let sink = sink(Arc::new(files.clone()), FileFormat::Json);
    sink.open(context(numbers(0..1).schema(), None)).await.unwrap();
    for batch in 0..40 {
        let first = batch as i64 * 10;
        sink.write(&batch_info(batch), stream(vec![numbers(first..first + 10)])).await.unwrap();
        if batch % 7 == 6 {
            compact_at(&files, options(0), 0).await.unwrap();
        }
        let found = rows(&files).await.into_values().map(|rows| rows.len()).sum::<usize>();
        assert_eq!(found, (batch as usize + 1) * 10);
    }
    drop(sink);
    write(&super::compaction_tests::sink(Arc::new(files.clone()), FileFormat::Json), 40, 41).await.unwrap();
    assert_eq!(rows(&files).await.into_values().map(|rows| rows.len()).sum::<usize>(), 410);
}

#[tokio::test]
async fn a_compaction_that_dies_anywhere_harms_nothing() {
    let whole = written(FileFormat::Json).await;
    let expected = rows(&whole).await;
    let counted = FaultyFiles::new(Arc::new(whole), None);
    compact(&(Arc::new(counted.clone()) as Arc<dyn FileManager>), options(0), 0).await.unwrap();
    let mut decided = 0;
    for at in 1..=counted.operations() {
        for after_effect in [false, true] {
            let fault = Fault { at, after_effect, crash: true };
            let files = written(FileFormat::Json).await;
            let faulty: Arc<dyn FileManager> =
                Arc::new(FaultyFiles::new(Arc::new(files.clone()), Some(fault)));
            compact(&faulty, options(0), 0).await.unwrap_err();
            assert_eq!(rows(&files).await, expected, "{fault:?}");
            decided += usize::from(output_files(&files).await.unwrap().live.len() == 3);
            compact_at(&files, options(0), 2 * 24 * HOUR_MS).await.unwrap();
            assert_eq!(rows(&files).await, expected, "{fault:?}");
            assert_eq!(visible(&files).await.len(), 3, "{fault:?}");
            assert_eq!(files.list("_pelton/compacted").await.unwrap(), [], "{fault:?}");
        }
    }
    assert!(decided > 10 && decided < 2 * counted.operations() as usize);
}

#[tokio::test]
async fn a_second_compaction_and_a_strangers_directory_are_refused() {
    let files = written(FileFormat::Json).await;
    let expected = rows(&files).await;
    let guard = files.subtree("_pelton").lock("compaction.lock").await.unwrap();
    assert_eq!(compact_at(&files, options(0), 0).await.unwrap_err().kind(), ErrorKind::Fenced);
    drop(guard);
    compact_at(&files, options(HOUR_MS), 0).await.unwrap();
    assert_eq!(rows(&files).await, expected);
    let stranger = MemoryFiles::new();
    let refused = compact_at(&stranger, options(0), 0).await.unwrap_err();
    assert_eq!(refused.message(), "memory:/// is not the output of a file sink");
}

/// The `n`s that a source reads now.
async fn read(source: &FileSource, start: &mut Option<pelton_core::Offset>) -> Result<Vec<i64>> {
    let Some(end) = source.latest_offset(start.as_ref(), ReadLimit::Configured, 0).await? else {
        return Ok(Vec::new());
    };
    let range = OffsetRange { start: start.replace(end.clone()), end };
    let mut blocks = source.read(BatchId(0), &range).await?;
    let mut found = Vec::new();
    while let Some(block) = blocks.next().await {
        for batch in block?.decode()?.batches {
            let column = batch.column_by_name("n").unwrap();
            found.extend(
                arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(column).values().iter(),
            );
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A directory on disk with the six micro-batches, copied from memory.
async fn on_disk(files: &MemoryFiles, directory: &std::path::Path) {
    for entry in walk(directory) {
        std::fs::remove_file(entry).unwrap();
    }
    for file in files.list("").await.unwrap() {
        let path = directory.join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, files.read(&file.path).await.unwrap().unwrap()).unwrap();
        let opened = std::fs::File::options().write(true).open(&path).unwrap();
        opened.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
}

fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| if path.is_dir() { walk(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

async fn source(directory: &std::path::Path, log: &MemoryFiles) -> FileSource {
    let mut options = FileSourceOptions::new([directory.display().to_string()], SourceFormat::Json);
    let fields = [("n", arrow::datatypes::DataType::Int64), ("key", arrow::datatypes::DataType::Utf8)];
    let fields: Vec<_> = fields.map(|(name, of)| arrow::datatypes::Field::new(name, of, true)).into();
    options.schema = Some(Arc::new(Schema::new(fields)));
    FileSource::open("in", &options, Arc::new(log.clone()), &Stores::default()).await.unwrap()
}

#[tokio::test]
async fn a_source_reads_every_row_once_whatever_is_compacted_when() {
    let disk = tempfile::tempdir().unwrap();
    let files = written(FileFormat::Json).await;
    on_disk(&files, disk.path()).await;
    let (early_log, mut at) = (MemoryFiles::new(), None);
    let reader = source(disk.path(), &early_log).await;
    assert_eq!(read(&reader, &mut at).await.unwrap(), (0..60).collect::<Vec<_>>());

    compact_at(&files, options(HOUR_MS), 0).await.unwrap();
    write(&sink(Arc::new(files.clone()), FileFormat::Json), 6, 8).await.unwrap();
    on_disk(&files, disk.path()).await;
    let late_log = MemoryFiles::new();
    let late = source(disk.path(), &late_log).await;
    assert_eq!(
        read(&late, &mut None).await.unwrap(),
        (0..80).collect::<Vec<_>>(),
        "compacted and not yet visible"
    );
    assert_eq!(read(&reader, &mut at).await.unwrap(), (60..80).collect::<Vec<_>>());

    compact_at(&files, options(0), 2 * HOUR_MS).await.unwrap();
    on_disk(&files, disk.path()).await;
    assert_eq!(read(&reader, &mut at).await.unwrap(), [0_i64; 0], "all of it was read before");
    let restarted = source(disk.path(), &early_log).await;
    assert_eq!(read(&restarted, &mut at).await.unwrap(), [0_i64; 0]);
    let last = source(disk.path(), &MemoryFiles::new()).await;
    assert_eq!(read(&last, &mut None).await.unwrap(), (0..80).collect::<Vec<_>>(), "compacted and visible");
}
