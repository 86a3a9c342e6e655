//! From Rust values to columns: what a field of a struct that a function returns may be.
//!
//! Each type has a builder that collects a column; builders are kept between calls, so that a call allocates
//! only while its batches grow.

mod any;
mod nested;
mod scalars;

pub use any::AnyBuilder;
pub use nested::Validity;

use crate::ipc::Encoder;
use crate::types::{DataType, Field};

/// A Rust type that a column can be made of. Implemented for the SDK's value types and by `#[derive(Row)]`.
#[diagnostic::on_unimplemented(
    message = "a column cannot be made of `{Self}`",
    label = "not a type of a column",
    note = "columns are: bool, i8, i16, i32, i64, f32, f64, &str, String, &[u8], Vec<u8>, pelton::Timestamp, \
            pelton::TimestampNtz, pelton::Date, pelton::Decimal<P, S>, Option<T> for nulls, Vec<T>, \
            Vec<(K, V)> or BTreeMap<K, V> for maps, and structs with #[derive(pelton::Row)]"
)]
pub trait Output {
    /// Whether a column of it may hold nulls.
    const NULLABLE: bool = false;

    /// Collects a column.
    type Builder: Build + Default;

    /// The column's type.
    fn data_type() -> DataType;

    /// Appends the value to the column.
    fn append(self, builder: &mut Self::Builder);

    /// The column under this name.
    fn field(name: &str) -> Field {
        Field::new(name, Self::data_type(), Self::NULLABLE)
    }
}

/// Collects a column.
pub trait Build: 'static {
    /// Appends a null.
    fn append_null(&mut self);
    /// How many values there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Forgets the values and keeps the memory.
    fn clear(&mut self);
    /// Appends the column's buffers to a message.
    fn write(&self, to: &mut Encoder);
}

/// A struct with `#[derive(Row)]`: a whole row of a table.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a row",
    label = "expected a struct with #[derive(pelton::Row)]",
    note = "a map or flat_map function returns rows: put the value into a struct with #[derive(pelton::Row)]"
)]
pub trait Row: Output<Builder: BuildRow> {
    /// The row's columns.
    fn columns() -> Vec<Field>;
}

/// Collects rows.
pub trait BuildRow: Build {
    /// Appends the buffers of the columns, without a level for the row itself.
    fn write_columns(&self, to: &mut Encoder);
}
