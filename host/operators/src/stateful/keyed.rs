//! Rows with the bytes of their keys: made in an operator's first half, shared by the pieces of all shards.
//!
//! Used by deduplication, joins and functions over groups. Rows are not moved until it is known which of them go on.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use datafusion::common::HashSet;
use pelton_core::Result;
use pelton_plan::ROWS_PER_BATCH_MAX;
use pelton_state::{EncodedRows, RowCodec, group_of_hash, key_hash};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The bytes of the keys of some rows.
pub(crate) enum Keys {
    /// There are no key columns: all rows have the same, empty key.
    Same,
    /// One a row, and their hashes.
    Encoded(EncodedRows, Vec<u64>),
}

impl Keys {
    /// Encodes key columns.
    pub(crate) fn encode(codec: &RowCodec, columns: &[ArrayRef]) -> Result<Self> {
        match columns {
            [] => Ok(Self::Same),
            columns => {
                let rows = codec.encode_keys(columns)?;
                let hashes = rows.iter().map(key_hash).collect();
                Ok(Self::Encoded(rows, hashes))
            }
        }
    }
    /// The bytes of a row's key.
    pub(crate) fn get(&self, row: usize) -> &[u8] {
        match self {
            Self::Same => &[],
            Self::Encoded(rows, _) => rows.get(row),
        }
    }
    /// The key group of a row's key.
    pub(crate) fn key_group(&self, row: usize) -> u8 {
        group_of_hash(self.hash(row))
    }
    /// The hash of a row's key.
    pub(crate) fn hash(&self, row: usize) -> u64 {
        match self {
            Self::Same => key_hash(&[]),
            Self::Encoded(_, hashes) => hashes[row],
        }
    }
}

/// A key among others, found by the hash that is known already.
pub(crate) struct HashedKey<'a> {
    hash: u64,
    key: &'a [u8],
}

/// Keys by their hashes.
pub(crate) type KeySet<'a> = HashSet<HashedKey<'a>, BuildHasherDefault<KnownHash>>;

/// Hands on the hash of a [`HashedKey`].
#[derive(Default)]
pub(crate) struct KnownHash(u64);

impl Keys {
    /// A row's key, to be put in a set.
    pub(crate) fn hashed(&self, row: usize) -> HashedKey<'_> {
        HashedKey { hash: self.hash(row), key: self.get(row) }
    }
}

impl PartialEq for HashedKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.key == other.key
    }
}

impl Eq for HashedKey<'_> {}

impl Hash for HashedKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The lowest bits are the key group: much the same in all keys of a shard. A set looks at those at both ends.
        state.write_u64(self.hash.rotate_left(32));
    }
}

impl Hasher for KnownHash {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = key_hash(bytes);
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The rows at `(source, row)`, in that order, in batches of a good size. The sources' columns are those of the schema.
pub(crate) fn gather(
    schema: &SchemaRef,
    sources: &[&RecordBatch],
    at: &[(usize, usize)],
) -> Result<Vec<RecordBatch>> {
    let batch = |at: &[(usize, usize)]| {
        let column = |column: usize| gather_column(sources, column, at);
        let columns = (0..schema.fields().len()).map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(at.len()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    };
    at.chunks(ROWS_PER_BATCH_MAX).map(batch).collect()
}

/// One column of such rows.
pub(crate) fn gather_column(
    sources: &[&RecordBatch],
    column: usize,
    at: &[(usize, usize)],
) -> Result<ArrayRef> {
    let arrays: Vec<_> = sources.iter().map(|rows| rows.column(column).as_ref()).collect();
    Ok(interleave(&arrays, at)?)
}
