//! Nulls, optional values, arrays and maps.

use super::scalars::push_bit;
use super::{Build, Output};
use crate::ipc::Encoder;
use crate::types::{DataType, Field};
use std::collections::BTreeMap;

/// Which values are null; costs nothing until the first one is.
#[derive(Debug, Default)]
pub struct Validity {
    nulls: usize,
    bits: Vec<u8>,
}

impl Validity {
    /// Notes that value number `at`, the next one, is there.
    #[inline]
    pub fn push_valid(&mut self, at: usize) {
        if self.nulls != 0 {
            push_bit(&mut self.bits, at, true);
        }
    }
    /// Notes that the next `count` values, from number `at` on, are there.
    pub(super) fn extend_valid(&mut self, at: usize, count: usize) {
        if self.nulls != 0 {
            (at..at + count).for_each(|at| push_bit(&mut self.bits, at, true));
        }
    }
    /// Notes that value number `at`, the next one, is null.
    pub fn push_null(&mut self, at: usize) {
        if self.nulls == 0 {
            self.bits.clear();
            self.bits.resize(at / 8, 0xff);
            if !at.is_multiple_of(8) {
                self.bits.push((1 << (at % 8)) - 1);
            }
        }
        self.nulls += 1;
        push_bit(&mut self.bits, at, false);
    }
    /// Forgets all.
    pub fn clear(&mut self) {
        self.nulls = 0;
        self.bits.clear();
    }
    /// Opens the column of `len` values in a message.
    pub fn write(&self, len: usize, to: &mut Encoder) {
        to.node(len, self.nulls, &self.bits);
    }
}

impl<T: Output> Output for Option<T> {
    const NULLABLE: bool = true;
    type Builder = T::Builder;
    fn data_type() -> DataType {
        T::data_type()
    }
    #[inline]
    fn append(self, builder: &mut Self::Builder) {
        match self {
            Some(value) => value.append(builder),
            None => builder.append_null(),
        }
    }
}

/// Arrays.
#[derive(Debug, Default)]
pub struct Lists<B> {
    validity: Validity,
    ends: Vec<[u8; 4]>,
    items: B,
}

impl<B: Build> Lists<B> {
    pub(super) fn of(items: B) -> Self {
        Self { validity: Validity::default(), ends: Vec::new(), items }
    }
    /// Appends an array of the items that `push` appends.
    pub(super) fn push(&mut self, push: impl FnOnce(&mut B)) {
        self.validity.push_valid(self.ends.len());
        push(&mut self.items);
        self.end();
    }
    fn end(&mut self) {
        self.ends.push((self.items.len() as u32).to_le_bytes());
    }
}

impl<B: Build> Build for Lists<B> {
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
        self.items.clear();
    }
    fn write(&self, to: &mut Encoder) {
        self.validity.write(self.ends.len(), to);
        to.offsets(&self.ends);
        self.items.write(to);
    }
}

impl<T: Output> Output for Vec<T> {
    type Builder = Lists<T::Builder>;
    fn data_type() -> DataType {
        DataType::List(Box::new(T::field("item")))
    }
    fn append(self, builder: &mut Self::Builder) {
        builder.push(|items| self.into_iter().for_each(|item| item.append(items)));
    }
}

/// Maps.
#[derive(Debug, Default)]
pub struct Maps<K, V> {
    validity: Validity,
    ends: Vec<[u8; 4]>,
    keys: K,
    values: V,
}

impl<K: Build, V: Build> Maps<K, V> {
    pub(super) fn of(keys: K, values: V) -> Self {
        Self { validity: Validity::default(), ends: Vec::new(), keys, values }
    }
    /// Appends a map of the entries that `push` appends.
    pub(super) fn push(&mut self, push: impl FnOnce(&mut K, &mut V)) {
        self.validity.push_valid(self.ends.len());
        push(&mut self.keys, &mut self.values);
        self.end();
    }
    fn end(&mut self) {
        self.ends.push((self.keys.len() as u32).to_le_bytes());
    }
}

impl<K: Build, V: Build> Build for Maps<K, V> {
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
        self.keys.clear();
        self.values.clear();
    }
    fn write(&self, to: &mut Encoder) {
        self.validity.write(self.ends.len(), to);
        to.offsets(&self.ends);
        to.node(self.keys.len(), 0, &[]);
        self.keys.write(to);
        self.values.write(to);
    }
}

/// Both ways to hold a map.
macro_rules! maps {
    ($($rust:ty),+) => {$(
        impl<K: Output, V: Output> Output for $rust {
            type Builder = Maps<K::Builder, V::Builder>;
            fn data_type() -> DataType {
                let key = Field::new("key", K::data_type(), false);
                DataType::Map(Box::new(key), Box::new(V::field("value")))
            }
            fn append(self, builder: &mut Self::Builder) {
                builder.push(|keys, values| {
                    for (key, value) in self {
                        key.append(keys);
                        value.append(values);
                    }
                });
            }
        }
    )+};
}

maps!(Vec<(K, V)>, BTreeMap<K, V>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_starts_with_the_first_null() {
        for nulls_at in [0, 1, 7, 8, 9, 16] {
            let mut validity = Validity::default();
            for at in 0..20 {
                if at == nulls_at { validity.push_null(at) } else { validity.push_valid(at) }
            }
            let bit = |at: usize| validity.bits[at / 8] >> (at % 8) & 1 == 1;
            assert!((0..20).all(|at| bit(at) == (at != nulls_at)), "{nulls_at}");
        }
    }
}
