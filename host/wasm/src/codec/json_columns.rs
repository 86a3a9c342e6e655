//! Columns under construction, for `json_read`, which puts values into them one by one. What rows look like as
//! text it does not know, only that they come as sequences and maps.

use arrow::array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, ListArray, MapArray, PrimitiveBuilder, StringBuilder,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, FieldRef, Fields};
use arrow::error::ArrowError;
use pelton_core::suggest::did_you_mean;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// A column under construction.
pub(super) enum Column {
    Boolean(BooleanBuilder),
    Int8(PrimitiveBuilder<Int8Type>),
    Int16(PrimitiveBuilder<Int16Type>),
    Int32(PrimitiveBuilder<Int32Type>),
    Int64(PrimitiveBuilder<Int64Type>),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Decimal(PrimitiveBuilder<Decimal128Type>, u8, i8),
    Date(PrimitiveBuilder<Date32Type>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>, Option<Arc<str>>),
    Text(StringBuilder),
    Binary(BinaryBuilder),
    List(Box<Lists>),
    Struct(Box<Structs>),
    /// A type that no schema of a guest gets past `shape` with.
    Unknown(DataType),
}

/// A list column, or a map column as the list of its entries.
pub(super) struct Lists {
    field: FieldRef,
    pub(super) is_map: Option<bool>,
    offsets: Vec<i32>,
    valid: Vec<bool>,
    items: Column,
}

pub(super) struct Structs {
    fields: Fields,
    columns: Vec<Column>,
    valid: Vec<bool>,
    /// Which fields the row at hand has had.
    seen: Vec<bool>,
    /// Values that a row of it takes, those of its structs included.
    cells: u64,
    cells_left: Rc<Cell<u64>>,
}

fn cells(data_type: &DataType) -> u64 {
    match data_type {
        DataType::Struct(fields) => 1 + fields.iter().map(|field| cells(field.data_type())).sum::<u64>(),
        _ => 1,
    }
}

impl Column {
    fn of(data_type: &DataType, left: &Rc<Cell<u64>>) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean(BooleanBuilder::new()),
            DataType::Int8 => Self::Int8(PrimitiveBuilder::new()),
            DataType::Int16 => Self::Int16(PrimitiveBuilder::new()),
            DataType::Int32 => Self::Int32(PrimitiveBuilder::new()),
            DataType::Int64 => Self::Int64(PrimitiveBuilder::new()),
            DataType::Float32 => Self::Float32(PrimitiveBuilder::new()),
            DataType::Float64 => Self::Float64(PrimitiveBuilder::new()),
            DataType::Decimal128(p, s) => Self::Decimal(PrimitiveBuilder::new(), *p, *s),
            DataType::Date32 => Self::Date(PrimitiveBuilder::new()),
            DataType::Timestamp(_, zone) => Self::Timestamp(PrimitiveBuilder::new(), zone.clone()),
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Binary => Self::Binary(BinaryBuilder::new()),
            DataType::List(item) => Self::List(Box::new(Lists::new(item, None, left))),
            DataType::Map(entries, sorted) => Self::List(Box::new(Lists::new(entries, Some(*sorted), left))),
            DataType::Struct(fields) => Self::Struct(Box::new(Structs::new(fields, left))),
            other => Self::Unknown(other.clone()),
        }
    }

    pub(super) fn append_null(&mut self) {
        match self {
            Self::Boolean(b) => b.append_null(),
            Self::Int8(b) => b.append_null(),
            Self::Int16(b) => b.append_null(),
            Self::Int32(b) => b.append_null(),
            Self::Int64(b) => b.append_null(),
            Self::Float32(b) => b.append_null(),
            Self::Float64(b) => b.append_null(),
            Self::Decimal(b, ..) => b.append_null(),
            Self::Date(b) => b.append_null(),
            Self::Timestamp(b, _) => b.append_null(),
            Self::Text(b) => b.append_null(),
            Self::Binary(b) => b.append_null(),
            Self::List(lists) => lists.end(false),
            Self::Struct(structs) => {
                structs.columns.iter_mut().for_each(Self::append_null);
                structs.valid.push(false);
            }
            Self::Unknown(_) => {}
        }
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Boolean(mut b) => Arc::new(b.finish()),
            Self::Int8(mut b) => Arc::new(b.finish()),
            Self::Int16(mut b) => Arc::new(b.finish()),
            Self::Int32(mut b) => Arc::new(b.finish()),
            Self::Int64(mut b) => Arc::new(b.finish()),
            Self::Float32(mut b) => Arc::new(b.finish()),
            Self::Float64(mut b) => Arc::new(b.finish()),
            Self::Decimal(mut b, precision, scale) => {
                let decimals = b.finish().with_precision_and_scale(precision, scale)?;
                decimals.validate_decimal_precision(precision)?;
                Arc::new(decimals)
            }
            Self::Date(mut b) => Arc::new(b.finish()),
            Self::Timestamp(mut b, zone) => Arc::new(b.finish().with_timezone_opt(zone)),
            Self::Text(mut b) => Arc::new(b.finish()),
            Self::Binary(mut b) => Arc::new(b.finish()),
            Self::List(lists) => lists.finish()?,
            Self::Struct(structs) => structs.finish()?,
            Self::Unknown(other) => {
                return Err(ArrowError::SchemaError(format!("{other} does not cross")));
            }
        })
    }
}

fn validity(valid: Vec<bool>) -> Option<NullBuffer> {
    Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0)
}

impl Lists {
    fn new(field: &FieldRef, is_map: Option<bool>, left: &Rc<Cell<u64>>) -> Self {
        let items = Column::of(field.data_type(), left);
        Self { field: field.clone(), is_map, offsets: vec![0], valid: Vec::new(), items }
    }

    /// Ends the list at hand, whose items have been appended (to a null none were).
    fn end(&mut self, valid: bool) {
        self.offsets.push(self.offsets.last().copied().unwrap_or_default());
        self.valid.push(valid);
    }

    pub(super) fn read<'de, A: SeqAccess<'de>>(&mut self, mut seq: A) -> Result<(), A::Error> {
        let mut count = self.offsets.last().copied().unwrap_or_default();
        while seq.next_element_seed(&mut self.items)?.is_some() {
            count = count.checked_add(1).ok_or_else(|| A::Error::custom("too many items"))?;
        }
        self.offsets.push(count);
        self.valid.push(true);
        Ok(())
    }

    /// A map with text keys may be an object.
    pub(super) fn read_object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        let mut count = self.offsets.last().copied().unwrap_or_default();
        let Column::Struct(entries) = &mut self.items else {
            return Err(A::Error::custom("expected an array, not an object"));
        };
        let [keys, values] = &mut entries.columns[..] else {
            return Err(A::Error::custom("a map's entries must have a key and a value"));
        };
        while object.next_key_seed(&mut *keys)?.is_some() {
            object.next_value_seed(&mut *values)?;
            entries.valid.push(true);
            count = count.checked_add(1).ok_or_else(|| A::Error::custom("too many entries"))?;
        }
        self.offsets.push(count);
        self.valid.push(true);
        Ok(())
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        let (offsets, nulls) = (OffsetBuffer::new(self.offsets.into()), validity(self.valid));
        match (self.is_map, self.items) {
            (Some(sorted), Column::Struct(entries)) => {
                let entries = entries.finish_struct()?;
                Ok(Arc::new(MapArray::try_new(self.field, offsets, entries, nulls, sorted)?))
            }
            (_, items) => Ok(Arc::new(ListArray::try_new(self.field, offsets, items.finish()?, nulls)?)),
        }
    }
}

impl Structs {
    pub(super) fn new(fields: &Fields, cells_left: &Rc<Cell<u64>>) -> Self {
        Self {
            fields: fields.clone(),
            columns: fields.iter().map(|field| Column::of(field.data_type(), cells_left)).collect(),
            valid: Vec::new(),
            seen: vec![false; fields.len()],
            cells: fields.iter().map(|field| cells(field.data_type())).sum(),
            cells_left: cells_left.clone(),
        }
    }

    pub(super) fn read<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        let left = self.cells_left.get().checked_sub(self.cells);
        self.cells_left.set(left.ok_or_else(|| A::Error::custom("too many values (limit output)"))?);
        self.seen.fill(false);
        let mut expected = 0;
        while let Some(index) = object.next_key_seed(Name { fields: &self.fields, expected })? {
            if std::mem::replace(&mut self.seen[index], true) {
                return Err(A::Error::custom(format!(
                    "the field '{}' comes twice",
                    self.fields[index].name()
                )));
            }
            object.next_value_seed(&mut self.columns[index])?;
            expected = index + 1;
        }
        for (column, seen) in self.columns.iter_mut().zip(&self.seen) {
            if !seen {
                column.append_null();
            }
        }
        self.valid.push(true);
        Ok(())
    }

    pub(super) fn finish_columns(self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns.into_iter().map(Column::finish).collect()
    }

    fn finish_struct(self) -> Result<StructArray, ArrowError> {
        let (fields, length, nulls) = (self.fields.clone(), self.valid.len(), validity(self.valid.clone()));
        StructArray::try_new_with_length(fields, self.finish_columns()?, nulls, length)
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(self.finish_struct()?))
    }
}

/// A field's name, found among the fields. Mostly they come in the schema's order.
struct Name<'a> {
    fields: &'a Fields,
    expected: usize,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = usize;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = usize;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<usize, E> {
        if self.fields.get(self.expected).is_some_and(|field| field.name() == name) {
            return Ok(self.expected);
        }
        self.fields.iter().position(|field| field.name() == name).ok_or_else(|| {
            let near = did_you_mean(name, self.fields.iter().map(|field| field.name().as_str()));
            E::custom(format!("there is no field '{name}'{near}"))
        })
    }
}
