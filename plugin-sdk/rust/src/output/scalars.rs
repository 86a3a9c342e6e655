//! Flat columns.

use super::{Build, Output, Validity};
use crate::array::Slices;
use crate::ipc::Encoder;
use crate::types::DataType;
use crate::values::{Date, Decimal, Timestamp, TimestampNtz};
use std::borrow::Cow;

/// Values of `N` bytes.
#[derive(Debug, Default)]
pub struct Fixed<const N: usize> {
    validity: Validity,
    values: Vec<[u8; N]>,
}

impl<const N: usize> Fixed<N> {
    /// Appends a value, little-endian.
    #[inline]
    pub fn push(&mut self, value: [u8; N]) {
        self.validity.push_valid(self.values.len());
        self.values.push(value);
    }
}

impl<const N: usize> Fixed<N> {
    /// Appends values that are all there.
    pub(super) fn extend(&mut self, values: &[[u8; N]]) {
        self.validity.extend_valid(self.values.len(), values.len());
        self.values.extend_from_slice(values);
    }
}

impl<const N: usize> Build for Fixed<N> {
    fn append_null(&mut self) {
        self.validity.push_null(self.values.len());
        self.values.push([0; N]);
    }
    fn len(&self) -> usize {
        self.values.len()
    }
    fn clear(&mut self) {
        self.validity.clear();
        self.values.clear();
    }
    fn write(&self, to: &mut Encoder) {
        self.validity.write(self.values.len(), to);
        to.values(&self.values);
    }
}

/// Booleans, a bit each.
#[derive(Debug, Default)]
pub struct Booleans {
    validity: Validity,
    len: usize,
    bits: Vec<u8>,
}

impl Booleans {
    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: bool) {
        self.validity.push_valid(self.len);
        self.push_bit(value);
    }
    #[inline]
    fn push_bit(&mut self, value: bool) {
        push_bit(&mut self.bits, self.len, value);
        self.len += 1;
    }
}

/// Sets bit `at`, the next one, of a bitmap.
#[inline]
pub(super) fn push_bit(bits: &mut Vec<u8>, at: usize, value: bool) {
    let bit = u8::from(value) << (at % 8);
    match bits.get_mut(at / 8) {
        Some(byte) => *byte |= bit,
        None => bits.push(bit),
    }
}

impl Build for Booleans {
    fn append_null(&mut self) {
        self.validity.push_null(self.len);
        self.push_bit(false);
    }
    fn len(&self) -> usize {
        self.len
    }
    fn clear(&mut self) {
        self.validity.clear();
        self.bits.clear();
        self.len = 0;
    }
    fn write(&self, to: &mut Encoder) {
        self.validity.write(self.len, to);
        to.buffer(&self.bits);
    }
}

/// Texts or byte strings.
#[derive(Debug, Default)]
pub struct Bytes {
    validity: Validity,
    ends: Vec<[u8; 4]>,
    bytes: Vec<u8>,
}

impl Bytes {
    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        self.validity.push_valid(self.ends.len());
        self.bytes.extend_from_slice(value);
        self.end();
    }
    #[inline]
    fn end(&mut self) {
        self.ends.push((self.bytes.len() as u32).to_le_bytes());
    }
}

impl Bytes {
    /// Appends the first `len` of these values, which are all there.
    pub(super) fn extend(&mut self, slices: &Slices<'_>, len: usize) {
        self.validity.extend_valid(self.ends.len(), len);
        let (start, end) = (slices.offsets.end(0), slices.offsets.end(len));
        let moved = (self.bytes.len() as u32).wrapping_sub(start as u32);
        self.bytes.extend_from_slice(&slices.bytes[start..end]);
        let ends = slices.offsets.0[1..=len].iter();
        self.ends.extend(ends.map(|end| u32::from_le_bytes(*end).wrapping_add(moved).to_le_bytes()));
    }
}

impl Build for Bytes {
    fn append_null(&mut self) {
        self.validity.push_null(self.ends.len());
        self.end();
    }
    fn len(&self) -> usize {
        self.ends.len()
    }
    fn clear(&mut self) {
        self.validity.clear();
        self.ends.clear();
        self.bytes.clear();
    }
    fn write(&self, to: &mut Encoder) {
        self.validity.write(self.ends.len(), to);
        to.offsets(&self.ends);
        to.buffer(&self.bytes);
    }
}

/// Types and how they are pushed.
macro_rules! outputs {
    ($([$($generics:tt)*] $rust:ty, $builder:ty, $data_type:expr, |$value:ident| $pushed:expr;)+) => {$(
        impl<$($generics)*> Output for $rust {
            type Builder = $builder;
            fn data_type() -> DataType {
                $data_type
            }
            #[inline]
            fn append(self, builder: &mut Self::Builder) {
                let $value = self;
                builder.push($pushed);
            }
        }
    )+};
}

outputs! {
    [] bool, Booleans, DataType::Boolean, |v| v;
    [] i8, Fixed<1>, DataType::Int8, |v| v.to_le_bytes();
    [] i16, Fixed<2>, DataType::Int16, |v| v.to_le_bytes();
    [] i32, Fixed<4>, DataType::Int32, |v| v.to_le_bytes();
    [] i64, Fixed<8>, DataType::Int64, |v| v.to_le_bytes();
    [] f32, Fixed<4>, DataType::Float32, |v| v.to_le_bytes();
    [] f64, Fixed<8>, DataType::Float64, |v| v.to_le_bytes();
    [] Date, Fixed<4>, DataType::Date, |v| v.0.to_le_bytes();
    [] Timestamp, Fixed<8>, DataType::Timestamp { zone: Some("UTC".to_owned()) }, |v| v.0.to_le_bytes();
    [] TimestampNtz, Fixed<8>, DataType::Timestamp { zone: None }, |v| v.0.to_le_bytes();
    [const P: u8, const S: i8] Decimal<P, S>, Fixed<16>,
        DataType::Decimal { precision: P, scale: S }, |v| v.0.to_le_bytes();
    ['a] &'a str, Bytes, DataType::Utf8, |v| v.as_bytes();
    [] String, Bytes, DataType::Utf8, |v| v.as_bytes();
    ['a] Cow<'a, str>, Bytes, DataType::Utf8, |v| v.as_bytes();
    ['a] &'a [u8], Bytes, DataType::Binary, |v| v;
    [] Vec<u8>, Bytes, DataType::Binary, |v| &v;
}
