//! A builder whose type is known at run time only: for functions that work on any schema.

use super::scalars::{Booleans, Bytes, Fixed};
use super::{Build, Validity, nested};
use crate::array::{Array, Data};
use crate::ipc::Encoder;
use crate::types::DataType;

/// Collects a column of any type.
#[derive(Debug)]
pub enum AnyBuilder {
    /// `boolean`
    Boolean(Booleans),
    /// `byte`
    Fixed1(Fixed<1>),
    /// `short`
    Fixed2(Fixed<2>),
    /// `int`, `float`, `date`
    Fixed4(Fixed<4>),
    /// `long`, `double`, `timestamp`
    Fixed8(Fixed<8>),
    /// `decimal`
    Fixed16(Fixed<16>),
    /// `string`, `binary`
    Bytes(Bytes),
    /// `array`
    List(Box<nested::Lists<AnyBuilder>>),
    /// `map`
    Map(Box<nested::Maps<AnyBuilder, AnyBuilder>>),
    /// `struct`
    Struct(Structs),
}

/// Structs of any fields.
#[derive(Debug, Default)]
pub struct Structs {
    validity: Validity,
    len: usize,
    columns: Vec<AnyBuilder>,
}

impl AnyBuilder {
    /// A builder for a type.
    pub fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean(Booleans::default()),
            DataType::Int8 => Self::Fixed1(Fixed::default()),
            DataType::Int16 => Self::Fixed2(Fixed::default()),
            DataType::Int32 | DataType::Float32 | DataType::Date => Self::Fixed4(Fixed::default()),
            DataType::Int64 | DataType::Float64 | DataType::Timestamp { .. } => {
                Self::Fixed8(Fixed::default())
            }
            DataType::Decimal { .. } => Self::Fixed16(Fixed::default()),
            DataType::Utf8 | DataType::Binary => Self::Bytes(Bytes::default()),
            DataType::List(item) => Self::List(Box::new(nested::Lists::of(Self::new(&item.data_type)))),
            DataType::Map(key, value) => {
                Self::Map(Box::new(nested::Maps::of(Self::new(&key.data_type), Self::new(&value.data_type))))
            }
            DataType::Struct(fields) => Self::Struct(Structs {
                columns: fields.iter().map(|f| Self::new(&f.data_type)).collect(),
                ..Structs::default()
            }),
        }
    }

    /// Appends a text to a `string` column (or bytes to a `binary` one). Other columns get a null.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        match self {
            Self::Bytes(builder) => builder.push(bytes),
            other => other.append_null(),
        }
    }

    /// Appends a null.
    pub fn push_null(&mut self) {
        Build::append_null(self);
    }

    /// Appends a row of a column of the same type. A column of another type gives a null.
    pub fn push_from(&mut self, column: &Array<'_>, row: usize) {
        if column.is_null(row) {
            return self.append_null();
        }
        match (self, &column.data) {
            (Self::Boolean(to), Data::Boolean(bits)) => to.push(bits[row / 8] >> (row % 8) & 1 == 1),
            (Self::Fixed1(to), Data::Int8(values)) => to.push(values[row]),
            (Self::Fixed2(to), Data::Int16(values)) => to.push(values[row]),
            (Self::Fixed4(to), Data::Int32(v) | Data::Float32(v) | Data::Date(v)) => to.push(v[row]),
            (Self::Fixed8(to), Data::Int64(v) | Data::Float64(v) | Data::Timestamp(v)) => to.push(v[row]),
            (Self::Fixed16(to), Data::Decimal(values)) => to.push(values[row]),
            (Self::Bytes(to), Data::Utf8(slices) | Data::Binary(slices)) => to.push(slices.get(row)),
            (Self::List(to), Data::List(offsets, items)) => {
                to.push(|to| offsets.range(row).for_each(|item| to.push_from(items, item)));
            }
            (Self::Map(to), Data::Map(offsets, keys, values)) => to.push(|to_keys, to_values| {
                for entry in offsets.range(row) {
                    to_keys.push_from(keys, entry);
                    to_values.push_from(values, entry);
                }
            }),
            (Self::Struct(to), Data::Struct(columns)) => {
                to.validity.push_valid(to.len);
                to.len += 1;
                to.columns.iter_mut().zip(columns).for_each(|(to, from)| to.push_from(from, row));
            }
            (other, _) => other.append_null(),
        }
    }

    /// Appends all rows of a column of the same type.
    pub fn extend_from(&mut self, column: &Array<'_>) {
        if column.nulls().any() {
            return (0..column.len()).for_each(|row| self.push_from(column, row));
        }
        match (&mut *self, &column.data) {
            (Self::Fixed1(to), Data::Int8(values)) => to.extend(values),
            (Self::Fixed2(to), Data::Int16(values)) => to.extend(values),
            (Self::Fixed4(to), Data::Int32(v) | Data::Float32(v) | Data::Date(v)) => to.extend(v),
            (Self::Fixed8(to), Data::Int64(v) | Data::Float64(v) | Data::Timestamp(v)) => to.extend(v),
            (Self::Fixed16(to), Data::Decimal(values)) => to.extend(values),
            (Self::Bytes(to), Data::Utf8(slices) | Data::Binary(slices)) => to.extend(slices, column.len()),
            (to, _) => (0..column.len()).for_each(|row| to.push_from(column, row)),
        }
    }

    fn inner(&self) -> &dyn Build {
        match self {
            Self::Boolean(b) => b,
            Self::Fixed1(b) => b,
            Self::Fixed2(b) => b,
            Self::Fixed4(b) => b,
            Self::Fixed8(b) => b,
            Self::Fixed16(b) => b,
            Self::Bytes(b) => b,
            Self::List(b) => &**b,
            Self::Map(b) => &**b,
            Self::Struct(b) => b,
        }
    }
    fn inner_mut(&mut self) -> &mut dyn Build {
        match self {
            Self::Boolean(b) => b,
            Self::Fixed1(b) => b,
            Self::Fixed2(b) => b,
            Self::Fixed4(b) => b,
            Self::Fixed8(b) => b,
            Self::Fixed16(b) => b,
            Self::Bytes(b) => b,
            Self::List(b) => &mut **b,
            Self::Map(b) => &mut **b,
            Self::Struct(b) => b,
        }
    }
}

impl Build for AnyBuilder {
    fn append_null(&mut self) {
        self.inner_mut().append_null();
    }
    fn len(&self) -> usize {
        self.inner().len()
    }
    fn clear(&mut self) {
        self.inner_mut().clear();
    }
    fn write(&self, to: &mut Encoder) {
        self.inner().write(to);
    }
}

impl Build for Structs {
    fn append_null(&mut self) {
        self.validity.push_null(self.len);
        self.len += 1;
        self.columns.iter_mut().for_each(Build::append_null);
    }
    fn len(&self) -> usize {
        self.len
    }
    fn clear(&mut self) {
        self.validity.clear();
        self.len = 0;
        self.columns.iter_mut().for_each(Build::clear);
    }
    fn write(&self, to: &mut Encoder) {
        self.validity.write(self.len, to);
        self.columns.iter().for_each(|column| column.write(to));
    }
}
