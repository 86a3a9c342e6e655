//! The files of a micro-batch on their way: rows are split, encoded on worker threads and written in order.

use super::commit::Pending;
use super::log::LogFile;
use super::split::{Piece, Split, Splitter};
use crate::encode::{Encoded, Encoder, FileBody};
use crate::sink::parallelism;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use pelton_core::{Error, FileWriter, Result, RowStream};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Files that are finished at once.
const AT_ONCE: usize = 8;

/// What a micro-batch has written.
pub(super) struct Written {
    /// In the order of their numbers.
    pub(super) files: Vec<LogFile>,
    /// Encoding and writing, summed over threads.
    pub(super) busy_nanos: u64,
}

/// Writes the rows to pending files. On an error some of these may be left.
pub(super) async fn write_pending(
    pending: Pending,
    splitter: &Splitter,
    encoder: Arc<Encoder>,
    rows: RowStream,
) -> Result<Written> {
    let pieces = pieces(rows, splitter.start()?);
    let encoding = Arc::clone(&encoder);
    let encoded =
        pieces.map_ok(move |piece| encode(Arc::clone(&encoding), piece)).try_buffered(parallelism());
    let mut encoded = std::pin::pin!(encoded);
    let mut output = Output { pending, encoder, open: BTreeMap::new(), files: Vec::new(), busy_nanos: 0 };
    while let Some(piece) = encoded.try_next().await? {
        output.put(piece).await?;
    }
    output.finish().await
}

/// The rows as pieces of files, in order.
fn pieces(rows: RowStream, split: Split) -> impl Stream<Item = Result<Piece>> {
    stream::try_unfold((Some(rows), split, VecDeque::new()), |(mut rows, mut split, mut ready)| async move {
        loop {
            if let Some(piece) = ready.pop_front() {
                return Ok(Some((piece, (rows, split, ready))));
            }
            let Some(stream) = &mut rows else { return Ok(None) };
            match stream.try_next().await? {
                Some(batch) => split.push(&batch, &mut ready)?,
                None => {
                    rows = None;
                    split.finish(&mut ready);
                }
            }
        }
    })
}

struct EncodedPiece {
    file: usize,
    directory: Arc<str>,
    rows: u64,
    content: Option<Encoded>,
    last: bool,
    busy_nanos: u64,
}

async fn encode(encoder: Arc<Encoder>, piece: Piece) -> Result<EncodedPiece> {
    let rows = piece.rows.iter().map(|batch| batch.num_rows() as u64).sum();
    let (content, busy_nanos) = match piece.rows {
        rows if rows.is_empty() => (None, 0),
        rows => {
            let work = move || {
                let start = now();
                encoder.encode(&rows).map(|content| (Some(content), nanos_since(start)))
            };
            let done = tokio::task::spawn_blocking(work).await;
            done.map_err(|e| Error::internal(format!("encoding rows did not end: {e}")))??
        }
    };
    Ok(EncodedPiece {
        file: piece.file,
        directory: piece.directory,
        rows,
        content,
        last: piece.last,
        busy_nanos,
    })
}

#[allow(clippy::disallowed_methods, reason = "measures where the time goes; no row depends on it")]
fn now() -> Instant {
    Instant::now()
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

struct Output {
    pending: Pending,
    encoder: Arc<Encoder>,
    open: BTreeMap<usize, OpenFile>,
    files: Vec<(usize, LogFile)>,
    busy_nanos: u64,
}

struct OpenFile {
    writer: Box<dyn FileWriter>,
    body: FileBody,
    entry: LogFile,
}

impl Output {
    async fn put(&mut self, piece: EncodedPiece) -> Result<()> {
        let start = now();
        if let Some(content) = piece.content {
            let file = match self.open.entry(piece.file) {
                std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => free.insert(
                    OpenFile::create(&self.pending, &self.encoder, piece.file, &piece.directory).await?,
                ),
            };
            file.entry.rows += piece.rows;
            let bytes = file.body.append(content)?;
            file.append(bytes).await?;
        }
        if piece.last
            && let Some(file) = self.open.remove(&piece.file)
        {
            self.files.push((piece.file, file.finish().await?));
        }
        self.busy_nanos += piece.busy_nanos + nanos_since(start);
        Ok(())
    }

    async fn finish(mut self) -> Result<Written> {
        let start = now();
        let finish =
            |(number, file): (usize, OpenFile)| async move { file.finish().await.map(|file| (number, file)) };
        let rest = stream::iter(self.open).map(finish).buffered(AT_ONCE);
        self.files.extend(rest.try_collect::<Vec<_>>().await?);
        self.files.sort_by_key(|(number, _)| *number);
        let files = self.files.into_iter().map(|(_, file)| file).collect();
        Ok(Written { files, busy_nanos: self.busy_nanos + nanos_since(start) })
    }
}

impl OpenFile {
    async fn create(pending: &Pending, encoder: &Encoder, number: usize, directory: &str) -> Result<Self> {
        let (path, name) = pending.names(number, directory);
        let writer = pending.files.writer(&name).await?;
        let entry = LogFile { path, pending: name, size_bytes: 0, rows: 0 };
        let mut file = Self { writer, body: encoder.body()?, entry };
        file.append(encoder.head()?).await?;
        Ok(file)
    }

    async fn append(&mut self, bytes: Vec<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.entry.size_bytes += bytes.len() as u64;
        self.writer.write(bytes.into()).await
    }

    async fn finish(mut self) -> Result<LogFile> {
        let end = self.body.finish()?;
        self.append(end).await?;
        self.writer.finish().await?;
        Ok(self.entry)
    }
}
