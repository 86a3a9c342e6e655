//! Static tables: files, or rows that are given. The other side of a join with a stream.
//!
//! `pelton` (the binary) makes them from the pipeline file. A table holds all of its rows in memory.

use crate::decode::json::{JsonDecoder, JsonOptions};
use crate::decode::{Decoder, DecoderSettings};
use crate::source::Stores;
use crate::source::file::{FileSource, FileSourceOptions};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use futures::TryStreamExt;
use pelton_core::words::counted;
use pelton_core::{
    BatchId, Decoded, Error, Interval, MalformedPolicy, MemoryFiles, Offset, OffsetRange, ReadLimit, Result,
    Source, Table, TableRows, TableVersion,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows that never change.
pub struct GivenTable {
    rows: RecordBatch,
}

impl GivenTable {
    /// From JSON objects, read as the `json` format reads them. `origin` is for messages.
    pub fn from_json(rows: &[String], schema: SchemaRef, time_zone: &str, origin: &str) -> Result<Self> {
        let mut settings = DecoderSettings::new(schema.clone());
        settings.time_zone = time_zone.to_owned();
        settings.origin = origin.to_owned();
        settings.on_malformed = MalformedPolicy::Fail;
        let decoder = JsonDecoder::new(&settings, &JsonOptions::default())?;
        let records: Vec<&[u8]> = rows.iter().map(String::as_bytes).collect();
        let decoded = decoder.decode_records(&records, &|row| format!("{origin}, row {}", row + 1))?;
        Ok(Self { rows: one_batch(&schema, &decoded.batches)? })
    }
}

impl Table for GivenTable {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
    fn rows(&self, _: BatchId) -> Result<TableRows> {
        Ok(TableRows { version: 0, rows: self.rows.clone() })
    }
}

/// The rows of files, read when the table is opened and, if asked for, again when the files have changed. What a
/// micro-batch reads is fixed by the list of files that it was planned with.
pub struct FileTable {
    name: String,
    options: FileSourceOptions,
    stores: Stores,
    schema: SchemaRef,
    reload: bool,
    opened: Version,
    current: Mutex<Version>,
}

/// Rows, and the list of files that they were read from.
#[derive(Clone)]
struct Version {
    files: Value,
    rows: TableRows,
}

impl FileTable {
    /// Reads the files.
    pub async fn open(name: &str, options: FileSourceOptions, reload: bool, stores: &Stores) -> Result<Self> {
        let infer_schema = options.schema.is_none();
        // Other than in a stream, no file is too old.
        let max_file_age = Interval::from_micros(i64::MAX);
        let options = FileSourceOptions { infer_schema, max_file_age, ..options };
        let source = open(name, &options, stores).await?;
        let (schema, files) = (Arc::new(source.full_schema()), list(&source).await?);
        let rows = TableRows { version: 0, rows: read(name, &source, &files).await? };
        let opened = Version { files, rows };
        Ok(Self {
            name: name.to_owned(),
            // The schema stays what it was at the start, whatever new files hold.
            options: FileSourceOptions { schema: Some(Arc::<Schema>::clone(&schema)), ..options },
            stores: stores.clone(),
            schema,
            reload,
            current: Mutex::new(opened.clone()),
            opened,
        })
    }

    fn current(&self) -> MutexGuard<'_, Version> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Table for FileTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn latest(&self) -> Result<Option<TableVersion>> {
        let files = match self.reload {
            true => list(&open(&self.name, &self.options, &self.stores).await?).await?,
            false => self.opened.files.clone(),
        };
        Ok(Some(TableVersion(files)))
    }

    async fn pin(&self, TableVersion(files): &TableVersion) -> Result<()> {
        let before = self.current().clone();
        if before.files == *files {
            return Ok(());
        }
        let rows = match self.opened.files == *files {
            true => self.opened.rows.rows.clone(),
            false => {
                let source = open(&self.name, &self.options, &self.stores).await?;
                read(&self.name, &source, files).await?
            }
        };
        let version = before.rows.version + 1;
        *self.current() = Version { files: files.clone(), rows: TableRows { version, rows } };
        Ok(())
    }

    fn rows(&self, _: BatchId) -> Result<TableRows> {
        Ok(self.current().rows.clone())
    }
}

/// A source over the files, with a log of its own that nobody keeps.
async fn open(name: &str, options: &FileSourceOptions, stores: &Stores) -> Result<FileSource> {
    FileSource::open(name, options, Arc::new(MemoryFiles::new()), stores).await
}

/// The files that are there now.
async fn list(source: &FileSource) -> Result<Value> {
    match source.latest_offset(None, ReadLimit::All, 0).await? {
        Some(offset) => source.files_of(&offset).await,
        None => Ok(json!([])),
    }
}

/// The rows of these files, if they are still what they were.
async fn read(name: &str, source: &FileSource, files: &Value) -> Result<RecordBatch> {
    let end = source.offset_of(files).await?;
    let start = end.0["log_offset"].as_u64().and_then(|n| n.checked_sub(1));
    let start = start.map(|n| Offset(json!({"log_offset": n})));
    let mut blocks = source.read(BatchId::FIRST, &OffsetRange { start, end }).await?;
    let mut batches = Vec::new();
    while let Some(block) = blocks.try_next().await? {
        let decoded = tokio::task::spawn_blocking(move || block.decode()).await;
        let Decoded { batches: more, dead_letters, dropped_rows, .. } =
            decoded.map_err(|e| Error::internal(format!("reading the table '{name}' failed: {e}")))??;
        let lost = dead_letters.len() as u64 + dropped_rows;
        if lost > 0 {
            return Err(Error::data(format!(
                "{} of the table '{name}' cannot be decoded",
                counted(lost, "record")
            )));
        }
        batches.extend(more);
    }
    one_batch(&Arc::new(source.full_schema()), &batches)
}

fn one_batch(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
    let same = |batch: &RecordBatch| batch.clone().with_schema(schema.clone());
    Ok(concat_batches(schema, &batches.iter().map(same).collect::<Result<Vec<_>, _>>()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::file::FileFormat;
    use arrow::array::AsArray;
    use pelton_core::ErrorKind;
    use std::path::Path;

    async fn open_in(directory: &Path, reload: bool) -> FileTable {
        let path = directory.join("*.jsonl").to_string_lossy().into_owned();
        let options = FileSourceOptions::new([path], FileFormat::Json);
        FileTable::open("items", options, reload, &Stores::new([])).await.unwrap()
    }

    fn items(table: &FileTable) -> Vec<String> {
        let rows = table.rows(BatchId(0)).unwrap().rows;
        rows.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect()
    }

    fn write(directory: &Path, name: &str, item: &str) {
        std::fs::write(directory.join(name), format!("{{\"item\":\"{item}\"}}\n")).unwrap();
    }

    #[tokio::test]
    async fn a_version_is_read_as_it_was_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "a.jsonl", "tea");
        let table = open_in(directory.path(), true).await;
        let first = table.latest().await.unwrap().unwrap();
        write(directory.path(), "b.jsonl", "milk");
        assert_eq!(items(&table), ["tea"], "nothing is pinned yet");
        let second = table.latest().await.unwrap().unwrap();
        table.pin(&second).await.unwrap();
        assert_eq!(items(&table), ["tea", "milk"]);
        assert_eq!(table.rows(BatchId(0)).unwrap().version, 1);

        // Another process, for which the second is what it finds, reads the first.
        let restarted = open_in(directory.path(), true).await;
        restarted.pin(&first).await.unwrap();
        assert_eq!(items(&restarted), ["tea"]);
        write(directory.path(), "a.jsonl", "coffee");
        let restarted = open_in(directory.path(), true).await;
        let changed = restarted.pin(&first).await.unwrap_err();
        assert_eq!(changed.kind(), ErrorKind::Data);
        assert!(changed.message().contains("has changed since it was listed"), "{changed}");
        std::fs::remove_file(directory.path().join("b.jsonl")).unwrap();
        let gone = open_in(directory.path(), true).await.pin(&second).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Data);
    }

    #[tokio::test]
    async fn a_table_that_is_not_reloaded_stays_what_it_was_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "a.jsonl", "tea");
        let old = open_in(directory.path(), false).await.latest().await.unwrap().unwrap();
        write(directory.path(), "b.jsonl", "milk");
        let table = open_in(directory.path(), false).await;
        let now = table.latest().await.unwrap().unwrap();
        table.pin(&old).await.unwrap();
        assert_eq!(items(&table), ["tea"]);
        assert_eq!(
            table.latest().await.unwrap().unwrap(),
            now,
            "the next micro-batch sees what the start saw"
        );
        table.pin(&now).await.unwrap();
        assert_eq!(items(&table), ["tea", "milk"]);
    }
}
