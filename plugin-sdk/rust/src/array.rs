//! Columns as the host sent them: views into the message, nothing copied.
//!
//! `ipc` makes them, `input` and dynamic functions read them.

use crate::error::Error;

/// Which rows are null. Bit set: there is a value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nulls<'a>(pub(crate) Option<&'a [u8]>);

impl Nulls<'_> {
    /// Whether a row is null.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        match self.0 {
            None => false,
            Some(bits) => bits[row / 8] >> (row % 8) & 1 == 0,
        }
    }
    /// Whether there is any null.
    pub fn any(&self) -> bool {
        self.0.is_some()
    }
}

/// One column, or one level of a nested one.
#[derive(Debug, Clone)]
pub struct Array<'a> {
    pub(crate) len: usize,
    pub(crate) nulls: Nulls<'a>,
    pub(crate) data: Data<'a>,
}

/// The values, little-endian, as Arrow lays them out.
#[derive(Debug, Clone)]
pub(crate) enum Data<'a> {
    Boolean(&'a [u8]),
    Int8(&'a [[u8; 1]]),
    Int16(&'a [[u8; 2]]),
    Int32(&'a [[u8; 4]]),
    Int64(&'a [[u8; 8]]),
    Float32(&'a [[u8; 4]]),
    Float64(&'a [[u8; 8]]),
    Decimal(&'a [[u8; 16]]),
    Date(&'a [[u8; 4]]),
    Timestamp(&'a [[u8; 8]]),
    Utf8(Slices<'a>),
    Binary(Slices<'a>),
    List(Offsets<'a>, Box<Array<'a>>),
    Map(Offsets<'a>, Box<Array<'a>>, Box<Array<'a>>),
    Struct(Vec<Array<'a>>),
}

/// Where each value begins and the last one ends.
#[derive(Debug, Clone, Copy)]
pub struct Offsets<'a>(pub(crate) &'a [[u8; 4]]);

impl Offsets<'_> {
    /// The place of one row's items. `ipc` has checked that the offsets never fall.
    #[inline]
    pub(crate) fn range(&self, row: usize) -> core::ops::Range<usize> {
        let at = |i: usize| u32::from_le_bytes(self.0[i]) as usize;
        at(row)..at(row + 1)
    }
    /// Where the first `rows` rows end.
    pub(crate) fn end(&self, rows: usize) -> usize {
        u32::from_le_bytes(self.0[rows]) as usize
    }
}

/// Byte strings, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Slices<'a> {
    pub(crate) offsets: Offsets<'a>,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Slices<'a> {
    /// One row's bytes.
    #[inline]
    pub fn get(&self, row: usize) -> &'a [u8] {
        &self.bytes[self.offsets.range(row)]
    }
}

/// Byte strings that are UTF-8.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    offsets: Offsets<'a>,
    text: &'a str,
}

impl<'a> Texts<'a> {
    /// Checks all values at once; the values themselves are then cut out at character boundaries.
    pub(crate) fn new(slices: Slices<'a>) -> Result<Self, Error> {
        let text = core::str::from_utf8(slices.bytes)
            .map_err(|e| Error::Failed(format!("a string column that is not UTF-8: {e}")))?;
        Ok(Self { offsets: slices.offsets, text })
    }
    /// One row's text.
    #[inline]
    pub fn get(&self, row: usize) -> &'a str {
        &self.text[self.offsets.range(row)]
    }
}

impl<'a> Array<'a> {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Whether a row is null.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.is_null(row)
    }
    /// Which rows are null.
    pub fn nulls(&self) -> Nulls<'a> {
        self.nulls
    }
    /// The columns of a struct (or of a batch); nothing for other types.
    pub fn columns(&self) -> &[Array<'a>] {
        match &self.data {
            Data::Struct(columns) => columns,
            _ => &[],
        }
    }
    /// The text of a row of a `string` column; `None` if it is null or the column is of another type.
    pub fn text(&self, row: usize) -> Option<&'a str> {
        match &self.data {
            Data::Utf8(slices) if !self.is_null(row) => core::str::from_utf8(slices.get(row)).ok(),
            _ => None,
        }
    }
}

impl<'a> Array<'a> {
    /// The bytes of a row of a `binary` or `string` column; `None` if it is null or of another type.
    pub fn bytes(&self, row: usize) -> Option<&'a [u8]> {
        match &self.data {
            Data::Utf8(slices) | Data::Binary(slices) if !self.is_null(row) => Some(slices.get(row)),
            _ => None,
        }
    }
    /// A row of a `byte`, `short`, `int` or `long` column; `None` if it is null or of another type.
    pub fn integer(&self, row: usize) -> Option<i64> {
        if self.is_null(row) {
            return None;
        }
        Some(match &self.data {
            Data::Int8(values) => i64::from(i8::from_le_bytes(values[row])),
            Data::Int16(values) => i64::from(i16::from_le_bytes(values[row])),
            Data::Int32(values) => i64::from(i32::from_le_bytes(values[row])),
            Data::Int64(values) => i64::from_le_bytes(values[row]),
            _ => return None,
        })
    }
}

/// What a column must be for a reader that was planned for it.
pub(crate) fn mismatch(expected: &str) -> Error {
    Error::Failed(format!("the rows do not have the schema that was agreed: expected {expected}"))
}
