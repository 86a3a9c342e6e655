//! Schema messages. The slot numbers are those of Arrow's `Schema.fbs`.

use super::flat::{Slot, Table, Writer};
use super::{CONTINUATION, HEADER_SCHEMA, VERSION_5, header, malformed, split};
use crate::error::Error;
use crate::types::{DataType, Field, Schema};

/// Nothing sensible is nested deeper, and the reader recurses.
const DEPTH_MAX: usize = 64;

const INT: u8 = 2;
const FLOATING_POINT: u8 = 3;
const BINARY: u8 = 4;
const UTF8: u8 = 5;
const BOOL: u8 = 6;
const DECIMAL: u8 = 7;
const DATE: u8 = 8;
const TIMESTAMP: u8 = 10;
const LIST: u8 = 12;
const STRUCT: u8 = 13;
const MAP: u8 = 17;

const SINGLE: i16 = 1;
const DOUBLE: i16 = 2;
const DAY: i16 = 0;
const MILLISECOND: i16 = 1;
const MICROSECOND: i16 = 2;

/// Reads a schema message.
pub(crate) fn read_schema(message: &[u8]) -> Result<Schema, Error> {
    let (metadata, _) = split(message)?;
    let schema = header(metadata, HEADER_SCHEMA)?;
    let fields = schema.tables(1).ok_or_else(|| malformed("it has no columns"))?;
    Ok(Schema::new(fields.iter().map(|f| read_field(f, 0)).collect::<Result<_, _>>()?))
}

fn read_field(field: &Table<'_>, depth: usize) -> Result<Field, Error> {
    let name = field.text(0).unwrap_or_default().to_owned();
    if depth > DEPTH_MAX {
        return Err(malformed("its types are nested too deeply"));
    }
    if field.has(4) {
        return Err(Error::Unsuitable(format!("column '{name}' is dictionary-encoded")));
    }
    let children = field.tables(5).unwrap_or_default();
    let children =
        children.iter().map(|child| read_field(child, depth + 1)).collect::<Result<Vec<_>, _>>()?;
    let data_type = field.table(3).and_then(|details| read_type(field.u8(2, 0), &details, children));
    match data_type {
        Some(data_type) => Ok(Field::new(name, data_type, field.u8(1, 0) != 0)),
        None => Err(Error::Unsuitable(format!("column '{name}' has a type that plugins do not take"))),
    }
}

fn read_type(kind: u8, details: &Table<'_>, mut children: Vec<Field>) -> Option<DataType> {
    Some(match kind {
        BOOL => DataType::Boolean,
        INT => match (details.i32(0, 0), details.u8(1, 0)) {
            (8, 1) => DataType::Int8,
            (16, 1) => DataType::Int16,
            (32, 1) => DataType::Int32,
            (64, 1) => DataType::Int64,
            _ => return None,
        },
        FLOATING_POINT => match details.i16(0, 0) {
            SINGLE => DataType::Float32,
            DOUBLE => DataType::Float64,
            _ => return None,
        },
        UTF8 => DataType::Utf8,
        BINARY => DataType::Binary,
        DECIMAL if details.i32(2, 128) == 128 => DataType::Decimal {
            precision: u8::try_from(details.i32(0, 0)).ok()?,
            scale: i8::try_from(details.i32(1, 0)).ok()?,
        },
        DATE if details.i16(0, MILLISECOND) == DAY => DataType::Date,
        TIMESTAMP if details.i16(0, 0) == MICROSECOND => {
            DataType::Timestamp { zone: details.text(1).map(str::to_owned) }
        }
        LIST if children.len() == 1 => DataType::List(Box::new(children.remove(0))),
        STRUCT => DataType::Struct(children),
        MAP if children.len() == 1 => match children.remove(0).data_type {
            DataType::Struct(mut pair) if pair.len() == 2 => {
                let value = pair.remove(1);
                DataType::Map(Box::new(pair.remove(0)), Box::new(value))
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Writes a schema message.
pub(crate) fn write_schema(schema: &Schema) -> Vec<u8> {
    let mut writer = Writer::new();
    let message = writer.table(&[Slot::I16(VERSION_5), Slot::U8(HEADER_SCHEMA), Slot::Later, Slot::I64(0)]);
    let header = writer.child(message[0], &[Slot::I16(0), Slot::Later]);
    let places = writer.offsets(header[0], schema.fields.len());
    for (place, field) in places.into_iter().zip(&schema.fields) {
        write_field(&mut writer, place, field);
    }
    let metadata = writer.finish();
    let mut message = Vec::with_capacity(8 + metadata.len());
    message.extend_from_slice(&CONTINUATION);
    message.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
    message.extend_from_slice(&metadata);
    message
}

fn write_field(writer: &mut Writer, place: usize, field: &Field) {
    let (kind, details) = type_slots(&field.data_type);
    let nullable = Slot::U8(u8::from(field.nullable));
    let slots = [Slot::Later, nullable, Slot::U8(kind), Slot::Later, Slot::Absent, Slot::Later];
    let later = writer.child(place, &slots);
    writer.text(later[0], &field.name);
    let details = writer.child(later[1], &details);
    if let (DataType::Timestamp { zone: Some(zone) }, Some(at)) = (&field.data_type, details.first()) {
        writer.text(*at, zone);
    }
    let entries;
    let children: &[Field] = match &field.data_type {
        DataType::List(item) => std::slice::from_ref(&**item),
        DataType::Struct(fields) => fields,
        DataType::Map(key, value) => {
            let pair = DataType::Struct(vec![(**key).clone(), (**value).clone()]);
            entries = Field::new("entries", pair, false);
            std::slice::from_ref(&entries)
        }
        _ => &[],
    };
    let places = writer.offsets(later[2], children.len());
    for (place, child) in places.into_iter().zip(children) {
        write_field(writer, place, child);
    }
}

fn type_slots(data_type: &DataType) -> (u8, Vec<Slot>) {
    let int = |bits| (INT, vec![Slot::I32(bits), Slot::U8(1)]);
    match data_type {
        DataType::Boolean => (BOOL, vec![]),
        DataType::Int8 => int(8),
        DataType::Int16 => int(16),
        DataType::Int32 => int(32),
        DataType::Int64 => int(64),
        DataType::Float32 => (FLOATING_POINT, vec![Slot::I16(SINGLE)]),
        DataType::Float64 => (FLOATING_POINT, vec![Slot::I16(DOUBLE)]),
        DataType::Decimal { precision, scale } => {
            let numbers = [i32::from(*precision), i32::from(*scale), 128];
            (DECIMAL, numbers.map(Slot::I32).to_vec())
        }
        DataType::Utf8 => (UTF8, vec![]),
        DataType::Binary => (BINARY, vec![]),
        DataType::Date => (DATE, vec![Slot::I16(DAY)]),
        DataType::Timestamp { zone: None } => (TIMESTAMP, vec![Slot::I16(MICROSECOND)]),
        DataType::Timestamp { zone: Some(_) } => (TIMESTAMP, vec![Slot::I16(MICROSECOND), Slot::Later]),
        DataType::List(_) => (LIST, vec![]),
        DataType::Map(..) => (MAP, vec![Slot::U8(0)]),
        DataType::Struct(_) => (STRUCT, vec![]),
    }
}
