//! Rows as bytes, the same for ever: what state is stored as.
//!
//! Called by the stateful operators, for the keys and for the values of their state. Never compresses, never orders:
//! an operator that wants its keys in the order of time puts [`ordered_i64`] before them.
//!
//! # The encoding
//! A row is a *null map* of its columns and then the *cells* of the columns that are not null, in their order. The
//! bytes do not name the types; a store that outlives its program writes them down elsewhere.
//!
//! * Null map of *n* things: ⌈n/8⌉ bytes, thing *i* at bit `i % 8` (counted from the lowest) of byte `i / 8`; 1 is
//!   null; bits beyond are 0.
//! * Boolean: a byte, 0 or 1.
//! * Numbers, dates, times, timestamps, durations, intervals, decimals, fixed-size binary: Arrow's bytes,
//!   little-endian.
//! * String, binary (all of Arrow's forms): the length as *varint*, the bytes.
//! * List: the number of elements as varint, their null map, the cells of those that are not null.
//! * Struct: as a row.
//! * Map: the number of entries as varint, the null map of the values, then for each entry the key's cell and, if it
//!   is not null, the value's. In keys (see [`RowCodec::encode_keys`]) the entries are in the order of their keys'
//!   cells.
//! * varint: 7 bits a byte, the lowest first, the top bit set in all but the last; never longer than needed.
//!
//! So a row can be decoded in one way only, and there is only one encoding of a row.

mod decode;
mod encode;
#[cfg(test)]
mod tests;
mod types;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use bytes::Bytes;
use pelton_core::{Error, KEY_GROUPS, Result};
use twox_hash::XxHash64;

/// Encodes and decodes rows of fixed column types. Equal rows have equal bytes and different rows different ones.
#[derive(Debug, Clone)]
pub struct RowCodec {
    types: Vec<DataType>,
}

/// Encoded rows in one buffer.
#[derive(Debug, Clone, Default)]
pub struct EncodedRows {
    buffer: Bytes,
    /// Where rows begin, and the end of the last: one more than rows, or none at all.
    offsets: Vec<u32>,
}

impl EncodedRows {
    /// How many.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes of a row.
    pub fn get(&self, row: usize) -> &[u8] {
        &self.buffer[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }
    /// The bytes of a row, without a copy: they hold on to the buffer of all rows.
    pub fn shared(&self, row: usize) -> Bytes {
        self.buffer.slice(self.offsets[row] as usize..self.offsets[row + 1] as usize)
    }
    /// All rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.offsets.windows(2).map(|ends| &self.buffer[ends[0] as usize..ends[1] as usize])
    }
    /// The key group of a row: see [`key_group`].
    pub fn key_group(&self, row: usize) -> u8 {
        key_group(self.get(row))
    }
}

/// The key group of an encoded key: XXH64 (seed 0) of its bytes, modulo [`KEY_GROUPS`]. No bytes are in group 25,
/// `[0]` in 104, `[1]` in 48, the row of the long 42 (`[0, 42, 0, 0, 0, 0, 0, 0, 0]`) in 73, that of the string
/// `pelton` (`[0, 6, 112, …]`) in 69. It is the same in every version: state is divided by it.
pub fn key_group(key: &[u8]) -> u8 {
    group_of_hash(key_hash(key))
}

/// XXH64 (seed 0) of the bytes of an encoded key, the same in every version.
pub fn key_hash(key: &[u8]) -> u64 {
    XxHash64::oneshot(0, key)
}

/// The key group of a key with this [`key_hash`].
pub fn group_of_hash(hash: u64) -> u8 {
    (hash % u64::from(KEY_GROUPS)) as u8
}

impl RowCodec {
    /// For columns of these types; refused if one of them cannot be stored.
    pub fn new(types: Vec<DataType>) -> Result<Self> {
        types.iter().try_for_each(types::storable)?;
        Ok(Self { types })
    }
    /// The columns' types.
    pub fn types(&self) -> &[DataType] {
        &self.types
    }
    /// For keys: as [`RowCodec::encode`], with every NaN alike and -0.0 as 0.0, at any depth, and the entries of maps
    /// in one order, so that keys that Spark takes for equal have equal bytes.
    pub fn encode_keys(&self, columns: &[ArrayRef]) -> Result<EncodedRows> {
        self.check(columns)?;
        encode::rows(columns, true)
    }
    /// Encodes all rows of the columns. Without columns there is one row, of no bytes.
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<EncodedRows> {
        self.check(columns)?;
        encode::rows(columns, false)
    }
    /// Decodes rows to columns of the codec's types. Bytes that are not such rows are an error of kind `Data`.
    pub fn decode<'a>(&self, rows: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        decode::rows(&self.types, rows.into_iter().collect())
    }

    /// Splits bytes that begin with a row into the row and the rest. No encoded row begins with another one.
    pub fn split<'a>(&self, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8])> {
        Ok(bytes.split_at(decode::length(&self.types, bytes)?))
    }

    fn check(&self, columns: &[ArrayRef]) -> Result<()> {
        let same = |(column, wanted): (&ArrayRef, &DataType)| types::alike(column.data_type(), wanted);
        if columns.len() == self.types.len() && columns.iter().zip(&self.types).all(same) {
            return Ok(());
        }
        let types: Vec<&DataType> = columns.iter().map(|column| column.data_type()).collect();
        Err(Error::internal(format!("rows of {:?} were to be stored, they are of {types:?}", self.types)))
    }
}

/// A number as bytes that sort as the number does: what a key that is found by its time begins with.
pub fn ordered_i64(value: i64) -> [u8; 8] {
    (value.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

/// Splits a key that begins with [`ordered_i64`] into the number and the rest.
pub fn split_ordered_i64(key: &[u8]) -> Result<(i64, &[u8])> {
    let (head, rest) =
        key.split_first_chunk::<8>().ok_or_else(|| damaged("a key is shorter than its time"))?;
    Ok(((u64::from_be_bytes(*head) ^ (1 << 63)).cast_signed(), rest))
}

/// The error for bytes that no encoder wrote.
fn damaged(what: &str) -> Error {
    Error::data(format!("stored rows of state are damaged, or of other types than the query now has: {what}"))
}
