//! Rows as messages, cut and put together without knowing their types. The harness for groups uses it.

use crate::array::Array;
use crate::error::Error;
use crate::ipc::{self, Encoder};
use crate::output::{AnyBuilder, Build, BuildRow, Output, Row};
use crate::types::Schema;

/// Builders for the columns of a schema.
pub(super) fn builders(schema: &Schema) -> Vec<AnyBuilder> {
    schema.fields.iter().map(|field| AnyBuilder::new(&field.data_type)).collect()
}

/// The message of `rows` rows.
pub(super) fn message(columns: &[AnyBuilder], rows: usize, schema: &Schema) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.begin(schema);
    columns.iter().for_each(|column| column.write(&mut encoder));
    encoder.finish(rows).to_vec()
}

/// The message of one row of these columns.
pub(super) fn one_row(columns: &[Array<'_>], row: usize, schema: &Schema) -> Vec<u8> {
    let mut builders = builders(schema);
    builders.iter_mut().zip(columns).for_each(|(to, from)| to.push_from(from, row));
    message(&builders, 1, schema)
}

/// Appends the row of a message of one row.
pub(super) fn append_row(row: &[u8], schema: &Schema, columns: &mut [AnyBuilder]) -> Result<(), Error> {
    let row = ipc::read_batch(row, schema)?;
    columns.iter_mut().zip(row.columns()).for_each(|(to, from)| to.push_from(from, 0));
    Ok(())
}

/// Typed rows as a message.
pub(super) fn encode<R: Row>(rows: impl IntoIterator<Item = R>, schema: &Schema) -> Vec<u8> {
    let mut builder = <R as Output>::Builder::default();
    rows.into_iter().for_each(|row| row.append(&mut builder));
    let mut encoder = Encoder::default();
    encoder.begin(schema);
    builder.write_columns(&mut encoder);
    encoder.finish(builder.len()).to_vec()
}
