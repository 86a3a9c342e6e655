//! JSON rows to batches, for plugins that asked for JSON. `codec` calls it for every answer. The forms are those
//! of `json_write`; more is understood where nothing can be mistaken: decimals and whole numbers either as numbers
//! or as strings, maps with text keys as objects, times with any offset, fields left out as nulls. Fields that the
//! schema does not have, fields that come twice and numbers that do not fit are faults.
//!
//! Values go straight into columns while the text is read: a hostile text costs about its own length.

use crate::limits::{Limits, clean_text};
use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, ListArray, MapArray, PrimitiveBuilder, RecordBatch,
    RecordBatchOptions, StringBuilder, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, FieldRef, Fields, SchemaRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use pelton_core::suggest::did_you_mean;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// Reads a guest's rows.
pub(crate) fn decode(schema: &SchemaRef, message: &[u8], limits: &Limits) -> Result<RecordBatch, String> {
    let wrong = |e: sonic_rs::Error| {
        // What follows the first line shows the place in the text.
        let error = e.to_string();
        format!("its JSON rows are wrong: {}", clean_text(error.lines().next().unwrap_or_default(), 400))
    };
    let message = std::str::from_utf8(message).map_err(|e| format!("its JSON rows are not UTF-8: {e}"))?;
    let cells_left = Rc::new(Cell::new(limits.output_bytes / CELL_BYTES));
    let mut rows = Structs::new(schema.fields(), &cells_left);
    // This reader, and not serde_json's, because it reads floats to the last bit.
    let mut deserializer = sonic_rs::Deserializer::from_str(message);
    let seed = Rows { structs: &mut rows, rows_max: limits.output_rows };
    let length = seed.deserialize(&mut deserializer).map_err(wrong)?;
    deserializer.end().map_err(wrong)?;
    let columns = rows.finish_columns().map_err(|e| told(&e))?;
    let options = RecordBatchOptions::new().with_row_count(Some(length));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(|e| told(&e))
}

/// A row may leave all its fields out (`{}`): so the cells that a text makes are counted, at so many bytes each.
const CELL_BYTES: u64 = 4;

fn told(e: &arrow::error::ArrowError) -> String {
    format!("its rows do not have its schema: {}", clean_text(&e.to_string(), 300))
}

/// A column under construction.
enum Column {
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
struct Lists {
    field: FieldRef,
    is_map: Option<bool>,
    offsets: Vec<i32>,
    valid: Vec<bool>,
    items: Column,
}

struct Structs {
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

    fn append_null(&mut self) {
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

    fn finish(self) -> Result<ArrayRef, arrow::error::ArrowError> {
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
                return Err(arrow::error::ArrowError::SchemaError(format!("{other} does not cross")));
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

    fn read<'de, A: SeqAccess<'de>>(&mut self, mut seq: A) -> Result<(), A::Error> {
        let mut count = self.offsets.last().copied().unwrap_or_default();
        while seq.next_element_seed(&mut self.items)?.is_some() {
            count = count.checked_add(1).ok_or_else(|| A::Error::custom("too many items"))?;
        }
        self.offsets.push(count);
        self.valid.push(true);
        Ok(())
    }

    /// A map with text keys may be an object.
    fn read_object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
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

    fn finish(self) -> Result<ArrayRef, arrow::error::ArrowError> {
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
    fn new(fields: &Fields, cells_left: &Rc<Cell<u64>>) -> Self {
        Self {
            fields: fields.clone(),
            columns: fields.iter().map(|field| Column::of(field.data_type(), cells_left)).collect(),
            valid: Vec::new(),
            seen: vec![false; fields.len()],
            cells: fields.iter().map(|field| cells(field.data_type())).sum(),
            cells_left: cells_left.clone(),
        }
    }

    fn read<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
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

    fn finish_columns(self) -> Result<Vec<ArrayRef>, arrow::error::ArrowError> {
        self.columns.into_iter().map(Column::finish).collect()
    }

    fn finish_struct(self) -> Result<StructArray, arrow::error::ArrowError> {
        let (fields, length, nulls) = (self.fields.clone(), self.valid.len(), validity(self.valid.clone()));
        StructArray::try_new_with_length(fields, self.finish_columns()?, nulls, length)
    }

    fn finish(self) -> Result<ArrayRef, arrow::error::ArrowError> {
        Ok(Arc::new(self.finish_struct()?))
    }
}

/// The rows: the outer array.
struct Rows<'a> {
    structs: &'a mut Structs,
    rows_max: u64,
}

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = usize;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = usize;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of rows")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<usize, A::Error> {
        let mut rows = 0_usize;
        while seq.next_element_seed(Row(self.structs))?.is_some() {
            rows += 1;
            if rows as u64 > self.rows_max {
                let limit = self.rows_max;
                return Err(A::Error::custom(format!("more than {limit} rows (limit output_rows)")));
            }
        }
        Ok(rows)
    }
}

/// One row: an object.
struct Row<'a>(&'a mut Structs);

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row as an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        self.0.read(object)
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

impl<'de> DeserializeSeed<'de> for &mut Column {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Column {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Column::Boolean(_) => "true or false",
            Column::Int8(_) => "a whole number from -128 to 127",
            Column::Int16(_) => "a whole number of 16 bits",
            Column::Int32(_) => "a whole number of 32 bits",
            Column::Int64(_) => "a whole number of 64 bits",
            Column::Float32(_) | Column::Float64(_) => "a number, \"NaN\", \"Infinity\" or \"-Infinity\"",
            Column::Decimal(..) => "a decimal as a string or a number",
            Column::Date(_) => "a date like \"2024-02-29\"",
            Column::Timestamp(_, Some(_)) => "a timestamp like \"2024-02-29T12:30:00.000000Z\"",
            Column::Timestamp(_, None) => "a timestamp like \"2024-02-29T12:30:00.000000\"",
            Column::Text(_) => "a string",
            Column::Binary(_) => "base64 as a string",
            Column::List(lists) if lists.is_map.is_some() => "an array of {\"key\", \"value\"} or an object",
            Column::List(_) => "an array",
            Column::Struct(_) => "an object",
            Column::Unknown(_) => "nothing",
        })
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.append_null();
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match self {
            Column::Boolean(b) => b.append_value(value),
            other => return Err(E::invalid_type(serde::de::Unexpected::Bool(value), &other)),
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        let unexpected = serde::de::Unexpected::Signed(value);
        let fits = match self {
            Column::Int8(b) => value.try_into().is_ok_and(|v| appended(b, v)),
            Column::Int16(b) => value.try_into().is_ok_and(|v| appended(b, v)),
            Column::Int32(b) => value.try_into().is_ok_and(|v| appended(b, v)),
            Column::Int64(b) => appended(b, value),
            Column::Float32(b) => appended(b, value as f32),
            Column::Float64(b) => appended(b, value as f64),
            Column::Decimal(b, _, scale) => {
                decimal(&value.to_string(), *scale).is_some_and(|v| appended(b, v))
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(E::invalid_value(unexpected, &self)) }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        let unexpected = serde::de::Unexpected::Float(value);
        let fits = match self {
            Column::Float32(b) => appended(b, value as f32),
            Column::Float64(b) => appended(b, value),
            Column::Decimal(b, _, scale) => {
                decimal(&value.to_string(), *scale).is_some_and(|v| appended(b, v))
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(E::invalid_value(unexpected, &self)) }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let fits = match self {
            Column::Text(b) => {
                b.append_value(text);
                true
            }
            Column::Binary(b) => STANDARD.decode(text).is_ok_and(|bytes| {
                b.append_value(bytes);
                true
            }),
            Column::Int8(b) => text.parse().is_ok_and(|v| appended(b, v)),
            Column::Int16(b) => text.parse().is_ok_and(|v| appended(b, v)),
            Column::Int32(b) => text.parse().is_ok_and(|v| appended(b, v)),
            Column::Int64(b) => text.parse().is_ok_and(|v| appended(b, v)),
            Column::Float32(b) => float(text).is_some_and(|v| appended(b, v as f32)),
            Column::Float64(b) => float(text).is_some_and(|v| appended(b, v)),
            Column::Decimal(b, _, scale) => decimal(text, *scale).is_some_and(|v| appended(b, v)),
            Column::Date(b) => date(text).is_some_and(|v| appended(b, v)),
            Column::Timestamp(b, zone) => timestamp(text, zone.is_some()).is_some_and(|v| appended(b, v)),
            _ => false,
        };
        if fits { Ok(()) } else { Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        match self {
            Column::List(lists) => lists.read(seq),
            other => Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &other)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        match self {
            Column::Struct(structs) => structs.read(object),
            Column::List(lists) if lists.is_map.is_some() => lists.read_object(object),
            other => Err(A::Error::invalid_type(serde::de::Unexpected::Map, &other)),
        }
    }
}

fn appended<T: ArrowPrimitiveType>(builder: &mut PrimitiveBuilder<T>, value: T::Native) -> bool {
    builder.append_value(value);
    true
}

fn float(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// `-12.5` at scale 2: -1250. More digits after the point than the scale has are refused, not rounded.
fn decimal(text: &str, scale: i8) -> Option<i128> {
    let scale = usize::try_from(scale).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = if fraction.len() > scale { fraction.trim_end_matches('0') } else { fraction };
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if digits.is_empty() || !all_digits(digits) || !all_digits(fraction) || fraction.len() > scale {
        return None;
    }
    format!("{whole}{fraction:0<scale$}").parse().ok()
}

fn date(text: &str) -> Option<i32> {
    let days = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.signed_duration_since(NaiveDate::default());
    i32::try_from(days.num_days()).ok()
}

fn timestamp(text: &str, zoned: bool) -> Option<i64> {
    match zoned {
        true => DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_micros()),
        false => {
            let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f").ok()?;
            Some(time.and_utc().timestamp_micros())
        }
    }
}
