//! Flat columns.

use super::{Input, Missing, Plan, unsuitable};
use crate::array::{Array, Data, Nulls, Slices, Texts, mismatch};
use crate::error::Error;
use crate::types::{DataType, Field};
use crate::values::{Date, Decimal, Timestamp, TimestampNtz};
use std::borrow::Cow;

/// Reads a column of numbers. A narrower column is widened once, so that a value is one load.
#[derive(Debug)]
pub struct Numbers<'a, const N: usize> {
    nulls: Nulls<'a>,
    values: &'a [[u8; N]],
    widened: Vec<[u8; N]>,
}

impl<const N: usize> Numbers<'_, N> {
    #[inline]
    fn get(&self, row: usize) -> [u8; N] {
        if self.widened.is_empty() { self.values[row] } else { self.widened[row] }
    }
}

/// Numbers, with the narrower ones that they take.
macro_rules! numbers {
    ($($rust:ty, $width:literal, $name:literal, $exact:ident $(, $narrow:ident($from:ty))*;)+) => {$(
        impl<'a> Input<'a> for $rust {
            type Reader = Numbers<'a, $width>;

            fn plan(found: &Field, path: &str) -> Result<Plan, String> {
                match found.data_type {
                    DataType::$exact $(| DataType::$narrow)* => Ok(Plan::default()),
                    _ => unsuitable($name, found, path),
                }
            }
            fn reader(_: &Plan, array: &Array<'a>) -> Result<Self::Reader, Error> {
                let nulls = array.nulls;
                match array.data {
                    Data::$exact(values) => Ok(Numbers { nulls, values, widened: Vec::new() }),
                    $(Data::$narrow(values) => {
                        let wide = |v: &_| <$rust>::from(<$from>::from_le_bytes(*v)).to_le_bytes();
                        Ok(Numbers { nulls, values: &[], widened: values.iter().map(wide).collect() })
                    })*
                    _ => Err(mismatch($name)),
                }
            }
            #[inline]
            fn is_null(reader: &Self::Reader, row: usize) -> bool {
                reader.nulls.is_null(row)
            }
            #[inline]
            fn value(reader: &Self::Reader, row: usize) -> Result<Self, Missing> {
                Ok(<$rust>::from_le_bytes(reader.get(row)))
            }
        }
    )+};
}

numbers! {
    i8, 1, "byte", Int8;
    i16, 2, "short", Int16, Int8(i8);
    i32, 4, "int", Int32, Int16(i16), Int8(i8);
    i64, 8, "long", Int64, Int32(i32), Int16(i16), Int8(i8);
    f32, 4, "float", Float32, Int16(i16), Int8(i8);
    f64, 8, "double", Float64, Float32(f32), Int32(i32), Int16(i16), Int8(i8);
}

/// Reads a column of one layout.
#[derive(Debug)]
pub struct Column<'a, V> {
    nulls: Nulls<'a>,
    values: V,
    _of: std::marker::PhantomData<&'a ()>,
}

impl<'a, V> Column<'a, V> {
    fn new(array: &Array<'a>, values: V) -> Self {
        Self { nulls: array.nulls, values, _of: std::marker::PhantomData }
    }
}

/// Types with one column type and one layout.
macro_rules! columns {
    ($(
        [$($generics:tt)*] $rust:ty, $values:ty, $name:expr, $accepts:pat $(if $guard:expr)?,
        $variant:ident($raw:ident) => $made:expr, |$column:ident, $row:ident| $read:expr;
    )+) => {$(
        impl<'a, $($generics)*> Input<'a> for $rust {
            type Reader = Column<'a, $values>;

            fn plan(found: &Field, path: &str) -> Result<Plan, String> {
                match &found.data_type {
                    $accepts $(if $guard)? => Ok(Plan::default()),
                    _ => unsuitable($name, found, path),
                }
            }
            fn reader(_: &Plan, array: &Array<'a>) -> Result<Self::Reader, Error> {
                match array.data {
                    Data::$variant($raw) => Ok(Column::new(array, $made)),
                    _ => Err(mismatch(&$name.to_string())),
                }
            }
            #[inline]
            fn is_null(reader: &Self::Reader, row: usize) -> bool {
                reader.nulls.is_null(row)
            }
            #[inline]
            fn value(reader: &Self::Reader, $row: usize) -> Result<Self, Missing> {
                let $column = &reader.values;
                Ok($read)
            }
        }
    )+};
}

columns! {
    [] bool, &'a [u8], "boolean", DataType::Boolean,
        Boolean(bits) => bits, |bits, row| bits[row / 8] >> (row % 8) & 1 == 1;
    [] &'a str, Texts<'a>, "string", DataType::Utf8,
        Utf8(slices) => Texts::new(slices)?, |texts, row| texts.get(row);
    [] String, Texts<'a>, "string", DataType::Utf8,
        Utf8(slices) => Texts::new(slices)?, |texts, row| texts.get(row).to_owned();
    [] Cow<'a, str>, Texts<'a>, "string", DataType::Utf8,
        Utf8(slices) => Texts::new(slices)?, |texts, row| Cow::Borrowed(texts.get(row));
    [] &'a [u8], Slices<'a>, "binary", DataType::Binary,
        Binary(slices) => slices, |slices, row| slices.get(row);
    [] Vec<u8>, Slices<'a>, "binary", DataType::Binary,
        Binary(slices) => slices, |slices, row| slices.get(row).to_vec();
    [] Date, &'a [[u8; 4]], "date", DataType::Date,
        Date(days) => days, |days, row| Date(i32::from_le_bytes(days[row]));
    [] Timestamp, &'a [[u8; 8]], "timestamp", DataType::Timestamp { zone: Some(_) },
        Timestamp(micros) => micros, |micros, row| Timestamp(i64::from_le_bytes(micros[row]));
    [] TimestampNtz, &'a [[u8; 8]], "timestamp_ntz", DataType::Timestamp { zone: None },
        Timestamp(micros) => micros, |micros, row| TimestampNtz(i64::from_le_bytes(micros[row]));
    [const P: u8, const S: i8] Decimal<P, S>, &'a [[u8; 16]], format!("decimal({P},{S})"),
        DataType::Decimal { precision, scale } if *precision <= P && *scale == S,
        Decimal(digits) => digits, |digits, row| Decimal(i128::from_le_bytes(digits[row]));
}
