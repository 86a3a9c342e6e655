//! The fetched pieces of a Parquet file, in the form that its reader wants.

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::io::Cursor;

/// A file of which only some ranges are there.
#[derive(Debug, Clone)]
pub(crate) struct SparseFile {
    size: u64,
    /// By start.
    pieces: Vec<(u64, Bytes)>,
}

impl SparseFile {
    pub(crate) fn new(size: u64, mut pieces: Vec<(u64, Bytes)>) -> Self {
        pieces.sort_by_key(|(start, _)| *start);
        Self { size, pieces }
    }

    /// Bytes that are there.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// What is there from `start` on, in one piece.
    fn from(&self, start: u64) -> Result<Bytes> {
        let at = self.pieces.partition_point(|(begin, _)| *begin <= start);
        let piece = at.checked_sub(1).and_then(|i| self.pieces.get(i));
        let found = piece.and_then(|(begin, bytes)| {
            let skip = usize::try_from(start - begin).ok().filter(|skip| *skip <= bytes.len())?;
            Some(bytes.slice(skip..))
        });
        found.ok_or_else(|| ParquetError::General(format!("byte {start} was not fetched")))
    }
}

impl Length for SparseFile {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for SparseFile {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.from(start).map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.from(start)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!("bytes {start}+{length} were not fetched")));
        }
        Ok(bytes.slice(..length))
    }
}
