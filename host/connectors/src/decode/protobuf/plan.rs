//! How the fields of a message become columns, as Spark's `ProtobufDeserializer` has it; worked out once.

use crate::decode::column::{Column, Values, count};
use crate::protobuf::{is_timestamp, wrapped};
use arrow::datatypes::{DataType, FieldRef, Fields, TimeUnit};
use pelton_core::types::type_name;
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

/// A message: a row, or a struct in one.
#[derive(Debug)]
pub(super) struct MessagePlan {
    /// One a column; nothing where the message has no such field.
    fields: Vec<Option<FieldPlan>>,
}

#[derive(Debug)]
struct FieldPlan {
    field: FieldDescriptor,
    step: Step,
    /// A field that is not there has a value all the same.
    defaults: bool,
}

/// How to put one value into a column.
#[derive(Debug)]
enum Step {
    /// The value as it is; unsigned ones as Java has them, negative beyond the half.
    Plain,
    /// Unsigned ones in a type that holds them all.
    Unsigned,
    EnumName(EnumDescriptor),
    Timestamp,
    Message(MessagePlan),
    /// The value of a wrapper.
    Wrapped(Box<FieldPlan>),
    List(Box<Step>),
    Map(Box<Step>, Box<Step>),
}

impl MessagePlan {
    pub(super) fn new(
        message: &MessageDescriptor,
        columns: &Fields,
        emit_defaults: bool,
    ) -> Result<Self, String> {
        let plan = |column: &FieldRef| {
            let exact = message.get_field_by_name(column.name());
            let field =
                exact.or_else(|| message.fields().find(|f| f.name().eq_ignore_ascii_case(column.name())));
            let plan = field.map(|field| FieldPlan::new(field, column.data_type(), emit_defaults));
            plan.transpose().map_err(|why| format!("column '{}': {why}", column.name()))
        };
        Ok(Self { fields: columns.iter().map(plan).collect::<Result<_, _>>()? })
    }

    pub(super) fn push(&self, message: &DynamicMessage, columns: &mut [Column]) -> Result<(), String> {
        for (plan, column) in self.fields.iter().zip(columns) {
            match plan {
                Some(plan) => plan.push(message, column)?,
                None => column.push_null(),
            }
        }
        Ok(())
    }
}

impl FieldPlan {
    fn new(field: FieldDescriptor, wanted: &DataType, emit_defaults: bool) -> Result<Self, String> {
        let own_default = field.field_descriptor_proto().default_value.is_some();
        let defaults = field.is_list() || field.is_map() || own_default;
        let defaults = defaults || (emit_defaults && !field.supports_presence());
        let step = match (wanted, field.kind()) {
            (DataType::Map(entries, _), Kind::Message(entry)) if field.is_map() => {
                match entries.data_type() {
                    DataType::Struct(kv) if kv.len() == 2 => Step::Map(
                        Box::new(Step::new(
                            &entry.map_entry_key_field().kind(),
                            kv[0].data_type(),
                            emit_defaults,
                        )?),
                        Box::new(Step::new(
                            &entry.map_entry_value_field().kind(),
                            kv[1].data_type(),
                            emit_defaults,
                        )?),
                    ),
                    _ => return Err(differs(&field.kind(), wanted)),
                }
            }
            (DataType::List(item), kind) if field.is_list() => {
                Step::List(Box::new(Step::new(&kind, item.data_type(), emit_defaults)?))
            }
            (_, kind) if field.is_list() || field.is_map() => {
                return Err(format!("a {} cannot be read as {}", repeated(&field, &kind), type_name(wanted)));
            }
            (_, kind) => Step::new(&kind, wanted, emit_defaults)?,
        };
        Ok(Self { field, step, defaults })
    }

    fn push(&self, message: &DynamicMessage, column: &mut Column) -> Result<(), String> {
        match self.defaults || message.has_field(&self.field) {
            true => self.step.push(&message.get_field(&self.field), column),
            false => {
                column.push_null();
                Ok(())
            }
        }
    }
}

fn repeated(field: &FieldDescriptor, kind: &Kind) -> String {
    if field.is_map() { "map".to_owned() } else { format!("repeated {kind:?}") }
}

fn differs(kind: &Kind, wanted: &DataType) -> String {
    format!("{kind:?} cannot be read as {}", type_name(wanted))
}

impl Step {
    fn new(kind: &Kind, wanted: &DataType, emit_defaults: bool) -> Result<Self, String> {
        use DataType as T;
        Ok(match (kind, wanted) {
            (Kind::Bool, T::Boolean)
            | (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Uint32 | Kind::Fixed32, T::Int32)
            | (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 | Kind::Uint64 | Kind::Fixed64, T::Int64)
            | (Kind::Float, T::Float32)
            | (Kind::Double, T::Float64)
            | (Kind::String, T::Utf8)
            | (Kind::Bytes, T::Binary)
            | (Kind::Enum(_), T::Int32) => Self::Plain,
            (Kind::Uint32 | Kind::Fixed32, T::Int64) => Self::Unsigned,
            (Kind::Uint64 | Kind::Fixed64, T::Decimal128(20, 0)) => Self::Unsigned,
            (Kind::Enum(names), T::Utf8) => Self::EnumName(names.clone()),
            (Kind::Message(message), T::Timestamp(TimeUnit::Microsecond, Some(_)))
                if is_timestamp(message) =>
            {
                Self::Timestamp
            }
            (Kind::Message(message), T::Struct(fields)) => {
                Self::Message(MessagePlan::new(message, fields, emit_defaults)?)
            }
            (Kind::Message(message), wanted) => match wrapped(message) {
                Some(value) => Self::Wrapped(Box::new(FieldPlan::new(value, wanted, emit_defaults)?)),
                None => return Err(differs(kind, wanted)),
            },
            _ => return Err(differs(kind, wanted)),
        })
    }

    fn push(&self, value: &Value, column: &mut Column) -> Result<(), String> {
        match (self, value, &mut column.values) {
            (Self::Wrapped(plan), Value::Message(message), _) => return plan.push(message, column),
            (Self::Plain | Self::Unsigned, value, values) => self.scalar(value, values)?,
            (Self::EnumName(names), Value::EnumNumber(number), Values::Text(pieces)) => {
                match names.get_value(*number) {
                    Some(known) => pieces.push(known.name().as_bytes()),
                    // What Java's protobuf calls a value that it does not know.
                    None => pieces.push(format!("UNKNOWN_ENUM_VALUE_{}_{number}", names.name()).as_bytes()),
                }
            }
            (Self::Timestamp, Value::Message(message), Values::Timestamp { values, .. }) => {
                values.push(micros(message)?);
            }
            (Self::Message(plan), Value::Message(message), Values::Struct { columns, .. }) => {
                plan.push(message, columns)?;
            }
            (Self::List(step), Value::List(list), Values::List { offsets, item, .. }) => {
                list.iter().try_for_each(|value| step.push(value, item))?;
                offsets.push(count(item.len()));
            }
            (Self::Map(of_key, of_value), Value::Map(map), Values::Map { offsets, key, value, .. }) => {
                // The reader has no order of its own; by key it is always the same.
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable_by(|a, b| a.0.cmp(b.0));
                for (entry_key, entry_value) in entries {
                    of_key.push(&key_value(entry_key), key)?;
                    of_value.push(entry_value, value)?;
                }
                offsets.push(count(value.len()));
            }
            (step, value, _) => return Err(format!("{value:?} does not go by {step:?}")),
        }
        column.valid();
        Ok(())
    }

    fn scalar(&self, value: &Value, values: &mut Values) -> Result<(), String> {
        match (value, values) {
            (Value::Bool(value), Values::Boolean(values)) => values.append(*value),
            (Value::I32(value) | Value::EnumNumber(value), Values::Int32(values)) => values.push(*value),
            (Value::U32(value), Values::Int32(values)) => values.push(*value as i32),
            (Value::U32(value), Values::Int64(values)) => values.push((*value).into()),
            (Value::I64(value), Values::Int64(values)) => values.push(*value),
            (Value::U64(value), Values::Int64(values)) => values.push(*value as i64),
            (Value::U64(value), Values::Decimal { values, .. }) => values.push((*value).into()),
            (Value::F32(value), Values::Float32(values)) => values.push(*value),
            (Value::F64(value), Values::Float64(values)) => values.push(*value),
            (Value::String(value), Values::Text(pieces)) => pieces.push(value.as_bytes()),
            (Value::Bytes(value), Values::Binary(pieces)) => pieces.push(value),
            (value, _) => return Err(format!("{value:?} does not go into the column")),
        }
        Ok(())
    }
}

fn key_value(key: &MapKey) -> Value {
    match key {
        MapKey::Bool(key) => Value::Bool(*key),
        MapKey::I32(key) => Value::I32(*key),
        MapKey::I64(key) => Value::I64(*key),
        MapKey::U32(key) => Value::U32(*key),
        MapKey::U64(key) => Value::U64(*key),
        MapKey::String(key) => Value::String(key.clone()),
    }
}

fn micros(message: &DynamicMessage) -> Result<i64, String> {
    let seconds = message.get_field_by_number(1).and_then(|v| v.as_i64()).unwrap_or_default();
    let nanos = message.get_field_by_number(2).and_then(|v| v.as_i32()).unwrap_or_default();
    let micros = seconds.checked_mul(1_000_000).and_then(|m| m.checked_add((nanos / 1000).into()));
    micros.ok_or_else(|| format!("a timestamp of {seconds} seconds is beyond the type's values"))
}
