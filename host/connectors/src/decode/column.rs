//! Columns while decoders fill them: plain vectors that can be cut back when a record turns out malformed.
//!
//! Arrow's own builders cannot be cut back, which is why these exist. Every array they finish goes through
//! Arrow's checked constructors.

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, ListArray, MapArray, NullBufferBuilder,
    PrimitiveArray, StringArray, StructArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Field, FieldRef, Fields, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use pelton_core::types::type_name;
use pelton_core::{Error, Result};
use std::sync::Arc;

/// A column being filled.
#[derive(Debug)]
pub(crate) struct Column {
    nulls: NullBufferBuilder,
    pub(crate) values: Values,
}

/// The values of a column; a null has a place here too.
#[derive(Debug)]
pub(crate) enum Values {
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal { values: Vec<i128>, precision: u8, scale: i8 },
    Date(Vec<i32>),
    Timestamp { values: Vec<i64>, zone: Option<Arc<str>> },
    Text(Pieces),
    Binary(Pieces),
    List { offsets: Vec<i32>, item: Box<Column>, field: FieldRef },
    Map { offsets: Vec<i32>, key: Box<Column>, value: Box<Column>, entries: FieldRef },
    Struct { fields: Fields, columns: Vec<Column> },
}

/// Byte strings end to end. The bytes after the last offset belong to the value being written.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) data: Vec<u8>,
    offsets: Vec<i32>,
}

impl Pieces {
    fn new() -> Self {
        Self { data: Vec::new(), offsets: vec![0] }
    }
    /// Ends the value that was written to `data`.
    #[inline]
    pub(crate) fn close(&mut self) {
        self.offsets.push(count(self.data.len()));
    }
    #[inline]
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.data.extend_from_slice(piece);
        self.close();
    }
    /// Takes back what was written to `data` since the last value was closed.
    pub(crate) fn undo(&mut self) {
        self.data.truncate(place(&self.offsets));
    }
    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.undo();
    }
    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let data = Vec::with_capacity(self.data.len() + self.data.len() / 16);
        let data = std::mem::replace(&mut self.data, data);
        (take_offsets(&mut self.offsets), Buffer::from_vec(data))
    }
}

impl Column {
    /// An empty column. Types outside Pelton's table are refused.
    pub(crate) fn new(data_type: &DataType) -> Result<Self> {
        Ok(Self { nulls: NullBufferBuilder::new(super::BATCH_ROWS), values: Values::new(data_type)? })
    }
    /// Rows so far.
    pub(crate) fn len(&self) -> usize {
        self.nulls.len()
    }
    /// The value that was just written to `values` is there.
    #[inline]
    pub(crate) fn valid(&mut self) {
        self.nulls.append_non_null();
    }
    /// Appends a null.
    pub(crate) fn push_null(&mut self) {
        self.nulls.append_null();
        match &mut self.values {
            Values::Boolean(values) => values.append(false),
            Values::Int8(values) => values.push(0),
            Values::Int16(values) => values.push(0),
            Values::Int32(values) | Values::Date(values) => values.push(0),
            Values::Int64(values) | Values::Timestamp { values, .. } => values.push(0),
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::Decimal { values, .. } => values.push(0),
            Values::Text(pieces) | Values::Binary(pieces) => pieces.close(),
            Values::List { offsets, .. } | Values::Map { offsets, .. } => {
                offsets.push(offsets.last().copied().unwrap_or(0));
            }
            Values::Struct { columns, .. } => columns.iter_mut().for_each(Self::push_null),
        }
    }
    /// Cuts back to `len` rows, nested values included.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.nulls.truncate(len);
        match &mut self.values {
            Values::Boolean(values) => values.truncate(len),
            Values::Int8(values) => values.truncate(len),
            Values::Int16(values) => values.truncate(len),
            Values::Int32(values) | Values::Date(values) => values.truncate(len),
            Values::Int64(values) | Values::Timestamp { values, .. } => values.truncate(len),
            Values::Float32(values) => values.truncate(len),
            Values::Float64(values) => values.truncate(len),
            Values::Decimal { values, .. } => values.truncate(len),
            Values::Text(pieces) | Values::Binary(pieces) => pieces.truncate(len),
            Values::List { offsets, item, .. } => {
                offsets.truncate(len + 1);
                item.truncate(place(offsets));
            }
            Values::Map { offsets, key, value, .. } => {
                offsets.truncate(len + 1);
                key.truncate(place(offsets));
                value.truncate(place(offsets));
            }
            Values::Struct { columns, .. } => columns.iter_mut().for_each(|column| column.truncate(len)),
        }
    }
    /// The finished array; the column is empty again and expects as much as it held.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef> {
        let len = self.len();
        let nulls = self.nulls.finish();
        Ok(match &mut self.values {
            Values::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int8(values) => primitive::<Int8Type>(values, nulls),
            Values::Int16(values) => primitive::<Int16Type>(values, nulls),
            Values::Int32(values) => primitive::<Int32Type>(values, nulls),
            Values::Int64(values) => primitive::<Int64Type>(values, nulls),
            Values::Float32(values) => primitive::<Float32Type>(values, nulls),
            Values::Float64(values) => primitive::<Float64Type>(values, nulls),
            Values::Date(values) => primitive::<Date32Type>(values, nulls),
            Values::Decimal { values, precision, scale } => {
                let array = PrimitiveArray::<Decimal128Type>::new(take(values), nulls);
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            Values::Timestamp { values, zone } => {
                let array = PrimitiveArray::<TimestampMicrosecondType>::new(take(values), nulls);
                Arc::new(array.with_timezone_opt(zone.clone()))
            }
            Values::Text(pieces) => {
                let (offsets, data) = pieces.take();
                Arc::new(StringArray::try_new(offsets, data, nulls)?)
            }
            Values::Binary(pieces) => {
                let (offsets, data) = pieces.take();
                Arc::new(BinaryArray::try_new(offsets, data, nulls)?)
            }
            Values::List { offsets, item, field } => {
                Arc::new(ListArray::try_new(field.clone(), take_offsets(offsets), item.finish()?, nulls)?)
            }
            Values::Map { offsets, key, value, entries } => {
                let fields = entries_of(entries)?.clone();
                let pairs = StructArray::try_new(fields, vec![key.finish()?, value.finish()?], None)?;
                Arc::new(MapArray::try_new(entries.clone(), take_offsets(offsets), pairs, nulls, false)?)
            }
            Values::Struct { fields, columns } if columns.is_empty() => {
                debug_assert!(fields.is_empty());
                Arc::new(StructArray::new_empty_fields(len, nulls))
            }
            Values::Struct { fields, columns } => {
                let columns = columns.iter_mut().map(Self::finish).collect::<Result<Vec<_>>>()?;
                Arc::new(StructArray::try_new(fields.clone(), columns, nulls)?)
            }
        })
    }
}

impl Values {
    fn new(data_type: &DataType) -> Result<Self> {
        Ok(match data_type {
            DataType::Boolean => Self::Boolean(BooleanBufferBuilder::new(super::BATCH_ROWS)),
            DataType::Int8 => Self::Int8(Vec::new()),
            DataType::Int16 => Self::Int16(Vec::new()),
            DataType::Int32 => Self::Int32(Vec::new()),
            DataType::Int64 => Self::Int64(Vec::new()),
            DataType::Float32 => Self::Float32(Vec::new()),
            DataType::Float64 => Self::Float64(Vec::new()),
            DataType::Decimal128(precision, scale) => {
                Self::Decimal { values: Vec::new(), precision: *precision, scale: *scale }
            }
            DataType::Date32 => Self::Date(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                Self::Timestamp { values: Vec::new(), zone: zone.clone() }
            }
            DataType::Utf8 => Self::Text(Pieces::new()),
            DataType::Binary => Self::Binary(Pieces::new()),
            DataType::List(field) => {
                let item = Box::new(Column::new(field.data_type())?);
                Self::List { offsets: vec![0], item, field: nullable(field) }
            }
            DataType::Map(entries, _) => {
                let fields = entries_of(entries)?;
                let (key, value) = (Column::new(fields[0].data_type())?, Column::new(fields[1].data_type())?);
                Self::Map {
                    offsets: vec![0],
                    key: Box::new(key),
                    value: Box::new(value),
                    entries: entries.clone(),
                }
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|f| Column::new(f.data_type())).collect::<Result<_>>()?;
                Self::Struct { fields: fields.clone(), columns }
            }
            other => {
                return Err(Error::invalid(format!("a file's column cannot have type {}", type_name(other))));
            }
        })
    }
}

/// The same type with everything nullable below it, as Spark makes the schema of a file source:
/// what a file holds is never certain.
pub(crate) fn all_nullable(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(field) => DataType::List(nullable(field)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(nullable).collect()),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 => {
                let key = kv[0].as_ref().clone().with_data_type(all_nullable(kv[0].data_type()));
                let kv = DataType::Struct(vec![Arc::new(key.with_nullable(false)), nullable(&kv[1])].into());
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(kv)), *sorted)
            }
            _ => data_type.clone(),
        },
        other => other.clone(),
    }
}

pub(crate) fn nullable(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), all_nullable(field.data_type()), true))
}

fn entries_of(entries: &FieldRef) -> Result<&Fields> {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => Ok(fields),
        other => Err(Error::internal(format!("a map's entries have type {other}"))),
    }
}

#[inline]
pub(crate) fn count(len: usize) -> i32 {
    // Inputs are bounded far below; a larger value would be refused when the array is made.
    i32::try_from(len).unwrap_or(i32::MAX)
}

fn place(offsets: &[i32]) -> usize {
    offsets.last().map_or(0, |last| usize::try_from(*last).unwrap_or(0))
}

fn take<T: arrow::datatypes::ArrowNativeType>(values: &mut Vec<T>) -> ScalarBuffer<T> {
    let next = Vec::with_capacity(values.len());
    std::mem::replace(values, next).into()
}

fn take_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let mut next = Vec::with_capacity(offsets.len());
    next.push(0);
    OffsetBuffer::new(std::mem::replace(offsets, next).into())
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(take(values), nulls))
}
