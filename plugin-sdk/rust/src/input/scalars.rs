//! Flat columns.

use super::{Input, Missing, Plan, unsuitable};
use crate::array::{Array, Data, Nulls, Slices, Texts, mismatch};
use crate::error::Error;
use crate::types::{DataType, Field};
use crate::values::{Date, Decimal, Timestamp, TimestampNtz};
use std::borrow::Cow;

/// Numbers of a column, read wider if the type asked for is wider.
macro_rules! numbers {
    ($($reader:ident => $rust:ty, $name:literal: $($variant:ident($narrow:ty, $width:literal)),+;)+) => {$(
        #[doc = concat!("Reads a column as `", stringify!($rust), "`.")]
        #[derive(Debug)]
        pub enum $reader<'a> {
            $(
                #[doc = concat!("From `", stringify!($narrow), "`.")]
                $variant(Nulls<'a>, &'a [[u8; $width]]),
            )+
        }

        impl<'a> Input<'a> for $rust {
            type Reader = $reader<'a>;

            fn plan(found: &Field, path: &str) -> Result<Plan, String> {
                match found.data_type {
                    $(DataType::$variant => Ok(Plan::default()),)+
                    _ => unsuitable($name, found, path),
                }
            }
            fn reader(_: &Plan, array: &Array<'a>) -> Result<Self::Reader, Error> {
                match array.data {
                    $(Data::$variant(values) => Ok($reader::$variant(array.nulls, values)),)+
                    _ => Err(mismatch($name)),
                }
            }
            #[inline]
            fn is_null(reader: &Self::Reader, row: usize) -> bool {
                match reader {
                    $($reader::$variant(nulls, _) => nulls.is_null(row),)+
                }
            }
            #[inline]
            fn value(reader: &Self::Reader, row: usize) -> Result<Self, Missing> {
                Ok(match reader {
                    $($reader::$variant(_, values) => <$narrow>::from_le_bytes(values[row]).into(),)+
                })
            }
        }
    )+};
}

numbers! {
    Bytes => i8, "byte": Int8(i8, 1);
    Shorts => i16, "short": Int16(i16, 2), Int8(i8, 1);
    Ints => i32, "int": Int32(i32, 4), Int16(i16, 2), Int8(i8, 1);
    Longs => i64, "long": Int64(i64, 8), Int32(i32, 4), Int16(i16, 2), Int8(i8, 1);
    Floats => f32, "float": Float32(f32, 4), Int16(i16, 2), Int8(i8, 1);
    Doubles => f64, "double": Float64(f64, 8), Float32(f32, 4), Int32(i32, 4), Int16(i16, 2), Int8(i8, 1);
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
