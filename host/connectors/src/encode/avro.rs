//! Avro, as Spark's `to_avro` and its file writer have it: container files, or every row a record, plain, in single-object
//! encoding or in the wire format of a schema registry.

mod put;
#[cfg(test)]
mod tests;

use super::{Column, Records};
use crate::avro::container::{Codec, Header};
use crate::avro::to_avro::schema_text;
use crate::avro::{AvroSchema, SINGLE_OBJECT_MAGIC, fingerprint};
use crate::decode::avro::schema_option;
use crate::decode::options::{Bag, OptionMap};
use crate::registry::{NewSchema, Registration};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use pelton_core::{Error, Result};
use put::RecordPut;

/// The name that Spark gives the record of a row.
const RECORD_NAME: &str = "topLevelRecord";

/// Writes rows as Avro.
#[derive(Debug)]
pub struct AvroEncoder {
    root: RecordPut,
    header: Header,
    framing: Framing,
}

/// What stands before the value of a record.
#[derive(Debug)]
enum Framing {
    Plain,
    SingleObject([u8; 10]),
    Registry(Registration),
}

impl AvroEncoder {
    /// Spark's options `avro_schema`, `record_name`, `record_namespace` and, for files, `compression` (snappy); for
    /// records `single_object_encoding` or `schema_registry` with its `subject`.
    pub fn new(schema: &Schema, options: &OptionMap) -> Result<Self> {
        let mut bag = Bag::new("avro", options);
        let given = schema_option(&mut bag)?;
        let (name, namespace) = (bag.text("record_name")?, bag.text("record_namespace")?);
        let codec = Codec::from_option(bag.text("compression")?.as_deref())?;
        let single_object = bag.flag("single_object_encoding", false)?;
        let registration = Registration::from_options(&mut bag, "avro")?;
        bag.finish()?;
        let text = match (given, &name, &namespace) {
            (Some(text), None, None) => text,
            (Some(_), ..) => {
                return Err(Error::invalid(
                    "record_name and record_namespace have no place beside avro_schema",
                ));
            }
            (None, ..) => schema_text(
                schema,
                name.as_deref().unwrap_or(RECORD_NAME),
                namespace.as_deref().unwrap_or(""),
            )?,
        };
        let avro = AvroSchema::parse(&text)?;
        let root = RecordPut::new(&avro, avro.root(), schema.fields()).map_err(|why| {
            Error::invalid(format!("the rows cannot be written with the Avro schema: {why}"))
        })?;
        let framing = match (registration, single_object) {
            (Some(_), true) => {
                return Err(Error::invalid("schema_registry and single_object_encoding exclude each other"));
            }
            (Some(registration), false) => Framing::Registry(registration),
            (None, true) => Framing::SingleObject(single_object_prefix(&avro)?),
            (None, false) => Framing::Plain,
        };
        Ok(Self { root, header: Header::new(avro, codec), framing })
    }

    /// Refuses what container files have no place for.
    pub(crate) fn check_files(&self) -> Result<()> {
        match self.framing {
            Framing::Plain => Ok(()),
            _ => Err(Error::invalid(
                "schema_registry and single_object_encoding are for records that go one by one",
            )
            .hint("an Avro file has its schema in itself: leave them out")),
        }
    }

    /// Registers the schema, if there is a registry: under the subject of the options, or else under `<topic>-value`.
    pub(crate) async fn prepare(&self, topic: Option<&str>) -> Result<()> {
        match &self.framing {
            Framing::Registry(registration) => {
                registration.register(topic, NewSchema::Avro(self.header.schema.text())).await
            }
            _ => Ok(()),
        }
    }

    /// What stands at the top of a file.
    pub(crate) fn head(&self) -> Vec<u8> {
        self.header.bytes()
    }

    /// Encodes rows as one block of a file.
    pub(crate) fn block(&self, rows: &[RecordBatch]) -> Result<Vec<u8>> {
        let mut values = Vec::new();
        for batch in rows {
            let columns = Column::of(batch)?;
            (0..batch.num_rows()).try_for_each(|row| self.root.push(&columns, row, &mut values))?;
        }
        let count = rows.iter().map(RecordBatch::num_rows).sum();
        let mut out = Vec::with_capacity(values.len() / 2);
        self.header.push_block(count, values, &mut out)?;
        Ok(out)
    }

    /// Appends every row as a record of its own.
    pub(crate) fn encode_records(&self, batch: &RecordBatch, out: &mut Records) -> Result<()> {
        let mut prefix = Vec::new();
        match &self.framing {
            Framing::Plain => {}
            Framing::SingleObject(bytes) => prefix.extend_from_slice(bytes),
            Framing::Registry(registration) => registration.push_frame(&mut prefix)?,
        }
        let columns = Column::of(batch)?;
        for row in 0..batch.num_rows() {
            out.bytes.extend_from_slice(&prefix);
            self.root.push(&columns, row, &mut out.bytes)?;
            out.close();
        }
        Ok(())
    }
}

fn single_object_prefix(schema: &AvroSchema) -> Result<[u8; 10]> {
    let mut prefix = [0; 10];
    prefix[..2].copy_from_slice(&SINGLE_OBJECT_MAGIC);
    prefix[2..].copy_from_slice(&fingerprint(schema)?.to_le_bytes());
    Ok(prefix)
}
