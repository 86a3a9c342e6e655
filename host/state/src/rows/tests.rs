//! What the encoding of rows promises, over arrays of any type.

use super::{RowCodec, key_group, ordered_i64, split_ordered_i64, types};
use arrow::array::{
    Array, ArrayData, ArrayRef, BinaryArray, BooleanArray, Int8Array, Int32Array, Int32Builder, Int64Array,
    LargeListArray, ListArray, MapArray, MapBuilder, NullArray, StringArray, StringBuilder, StructArray,
    make_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Float64Type, Int16Type, IntervalUnit, TimeUnit};
use proptest::prelude::*;
use std::sync::Arc;
use twox_hash::XxHash64;

/// A small generator of numbers: arrays follow from a seed and a type.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }
    fn nulls(&mut self, len: usize) -> Option<NullBuffer> {
        (self.roll(3) > 0).then(|| (0..len).map(|_| self.roll(4) > 0).collect())
    }
    fn lengths(&mut self, len: usize) -> Vec<usize> {
        (0..len).map(|_| self.roll(3)).collect()
    }
    fn array(&mut self, data_type: &DataType, len: usize) -> ArrayRef {
        match data_type {
            DataType::Null => Arc::new(NullArray::new(len)),
            DataType::Boolean => {
                let bits = (0..len).map(|_| self.roll(2) == 1).collect();
                Arc::new(BooleanArray::new(bits, self.nulls(len)))
            }
            DataType::List(field) => {
                let offsets = OffsetBuffer::from_lengths(self.lengths(len));
                let values = self.array(field.data_type(), offsets[len] as usize);
                Arc::new(ListArray::new(Arc::clone(field), offsets, values, self.nulls(len)))
            }
            DataType::LargeList(field) => {
                let offsets = OffsetBuffer::from_lengths(self.lengths(len));
                let values = self.array(field.data_type(), offsets[len] as usize);
                Arc::new(LargeListArray::new(Arc::clone(field), offsets, values, self.nulls(len)))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|field| self.array(field.data_type(), len)).collect();
                let nulls = self.nulls(len);
                Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, len).unwrap())
            }
            DataType::Map(entries, sorted) => {
                let DataType::Struct(fields) = entries.data_type() else { unreachable!() };
                let offsets = OffsetBuffer::from_lengths(self.lengths(len));
                let len_inside = offsets[len] as usize;
                let keys = without_nulls(&self.array(fields[0].data_type(), len_inside));
                let values = self.array(fields[1].data_type(), len_inside);
                let columns = StructArray::new(fields.clone(), vec![keys, values], None);
                Arc::new(MapArray::new(Arc::clone(entries), offsets, columns, self.nulls(len), *sorted))
            }
            other if types::is_bytes(other) => {
                let words: Vec<Option<&str>> = (0..len)
                    .map(|_| ["", "a", "ab", "long enough to be out of line: äöü"].get(self.roll(5)).copied())
                    .collect();
                let strings: ArrayRef = Arc::new(StringArray::from(words));
                arrow::compute::cast(&strings, other).unwrap()
            }
            other => {
                let width = types::fixed_width(other).unwrap();
                let bytes: Vec<u8> = (0..len)
                    .flat_map(|_| {
                        let mut value = vec![[0, 1, 255][self.roll(3)]; width];
                        // Zeros, infinities and NaN of both signs, among others.
                        value[width - 1] = [0, 0x80, 0x7f, 0xff][self.roll(4)];
                        value
                    })
                    .collect();
                let values = arrow::buffer::MutableBuffer::from_iter(bytes);
                let data = ArrayData::builder(other.clone()).len(len).add_buffer(values.into());
                make_array(data.nulls(self.nulls(len)).build().unwrap())
            }
        }
    }
}

fn without_nulls(array: &ArrayRef) -> ArrayRef {
    if *array.data_type() == DataType::Null {
        return Arc::clone(array);
    }
    make_array(array.to_data().into_builder().nulls(None).build().unwrap())
}

fn data_type() -> impl Strategy<Value = DataType> {
    let micros = TimeUnit::Microsecond;
    let flat = prop::sample::select(vec![
        DataType::Null,
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(38, 10),
        DataType::Decimal256(76, 0),
        DataType::Date32,
        DataType::Timestamp(micros, None),
        DataType::Timestamp(micros, Some("UTC".into())),
        DataType::Duration(micros),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::FixedSizeBinary(5),
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::LargeBinary,
        DataType::BinaryView,
    ]);
    flat.prop_recursive(3, 8, 3, |inner| {
        let field = |name: &str, data_type, nullable| Arc::new(Field::new(name, data_type, nullable));
        let key = inner.clone().prop_filter("a key is never null", |t| *t != DataType::Null);
        prop_oneof![
            inner.clone().prop_map(move |t| DataType::List(field("item", t, true))),
            inner.clone().prop_map(move |t| DataType::LargeList(field("item", t, true))),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|types| {
                let fields = types.into_iter().enumerate().map(|(i, t)| Field::new(format!("f{i}"), t, true));
                DataType::Struct(fields.collect())
            }),
            (key, inner).prop_map(move |(key, value)| {
                let entries = [field("key", key, false), field("value", value, true)];
                DataType::Map(field("entries", DataType::Struct(entries.into()), false), false)
            }),
        ]
    })
}

fn columns() -> impl Strategy<Value = (RowCodec, Vec<ArrayRef>)> {
    (prop::collection::vec(data_type(), 1..11), any::<u64>(), 0_usize..20).prop_map(|(types, seed, len)| {
        let mut dice = Dice(seed);
        let columns = types.iter().map(|data_type| dice.array(data_type, len)).collect();
        (RowCodec::new(types).unwrap(), columns)
    })
}

fn slices(columns: &[ArrayRef], start: usize, len: usize) -> Vec<ArrayRef> {
    columns.iter().map(|column| column.slice(start, len)).collect()
}

/// Equality of arrays to the bit.
fn same(left: &[ArrayRef], right: &[ArrayRef]) -> bool {
    left.iter().zip(right).all(|(left, right)| left.to_data() == right.to_data())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_encoded_is_decoded((codec, columns) in columns()) {
        let rows = codec.encode(&columns).unwrap();
        prop_assert_eq!(rows.len(), columns[0].len());
        let back = codec.decode(rows.iter()).unwrap();
        prop_assert!(same(&back, &columns), "{:?} became {:?}", columns, back);
        let types: Vec<_> = back.iter().map(|column| column.data_type().clone()).collect();
        prop_assert_eq!(types.as_slice(), codec.types());
    }

    #[test]
    fn rows_are_equal_if_and_only_if_their_bytes_are((codec, columns) in columns()) {
        let rows = codec.encode(&columns).unwrap();
        for left in 0..rows.len() {
            for right in 0..left {
                let equal = same(&slices(&columns, left, 1), &slices(&columns, right, 1));
                prop_assert_eq!(rows.get(left) == rows.get(right), equal);
            }
        }
    }

    #[test]
    fn bytes_do_not_depend_on_how_arrow_holds_the_rows((codec, columns) in columns(), cut in 0_usize..20) {
        let all = codec.encode(&columns).unwrap();
        let cut = cut.min(all.len());
        let part = codec.encode(&slices(&columns, cut, all.len() - cut)).unwrap();
        prop_assert!(all.iter().skip(cut).eq(part.iter()));
        let decoded = codec.decode(all.iter()).unwrap();
        prop_assert!(all.iter().eq(codec.encode(&decoded).unwrap().iter()));
    }

    #[test]
    fn a_key_is_its_own_normal_form((codec, columns) in columns()) {
        let keys = codec.encode_keys(&columns).unwrap();
        let normal = codec.decode(keys.iter()).unwrap();
        prop_assert!(keys.iter().eq(codec.encode_keys(&normal).unwrap().iter()));
        prop_assert!(keys.iter().eq(codec.encode(&normal).unwrap().iter()));
    }

    #[test]
    fn damaged_bytes_are_refused_or_are_another_row(
        (codec, columns) in columns(),
        (at, flip, cut) in (any::<prop::sample::Index>(), 1_u8.., any::<Option<prop::sample::Index>>()),
    ) {
        let rows = codec.encode(&columns).unwrap();
        for row in rows.iter().filter(|row| !row.is_empty()) {
            let mut bytes = row.to_vec();
            bytes[at.index(row.len())] ^= flip;
            bytes.truncate(cut.map_or(row.len(), |cut| cut.index(row.len())));
            match codec.decode([bytes.as_slice()]) {
                Ok(decoded) => {
                    let again = codec.encode(&decoded).unwrap();
                    prop_assert_eq!(again.get(0), bytes.as_slice());
                }
                Err(error) => prop_assert_eq!(error.kind(), pelton_core::ErrorKind::Data),
            }
        }
    }

    #[test]
    fn times_sort_as_their_bytes(left: i64, right: i64) {
        prop_assert_eq!(left.cmp(&right), ordered_i64(left).cmp(&ordered_i64(right)));
        let mut key = ordered_i64(left).to_vec();
        key.push(7);
        prop_assert_eq!(split_ordered_i64(&key).unwrap(), (left, [7].as_slice()));
    }
}

fn encode(column: impl Array + 'static) -> Vec<Vec<u8>> {
    let codec = RowCodec::new(vec![column.data_type().clone()]).unwrap();
    codec.encode(&[Arc::new(column)]).unwrap().iter().map(<[u8]>::to_vec).collect()
}

#[test]
fn the_bytes_are_the_documented_ones() {
    assert_eq!(
        encode(Int64Array::from(vec![Some(-2), None])),
        [&[0, 254, 255, 255, 255, 255, 255, 255, 255][..], &[1]]
    );
    assert_eq!(encode(BooleanArray::from(vec![true, false])), [[0, 1], [0, 0]]);
    assert_eq!(encode(StringArray::from(vec!["pelton"])), [b"\x00\x06pelton"]);
    let long = encode(BinaryArray::from(vec![vec![7_u8; 300].as_slice()]));
    assert_eq!(long[0][..4], [0, 0xac, 0x02, 7]);
    let list = ListArray::from_iter_primitive::<Int16Type, _, _>([Some(vec![Some(1), None, Some(258)])]);
    assert_eq!(encode(list), [[0, 3, 0b010, 1, 0, 2, 1]]);
    let codec = RowCodec::new(vec![DataType::Int8, DataType::Utf8]).unwrap();
    let columns: [ArrayRef; 2] =
        [Arc::new(Int8Array::from(vec![None])), Arc::new(StringArray::from(vec!["x"]))];
    assert_eq!(codec.encode(&columns).unwrap().get(0), [0b01, 1, b'x']);
}

#[test]
fn keys_that_spark_takes_for_equal_have_equal_bytes() {
    let odd_nan = f64::from_bits(0xfff8_0000_0000_0001);
    let list = ListArray::from_iter_primitive::<Float64Type, _, _>(
        [[f64::NAN, 0.0], [odd_nan, -0.0]].map(|pair| Some(pair.map(Some))),
    );
    let codec = RowCodec::new(vec![list.data_type().clone()]).unwrap();
    let list: ArrayRef = Arc::new(list);
    let keys = codec.encode_keys(&[Arc::clone(&list)]).unwrap();
    assert_eq!(keys.get(0), keys.get(1));
    let values = codec.encode(&[list]).unwrap();
    assert_ne!(values.get(0), values.get(1));
}

#[test]
fn maps_with_the_same_entries_are_one_key() {
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for order in [["a", "b"], ["b", "a"]] {
        for key in order {
            map.keys().append_value(key);
            map.values().append_option((key == "a").then_some(1));
        }
        map.append(true).unwrap();
    }
    let map: ArrayRef = Arc::new(map.finish());
    let codec = RowCodec::new(vec![map.data_type().clone()]).unwrap();
    let keys = codec.encode_keys(&[Arc::clone(&map)]).unwrap();
    assert_eq!(keys.get(0), keys.get(1));
    let values = codec.encode(&[Arc::clone(&map)]).unwrap();
    assert_ne!(values.get(0), values.get(1));
    assert!(same(&codec.decode(values.iter()).unwrap(), &[map]));
}

#[test]
fn key_groups_are_the_documented_ones() {
    let long = RowCodec::new(vec![DataType::Int64]).unwrap();
    let long = long.encode_keys(&[Arc::new(Int64Array::from(vec![42]))]).unwrap();
    let text = RowCodec::new(vec![DataType::Utf8]).unwrap();
    let text = text.encode_keys(&[Arc::new(StringArray::from(vec!["pelton"]))]).unwrap();
    let groups = [key_group(&[]), key_group(&[0]), key_group(&[1]), long.key_group(0), text.key_group(0)];
    assert_eq!(groups, [25, 104, 48, 73, 69]);
    // XXH64 of the empty input, from its specification.
    assert_eq!(XxHash64::oneshot(0, &[]), 0xef46_db37_51d8_e999);
}

#[test]
fn without_columns_there_is_one_row() {
    let codec = RowCodec::new(Vec::new()).unwrap();
    let rows = codec.encode_keys(&[]).unwrap();
    assert_eq!((rows.len(), rows.get(0)), (1, [].as_slice()));
    assert!(codec.decode(rows.iter()).unwrap().is_empty());
    assert!(codec.decode([[0].as_slice()]).is_err());
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let nested = DataType::List(Arc::new(Field::new("item", dictionary, true)));
    let refused = RowCodec::new(vec![nested]).unwrap_err();
    assert_eq!(refused.kind(), pelton_core::ErrorKind::Invalid);
    let codec = RowCodec::new(vec![DataType::Int64]).unwrap();
    assert!(codec.encode(&[Arc::new(Int32Array::from(vec![1]))]).is_err());
}
