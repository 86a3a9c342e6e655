//! Source `file`: files as they appear in directories or object stores. Spark's `FileStreamSource`.
//!
//! An offset is `{"log_offset": N}`; which files it stands for is in the source's log, written before the
//! offset is given away. Reading a range gives the same files in the same order and the same blocks for ever.

mod compacted;
mod containers;
mod cut;
mod listing;
mod location;
mod log;
mod options;
mod parquet;
mod partition;
mod read;
mod resolve;
mod seen;

pub use crate::format::FileFormat;
pub use options::{FileSourceOptions, FormatOptions};

use super::Stores;
use super::decoding::again;
use crate::decode::arrow::ArrowDecoder;
use crate::decode::avro::AvroDecoder;
use crate::decode::csv::CsvDecoder;
use crate::decode::json::JsonDecoder;
use crate::decode::parquet::ParquetDecoder;
use crate::decode::raw::RawDecoder;
use crate::decode::text::TextDecoder;
use crate::decode::{Decoder, DecoderSettings, Input, project};
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use compacted::Compactions;
use cut::{Boundary, Piece, Pool};
use futures::{StreamExt, stream};
use location::Location;
use log::{FileEntry, FileLog};
use memchr::memmem::Finder;
use partition::Constants;
use pelton_core::{
    Backlog, BatchId, Block, BlockStream, Decoded, Error, FileManager, Offset, OffsetRange, PartitionStatus,
    ReadLimit, Record, Result, Source,
};
use read::Opening;
use resolve::Resolved;
use seen::SeenFiles;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// Files that are opened before the one in front of them is read to its end.
const FILES_AHEAD: usize = 3;
/// Files that were listed and wait for their micro-batch, at most; Spark's `maxCachedFiles`.
const UNREAD_MAX: usize = 10_000;

/// A file source. Built with [`FileSource::open`]; cut down to the columns that the plan reads with
/// [`FileSource::with_columns`].
pub struct FileSource {
    name: String,
    options: FileSourceOptions,
    format: FormatOptions,
    locations: Arc<Vec<Location>>,
    resolved: Resolved,
    schema: SchemaRef,
    reading: Reading,
    state: Mutex<State>,
}

/// How files become blocks.
#[derive(Clone)]
enum Reading {
    Records { decoder: Arc<dyn Decoder>, boundary: Boundary, pool: Arc<Pool> },
    RowGroups(Arc<ParquetDecoder>),
    Avro(Arc<AvroDecoder>),
    Arrow(Arc<ArrowDecoder>),
}

struct State {
    log: FileLog,
    seen: Arc<SeenFiles>,
    /// Listed and not yet read, in the order in which they will be.
    unread: VecDeque<FileEntry>,
    /// What `available_now` may still read.
    frozen: bool,
    compactions: Compactions,
}

impl FileSource {
    /// Opens the source `name`, whose log is in `log` (the checkpoint's `sources/<name>`). Finds the schema,
    /// for which it may look into files the first time. To look at a pipeline without a checkpoint, give it
    /// files in memory.
    pub async fn open(
        name: &str,
        options: &FileSourceOptions,
        log: Arc<dyn FileManager>,
        stores: &Stores,
    ) -> Result<Self> {
        let format = options.check()?;
        let locations =
            options.paths.iter().map(|path| Location::parse(path, stores)).collect::<Result<Vec<_>>>()?;
        let locations = Arc::new(locations.concat());
        for location in locations.iter() {
            listing::check_base(location).await?;
        }
        let resolved = resolve::resolve(options, &format, &locations, &log).await?;
        let limited = options.max_files_per_trigger.is_some() || options.max_bytes_per_trigger.is_some();
        let max_age_ms = (!(options.latest_first && limited)).then(|| options.max_file_age.as_millis());
        let mut seen = SeenFiles::new(max_age_ms, options.file_name_only);
        let log = FileLog::open(log, &mut seen).await?;
        let (seen, unread, compactions) = (Arc::new(seen), VecDeque::new(), Compactions::default());
        let state = Mutex::new(State { log, seen, unread, frozen: false, compactions });
        let (schema, reading) = reading(name, options, &format, &resolved, None)?;
        Ok(Self {
            name: name.into(),
            options: options.clone(),
            format,
            locations,
            resolved,
            schema,
            reading,
            state,
        })
    }

    /// The same source, decoding only these columns; they come in the order of the schema. A column that is
    /// not there is an error of kind `Invalid`.
    pub fn with_columns(self, columns: &[String]) -> Result<Self> {
        let (schema, reading) =
            reading(&self.name, &self.options, &self.format, &self.resolved, Some(columns))?;
        Ok(Self { schema, reading, ..self })
    }

    /// All columns, whatever [`FileSource::with_columns`] left out.
    pub fn full_schema(&self) -> Schema {
        self.resolved.full()
    }

    /// The files of an offset, as JSON: what they were when they were listed.
    pub(crate) async fn files_of(&self, offset: &Offset) -> Result<Value> {
        let files = self.state.lock().await.log.entry(self.log_offset(offset)?).await?;
        serde_json::to_value(files.as_slice())
            .map_err(|e| Error::internal(format!("a list of files cannot be written: {e}")))
    }

    /// A new offset for such a list: reading it fails if one of the files is no longer what it was.
    pub(crate) async fn offset_of(&self, files: &Value) -> Result<Offset> {
        let files = Vec::<FileEntry>::deserialize(files)
            .map_err(|e| Error::data(format!("the list of files of '{}' is damaged: {e}", self.name)))?;
        let mut state = self.state.lock().await;
        let State { log, seen, .. } = &mut *state;
        Ok(Offset(json!({"log_offset": log.append(files, seen).await?})))
    }

    async fn list_new(&self, state: &mut State) -> Result<()> {
        let (seen, known) = (state.seen.clone(), state.seen.clone());
        let mut files =
            list(&self.locations, self.options.recursive, Arc::new(move |path| known.contains(path))).await?;
        files.retain(|file| seen.is_new(&file.path, file.modified_ms));
        let is_new = |path: &str, modified_ms: i64| seen.is_new(path, modified_ms);
        let mut files = state.compactions.apply(&self.locations, files, &is_new).await?;
        files.sort_unstable_by(by_age);
        if self.options.latest_first {
            files.reverse();
        }
        if self.options.file_name_only {
            let mut names = SeenFiles::new(None, true);
            files.retain(|file| {
                let new = names.is_new(&file.path, file.modified_ms);
                names.add(&file.path, file.modified_ms);
                new
            });
        }
        state.unread = files.into();
        Ok(())
    }

    /// The files of the next micro-batch.
    fn admit(&self, state: &mut State, limit: ReadLimit) -> Vec<FileEntry> {
        let (files, bytes) = match limit {
            ReadLimit::All => (None, None),
            ReadLimit::Configured => (self.options.max_files_per_trigger, self.options.max_bytes_per_trigger),
        };
        let mut taken: Vec<FileEntry> = Vec::new();
        let mut taken_bytes = 0_u64;
        while let Some(file) = state.unread.front() {
            let fits = files.is_none_or(|max| (taken.len() as u64) < max)
                && bytes.is_none_or(|max| taken.is_empty() || taken_bytes + file.size_bytes <= max);
            if !fits {
                break;
            }
            taken_bytes += file.size_bytes;
            taken.extend(state.unread.pop_front());
        }
        if !state.frozen {
            // What was listed long ago need not be true any more; newer files would come first.
            let keep = if self.options.latest_first || limit == ReadLimit::All { 0 } else { UNREAD_MAX };
            state.unread.truncate(keep);
        }
        taken
    }

    fn log_offset(&self, offset: &Offset) -> Result<u64> {
        offset.0.get("log_offset").and_then(serde_json::Value::as_u64).ok_or_else(|| {
            Error::data(format!("{} is not an offset of file source '{}'", offset.0, self.name))
                .hint("the checkpoint belongs to another kind of source: start with a new one")
        })
    }
}

/// The order in which files are read.
fn by_age(a: &FileEntry, b: &FileEntry) -> Ordering {
    (a.modified_ms, &a.path).cmp(&(b.modified_ms, &b.path))
}

async fn list(locations: &[Location], recursive: bool, known: listing::Known) -> Result<Vec<FileEntry>> {
    let mut files = Vec::new();
    for location in locations {
        files.extend(listing::list(location, recursive, known.clone()).await?);
    }
    // Paths may overlap.
    files.sort_unstable();
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}

/// A logged file with what is needed to open it.
fn opening(locations: &[Location], entry: FileEntry) -> Result<Opening> {
    let home = locations.iter().find(|l| l.below(&entry.path).is_some());
    let place = home.or_else(|| locations.iter().find(|l| l.local_part(&entry.path).is_some()));
    let Some(place) = place else {
        return Err(Error::data(format!("{} lies in a store that the source no longer names", entry.path))
            .hint("a micro-batch that was planned with it must be able to read it: put its path back"));
    };
    let path = place.local_part(&entry.path).unwrap_or_default().to_owned();
    let shown = place.shown(&entry.path).unwrap_or_else(|| entry.path.clone()).into();
    Ok(Opening { path, place: place.place.clone(), shown, entry })
}

fn reading(
    name: &str,
    options: &FileSourceOptions,
    format: &FormatOptions,
    resolved: &Resolved,
    columns: Option<&[String]>,
) -> Result<(SchemaRef, Reading)> {
    let schema = project(&resolved.full(), columns)?;
    let of_files = |wanted: &[String]| {
        let in_data = |c: &&String| resolved.data.fields().find(c).is_some();
        wanted.iter().filter(in_data).cloned().collect::<Vec<_>>()
    };
    let settings = DecoderSettings {
        schema: resolved.data.clone(),
        columns: columns.map(of_files),
        on_malformed: options.on_malformed,
        time_zone: options.time_zone.clone(),
        origin: name.to_owned(),
    };
    let (decoder, boundary): (Arc<dyn Decoder>, Boundary) = match format {
        FormatOptions::Parquet => {
            return Ok((schema, Reading::RowGroups(Arc::new(ParquetDecoder::new(&settings)?))));
        }
        FormatOptions::Json(json) => (Arc::new(JsonDecoder::new(&settings, json)?), Boundary::LineFeed),
        FormatOptions::Csv(csv) if csv.multi_line => {
            (Arc::new(CsvDecoder::new(&settings, csv)?), Boundary::Quoted(csv.splitter()))
        }
        FormatOptions::Csv(csv) => (Arc::new(CsvDecoder::new(&settings, csv)?), Boundary::LineFeed),
        FormatOptions::Text(text) => {
            let boundary = match &text.line_sep {
                _ if text.whole_text => Boundary::EndOfFile,
                None => Boundary::LineFeed,
                Some(sep) => Boundary::Separator(Arc::new(Finder::new(sep).into_owned())),
            };
            (Arc::new(TextDecoder::new(&settings, text)?), boundary)
        }
        FormatOptions::Raw => (Arc::new(RawDecoder::new(&settings)?), Boundary::EndOfFile),
        FormatOptions::Avro(avro) => {
            return Ok((schema, Reading::Avro(Arc::new(AvroDecoder::new(&settings, avro)?))));
        }
        FormatOptions::Arrow => return Ok((schema, Reading::Arrow(Arc::new(ArrowDecoder::new(&settings)?)))),
        FormatOptions::Protobuf(_) => return Err(Error::internal("files of protobuf messages")),
    };
    Ok((schema, Reading::Records { decoder, boundary, pool: Arc::default() }))
}

#[async_trait]
impl Source for FileSource {
    fn description(&self) -> String {
        format!("file {}", self.options.paths.join(", "))
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn prepare_for_available_now(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        self.list_new(&mut state).await?;
        state.frozen = true;
        Ok(())
    }

    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        limit: ReadLimit,
        _now_ms: i64,
    ) -> Result<Option<Offset>> {
        let start = start.map(|offset| self.log_offset(offset)).transpose()?;
        let mut state = self.state.lock().await;
        let state = &mut *state;
        if start > state.log.last {
            let message = format!("the log of file source '{}' ends before offset {start:?}", self.name);
            return Err(
                Error::data(message).hint("the checkpoint is damaged: restore it, or start with a new one")
            );
        }
        // What an earlier run planned and did not come to is a micro-batch of its own.
        let planned = state.log.last.filter(|last| Some(*last) > start);
        let offset = |n: u64| Some(Offset(json!({"log_offset": n})));
        if let (Some(planned), ReadLimit::Configured) = (planned, limit) {
            return Ok(offset(planned));
        }
        if !state.frozen && (state.unread.is_empty() || limit == ReadLimit::All) {
            self.list_new(state).await?;
        }
        let files = self.admit(state, limit);
        if files.is_empty() {
            return Ok(planned.and_then(offset));
        }
        let seen = Arc::make_mut(&mut state.seen);
        files.iter().for_each(|file| seen.add(&file.path, file.modified_ms));
        seen.purge();
        Ok(offset(state.log.append(files, &state.seen).await?))
    }

    /// One partition. Which files there are beyond those that `available_now` has fixed is not known.
    async fn partitions(
        &self,
        start: Option<&Offset>,
        end: Option<&Offset>,
        _now_ms: i64,
    ) -> Result<Vec<PartitionStatus>> {
        let has_data = start != end;
        let caught_up = !has_data && !self.state.lock().await.frozen;
        Ok(vec![PartitionStatus { name: String::new(), has_data, caught_up }])
    }

    async fn read(&self, _batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream> {
        let first =
            range.start.as_ref().map(|start| self.log_offset(start)).transpose()?.map_or(0, |n| n + 1);
        let last = self.log_offset(&range.end)?;
        let mut files = Vec::new();
        let state = self.state.lock().await;
        for n in first..=last {
            files.extend(state.log.entry(n).await?.iter().cloned());
        }
        drop(state);
        let mut placed = Vec::with_capacity(files.len());
        for file in files {
            let home = self.locations.iter().find(|l| l.local_part(&file.path).is_some());
            let before = match home {
                Some(home) => compacted::place_before(home, &file).await,
                None => None,
            };
            placed.push((file, before));
        }
        let partition = self.resolved.partition.iter();
        let context = Context {
            reading: self.reading.clone(),
            locations: self.locations.clone(),
            partition: partition.filter(|f| self.schema.fields().find(f.name()).is_some()).cloned().collect(),
            schema: self.schema.clone(),
            time_zone: self.options.time_zone.clone(),
        };
        // Files are opened as the stream is filled up, a few before they are needed.
        let opened =
            stream::iter(placed).map(move |(file, path)| futures::future::ready(context.blocks(file, path)));
        Ok(opened.buffered(FILES_AHEAD).flat_map(Blocks::into_stream).boxed())
    }

    async fn commit(&self, end: &Offset) -> Result<()> {
        let end = self.log_offset(end)?;
        self.state.lock().await.log.committed(end).await
    }

    /// Not with columns from `key=value` directories: a record alone does not say which they were.
    fn decode_again(&self, records: Vec<Record>) -> Option<Box<dyn Block>> {
        match &self.reading {
            Reading::Records { decoder, .. } if self.schema == decoder.schema() => {
                Some(again(decoder, records))
            }
            _ => None,
        }
    }

    /// The files of the last listing that are not read yet. (Spark's `numFilesOutstanding` and `numBytesOutstanding`.)
    async fn backlog(&self, _position: Option<&Offset>) -> Option<Backlog> {
        let unread = &self.state.lock().await.unread;
        let bytes = unread.iter().map(|file| file.size_bytes).sum();
        let oldest_ms = unread.iter().map(|file| file.modified_ms).min();
        Some(Backlog { records: None, bytes: Some(bytes), files: Some(unread.len() as u64), oldest_ms })
    }
}

/// What reading a file takes.
struct Context {
    reading: Reading,
    locations: Arc<Vec<Location>>,
    partition: Vec<Field>,
    schema: SchemaRef,
    time_zone: String,
}

/// The blocks of one file, on their way.
enum Blocks {
    Failed(Error),
    Records(mpsc::Receiver<Result<(Piece, u64)>>, Arc<dyn Decoder>, Arc<Constants>, Arc<str>),
    /// Of a format whose files are made of blocks.
    Ready(mpsc::Receiver<Result<Box<dyn Block>>>),
}

impl Context {
    /// `path`: where the file lies, if not where its name says.
    fn blocks(&self, file: FileEntry, path: Option<String>) -> Blocks {
        self.open(file, path).unwrap_or_else(Blocks::Failed)
    }

    fn open(&self, file: FileEntry, path: Option<String>) -> Result<Blocks> {
        let below = self.locations.iter().find_map(|l| l.below(&file.path)).unwrap_or_default().to_owned();
        let mut file = opening(&self.locations, file)?;
        file.path = path.unwrap_or(file.path);
        let shown = file.shown.clone();
        let constants =
            Constants::new(&shown, &below, &self.partition, self.schema.clone(), &self.time_zone)?;
        let constants = Arc::new(constants);
        Ok(match &self.reading {
            Reading::Records { decoder, boundary, pool } => {
                let pieces = read::pieces(file, boundary.clone(), pool.clone());
                Blocks::Records(pieces, decoder.clone(), constants, shown)
            }
            Reading::RowGroups(decoder) => {
                Blocks::Ready(parquet::row_groups(file, decoder.clone(), constants))
            }
            Reading::Avro(decoder) => Blocks::Ready(containers::avro(file, decoder.clone(), constants)),
            Reading::Arrow(decoder) => Blocks::Ready(containers::arrow(file, decoder.clone(), constants)),
        })
    }
}

impl Blocks {
    fn into_stream(self) -> BlockStream {
        match self {
            Self::Failed(e) => stream::iter([Err(e)]).boxed(),
            Self::Ready(mut blocks) => stream::poll_fn(move |cx| blocks.poll_recv(cx)).boxed(),
            Self::Records(mut pieces, decoder, constants, file) => {
                let block = move |(piece, input_bytes): (Piece, u64)| {
                    let (decoder, constants, file) = (decoder.clone(), constants.clone(), file.clone());
                    Box::new(Records { piece, input_bytes, decoder, constants, file }) as Box<dyn Block>
                };
                stream::poll_fn(move |cx| pieces.poll_recv(cx)).map(move |piece| piece.map(&block)).boxed()
            }
        }
    }
}

/// Records of one file.
struct Records {
    piece: Piece,
    input_bytes: u64,
    decoder: Arc<dyn Decoder>,
    constants: Arc<Constants>,
    file: Arc<str>,
}

impl Block for Records {
    fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    fn decode(self: Box<Self>) -> Result<Decoded> {
        let decoded = self.decoder.decode(&Input {
            bytes: &self.piece.buffer.bytes,
            file: &self.file,
            first_line: self.piece.first_line,
            starts_file: self.piece.starts_file,
        })?;
        self.constants.add(decoded)
    }
}

#[cfg(test)]
mod tests;
