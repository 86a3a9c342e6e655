//! What reading and writing Avro share: schemas, the bytes of values, container files. Decoder and encoder stand on
//! it; nothing in here knows of sources or sinks, and nothing does I/O.
//!
//! Values go straight into the decoders' columns, which can be cut back to the last good record: the readers of other
//! crates cannot, and neither bound what a hostile record makes them do nor know Spark's types for unions.

pub(crate) mod container;
pub(crate) mod default;
pub(crate) mod schema;
pub(crate) mod to_avro;
pub(crate) mod to_spark;
pub(crate) mod wire;

pub(crate) use schema::{AvroSchema, Field, Logical, Node};

use arrow_avro::schema::{Fingerprint, FingerprintAlgorithm};
use pelton_core::{Error, Result};

/// What stands before a value in single-object encoding.
pub(crate) const SINGLE_OBJECT_MAGIC: [u8; 2] = arrow_avro::schema::SINGLE_OBJECT_MAGIC;
/// What stands before the four bytes of a schema's id in a registry's wire format.
pub(crate) const CONFLUENT_MAGIC: u8 = 0;

/// The CRC-64-AVRO fingerprint of a schema's canonical form, as single-object encoding has it.
pub(crate) fn fingerprint(schema: &AvroSchema) -> Result<u64> {
    let schema = arrow_avro::schema::AvroSchema::new(schema.text().to_owned());
    match schema.fingerprint(FingerprintAlgorithm::Rabin) {
        Ok(Fingerprint::Rabin(fingerprint)) => Ok(fingerprint),
        Ok(other) => Err(Error::internal(format!("{other:?} is no Rabin fingerprint"))),
        Err(e) => Err(Error::invalid(format!("the Avro schema has no fingerprint: {e}"))),
    }
}
