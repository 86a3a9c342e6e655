//! Protobuf: records that come one by one, as Spark's `from_protobuf` reads them by a descriptor set.

mod plan;
#[cfg(test)]
mod tests;

use super::options::{Bag, OptionMap};
use super::rows::{RowSettings, Rows};
use super::{Decoder, DecoderSettings, Input};
use crate::avro::CONFLUENT_MAGIC;
use crate::avro::wire::Cursor;
use crate::protobuf::{RECURSION_MAX, TypeOptions, message, place_in_file};
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::{Decoded, Error, Result};
use plan::MessagePlan;
use prost_reflect::{DynamicMessage, MessageDescriptor};

/// Bytes of a message, at most: a message takes some fifty times as much while it is read.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// How protobuf is read.
#[derive(Debug, Clone)]
pub struct ProtobufOptions {
    message: MessageDescriptor,
    types: TypeOptions,
    emit_defaults: bool,
    framed: bool,
}

impl ProtobufOptions {
    /// Reads the options of the pipeline file, and the descriptor set that they name. What is wrong with them is an
    /// error of kind `Invalid`.
    pub fn from_map(map: &OptionMap) -> Result<Self> {
        let mut bag = Bag::new("protobuf", map);
        let types = TypeOptions {
            enums_as_ints: bag.flag("enums_as_ints", false)?,
            upcast_unsigned_ints: bag.flag("upcast_unsigned_ints", false)?,
            unwrap_wrappers: bag.flag("unwrap_primitive_wrapper_types", false)?,
            recursion: bag.count("recursive_fields_max_depth", 1, RECURSION_MAX)?,
        };
        let emit_defaults = bag.flag("emit_default_values", false)?;
        let framed = bag.flag("confluent_wire_format", false)?;
        let message = message(&mut bag)?;
        bag.finish()?;
        Ok(Self { message, types, emit_defaults, framed })
    }

    /// The columns of the message.
    pub(crate) fn columns(&self, time_zone: &str) -> Result<Schema> {
        self.types.columns(&self.message, time_zone)
    }
}

/// Decodes protobuf messages to rows.
#[derive(Debug)]
pub struct ProtobufDecoder {
    rows: RowSettings,
    message: MessageDescriptor,
    plan: MessagePlan,
    framed: bool,
}

impl ProtobufDecoder {
    /// A decoder of messages. Columns that no field can become are errors of kind `Invalid`.
    pub fn new(settings: &DecoderSettings, options: &ProtobufOptions) -> Result<Self> {
        let rows = RowSettings::new(settings, "")?;
        let plan = MessagePlan::new(&options.message, rows.schema.fields(), options.emit_defaults);
        let plan = plan.map_err(|why| {
            Error::invalid(format!("message '{}' cannot be read so: {why}", options.message.full_name()))
        })?;
        Ok(Self { rows, message: options.message.clone(), plan, framed: options.framed })
    }

    fn record(&self, rows: &mut Rows<'_>, record: &[u8]) -> Result<(), String> {
        if record.len() > MESSAGE_BYTES_MAX {
            return Err(format!("it has more than {MESSAGE_BYTES_MAX} bytes"));
        }
        let record = if self.framed { unframed(&self.message, record)? } else { record };
        let message = DynamicMessage::decode(self.message.clone(), record).map_err(|e| e.to_string())?;
        self.plan.push(&message, &mut rows.columns)
    }
}

/// The message behind what a schema registry's serializers put in front: a 0, the id of the schema, and where in its file
/// the message type is declared. The type must be the one that is read; the id need not be looked up.
fn unframed<'r>(message: &MessageDescriptor, record: &'r [u8]) -> Result<&'r [u8], String> {
    let Some((&CONFLUENT_MAGIC, body)) = record.split_first() else {
        return Err("it does not begin with the 0 of a schema registry's wire format".into());
    };
    let mut cursor = Cursor::new(body);
    cursor.take(4)?;
    let place = place_in_file(message);
    let found = match cursor.long()? {
        // The first type of a file has a form of its own.
        0 => vec![0],
        count if count == place.len() as i64 => {
            (0..count).map(|_| cursor.long()).collect::<Result<Vec<_>, _>>()?
        }
        count => {
            return Err(format!(
                "it holds a type that is nested {count} deep, not '{}'",
                message.full_name()
            ));
        }
    };
    match found == place {
        true => Ok(cursor.rest()),
        false => Err(format!(
            "it holds type {found:?} of its file, not '{}', which is {place:?}",
            message.full_name()
        )),
    }
}

impl Decoder for ProtobufDecoder {
    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    fn decode(&self, input: &Input<'_>) -> Result<Decoded> {
        Err(Error::invalid(format!("{}: protobuf has no form of files that are read", input.file)))
    }

    fn decode_records(&self, records: &[&[u8]], position: &dyn Fn(u64) -> String) -> Result<Decoded> {
        let mut rows = Rows::new(&self.rows, position)?;
        for (n, record) in records.iter().enumerate() {
            rows.begin_record(n);
            match self.record(&mut rows, record) {
                Ok(()) => rows.good(1)?,
                Err(why) => {
                    rows.discard();
                    rows.malformed(n as u64, record, 0, format!("not readable as protobuf: {why}"))?;
                }
            }
        }
        rows.finish()
    }
}
