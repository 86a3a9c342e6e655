//! Record-batch messages, read as views.

use super::flat::Table;
use super::{HEADER_RECORD_BATCH, header, malformed, split};
use crate::array::{Array, Data, Nulls, Offsets, Slices};
use crate::error::Error;
use crate::types::{DataType, Field, Schema};

/// Reads a record batch of an agreed schema: a struct of its columns.
pub(crate) fn read_batch<'a>(message: &'a [u8], schema: &Schema) -> Result<Array<'a>, Error> {
    let (metadata, body) = split(message)?;
    let batch = header(metadata, HEADER_RECORD_BATCH)?;
    let mut reader = Reader::new(&batch, body)?;
    let len = count(batch.i64(0, 0))?;
    let columns = reader.columns(&schema.fields)?;
    if columns.iter().any(|column| column.len != len) {
        return Err(malformed("a column has another length than the batch"));
    }
    Ok(Array { len, nulls: Nulls::default(), data: Data::Struct(columns) })
}

struct Reader<'a> {
    nodes: core::slice::Iter<'a, [u8; 16]>,
    buffers: core::slice::Iter<'a, [u8; 16]>,
    body: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(batch: &Table<'a>, body: &'a [u8]) -> Result<Self, Error> {
        if batch.has(3) {
            return Err(malformed("it is compressed"));
        }
        let pairs = |slot| batch.pairs(slot).unwrap_or_default().iter();
        Ok(Self { nodes: pairs(1), buffers: pairs(2), body })
    }

    fn columns(&mut self, fields: &[Field]) -> Result<Vec<Array<'a>>, Error> {
        fields.iter().map(|field| self.array(&field.data_type)).collect()
    }

    fn array(&mut self, data_type: &DataType) -> Result<Array<'a>, Error> {
        let node = self.nodes.next().ok_or_else(|| malformed("it has too few columns"))?;
        let (len, null_count) = pair(node);
        let len = count(len)?;
        let bits = self.buffer()?;
        let nulls = match null_count {
            0 => Nulls::default(),
            _ => Nulls(Some(exactly(bits, len.div_ceil(8))?)),
        };
        Ok(Array { len, nulls, data: self.data(data_type, len)? })
    }

    fn data(&mut self, data_type: &DataType, len: usize) -> Result<Data<'a>, Error> {
        Ok(match data_type {
            DataType::Boolean => Data::Boolean(exactly(self.buffer()?, len.div_ceil(8))?),
            DataType::Int8 => Data::Int8(self.fixed(len)?),
            DataType::Int16 => Data::Int16(self.fixed(len)?),
            DataType::Int32 => Data::Int32(self.fixed(len)?),
            DataType::Int64 => Data::Int64(self.fixed(len)?),
            DataType::Float32 => Data::Float32(self.fixed(len)?),
            DataType::Float64 => Data::Float64(self.fixed(len)?),
            DataType::Decimal { .. } => Data::Decimal(self.fixed(len)?),
            DataType::Date => Data::Date(self.fixed(len)?),
            DataType::Timestamp { .. } => Data::Timestamp(self.fixed(len)?),
            DataType::Utf8 => Data::Utf8(self.slices(len)?),
            DataType::Binary => Data::Binary(self.slices(len)?),
            DataType::List(item) => {
                let offsets = self.offsets(len)?;
                let item = self.array(&item.data_type)?;
                Data::List(ends_within(offsets, item.len)?, Box::new(item))
            }
            DataType::Map(key, value) => {
                let offsets = self.offsets(len)?;
                let (entries, _) = pair(self.nodes.next().ok_or_else(|| malformed("a map has no entries"))?);
                self.buffer()?;
                let key = self.array(&key.data_type)?;
                let value = self.array(&value.data_type)?;
                if key.len != count(entries)? || value.len != key.len {
                    return Err(malformed("a map has not as many keys as values"));
                }
                Data::Map(ends_within(offsets, key.len)?, Box::new(key), Box::new(value))
            }
            DataType::Struct(fields) => {
                let columns = self.columns(fields)?;
                if columns.iter().any(|column| column.len != len) {
                    return Err(malformed("a struct's field has another length than the struct"));
                }
                Data::Struct(columns)
            }
        })
    }

    fn buffer(&mut self) -> Result<&'a [u8], Error> {
        let (offset, length) = pair(self.buffers.next().ok_or_else(|| malformed("it has too few buffers"))?);
        let (offset, length) = (count(offset)?, count(length)?);
        self.body
            .get(offset..)
            .and_then(|rest| rest.get(..length))
            .ok_or_else(|| malformed("a buffer lies outside of it"))
    }

    fn fixed<const N: usize>(&mut self, len: usize) -> Result<&'a [[u8; N]], Error> {
        let (values, _) = self.buffer()?.as_chunks::<N>();
        values.get(..len).ok_or_else(|| malformed("a column is shorter than its length"))
    }

    fn slices(&mut self, len: usize) -> Result<Slices<'a>, Error> {
        let offsets = self.offsets(len)?;
        let bytes = self.buffer()?;
        Ok(Slices { offsets: ends_within(offsets, bytes.len())?, bytes })
    }

    fn offsets(&mut self, len: usize) -> Result<Offsets<'a>, Error> {
        let (offsets, _) = self.buffer()?.as_chunks::<4>();
        if len == 0 {
            return Ok(Offsets(&[[0; 4]]));
        }
        let offsets = offsets.get(..len + 1).ok_or_else(|| malformed("there are too few offsets"))?;
        if offsets.windows(2).any(|w| u32::from_le_bytes(w[0]) > u32::from_le_bytes(w[1])) {
            return Err(malformed("offsets fall"));
        }
        Ok(Offsets(offsets))
    }
}

fn ends_within(offsets: Offsets<'_>, len: usize) -> Result<Offsets<'_>, Error> {
    match offsets.0.last() {
        Some(last) if u32::from_le_bytes(*last) as usize <= len => Ok(offsets),
        _ => Err(malformed("offsets point past the end")),
    }
}

fn exactly(bytes: &[u8], len: usize) -> Result<&[u8], Error> {
    bytes.get(..len).ok_or_else(|| malformed("a bitmap is shorter than its column"))
}

fn pair(bytes: &[u8; 16]) -> (i64, i64) {
    let (words, _) = bytes.as_chunks::<8>();
    (i64::from_le_bytes(words[0]), i64::from_le_bytes(words[1]))
}

fn count(number: i64) -> Result<usize, Error> {
    usize::try_from(number).map_err(|_| malformed("a length is negative"))
}
