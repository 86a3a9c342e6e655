//! What reading and writing protobuf share: the message type from a descriptor set, and Spark's types for its fields as
//! its `SchemaConverters` has them. Nothing in here knows of sources or sinks.

use crate::decode::options::Bag;
use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::{list_of, map_of};
use pelton_core::{Error, Result};
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

/// The largest `recursive_fields_max_depth`, as in Spark.
pub(crate) const RECURSION_MAX: usize = 10;

/// The message type that options `message_name` and `desc_file_path` name.
pub(crate) fn message(bag: &mut Bag<'_>) -> Result<MessageDescriptor> {
    let hint = "make the file by protoc --descriptor_set_out=FILE --include_imports";
    let (name, path) = (bag.text("message_name")?, bag.text("desc_file_path")?);
    let (Some(name), Some(path)) = (name, path) else {
        return Err(
            Error::invalid("format protobuf needs options message_name and desc_file_path").hint(hint)
        );
    };
    let bytes = std::fs::read(&path)
        .map_err(|e| Error::invalid(format!("desc_file_path '{path}' cannot be read: {e}")).hint(hint))?;
    let pool = DescriptorPool::decode(bytes.as_slice())
        .map_err(|e| Error::invalid(format!("'{path}' is no descriptor set: {e}")).hint(hint))?;
    // By the full name, or by the last part of it, as in Spark.
    let named: Vec<_> = pool.all_messages().filter(|m| m.full_name() == name || m.name() == name).collect();
    match named.iter().find(|m| m.full_name() == name).or(named.first()) {
        Some(message) => Ok(message.clone()),
        None => {
            let known: Vec<String> = pool.all_messages().map(|m| m.full_name().to_owned()).collect();
            let near = did_you_mean(&name, known.iter().map(String::as_str));
            Err(Error::invalid(format!("'{path}' has no message '{name}'{near}")))
        }
    }
}

/// Where a message is declared in its file: its number there, in the message at that place its number, and so on.
pub(crate) fn place_in_file(message: &MessageDescriptor) -> Vec<i64> {
    // Without the numbers that the descriptor has between the indexes.
    message.path().iter().skip(1).step_by(2).map(|index| i64::from(*index)).collect()
}

/// A message of the form of a well-known one.
pub(crate) fn is_timestamp(message: &MessageDescriptor) -> bool {
    message.name() == "Timestamp"
        && message.get_field(1).is_some_and(|f| f.name() == "seconds" && f.kind() == Kind::Int64)
        && message.get_field(2).is_some_and(|f| f.name() == "nanos" && f.kind() == Kind::Int32)
}

/// The field of one of protobuf's wrappers of a single value.
pub(crate) fn wrapped(message: &MessageDescriptor) -> Option<FieldDescriptor> {
    let name = message.full_name().strip_prefix("google.protobuf.")?.strip_suffix("Value")?;
    let scalar =
        ["Bool", "Int32", "UInt32", "Int64", "UInt64", "String", "Bytes", "Float", "Double"].contains(&name);
    message.get_field(1).filter(|_| scalar)
}

/// How fields become columns, by Spark's options.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TypeOptions {
    pub(crate) enums_as_ints: bool,
    pub(crate) upcast_unsigned_ints: bool,
    pub(crate) unwrap_wrappers: bool,
    pub(crate) recursion: Option<usize>,
}

impl TypeOptions {
    /// The columns of a message.
    pub(crate) fn columns(&self, message: &MessageDescriptor, time_zone: &str) -> Result<Schema> {
        let fields = self.fields(message, time_zone, &mut vec![message.full_name().to_owned()]);
        fields
            .map(Schema::new)
            .map_err(|why| Error::invalid(format!("message '{}' has no columns: {why}", message.full_name())))
    }

    fn fields(
        &self,
        message: &MessageDescriptor,
        zone: &str,
        within: &mut Vec<String>,
    ) -> Result<Fields, String> {
        // In the order of their declaration, as Spark's; the descriptor gives them by number.
        let declared = &message.descriptor_proto().field;
        let fields = declared.iter().filter_map(|field| message.get_field(field.number().unsigned_abs()));
        let fields = fields.map(|field| {
            let data_type = self.field(&field, zone, within)?;
            Ok(data_type.map(|data_type| Field::new(field.name(), data_type, true)))
        });
        fields.filter_map(Result::transpose).collect()
    }

    /// The type of a field; nothing, if a message in it is too deep in a recursion or empty.
    fn field(
        &self,
        field: &FieldDescriptor,
        zone: &str,
        within: &mut Vec<String>,
    ) -> Result<Option<DataType>, String> {
        if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            let key = self.kind(&entry.map_entry_key_field().kind(), zone, within)?;
            let value = self.kind(&entry.map_entry_value_field().kind(), zone, within)?;
            return Ok(key.zip(value).map(|(key, value)| map_of(key, value)));
        }
        let data_type = self.kind(&field.kind(), zone, within)?;
        Ok(if field.is_list() { data_type.map(list_of) } else { data_type })
    }

    fn kind(&self, kind: &Kind, zone: &str, within: &mut Vec<String>) -> Result<Option<DataType>, String> {
        Ok(Some(match kind {
            Kind::Bool => DataType::Boolean,
            Kind::Uint32 if self.upcast_unsigned_ints => DataType::Int64,
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Uint32 | Kind::Fixed32 => DataType::Int32,
            Kind::Uint64 if self.upcast_unsigned_ints => DataType::Decimal128(20, 0),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 | Kind::Uint64 | Kind::Fixed64 => DataType::Int64,
            Kind::Float => DataType::Float32,
            Kind::Double => DataType::Float64,
            Kind::String => DataType::Utf8,
            Kind::Bytes => DataType::Binary,
            Kind::Enum(_) if self.enums_as_ints => DataType::Int32,
            Kind::Enum(_) => DataType::Utf8,
            Kind::Message(message) if is_timestamp(message) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()))
            }
            Kind::Message(message) => match wrapped(message).filter(|_| self.unwrap_wrappers) {
                Some(value) => return self.kind(&value.kind(), zone, within),
                None => return self.message(message, zone, within),
            },
        }))
    }

    fn message(
        &self,
        message: &MessageDescriptor,
        zone: &str,
        within: &mut Vec<String>,
    ) -> Result<Option<DataType>, String> {
        let depth = within.iter().filter(|name| *name == message.full_name()).count();
        match self.recursion {
            None if depth > 0 => {
                return Err(format!(
                    "message '{}' contains itself; set recursive_fields_max_depth to 1 … {RECURSION_MAX}",
                    message.full_name()
                ));
            }
            Some(most) if depth >= most => return Ok(None),
            _ => {}
        }
        within.push(message.full_name().to_owned());
        let fields = self.fields(message, zone, within);
        within.pop();
        let fields = fields?;
        Ok((!fields.is_empty()).then_some(DataType::Struct(fields)))
    }
}
