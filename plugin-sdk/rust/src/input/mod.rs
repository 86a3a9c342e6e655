//! From columns to Rust values: what a field of a `#[derive(Row)]` struct may be.
//!
//! A type is matched with a column once, when the function is opened ([`Input::plan`]); a typed reader is made
//! for each batch ([`Input::reader`]); a value is then read in a few instructions, without copying.

mod nested;
mod scalars;

pub use nested::StructPlan;
pub(crate) use nested::{Arguments, Matching};

use crate::array::Array;
use crate::error::Error;
use crate::types::Field;

/// A Rust type that a column can be read as. Implemented for the SDK's value types and by `#[derive(Row)]`.
#[diagnostic::on_unimplemented(
    message = "a column cannot be read as `{Self}`",
    label = "not a type of a column",
    note = "columns are: bool, i8, i16, i32, i64, f32, f64, &str, String, &[u8], Vec<u8>, pelton::Timestamp, \
            pelton::TimestampNtz, pelton::Date, pelton::Decimal<P, S>, Option<T> for nulls, Vec<T>, \
            Vec<(K, V)> or BTreeMap<K, V> for maps, and structs with #[derive(pelton::Row)]"
)]
pub trait Input<'a>: Sized {
    /// Whether it stands for a whole row: a struct with `#[derive(Row)]`.
    const ROW: bool = false;
    /// The columns that such a struct reads.
    const FIELDS: &'static [&'static str] = &[];

    /// Reads values of one column of one batch.
    type Reader;

    /// Matches the type with a column. `path` names the column in messages.
    ///
    /// # Errors
    /// A message that names the column, its type and the type expected.
    fn plan(found: &Field, path: &str) -> Result<Plan, String>;

    /// A reader for a column that was planned.
    ///
    /// # Errors
    /// If the column is not of the type that it was planned with, or holds malformed text.
    fn reader(plan: &Plan, array: &Array<'a>) -> Result<Self::Reader, Error>;

    /// Whether the row holds a null that the type cannot represent.
    fn is_null(reader: &Self::Reader, row: usize) -> bool;

    /// The value of a row that is not null.
    ///
    /// # Errors
    /// If something within is null.
    fn value(reader: &Self::Reader, row: usize) -> Result<Self, Missing>;

    /// The value of a row.
    ///
    /// # Errors
    /// If it, or something within, is null and the type has no place for it.
    #[inline]
    fn read(reader: &Self::Reader, row: usize) -> Result<Self, Missing> {
        if Self::is_null(reader, row) { Err(Missing::here()) } else { Self::value(reader, row) }
    }
}

/// How a type and a column were matched: where the parts of a struct are found.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The column's place among its siblings.
    pub(crate) index: usize,
    /// The parts of it that are read, in the type's order.
    pub(crate) parts: Vec<Plan>,
}

impl Plan {
    /// The plan of a part.
    pub fn part(&self, part: usize) -> &Plan {
        &self.parts[part]
    }
    /// The column of a part.
    ///
    /// # Errors
    /// If the batch has fewer columns than its schema.
    pub fn column<'b, 'a>(&self, part: usize, parent: &'b Array<'a>) -> Result<&'b Array<'a>, Error> {
        let column = parent.columns().get(self.parts[part].index);
        column.ok_or_else(|| Error::Failed("the rows have fewer columns than their schema".to_owned()))
    }
}

/// A null where the type has no place for one.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "one word in the result of every value that is read")]
pub struct Missing(Box<Vec<&'static str>>);

impl Missing {
    #[cold]
    pub(crate) fn here() -> Self {
        Self(Box::default())
    }
    /// Notes the field it is in, from the inside out.
    #[cold]
    #[must_use]
    pub fn within(mut self, field: &'static str) -> Self {
        self.0.push(field);
        self
    }
    /// Why the row is refused.
    pub(crate) fn reason(&self) -> String {
        let path: Vec<&str> = self.0.iter().rev().copied().collect();
        format!("column '{}' is null", path.join("."))
    }
    /// Why the row is refused, if the null is in this argument (counted from 0).
    pub(crate) fn reason_in_argument(&self, index: usize) -> String {
        let within = if self.0.is_empty() { String::new() } else { format!(": {}", self.reason()) };
        format!("argument {} is null{within}", index + 1)
    }
}

/// The message for a column of another type.
pub(crate) fn unsuitable<T>(
    expected: impl std::fmt::Display,
    found: &Field,
    path: &str,
) -> Result<T, String> {
    let found = &found.data_type;
    Err(format!("column '{path}' is of type {found}, but the function reads it as {expected}"))
}

/// The name of a part of a column.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
