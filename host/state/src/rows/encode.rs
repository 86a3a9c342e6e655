//! Columns to rows of bytes. Called by the codec with columns of its types; never looks at what is below a null.
//!
//! Two passes over the columns: one sums up how long each row will be, one writes each column's cells into the rows.
//! Cells of nested columns are put together beforehand, value by value.

use super::{EncodedRows, types};
use crate::varint;
use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use bytes::Bytes;
use pelton_core::{Error, Result};
use std::ops::Range;

/// Encodes all rows; `keys` asks for the normal form of keys.
pub(super) fn rows(columns: &[ArrayRef], keys: bool) -> Result<EncodedRows> {
    let count = columns.first().map_or(1, |column| column.len());
    let columns = columns.iter().map(|column| Column::new(column, keys)?.flat(count));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let head = null_map_len(columns.len());
    let offsets = offsets(&columns, count, head)?;
    let mut buffer = vec![0_u8; offsets.last().map_or(0, |end| *end as usize)];
    let mut cursors: Vec<u32> = offsets[..count].iter().map(|start| start + head as u32).collect();
    for (position, column) in columns.iter().enumerate() {
        column.mark_nulls(position, &offsets, &mut buffer);
        column.write(&mut buffer, &mut cursors);
    }
    Ok(EncodedRows { buffer: Bytes::from(buffer), offsets })
}

fn offsets(columns: &[Column], count: usize, head: usize) -> Result<Vec<u32>> {
    let mut total = (head as u64).saturating_mul(count as u64);
    let mut lengths = vec![head as u32; count + 1];
    lengths[count] = 0;
    for column in columns {
        total = total.saturating_add(column.add_lengths(&mut lengths[..count]));
    }
    if total > u64::from(u32::MAX) {
        return Err(Error::data(format!(
            "{count} rows take {total} bytes as state, more than 4 GiB at a time"
        ))
        .hint("limit what a micro-batch reads, for example with max_files_per_trigger"));
    }
    let mut at = 0_u32;
    for length in &mut lengths {
        at += std::mem::replace(length, at);
    }
    Ok(lengths)
}

/// A column made ready to be written.
struct Column {
    nulls: Option<NullBuffer>,
    cells: Cells,
}

enum Cells {
    /// Of the null type: there is never a cell.
    None,
    /// Arrow's bytes, as many for each value.
    Fixed {
        width: usize,
        values: Buffer,
    },
    Small {
        offsets: OffsetBuffer<i32>,
        data: Buffer,
    },
    Large {
        offsets: OffsetBuffer<i64>,
        data: Buffer,
    },
    View(arrow::array::BinaryViewArray),
    List {
        ranges: Ranges,
        elements: Box<Column>,
    },
    Struct(Vec<Column>),
    Map {
        ranges: Ranges,
        sorted: bool,
        keys: Box<Column>,
        values: Box<Column>,
    },
    /// Cells that are written already.
    Written {
        offsets: Vec<usize>,
        data: Vec<u8>,
    },
}

/// Where the elements of lists are.
enum Ranges {
    Small(OffsetBuffer<i32>),
    Large(OffsetBuffer<i64>),
}

impl Ranges {
    fn get(&self, row: usize) -> Range<usize> {
        match self {
            Ranges::Small(offsets) => offsets[row].as_usize()..offsets[row + 1].as_usize(),
            Ranges::Large(offsets) => offsets[row].as_usize()..offsets[row + 1].as_usize(),
        }
    }
}

impl Column {
    fn new(array: &ArrayRef, keys: bool) -> Result<Self> {
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        Ok(Self { nulls, cells: Cells::new(array, keys)? })
    }

    /// Writes nested cells, so that what is left is flat.
    fn flat(self, count: usize) -> Result<Self> {
        if !matches!(self.cells, Cells::List { .. } | Cells::Struct(_) | Cells::Map { .. }) {
            return Ok(self);
        }
        let mut offsets = Vec::with_capacity(count + 1);
        let mut data = Vec::new();
        offsets.push(0);
        for row in 0..count {
            if !self.is_null(row) {
                self.push(row, &mut data)?;
            }
            offsets.push(data.len());
        }
        Ok(Self { nulls: self.nulls, cells: Cells::Written { offsets, data } })
    }

    fn is_null(&self, row: usize) -> bool {
        matches!(self.cells, Cells::None) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    fn mark_nulls(&self, position: usize, offsets: &[u32], buffer: &mut [u8]) {
        if self.nulls.is_none() && !matches!(self.cells, Cells::None) {
            return;
        }
        for (row, start) in offsets[..offsets.len() - 1].iter().enumerate() {
            if self.is_null(row) {
                buffer[*start as usize + position / 8] |= 1 << (position % 8);
            }
        }
    }

    /// Adds the lengths of the cells to those of the rows, modulo 2³², and gives their sum.
    fn add_lengths(&self, lengths: &mut [u32]) -> u64 {
        match &self.cells {
            Cells::Fixed { width, .. } => self.add(lengths, |_| *width),
            Cells::Small { offsets, .. } => {
                self.add(lengths, |row| sized(offsets[row + 1].as_usize() - offsets[row].as_usize()))
            }
            Cells::Large { offsets, .. } => {
                self.add(lengths, |row| sized(offsets[row + 1].as_usize() - offsets[row].as_usize()))
            }
            Cells::View(array) => self.add(lengths, |row| sized(array.value(row).len())),
            Cells::Written { offsets, .. } => self.add(lengths, |row| offsets[row + 1] - offsets[row]),
            Cells::None | Cells::List { .. } | Cells::Struct(_) | Cells::Map { .. } => 0,
        }
    }

    fn add(&self, lengths: &mut [u32], length_of: impl Fn(usize) -> usize) -> u64 {
        let mut total = 0;
        for (row, length) in lengths.iter_mut().enumerate() {
            if self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                let more = length_of(row);
                *length = length.wrapping_add(more as u32);
                total += more as u64;
            }
        }
        total
    }

    /// Writes each row's cell at the row's cursor and moves the cursor behind it.
    fn write(&self, buffer: &mut [u8], cursors: &mut [u32]) {
        match &self.cells {
            Cells::Fixed { width: 1, values } => self.write_fixed::<1>(values, buffer, cursors),
            Cells::Fixed { width: 2, values } => self.write_fixed::<2>(values, buffer, cursors),
            Cells::Fixed { width: 4, values } => self.write_fixed::<4>(values, buffer, cursors),
            Cells::Fixed { width: 8, values } => self.write_fixed::<8>(values, buffer, cursors),
            Cells::Fixed { width: 16, values } => self.write_fixed::<16>(values, buffer, cursors),
            Cells::Fixed { width, values } => {
                self.write_each(buffer, cursors, |row| &values[row * width..(row + 1) * width]);
            }
            Cells::Small { offsets, data } => self.write_sized(buffer, cursors, |row| {
                &data[offsets[row].as_usize()..offsets[row + 1].as_usize()]
            }),
            Cells::Large { offsets, data } => self.write_sized(buffer, cursors, |row| {
                &data[offsets[row].as_usize()..offsets[row + 1].as_usize()]
            }),
            Cells::View(array) => self.write_sized(buffer, cursors, |row| array.value(row)),
            Cells::Written { offsets, data } => {
                self.write_each(buffer, cursors, |row| &data[offsets[row]..offsets[row + 1]]);
            }
            Cells::None | Cells::List { .. } | Cells::Struct(_) | Cells::Map { .. } => {}
        }
    }

    fn write_fixed<const WIDTH: usize>(&self, values: &[u8], buffer: &mut [u8], cursors: &mut [u32]) {
        let (values, _) = values.as_chunks::<WIDTH>();
        let put = |buffer: &mut [u8], cursor: &mut u32, value: &[u8; WIDTH]| {
            let at = *cursor as usize;
            buffer[at..at + WIDTH].copy_from_slice(value);
            *cursor += WIDTH as u32;
        };
        match &self.nulls {
            None => cursors.iter_mut().zip(values).for_each(|(cursor, value)| put(buffer, cursor, value)),
            Some(nulls) => nulls.valid_indices().for_each(|row| put(buffer, &mut cursors[row], &values[row])),
        }
    }

    fn write_each<'a>(&self, buffer: &mut [u8], cursors: &mut [u32], cell_of: impl Fn(usize) -> &'a [u8]) {
        for (row, cursor) in cursors.iter_mut().enumerate() {
            if self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                let (cell, at) = (cell_of(row), *cursor as usize);
                buffer[at..at + cell.len()].copy_from_slice(cell);
                *cursor += cell.len() as u32;
            }
        }
    }

    fn write_sized<'a>(&self, buffer: &mut [u8], cursors: &mut [u32], bytes_of: impl Fn(usize) -> &'a [u8]) {
        for (row, cursor) in cursors.iter_mut().enumerate() {
            if self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                let bytes = bytes_of(row);
                let at = *cursor as usize;
                let at = at + varint::put(&mut buffer[at..], bytes.len());
                buffer[at..at + bytes.len()].copy_from_slice(bytes);
                *cursor = (at + bytes.len()) as u32;
            }
        }
    }

    /// Appends the cell of a value that is not null.
    fn push(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        match &self.cells {
            Cells::None => {}
            Cells::Fixed { width, values } => out.extend_from_slice(&values[row * width..(row + 1) * width]),
            Cells::Small { offsets, data } => {
                varint::push_sized(&data[offsets[row].as_usize()..offsets[row + 1].as_usize()], out);
            }
            Cells::Large { offsets, data } => {
                varint::push_sized(&data[offsets[row].as_usize()..offsets[row + 1].as_usize()], out);
            }
            Cells::View(array) => varint::push_sized(array.value(row), out),
            Cells::Written { offsets, data } => out.extend_from_slice(&data[offsets[row]..offsets[row + 1]]),
            Cells::List { ranges, elements } => {
                let range = ranges.get(row);
                varint::push(range.len(), out);
                push_null_map(range.clone().map(|element| elements.is_null(element)), out);
                for element in range.filter(|element| !elements.is_null(*element)) {
                    elements.push(element, out)?;
                }
            }
            Cells::Struct(fields) => {
                push_null_map(fields.iter().map(|field| field.is_null(row)), out);
                for field in fields.iter().filter(|field| !field.is_null(row)) {
                    field.push(row, out)?;
                }
            }
            Cells::Map { ranges, sorted, keys, values } => {
                push_map(ranges.get(row), *sorted, keys, values, out)?;
            }
        }
        Ok(())
    }
}

impl Cells {
    fn new(array: &ArrayRef, keys: bool) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Null => Self::None,
            DataType::Boolean => {
                let bits = array.as_boolean().values();
                Self::Fixed { width: 1, values: bits.iter().map(u8::from).collect() }
            }
            DataType::Utf8 => small(array.as_string::<i32>()),
            DataType::Binary => small(array.as_binary::<i32>()),
            DataType::LargeUtf8 => large(array.as_string::<i64>()),
            DataType::LargeBinary => large(array.as_binary::<i64>()),
            DataType::Utf8View => Self::View(array.as_string_view().clone().to_binary_view()),
            DataType::BinaryView => Self::View(array.as_binary_view().clone()),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let elements = Box::new(Column::new(list.values(), keys)?);
                Self::List { ranges: Ranges::Small(list.offsets().clone()), elements }
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let elements = Box::new(Column::new(list.values(), keys)?);
                Self::List { ranges: Ranges::Large(list.offsets().clone()), elements }
            }
            DataType::Struct(_) => {
                let fields = array.as_struct().columns().iter().map(|field| Column::new(field, keys));
                Self::Struct(fields.collect::<Result<_>>()?)
            }
            DataType::Map(_, _) => {
                let map = array.as_map();
                Self::Map {
                    ranges: Ranges::Small(map.offsets().clone()),
                    sorted: keys,
                    keys: Box::new(Column::new(map.keys(), keys)?),
                    values: Box::new(Column::new(map.values(), keys)?),
                }
            }
            _ => fixed(array, keys)?,
        })
    }
}

fn small<T: arrow::datatypes::ByteArrayType<Offset = i32>>(
    array: &arrow::array::GenericByteArray<T>,
) -> Cells {
    Cells::Small { offsets: array.offsets().clone(), data: array.values().clone() }
}

fn large<T: arrow::datatypes::ByteArrayType<Offset = i64>>(
    array: &arrow::array::GenericByteArray<T>,
) -> Cells {
    Cells::Large { offsets: array.offsets().clone(), data: array.values().clone() }
}

fn fixed(array: &ArrayRef, keys: bool) -> Result<Cells> {
    let data = array.to_data();
    let (Some(width), Some(values)) = (types::fixed_width(array.data_type()), data.buffers().first()) else {
        return Err(Error::internal(format!("values of type {} cannot be stored", array.data_type())));
    };
    let values = values.slice_with_length(data.offset() * width, data.len() * width);
    let values = match array.data_type() {
        DataType::Float16 if keys => normal::<2>(&values, |bits| {
            let bits = u16::from_le_bytes(bits);
            let magnitude = bits & 0x7fff;
            let normal = if magnitude > 0x7c00 {
                0x7e00
            } else if magnitude == 0 {
                0
            } else {
                bits
            };
            normal.to_le_bytes()
        }),
        DataType::Float32 if keys => normal::<4>(&values, |bits| {
            let value = f32::from_le_bytes(bits);
            // Adding 0.0 makes 0.0 of -0.0 and changes nothing else.
            if value.is_nan() { f32::NAN.to_le_bytes() } else { (value + 0.0).to_le_bytes() }
        }),
        DataType::Float64 if keys => normal::<8>(&values, |bits| {
            let value = f64::from_le_bytes(bits);
            if value.is_nan() { f64::NAN.to_le_bytes() } else { (value + 0.0).to_le_bytes() }
        }),
        _ => values,
    };
    Ok(Cells::Fixed { width, values })
}

fn normal<const WIDTH: usize>(values: &[u8], of: impl Fn([u8; WIDTH]) -> [u8; WIDTH]) -> Buffer {
    let (values, _) = values.as_chunks::<WIDTH>();
    let values: Vec<[u8; WIDTH]> = values.iter().map(|value| of(*value)).collect();
    Buffer::from(values.as_flattened())
}

fn push_map(
    entries: Range<usize>,
    sorted: bool,
    keys: &Column,
    values: &Column,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut cells = Vec::with_capacity(entries.len());
    for entry in entries {
        if keys.is_null(entry) {
            return Err(Error::data("a map with a null key cannot be kept in state"));
        }
        let mut key = Vec::new();
        keys.push(entry, &mut key)?;
        cells.push((key, entry));
    }
    if sorted {
        cells.sort();
    }
    varint::push(cells.len(), out);
    push_null_map(cells.iter().map(|(_, entry)| values.is_null(*entry)), out);
    for (key, entry) in cells {
        out.extend_from_slice(&key);
        if !values.is_null(entry) {
            values.push(entry, out)?;
        }
    }
    Ok(())
}

/// The bytes of a null map.
pub(super) fn null_map_len(things: usize) -> usize {
    things.div_ceil(8)
}

fn push_null_map(nulls: impl ExactSizeIterator<Item = bool>, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + null_map_len(nulls.len()), 0);
    for (position, null) in nulls.enumerate() {
        out[start + position / 8] |= u8::from(null) << (position % 8);
    }
}

fn sized(length: usize) -> usize {
    varint::length(length) + length
}
