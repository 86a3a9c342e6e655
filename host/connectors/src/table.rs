//! Static tables: files, or rows that are given. The other side of a join with a stream.
//!
//! `pelton` (the binary) makes them from the pipeline file. A table holds all of its rows in memory.

use crate::decode::json::{JsonDecoder, JsonOptions};
use crate::decode::{Decoder, DecoderSettings};
use crate::source::Stores;
use crate::source::file::{FileSource, FileSourceOptions};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use pelton_core::{
    BatchId, Decoded, Error, FileManager, Interval, MalformedPolicy, MemoryFiles, OffsetRange, ReadLimit,
    Result, Source, Table, TableRows,
};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;

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

/// The rows of files, read when the table is opened and, if asked for, again when the files have changed.
pub struct FileTable {
    name: String,
    options: FileSourceOptions,
    stores: Stores,
    schema: SchemaRef,
    reload: bool,
    runtime: Handle,
    known: Mutex<Known>,
}

/// What was read last, and for which micro-batch that was seen to be the newest.
struct Known {
    seen_by: Option<BatchId>,
    files: Vec<u8>,
    rows: TableRows,
}

impl FileTable {
    /// Reads the files. Must be called within a tokio runtime, and [`Table::rows`] of a table that reloads on a thread
    /// of it that may block.
    pub async fn open(name: &str, options: FileSourceOptions, reload: bool, stores: &Stores) -> Result<Self> {
        let infer_schema = options.schema.is_none();
        // Other than in a stream, no file is too old.
        let max_file_age = Interval::from_micros(i64::MAX);
        let options = FileSourceOptions { infer_schema, max_file_age, ..options };
        let (schema, files, rows) = read(name, &options, stores, None).await?;
        let known = Known { seen_by: None, files, rows: TableRows { version: 0, rows } };
        Ok(Self {
            name: name.to_owned(),
            options,
            stores: stores.clone(),
            schema,
            reload,
            runtime: Handle::current(),
            known: Mutex::new(known),
        })
    }
}

impl Table for FileTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self, batch_id: BatchId) -> Result<TableRows> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.reload || known.seen_by == Some(batch_id) {
            return Ok(known.rows.clone());
        }
        // The schema stays what it was at the start, whatever new files hold.
        let options = FileSourceOptions { schema: Some(self.schema.clone()), ..self.options.clone() };
        let again = self.runtime.block_on(read(&self.name, &options, &self.stores, Some(&known.files)));
        let (_, files, rows) = again.map_err(|e| e.context(format_args!("table '{}'", self.name)))?;
        if files != known.files {
            let version = known.rows.version + 1;
            known.rows = TableRows { version, rows };
            known.files = files;
        }
        known.seen_by = Some(batch_id);
        Ok(known.rows.clone())
    }
}

/// The schema, the list of files as bytes, and the rows; none if the list is `unless` still.
async fn read(
    name: &str,
    options: &FileSourceOptions,
    stores: &Stores,
    unless: Option<&[u8]>,
) -> Result<(SchemaRef, Vec<u8>, RecordBatch)> {
    let log = Arc::new(MemoryFiles::new());
    let source = FileSource::open(name, options, Arc::<MemoryFiles>::clone(&log), stores).await?;
    let schema: SchemaRef = Arc::new(source.full_schema());
    let end = source.latest_offset(None, ReadLimit::All, 0).await?;
    let mut files = Vec::new();
    for file in log.list("").await? {
        files.extend(log.read(&file.path).await?.unwrap_or_default());
    }
    let Some(end) = end.filter(|_| unless != Some(&files[..])) else {
        return Ok((schema.clone(), files, RecordBatch::new_empty(schema)));
    };
    let range = OffsetRange { start: None, end };
    let mut blocks = source.read(BatchId::FIRST, &range).await?;
    let mut batches = Vec::new();
    while let Some(block) = blocks.try_next().await? {
        let decoded = tokio::task::spawn_blocking(move || block.decode()).await;
        let Decoded { batches: more, dead_letters, dropped_rows } =
            decoded.map_err(|e| Error::internal(format!("reading the table '{name}' failed: {e}")))??;
        let lost = dead_letters.len() as u64 + dropped_rows;
        if lost > 0 {
            return Err(Error::data(format!("{lost} records of the table '{name}' do not decode")));
        }
        batches.extend(more);
    }
    let rows = one_batch(&schema, &batches)?;
    Ok((schema, files, rows))
}

fn one_batch(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
    let same = |batch: &RecordBatch| batch.clone().with_schema(schema.clone());
    Ok(concat_batches(schema, &batches.iter().map(same).collect::<Result<Vec<_>, _>>()?)?)
}
