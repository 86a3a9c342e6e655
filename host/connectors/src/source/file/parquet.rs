//! Fetches Parquet files: the description first, then row group by row group the columns that are read.

use super::location::Place;
use super::partition::Constants;
use super::read::Opening;
use crate::decode::parquet::{ParquetDecoder, SparseFile, footer_bytes, metadata};
use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use pelton_core::{Block, Decoded, Error, Result};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A row group whose columns were fetched.
struct RowGroup {
    decoder: Arc<ParquetDecoder>,
    shown: Arc<str>,
    file: ArrowReaderMetadata,
    row_group: usize,
    bytes: SparseFile,
    constants: Arc<Constants>,
}

impl Block for RowGroup {
    fn input_bytes(&self) -> u64 {
        self.bytes.held_bytes()
    }
    fn decode(self: Box<Self>) -> Result<Decoded> {
        let decoded = self.decoder.decode(&self.shown, &self.file, self.row_group, self.bytes)?;
        self.constants.add(decoded)
    }
}

/// The row groups of one file, or the error at which reading stopped. Must be called within a tokio runtime.
pub(super) fn row_groups(
    file: Opening,
    decoder: Arc<ParquetDecoder>,
    constants: Arc<Constants>,
) -> mpsc::Receiver<Result<Box<dyn Block>>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        if let Err(e) = send(&file, &decoder, &constants, &sender).await {
            // A receiver that went does not want to know.
            let _ = sender.send(Err(e)).await;
        }
    });
    receiver
}

async fn send(
    file: &Opening,
    decoder: &Arc<ParquetDecoder>,
    constants: &Arc<Constants>,
    sender: &mpsc::Sender<Result<Box<dyn Block>>>,
) -> Result<()> {
    let description = describe(file).await?;
    for row_group in 0..description.metadata().num_row_groups() {
        let ranges = decoder.ranges(&description, row_group);
        let bytes = fetch(file, ranges.clone()).await?;
        let pieces = ranges.iter().map(|range| range.start).zip(bytes).collect();
        let block = RowGroup {
            decoder: decoder.clone(),
            shown: file.shown.clone(),
            file: description.clone(),
            row_group,
            bytes: SparseFile::new(file.entry.size_bytes, pieces),
            constants: constants.clone(),
        };
        if sender.send(Ok(Box::new(block))).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads a file's description, after checking that the file is what it was.
pub(super) async fn describe(file: &Opening) -> Result<ArrowReaderMetadata> {
    if let Place::Remote { store, .. } = &file.place {
        let meta = store.head(&Path::from(file.path.as_str())).await.map_err(|e| file.store_error(e))?;
        file.check(meta.size, meta.last_modified.timestamp_millis())?;
    }
    let size = file.entry.size_bytes;
    let Some(tail) = size.checked_sub(8).filter(|_| size >= 12) else {
        return Err(Error::data(format!("{}: {size} bytes are too few for a Parquet file", file.shown)));
    };
    let last = one(file, tail..size).await?;
    let Some(start) = tail.checked_sub(footer_bytes(&file.shown, &last)?) else {
        return Err(Error::data(format!("{}: not readable as Parquet: its end is damaged", file.shown)));
    };
    metadata(&file.shown, &one(file, start..tail).await?)
}

async fn one(file: &Opening, range: Range<u64>) -> Result<Bytes> {
    Ok(fetch(file, vec![range]).await?.pop().unwrap_or_default())
}

async fn fetch(file: &Opening, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
    let size = file.entry.size_bytes;
    if let Some(beyond) = ranges.iter().find(|range| range.end > size || range.start > range.end) {
        let message = format!("{}: not readable as Parquet: bytes {beyond:?} lie outside of it", file.shown);
        return Err(Error::data(message));
    }
    match &file.place {
        Place::Remote { store, .. } => {
            let path = Path::from(file.path.as_str());
            store.get_ranges(&path, &ranges).await.map_err(|e| file.store_error(e))
        }
        Place::Local => {
            let file = file.clone();
            let read = move || read_ranges(&file, &ranges);
            tokio::task::spawn_blocking(read)
                .await
                .map_err(|e| Error::internal(format!("reading failed: {e}")))?
        }
    }
}

fn read_ranges(file: &Opening, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let mut opened = file.open()?;
    let mut read = |range: &Range<u64>| {
        opened.seek(SeekFrom::Start(range.start))?;
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(len);
        opened.by_ref().take(len as u64).read_to_end(&mut bytes)?;
        Ok(Bytes::from(bytes))
    };
    ranges
        .iter()
        .map(&mut read)
        .collect::<std::io::Result<_>>()
        .map_err(|e| super::listing::local(&file.shown, e))
}
