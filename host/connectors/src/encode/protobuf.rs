//! Protobuf, every row a message, as Spark's `to_protobuf` writes it by a descriptor set: null is a field that is not set.
//! With a schema registry each has the frame of its serializers in front. Fields are written by number and maps in the rows'
//! order, so that the same rows give the same bytes.

use super::Records;
use super::columns::{Column, Values, range};
use crate::decode::options::{Bag, OptionMap};
use crate::protobuf::{is_timestamp, message, place_in_file, wrapped};
use crate::registry::{NewSchema, Registration};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Fields, Schema, TimeUnit};
use pelton_core::types::type_name;
use pelton_core::{Error, Result};
use prost_reflect::prost::encoding::encode_varint;
use prost_reflect::{Cardinality, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

/// Writes rows as messages of one type.
#[derive(Debug)]
pub struct ProtobufEncoder {
    message: MessagePut,
    descriptor: MessageDescriptor,
    /// Of messages that have a frame.
    registration: Option<Registration>,
}

impl ProtobufEncoder {
    /// Spark's arguments: `message_name`, `desc_file_path`; and `schema_registry` with its `subject`.
    pub fn new(schema: &Schema, options: &OptionMap) -> Result<Self> {
        let mut bag = Bag::new("protobuf", options);
        let descriptor = message(&mut bag)?;
        let registration = Registration::from_options(&mut bag, "protobuf")?;
        bag.finish()?;
        let message = MessagePut::new(&descriptor, schema.fields()).map_err(|why| {
            Error::invalid(format!("the rows cannot be written as '{}': {why}", descriptor.full_name()))
        })?;
        Ok(Self { message, descriptor, registration })
    }

    /// Registers the file that declares the message, if there is a registry: under the subject of the options, or else under
    /// `<topic>-value`.
    pub(crate) async fn prepare(&self, topic: Option<&str>) -> Result<()> {
        match &self.registration {
            Some(of) => of.register(topic, NewSchema::Protobuf(self.descriptor.parent_file())).await,
            None => Ok(()),
        }
    }

    /// What stands before every message: the id of the schema, and where in its file the message is declared.
    fn frame(&self) -> Result<Vec<u8>> {
        let mut frame = Vec::new();
        let Some(registration) = &self.registration else { return Ok(frame) };
        registration.push_frame(&mut frame)?;
        let zigzag = |number: i64, out: &mut Vec<u8>| encode_varint((number << 1 ^ number >> 63) as u64, out);
        let place = place_in_file(&self.descriptor);
        // The first message of a file has a form of its own.
        if place == [0] {
            frame.push(0);
            return Ok(frame);
        }
        zigzag(place.len() as i64, &mut frame);
        place.into_iter().for_each(|index| zigzag(index, &mut frame));
        Ok(frame)
    }

    /// Appends every row as a record of its own.
    pub(crate) fn encode_records(&self, batch: &RecordBatch, out: &mut Records) -> Result<()> {
        let (frame, columns) = (self.frame()?, Column::of(batch)?);
        for row in 0..batch.num_rows() {
            out.bytes.extend_from_slice(&frame);
            self.message.push(&columns, row, &mut out.bytes)?;
            out.close();
        }
        Ok(())
    }
}

#[derive(Debug)]
struct MessagePut {
    /// By number.
    fields: Vec<FieldPut>,
}

#[derive(Debug)]
struct FieldPut {
    column: usize,
    field: FieldDescriptor,
    /// The columns of the same oneof that come later and win.
    rivals: Vec<usize>,
    put: Put,
}

#[derive(Debug)]
enum Put {
    Scalar(Kind),
    Enum(EnumDescriptor),
    Timestamp,
    Message(MessagePut),
    /// A wrapper of one value.
    Wrapped(Box<FieldPut>),
    List(Box<Put>),
    Map(Box<FieldPut>, Box<FieldPut>),
}

/// The numbers of protobuf's wire types.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED_32: u64 = 5;

impl MessagePut {
    fn new(message: &MessageDescriptor, columns: &Fields) -> Result<Self, String> {
        let mut fields = Vec::with_capacity(columns.len());
        for (at, column) in columns.iter().enumerate() {
            let exact = message.get_field_by_name(column.name());
            let field =
                exact.or_else(|| message.fields().find(|f| f.name().eq_ignore_ascii_case(column.name())));
            let field = field.ok_or_else(|| format!("it has no field '{}'", column.name()))?;
            let put = FieldPut::new(at, field, column.data_type());
            fields.push(put.map_err(|why| format!("column '{}': {why}", column.name()))?);
        }
        let there = |field: &FieldDescriptor| fields.iter().any(|put| put.field == *field);
        if let Some(field) = message.fields().find(|f| f.cardinality() == Cardinality::Required && !there(f))
        {
            return Err(format!("there is no column for its required field '{}'", field.name()));
        }
        let oneofs: Vec<_> = fields.iter().map(|put| (put.column, put.field.containing_oneof())).collect();
        for put in &mut fields {
            let own = put.field.containing_oneof();
            let rival =
                |(column, oneof): &&(usize, _)| own.is_some() && *oneof == own && *column > put.column;
            put.rivals = oneofs.iter().filter(rival).map(|(column, _)| *column).collect();
        }
        fields.sort_by_key(|put| put.field.number());
        Ok(Self { fields })
    }

    fn push(&self, columns: &[Column<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
        for put in &self.fields {
            let column = &columns[put.column];
            if column.is_null(row) && put.field.cardinality() == Cardinality::Required {
                return Err(put.bad("is null, and its field is required"));
            }
            if !column.is_null(row) && put.rivals.iter().all(|rival| columns[*rival].is_null(row)) {
                put.push(column, row, out)?;
            }
        }
        Ok(())
    }
}

impl FieldPut {
    fn new(column: usize, field: FieldDescriptor, data_type: &DataType) -> Result<Self, String> {
        let put = match (data_type, field.kind()) {
            (DataType::Map(entries, _), Kind::Message(entry)) if field.is_map() => {
                match entries.data_type() {
                    DataType::Struct(kv) if kv.len() == 2 => Put::Map(
                        Box::new(Self::new(0, entry.map_entry_key_field(), kv[0].data_type())?),
                        Box::new(Self::new(1, entry.map_entry_value_field(), kv[1].data_type())?),
                    ),
                    _ => return Err(format!("{} is no map", type_name(data_type))),
                }
            }
            (DataType::List(item), kind) if field.is_list() => {
                Put::List(Box::new(Put::new(&kind, item.data_type())?))
            }
            (_, kind) if field.is_list() || field.is_map() => {
                return Err(format!("{} cannot be written as repeated {kind:?}", type_name(data_type)));
            }
            (_, kind) => Put::new(&kind, data_type)?,
        };
        Ok(Self { column, field, rivals: Vec::new(), put })
    }

    fn bad(&self, what: &str) -> Error {
        Error::data(format!("column '{}' {what}", self.field.name()))
    }

    /// Appends the field with its number.
    fn push(&self, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<()> {
        match (&self.put, &column.values) {
            (Put::List(item), Values::List(offsets, items)) => {
                let range = range(offsets, row);
                if let Some(null) = range.clone().find(|at| items.is_null(*at)) {
                    return Err(
                        self.bad(&format!("has null as item {}, which protobuf has not", null - range.start))
                    );
                }
                if !self.field.is_packed() {
                    return range.into_iter().try_for_each(|at| self.push_one(item, items, at, out));
                }
                if range.is_empty() {
                    return Ok(());
                }
                let mut packed = Vec::new();
                range.into_iter().try_for_each(|at| self.value(item, items, at, &mut packed))?;
                self.key(LENGTH, out);
                push_bytes(&packed, out);
            }
            (Put::Map(of_key, of_value), Values::Map { offsets, keys, values }) => {
                for at in range(offsets, row) {
                    let mut entry = Vec::new();
                    of_key.push(keys, at, &mut entry)?;
                    if values.is_null(at) {
                        return Err(self.bad("has a null value in its map, which protobuf has not"));
                    }
                    of_value.push(values, at, &mut entry)?;
                    self.key(LENGTH, out);
                    push_bytes(&entry, out);
                }
            }
            (put, _) => {
                let start = out.len();
                self.push_one(put, column, row, out)?;
                // A default that a reader could not tell from nothing is not written.
                if !self.field.supports_presence() && self.is_default(column, row) {
                    out.truncate(start);
                }
            }
        }
        Ok(())
    }

    fn is_default(&self, column: &Column<'_>, row: usize) -> bool {
        match &column.values {
            Values::Boolean(values) => !values.value(row),
            Values::Int8(values) => values[row] == 0,
            Values::Int16(values) => values[row] == 0,
            Values::Int32(values) => values[row] == 0,
            Values::Int64(values) => values[row] == 0,
            // Minus zero is another number.
            Values::Float32(values) => values[row].to_bits() == 0,
            Values::Float64(values) => values[row].to_bits() == 0,
            Values::Decimal(values, _) => values[row] == 0,
            Values::Binary(values) => values.value(row).is_empty(),
            Values::Utf8(values) => match &self.put {
                Put::Enum(names) => names.default_value().name() == values.value(row),
                _ => values.value(row).is_empty(),
            },
            _ => false,
        }
    }

    fn key(&self, wire: u64, out: &mut Vec<u8>) {
        encode_varint(u64::from(self.field.number()) << 3 | wire, out);
    }

    fn push_one(&self, put: &Put, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let wire = match put {
            Put::Scalar(kind) => wire_type(kind),
            Put::Enum(_) => VARINT,
            _ => LENGTH,
        };
        self.key(wire, out);
        self.value(put, column, row, out)
    }

    /// Appends a value without its number.
    fn value(&self, put: &Put, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut inner = Vec::new();
        match (put, &column.values) {
            (Put::Scalar(kind), values) => return self.scalar(kind, values, row, out),
            (Put::Enum(names), Values::Utf8(values)) => {
                let name = values.value(row);
                let number = names.get_value_by_name(name);
                let number = number.ok_or_else(|| {
                    self.bad(&format!("is '{name}', which is none of the values of {}", names.full_name()))
                })?;
                encode_varint(i64::from(number.number()) as u64, out);
                return Ok(());
            }
            (Put::Timestamp, Values::Timestamp(values, _)) => {
                let (seconds, nanos) =
                    (values[row].div_euclid(1_000_000), values[row].rem_euclid(1_000_000) * 1000);
                for (number, value) in [(1, seconds), (2, nanos)] {
                    if value != 0 {
                        encode_varint(number << 3 | VARINT, &mut inner);
                        encode_varint(value as u64, &mut inner);
                    }
                }
            }
            (Put::Message(message), Values::Struct(columns)) => message.push(columns, row, &mut inner)?,
            (Put::Wrapped(value), _) => value.push(column, row, &mut inner)?,
            _ => return Err(self.other()),
        }
        push_bytes(&inner, out);
        Ok(())
    }

    fn scalar(&self, kind: &Kind, values: &Values<'_>, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let beyond = |value: i128| self.bad(&format!("is {value}, which its field {kind:?} cannot hold"));
        let whole = match values {
            Values::Boolean(values) => i128::from(values.value(row)),
            Values::Int8(values) => values[row].into(),
            Values::Int16(values) => values[row].into(),
            Values::Int32(values) => values[row].into(),
            Values::Int64(values) => values[row].into(),
            Values::Decimal(values, _) => values[row],
            Values::Float32(values) => {
                out.extend_from_slice(&values[row].to_le_bytes());
                return Ok(());
            }
            Values::Float64(values) => {
                out.extend_from_slice(&values[row].to_le_bytes());
                return Ok(());
            }
            Values::Utf8(values) => {
                push_bytes(values.value(row).as_bytes(), out);
                return Ok(());
            }
            Values::Binary(values) => {
                push_bytes(values.value(row), out);
                return Ok(());
            }
            _ => return Err(self.other()),
        };
        // A column of the type that Java has for an unsigned field holds the upper half as negative numbers.
        let unsigned = match (kind, values) {
            (Kind::Uint32 | Kind::Fixed32, Values::Int32(values)) => i128::from(values[row] as u32),
            (Kind::Uint64 | Kind::Fixed64, Values::Int64(values)) => i128::from(values[row] as u64),
            _ => whole,
        };
        let signed = || i64::try_from(whole).map_err(|_| beyond(whole));
        match kind {
            Kind::Sint32 | Kind::Sint64 => {
                let value = signed()?;
                encode_varint((value << 1 ^ value >> 63) as u64, out);
            }
            Kind::Sfixed32 => out.extend_from_slice(&(signed()? as i32).to_le_bytes()),
            Kind::Sfixed64 => out.extend_from_slice(&signed()?.to_le_bytes()),
            Kind::Uint32 | Kind::Fixed32 => {
                let value = u32::try_from(unsigned).map_err(|_| beyond(unsigned))?;
                match kind {
                    Kind::Fixed32 => out.extend_from_slice(&value.to_le_bytes()),
                    _ => encode_varint(value.into(), out),
                }
            }
            Kind::Uint64 | Kind::Fixed64 => {
                let value = u64::try_from(unsigned).map_err(|_| beyond(unsigned))?;
                match kind {
                    Kind::Fixed64 => out.extend_from_slice(&value.to_le_bytes()),
                    _ => encode_varint(value, out),
                }
            }
            _ => encode_varint(signed()? as u64, out),
        }
        Ok(())
    }

    fn other(&self) -> Error {
        Error::internal(format!(
            "column '{}' of another type reached the protobuf encoder",
            self.field.name()
        ))
    }
}

fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn wire_type(kind: &Kind) -> u64 {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => FIXED_64,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => FIXED_32,
        Kind::String | Kind::Bytes | Kind::Message(_) => LENGTH,
        _ => VARINT,
    }
}

impl Put {
    fn new(kind: &Kind, data_type: &DataType) -> Result<Self, String> {
        use DataType as T;
        Ok(match (data_type, kind) {
            (T::Boolean, Kind::Bool)
            | (T::Int8 | T::Int16 | T::Int32, Kind::Int32 | Kind::Sint32 | Kind::Sfixed32)
            | (T::Int32 | T::Int64, Kind::Uint32 | Kind::Fixed32)
            | (T::Int64, Kind::Int64 | Kind::Sint64 | Kind::Sfixed64)
            | (T::Int64 | T::Decimal128(20, 0), Kind::Uint64 | Kind::Fixed64)
            | (T::Int32, Kind::Enum(_))
            | (T::Float32, Kind::Float)
            | (T::Float64, Kind::Double)
            | (T::Utf8, Kind::String)
            | (T::Binary, Kind::Bytes) => Self::Scalar(kind.clone()),
            (T::Utf8, Kind::Enum(names)) => Self::Enum(names.clone()),
            (T::Timestamp(TimeUnit::Microsecond, Some(_)), Kind::Message(message))
                if is_timestamp(message) =>
            {
                Self::Timestamp
            }
            (T::Struct(fields), Kind::Message(message)) => Self::Message(MessagePut::new(message, fields)?),
            (_, Kind::Message(message)) => match wrapped(message) {
                Some(value) => Self::Wrapped(Box::new(FieldPut::new(0, value, data_type)?)),
                None => return Err(format!("{} cannot be written as {kind:?}", type_name(data_type))),
            },
            _ => return Err(format!("{} cannot be written as {kind:?}", type_name(data_type))),
        })
    }
}

#[cfg(test)]
mod tests;
