//! What can be kept for a group: structs with `#[derive(State)]` and single values.

use crate::array::{Array, Data, Nulls};
use crate::error::Error;
use crate::input::{Input, Missing, Plan};
use crate::ipc::Encoder;
use crate::output::{Build, Output};
use crate::types::{DataType, Field, Schema};
use crate::values::{Date, Decimal, Timestamp, TimestampNtz};

/// A value that can be kept: a struct with `#[derive(State)]`, or a single number, text or time. It owns what it
/// holds. The host stores it typed, by its fields' names.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be kept as state",
    label = "not a state",
    note = "state is a struct with #[derive(pelton::State)], or bool, i8 to i64, f32, f64, String, Vec<u8>, \
            pelton::Timestamp, pelton::TimestampNtz, pelton::Date or pelton::Decimal<P, S>"
)]
pub trait State: Output + for<'a> Input<'a> + 'static {
    /// Counts up when stored values must be rewritten.
    const VERSION: u32 = 1;

    /// Its fields.
    fn columns() -> Vec<Field>;

    /// Its fields where it is the key of a map.
    fn key_columns() -> Vec<Field> {
        Self::columns()
    }

    /// Appends the columns of many values.
    fn write_columns(builder: &Self::Builder, to: &mut Encoder);

    /// Values stored by an older version, as this one has them. `#[state(version = 2, from = Older)]` makes it.
    ///
    /// # Errors
    /// If there is no way from that version.
    fn migrated(from: u32, old: &Schema, rows: &Array<'_>) -> Result<Vec<Self>, Error> {
        let _ = (old, rows);
        Err(no_way(from, Self::VERSION))
    }
}

fn no_way(from: u32, to: u32) -> Error {
    Error::Failed(format!(
        "there is no way from version {from} of the state to version {to}; \
         #[state(version = {to}, from = Older)] names the type of version {from}"
    ))
}

/// Values of `Old`, or of a version that it comes from, as `New`; used by `#[derive(State)]`.
///
/// # Errors
/// If there is no way from that version.
pub fn through<Old: State, New: State + From<Old>>(
    from: u32,
    old: &Schema,
    rows: &Array<'_>,
) -> Result<Vec<New>, Error> {
    let values =
        if from == Old::VERSION { read_all::<Old>(old, rows)? } else { Old::migrated(from, old, rows)? };
    Ok(values.into_iter().map(New::from).collect())
}

fn read_all<T: State>(schema: &Schema, rows: &Array<'_>) -> Result<Vec<T>, Error> {
    let reader = Entries::<T>::new(&plan::<T>(schema)?, rows)?;
    (0..rows.len()).map(|row| reader.read(row)).collect()
}

/// Matches a state with stored fields.
pub(crate) fn plan<T: State>(stored: &Schema) -> Result<Plan, Error> {
    let planned = if <T as Input<'_>>::ROW {
        T::plan(&Field::new("", DataType::Struct(stored.fields.clone()), false), "")
    } else {
        match &stored.fields[..] {
            [field] => T::plan(field, &field.name),
            fields => Err(format!("a single value is stored as one field, not as {}", fields.len())),
        }
    };
    planned.map_err(|e| Error::Failed(format!("the stored state has another schema: {e}")))
}

/// Reads stored values of a call.
pub struct Entries<'a, T: State>(<T as Input<'a>>::Reader);

impl<'a, T: State> Entries<'a, T> {
    /// For a struct of the value's columns.
    pub(crate) fn new(plan: &Plan, columns: &Array<'a>) -> Result<Self, Error> {
        if <T as Input<'a>>::ROW {
            return T::reader(plan, columns).map(Self);
        }
        let column = columns.columns().first();
        let column = column.ok_or_else(|| Error::Failed("a stored value without a column".to_owned()))?;
        T::reader(plan, column).map(Self)
    }
    #[inline]
    pub(crate) fn read(&self, row: usize) -> Result<T, Error> {
        <T as Input<'a>>::read(&self.0, row).map_err(|missing| null(&missing))
    }
}

#[cold]
fn null(missing: &Missing) -> Error {
    Error::Failed(format!("in the stored state {}", missing.reason()))
}

/// The columns `from..to` of a batch as a batch.
pub(crate) fn some_columns<'a>(batch: &Array<'a>, range: std::ops::Range<usize>) -> Array<'a> {
    let columns = batch.columns().get(range).unwrap_or_default().to_vec();
    Array { len: batch.len(), nulls: Nulls::default(), data: Data::Struct(columns) }
}

/// Single values are stored in one field: `value`, or `key` in a map.
macro_rules! single_values {
    ($([$($generics:tt)*] $rust:ty),+) => {$(
        impl<$($generics)*> State for $rust {
            fn columns() -> Vec<Field> {
                vec![Self::field("value")]
            }
            fn key_columns() -> Vec<Field> {
                vec![Self::field("key")]
            }
            fn write_columns(builder: &Self::Builder, to: &mut Encoder) {
                builder.write(to);
            }
        }
    )+};
}

single_values! {
    [] bool, [] i8, [] i16, [] i32, [] i64, [] f32, [] f64, [] String, [] Vec<u8>, [] Date, [] Timestamp,
    [] TimestampNtz, [const P: u8, const S: i8] Decimal<P, S>
}
