//! Schemas and rows as bytes that cross the sandbox's wall, in the two encodings of the contract: Arrow IPC
//! messages and JSON. `opened` makes an encoder and a decoder for every opened function.
//!
//! What comes from a guest is checked to the last offset before an Arrow array is made of it. A fault is a
//! `String` that says what is wrong with the bytes; the caller knows who sent them. Nothing here panics.

mod ipc_read;
mod ipc_schema;
mod ipc_write;
mod json_columns;
mod json_read;
mod json_schema;
mod json_write;
mod shape;

pub(crate) use shape::twice;

use crate::limits::Limits;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};
use pelton_core::{Encoding, Error, Result, types};
use std::sync::Arc;

/// Turns batches of one schema into `rows`.
#[derive(Debug)]
pub(crate) struct Encoder {
    schema: SchemaRef,
    encoding: Encoding,
    layout: ipc_write::Layout,
}

impl Encoder {
    /// Refuses schemas with types that do not cross.
    pub(crate) fn new(encoding: Encoding, schema: SchemaRef) -> Result<Self> {
        for field in schema.fields() {
            shape::check_type(field.data_type()).map_err(|bad| {
                let hint = match types::normalize(&bad, "UTC") {
                    Some(near) => format!("CAST it AS {}", types::type_name(&near)),
                    None => "CAST it to one of Spark's types, for example string".to_owned(),
                };
                Error::invalid(format!("column '{}' has type {bad}, which no plugin takes", field.name()))
                    .hint(hint)
            })?;
        }
        if encoding == Encoding::Json
            && let Some(name) = shape::twice(schema.fields().iter().map(|f| f.name().as_str()))
        {
            return Err(Error::invalid(format!(
                "two columns are named '{name}', which JSON rows cannot hold"
            ))
            .hint("rename one of them before this step"));
        }
        let layout = ipc_write::Layout::of(&schema);
        Ok(Self { schema, encoding, layout })
    }

    /// The schema as the contract's `schema`.
    pub(crate) fn schema_message(&self) -> Result<Vec<u8>> {
        match self.encoding {
            Encoding::Arrow => ipc_schema::encode(&self.schema),
            Encoding::Json => Ok(pelton_core::spark_schema::to_json(&self.schema).to_string().into_bytes()),
        }
    }

    /// Writes the batch over what `out` holds.
    pub(crate) fn encode(&self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        let fits = batch.num_columns() == self.schema.fields().len()
            && (Arc::ptr_eq(batch.schema_ref(), &self.schema)
                || batch
                    .columns()
                    .iter()
                    .zip(self.schema.fields())
                    .all(|(c, f)| c.data_type() == f.data_type()));
        if !fits {
            let (is, was) = (batch.schema(), &self.schema);
            return Err(Error::internal(format!(
                "a batch ({}) does not have the schema that its function was opened with ({})",
                types::columns_name(is.fields()),
                types::columns_name(was.fields())
            )));
        }
        out.clear();
        match self.encoding {
            Encoding::Arrow => ipc_write::encode(self.layout, batch, out),
            Encoding::Json => json_write::encode(batch, out),
        }
    }
}

/// Reads what a function opened with one output schema answers.
#[derive(Debug)]
pub(crate) struct Decoder {
    schema: SchemaRef,
    encoding: Encoding,
}

impl Decoder {
    /// Reads the contract's `schema`, which has columns. Its timestamps become those of the session's zone.
    pub(crate) fn new(
        encoding: Encoding,
        message: &[u8],
        zone: &str,
        limits: &Limits,
    ) -> Result<Self, String> {
        let schema = read_schema(encoding, message, zone, limits)?;
        shape::check_schema(&schema, limits)?;
        Ok(Self::of(encoding, Arc::new(schema)))
    }

    /// For a schema that was read and checked.
    pub(crate) fn of(encoding: Encoding, schema: SchemaRef) -> Self {
        Self { schema, encoding }
    }

    /// Schema of the batches.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads the contract's `rows`.
    pub(crate) fn decode(&self, message: Vec<u8>, limits: &Limits) -> Result<RecordBatch, String> {
        match self.encoding {
            Encoding::Arrow => ipc_read::decode(&self.schema, message, limits),
            Encoding::Json => json_read::decode(&self.schema, &message, limits),
        }
    }

    /// Reads `rows` for which zero bytes stand if there are none.
    pub(crate) fn decode_any(&self, message: Vec<u8>, limits: &Limits) -> Result<RecordBatch, String> {
        match message.is_empty() {
            true => Ok(RecordBatch::new_empty(self.schema.clone())),
            false => self.decode(message, limits),
        }
    }
}

fn read_schema(encoding: Encoding, message: &[u8], zone: &str, limits: &Limits) -> Result<Schema, String> {
    match encoding {
        Encoding::Arrow => ipc_schema::decode(message, zone, limits),
        Encoding::Json => json_schema::decode(message, zone, limits),
    }
}

/// Reads a `schema` that may be without columns, for which zero bytes stand as well.
pub(crate) fn fields(
    encoding: Encoding,
    message: &[u8],
    zone: &str,
    limits: &Limits,
) -> Result<SchemaRef, String> {
    if message.is_empty() {
        return Ok(Arc::new(Schema::empty()));
    }
    let schema = read_schema(encoding, message, zone, limits)?;
    if !schema.fields().is_empty() {
        shape::check_schema(&schema, limits)?;
    }
    Ok(Arc::new(schema))
}

/// The zone of the first timestamp with one, at any depth.
pub(crate) fn zone_of(schema: &Schema) -> Option<Arc<str>> {
    fn of(data_type: &DataType) -> Option<Arc<str>> {
        let within = |field: &FieldRef| of(field.data_type());
        match data_type {
            DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) => Some(zone.clone()),
            DataType::List(item) => within(item),
            DataType::Map(entries, _) => within(entries),
            DataType::Struct(fields) => fields.iter().find_map(within),
            _ => None,
        }
    }
    schema.fields().iter().find_map(|field| of(field.data_type()))
}

#[cfg(test)]
mod tests;
