//! Rows of bytes back to columns. Called by the codec; trusts no byte: every length is checked against what is left,
//! and what an encoder would not have written is refused, so that bytes that were read write themselves again.
//!
//! A column is read for all rows before the next one; each row has a cursor that moves over its cells.

use super::encode::null_map_len;
use super::{damaged, types};
use crate::varint;
use arrow::array::{
    ArrayData, ArrayRef, BinaryViewArray, BooleanArray, GenericBinaryArray, GenericListArray,
    GenericStringArray, MapArray, NullArray, OffsetSizeTrait, StringViewArray, StructArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use pelton_core::{Error, Result};
use std::sync::Arc;

/// Decodes rows to columns of these types.
pub(super) fn rows(types: &[DataType], mut cursors: Vec<&[u8]>) -> Result<Vec<ArrayRef>> {
    let mut null_maps = Vec::with_capacity(cursors.len());
    for cursor in &mut cursors {
        null_maps.push(take_null_map(cursor, types.len())?);
    }
    let mut columns = Vec::with_capacity(types.len());
    for (position, data_type) in types.iter().enumerate() {
        let is_null = |row: usize| null_maps[row][position / 8] >> (position % 8) & 1 == 1;
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(cursors.len(), |row| !is_null(row)));
        let mut cells = Cells::new(data_type, cursors.len())?;
        cells.read_all(&mut cursors, (nulls.null_count() > 0).then_some(&nulls))?;
        columns.push(cells.finish(data_type, Some(nulls))?);
    }
    match cursors.iter().find(|rest| !rest.is_empty()) {
        Some(rest) => Err(damaged(&format!("a row has {} bytes too many", rest.len()))),
        None => Ok(columns),
    }
}

/// How many bytes the row has that stands at the front of some bytes.
pub(super) fn length(types: &[DataType], bytes: &[u8]) -> Result<usize> {
    let mut cursor = bytes;
    let nulls = take_null_map(&mut cursor, types.len())?;
    let present = types.iter().enumerate().filter(|(position, _)| !bit(nulls, *position));
    for (_, data_type) in present {
        Cells::new(data_type, 1)?.read(&mut cursor)?;
    }
    Ok(bytes.len() - cursor.len())
}

/// The cells of a column, as they are read.
enum Cells {
    /// Of the null type: how many there are.
    None(usize),
    Fixed {
        width: usize,
        values: MutableBuffer,
    },
    Bytes {
        ends: Vec<usize>,
        data: Vec<u8>,
    },
    List {
        ends: Vec<usize>,
        elements: Box<Column>,
    },
    Struct {
        len: usize,
        fields: Vec<Column>,
    },
    Map {
        ends: Vec<usize>,
        keys: Box<Column>,
        values: Box<Column>,
    },
}

/// A column inside of another one.
struct Column {
    valid: Vec<bool>,
    cells: Cells,
}

impl Column {
    fn new(data_type: &DataType) -> Result<Self> {
        Ok(Self { valid: Vec::new(), cells: Cells::new(data_type, 0)? })
    }

    fn read(&mut self, null: bool, cursor: &mut &[u8]) -> Result<()> {
        self.valid.push(!null);
        if null { self.cells.skip() } else { self.cells.read(cursor) }
    }

    fn finish(self, data_type: &DataType) -> Result<ArrayRef> {
        self.cells.finish(data_type, Some(NullBuffer::from(self.valid)))
    }
}

impl Cells {
    fn new(data_type: &DataType, rows: usize) -> Result<Self> {
        Ok(match data_type {
            DataType::Null => Self::None(0),
            DataType::Boolean => Self::Fixed { width: 1, values: MutableBuffer::with_capacity(rows) },
            DataType::List(field) | DataType::LargeList(field) => {
                Self::List { ends: Vec::new(), elements: Box::new(Column::new(field.data_type())?) }
            }
            DataType::Struct(fields) => {
                let fields = fields.iter().map(|field| Column::new(field.data_type()));
                Self::Struct { len: 0, fields: fields.collect::<Result<_>>()? }
            }
            DataType::Map(entries, _) => {
                let [key, value] = map_fields(entries)?;
                let keys = Box::new(Column::new(key.data_type())?);
                Self::Map { ends: Vec::new(), keys, values: Box::new(Column::new(value.data_type())?) }
            }
            other if types::is_bytes(other) => {
                Self::Bytes { ends: Vec::with_capacity(rows), data: Vec::new() }
            }
            other => {
                let width = types::fixed_width(other)
                    .ok_or_else(|| Error::internal(format!("values of type {other} cannot be stored")))?;
                Self::Fixed { width, values: MutableBuffer::with_capacity(rows * width) }
            }
        })
    }

    /// Reads one cell from every row in which the column is not null.
    fn read_all(&mut self, cursors: &mut [&[u8]], nulls: Option<&NullBuffer>) -> Result<()> {
        match self {
            Self::Fixed { width: 4, values } => read_fixed::<4>(values, cursors, nulls),
            Self::Fixed { width: 8, values } => read_fixed::<8>(values, cursors, nulls),
            Self::Fixed { width: 16, values } => read_fixed::<16>(values, cursors, nulls),
            Self::Bytes { ends, data } => {
                for (row, cursor) in cursors.iter_mut().enumerate() {
                    if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                        data.extend_from_slice(take_sized(cursor)?);
                    }
                    ends.push(data.len());
                }
                Ok(())
            }
            _ => cursors.iter_mut().enumerate().try_for_each(|(row, cursor)| {
                if nulls.is_none_or(|nulls| nulls.is_valid(row)) { self.read(cursor) } else { self.skip() }
            }),
        }
    }

    /// Reads a cell.
    fn read(&mut self, cursor: &mut &[u8]) -> Result<()> {
        match self {
            Self::None(_) => return Err(damaged("a value of the null type is not null")),
            Self::Fixed { width, values } => values.extend_from_slice(take(cursor, *width)?),
            Self::Bytes { ends, data } => {
                data.extend_from_slice(take_sized(cursor)?);
                ends.push(data.len());
            }
            Self::List { ends, elements } => {
                let count = take_varint(cursor)?;
                let nulls = take_null_map(cursor, count)?;
                for element in 0..count {
                    elements.read(bit(nulls, element), cursor)?;
                }
                ends.push(elements.valid.len());
            }
            Self::Struct { len, fields } => {
                let nulls = take_null_map(cursor, fields.len())?;
                for (position, field) in fields.iter_mut().enumerate() {
                    field.read(bit(nulls, position), cursor)?;
                }
                *len += 1;
            }
            Self::Map { ends, keys, values } => {
                let count = take_varint(cursor)?;
                let nulls = take_null_map(cursor, count)?;
                for entry in 0..count {
                    keys.read(false, cursor)?;
                    values.read(bit(nulls, entry), cursor)?;
                }
                ends.push(keys.valid.len());
            }
        }
        Ok(())
    }

    /// Leaves room for a null, which has no cell.
    fn skip(&mut self) -> Result<()> {
        match self {
            Self::None(len) => *len += 1,
            Self::Fixed { width, values } => values.extend_zeros(*width),
            Self::Bytes { ends, data } => ends.push(data.len()),
            Self::List { ends, elements } => ends.push(elements.valid.len()),
            Self::Map { ends, keys, .. } => ends.push(keys.valid.len()),
            Self::Struct { len, fields } => {
                *len += 1;
                for field in fields {
                    field.valid.push(false);
                    field.cells.skip()?;
                }
            }
        }
        Ok(())
    }

    fn finish(self, data_type: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        match (self, data_type) {
            (Self::None(len), _) => Ok(Arc::new(NullArray::new(len))),
            (Self::Fixed { values, .. }, DataType::Boolean) => boolean(&values, nulls),
            (Self::Fixed { width, values }, _) => fixed(data_type, width, values, nulls),
            (Self::Bytes { ends, data }, _) => bytes(data_type, &ends, data, nulls),
            (Self::List { ends, elements }, DataType::List(field)) => {
                list::<i32>(field, &ends, *elements, nulls)
            }
            (Self::List { ends, elements }, DataType::LargeList(field)) => {
                list::<i64>(field, &ends, *elements, nulls)
            }
            (Self::Struct { len, fields: cells }, DataType::Struct(fields)) => {
                let cells =
                    cells.into_iter().zip(fields).map(|(cells, field)| cells.finish(field.data_type()));
                let cells = cells.collect::<Result<_>>()?;
                let array = StructArray::try_new_with_length(fields.clone(), cells, nulls, len);
                Ok(Arc::new(array.map_err(|e| mismatch(&e))?))
            }
            (Self::Map { ends, keys, values }, DataType::Map(entries, sorted)) => {
                let [key, value] = map_fields(entries)?;
                let columns = vec![keys.finish(key.data_type())?, values.finish(value.data_type())?];
                let columns =
                    StructArray::try_new([Arc::clone(key), Arc::clone(value)].into(), columns, None);
                let columns = columns.map_err(|e| mismatch(&e))?;
                let array = MapArray::try_new(Arc::clone(entries), offsets(&ends)?, columns, nulls, *sorted);
                Ok(Arc::new(array.map_err(|e| mismatch(&e))?))
            }
            (_, other) => Err(Error::internal(format!("cells were read for another type than {other}"))),
        }
    }
}

fn read_fixed<const WIDTH: usize>(
    values: &mut MutableBuffer,
    cursors: &mut [&[u8]],
    nulls: Option<&NullBuffer>,
) -> Result<()> {
    values.resize(cursors.len() * WIDTH, 0);
    let (slots, _) = values.as_slice_mut().as_chunks_mut::<WIDTH>();
    for (row, (cursor, slot)) in cursors.iter_mut().zip(slots).enumerate() {
        if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
            let (value, rest) = cursor.split_first_chunk::<WIDTH>().ok_or_else(too_short)?;
            (*slot, *cursor) = (*value, rest);
        }
    }
    Ok(())
}

fn boolean(values: &[u8], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    if values.iter().any(|value| *value > 1) {
        return Err(damaged("a boolean is neither 0 nor 1"));
    }
    let bits = BooleanBuffer::collect_bool(values.len(), |row| values[row] == 1);
    Ok(Arc::new(BooleanArray::new(bits, nulls)))
}

fn fixed(
    data_type: &DataType,
    width: usize,
    values: MutableBuffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let len = match &nulls {
        Some(nulls) => nulls.len(),
        None => values.len().checked_div(width).unwrap_or(0),
    };
    let data = ArrayData::builder(data_type.clone()).len(len).add_buffer(values.into()).nulls(nulls);
    Ok(make_array(data.build().map_err(|e| mismatch(&e))?))
}

fn bytes(data_type: &DataType, ends: &[usize], data: Vec<u8>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let data = Buffer::from_vec(data);
    Ok(match data_type {
        DataType::Utf8 => Arc::new(strings::<i32>(ends, data, nulls)?),
        DataType::LargeUtf8 => Arc::new(strings::<i64>(ends, data, nulls)?),
        DataType::Utf8View => Arc::new(StringViewArray::from(&strings::<i64>(ends, data, nulls)?)),
        DataType::Binary => Arc::new(binaries::<i32>(ends, data, nulls)?),
        DataType::LargeBinary => Arc::new(binaries::<i64>(ends, data, nulls)?),
        DataType::BinaryView => Arc::new(BinaryViewArray::from(&binaries::<i64>(ends, data, nulls)?)),
        other => return Err(Error::internal(format!("bytes were read for type {other}"))),
    })
}

fn strings<O: OffsetSizeTrait>(
    ends: &[usize],
    data: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<GenericStringArray<O>> {
    GenericStringArray::try_new(offsets(ends)?, data, nulls).map_err(|e| mismatch(&e))
}

fn binaries<O: OffsetSizeTrait>(
    ends: &[usize],
    data: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<GenericBinaryArray<O>> {
    GenericBinaryArray::try_new(offsets(ends)?, data, nulls).map_err(|e| mismatch(&e))
}

fn list<O: OffsetSizeTrait>(
    field: &FieldRef,
    ends: &[usize],
    elements: Column,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let elements = elements.finish(field.data_type())?;
    let array = GenericListArray::<O>::try_new(Arc::clone(field), offsets(ends)?, elements, nulls);
    Ok(Arc::new(array.map_err(|e| mismatch(&e))?))
}

/// Arrow's offsets from the ends of cells.
fn offsets<O: OffsetSizeTrait>(ends: &[usize]) -> Result<OffsetBuffer<O>> {
    let end = ends.last().copied().unwrap_or(0);
    if O::from_usize(end).is_none_or(|offset| offset.as_usize() != end) {
        return Err(Error::data(format!("{} rows of state hold {end} bytes or elements", ends.len()))
            .hint("that is more than Arrow takes at a time: read less in a micro-batch"));
    }
    let offsets: Vec<O> = std::iter::once(0).chain(ends.iter().copied()).map(O::usize_as).collect();
    Ok(OffsetBuffer::new(ScalarBuffer::from(offsets)))
}

fn map_fields(entries: &FieldRef) -> Result<[&FieldRef; 2]> {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => Ok([&fields[0], &fields[1]]),
        other => Err(Error::internal(format!("the entries of a map are of type {other}"))),
    }
}

fn mismatch(error: &ArrowError) -> Error {
    damaged(&error.to_string())
}

fn too_short() -> Error {
    damaged("a row is too short")
}

fn bit(nulls: &[u8], position: usize) -> bool {
    nulls[position / 8] >> (position % 8) & 1 == 1
}

fn take<'a>(cursor: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = cursor.split_at_checked(length).ok_or_else(too_short)?;
    *cursor = rest;
    Ok(taken)
}

fn take_null_map<'a>(cursor: &mut &'a [u8], things: usize) -> Result<&'a [u8]> {
    let nulls = take(cursor, null_map_len(things))?;
    match nulls.last() {
        Some(last) if !things.is_multiple_of(8) && last >> (things % 8) != 0 => {
            Err(damaged("a null map has bits beyond its end"))
        }
        _ => Ok(nulls),
    }
}

fn take_varint(cursor: &mut &[u8]) -> Result<usize> {
    varint::take(cursor).ok_or_else(|| damaged("a length is written in no valid way"))
}

fn take_sized<'a>(cursor: &mut &'a [u8]) -> Result<&'a [u8]> {
    let length = take_varint(cursor)?;
    take(cursor, length)
}
