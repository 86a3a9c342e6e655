//! Optional values, arrays, maps, structs, and the argument lists of functions.

use super::{Input, Missing, Plan, join, unsuitable};
use crate::array::{Array, Data, Nulls, Offsets, mismatch};
use crate::error::Error;
use crate::types::{DataType, Field, Schema, did_you_mean, index_of};
use std::collections::BTreeMap;

impl<'a, T: Input<'a>> Input<'a> for Option<T> {
    type Reader = T::Reader;

    fn plan(found: &Field, path: &str) -> Result<Plan, String> {
        T::plan(found, path)
    }
    fn reader(plan: &Plan, array: &Array<'a>) -> Result<Self::Reader, Error> {
        T::reader(plan, array)
    }
    #[inline]
    fn is_null(_: &Self::Reader, _: usize) -> bool {
        false
    }
    #[inline]
    fn value(reader: &Self::Reader, row: usize) -> Result<Self, Missing> {
        if T::is_null(reader, row) { Ok(None) } else { T::value(reader, row).map(Some) }
    }
}

/// Reads an array column.
#[derive(Debug)]
pub struct Lists<'a, R> {
    nulls: Nulls<'a>,
    offsets: Offsets<'a>,
    items: R,
}

impl<'a, T: Input<'a>> Input<'a> for Vec<T> {
    type Reader = Lists<'a, T::Reader>;

    fn plan(found: &Field, path: &str) -> Result<Plan, String> {
        let DataType::List(item) = &found.data_type else { return unsuitable("an array", found, path) };
        let items = T::plan(item, &format!("{path}[]"))?;
        Ok(Plan { index: 0, parts: vec![items] })
    }
    fn reader(plan: &Plan, array: &Array<'a>) -> Result<Self::Reader, Error> {
        let Data::List(offsets, items) = &array.data else { return Err(mismatch("an array")) };
        Ok(Lists { nulls: array.nulls, offsets: *offsets, items: T::reader(plan.part(0), items)? })
    }
    #[inline]
    fn is_null(reader: &Self::Reader, row: usize) -> bool {
        reader.nulls.is_null(row)
    }
    fn value(reader: &Self::Reader, row: usize) -> Result<Self, Missing> {
        reader.offsets.range(row).map(|item| T::read(&reader.items, item)).collect()
    }
}

/// Reads a map column.
#[derive(Debug)]
pub struct Maps<'a, K, V> {
    nulls: Nulls<'a>,
    offsets: Offsets<'a>,
    keys: K,
    values: V,
}

fn plan_map<'a, K: Input<'a>, V: Input<'a>>(found: &Field, path: &str) -> Result<Plan, String> {
    let DataType::Map(key, value) = &found.data_type else { return unsuitable("a map", found, path) };
    let key = K::plan(key, &format!("{path}.key"))?;
    let value = V::plan(value, &format!("{path}.value"))?;
    Ok(Plan { index: 0, parts: vec![key, value] })
}

fn map_reader<'a, K: Input<'a>, V: Input<'a>>(
    plan: &Plan,
    array: &Array<'a>,
) -> Result<Maps<'a, K::Reader, V::Reader>, Error> {
    let Data::Map(offsets, keys, values) = &array.data else { return Err(mismatch("a map")) };
    let keys = K::reader(plan.part(0), keys)?;
    let values = V::reader(plan.part(1), values)?;
    Ok(Maps { nulls: array.nulls, offsets: *offsets, keys, values })
}

/// Both ways to hold a map.
macro_rules! maps {
    ($($rust:ty, $($bound:path)?;)+) => {$(
        impl<'a, K: Input<'a> $(+ $bound)?, V: Input<'a>> Input<'a> for $rust {
            type Reader = Maps<'a, K::Reader, V::Reader>;

            fn plan(found: &Field, path: &str) -> Result<Plan, String> {
                plan_map::<K, V>(found, path)
            }
            fn reader(plan: &Plan, array: &Array<'a>) -> Result<Self::Reader, Error> {
                map_reader::<K, V>(plan, array)
            }
            #[inline]
            fn is_null(reader: &Self::Reader, row: usize) -> bool {
                reader.nulls.is_null(row)
            }
            fn value(reader: &Self::Reader, row: usize) -> Result<Self, Missing> {
                let entry = |at| Ok((K::read(&reader.keys, at)?, V::read(&reader.values, at)?));
                reader.offsets.range(row).map(entry).collect()
            }
        }
    )+};
}

maps! {
    Vec<(K, V)>, ;
    BTreeMap<K, V>, Ord;
}

/// Matches the fields of a struct with columns by name; used by `#[derive(Row)]`.
pub struct StructPlan<'f> {
    fields: &'f [Field],
    path: &'f str,
    plan: Plan,
}

impl<'f> StructPlan<'f> {
    /// # Errors
    /// If the column is not a struct.
    pub fn new(found: &'f Field, path: &'f str) -> Result<Self, String> {
        match &found.data_type {
            DataType::Struct(fields) => Ok(Self { fields, path, plan: Plan::default() }),
            _ => unsuitable("a struct", found, path),
        }
    }

    /// Matches the next field of the struct.
    ///
    /// # Errors
    /// If there is no such column, or it is of another type.
    pub fn field<'a, T: Input<'a>>(&mut self, name: &str) -> Result<(), String> {
        let path = join(self.path, name);
        let Some(index) = index_of(self.fields, name) else {
            let near = did_you_mean(name, self.fields.iter().map(|f| f.name.as_str()));
            return Err(format!("there is no column '{path}'{near}"));
        };
        let part = T::plan(&self.fields[index], &path)?;
        self.plan.parts.push(Plan { index, ..part });
        Ok(())
    }

    /// The plan.
    pub fn finish(self) -> Plan {
        self.plan
    }
}

/// How a struct finds its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// By name: rows of a table.
    Name,
    /// By name or, if no name is known, in order: arguments of an expression.
    NameOrOrder,
}

/// What a function takes of each row: one struct for the whole row, or the columns in order.
pub trait Arguments<'a>: Sized {
    /// Reads the arguments of one batch.
    type Reader;
    /// Matches the arguments with the columns.
    ///
    /// # Errors
    /// A message for the user of the function.
    fn plan(schema: &Schema, matching: Matching) -> Result<Plan, String>;
    /// A reader for one batch.
    ///
    /// # Errors
    /// As [`Input::reader`].
    fn reader(plan: &Plan, rows: &Array<'a>) -> Result<Self::Reader, Error>;
    /// The arguments of one row.
    ///
    /// # Errors
    /// Why the row is refused: something is null that must not be.
    fn read(reader: &Self::Reader, row: usize) -> Result<Self, String>;
}

/// A whole row as the struct field that [`Input::plan`] expects. The arguments of an SQL expression have no
/// names to rely on: if none is one that the struct reads, they are matched in order.
fn plan_row<'a, T: Input<'a>>(schema: &Schema, matching: Matching) -> Result<Plan, String> {
    let mut fields = schema.fields.clone();
    let unnamed = !fields.iter().any(|f| T::FIELDS.contains(&f.name.as_str()));
    if matching == Matching::NameOrOrder && unnamed && fields.len() == T::FIELDS.len() {
        for (field, name) in fields.iter_mut().zip(T::FIELDS) {
            field.name = (*name).to_owned();
        }
    }
    T::plan(&Field::new("", DataType::Struct(fields), false), "")
}

macro_rules! arguments {
    ($count:literal: $($name:ident $index:tt),+) => {
        impl<'a, $($name: Input<'a>),+> Arguments<'a> for ($($name,)+) {
            type Reader = ($($name::Reader,)+);

            fn plan(schema: &Schema, matching: Matching) -> Result<Plan, String> {
                if $count == 1 && T0::ROW {
                    return plan_row::<T0>(schema, matching);
                }
                if schema.fields.len() != $count {
                    let found = schema.fields.len();
                    return Err(format!("the function takes {} arguments instead of {found}", $count));
                }
                let mut plan = Plan::default();
                $(
                    let field = &schema.fields[$index];
                    plan.parts.push(Plan { index: $index, ..$name::plan(field, &field.name)? });
                )+
                Ok(plan)
            }
            fn reader(plan: &Plan, rows: &Array<'a>) -> Result<Self::Reader, Error> {
                if $count == 1 && T0::ROW {
                    // The other places are never reached: there is one argument only.
                    return Ok(($($name::reader(plan, rows)?,)+));
                }
                Ok(($($name::reader(plan.part($index), plan.column($index, rows)?)?,)+))
            }
            #[inline]
            fn read(reader: &Self::Reader, row: usize) -> Result<Self, String> {
                let reason = |missing: Missing, index| match $count == 1 && T0::ROW {
                    true => missing.reason(),
                    false => missing.reason_in_argument(index),
                };
                Ok(($($name::read(&reader.$index, row).map_err(|missing| reason(missing, $index))?,)+))
            }
        }
    };
}

arguments!(1: T0 0);
arguments!(2: T0 0, T1 1);
arguments!(3: T0 0, T1 1, T2 2);
arguments!(4: T0 0, T1 1, T2 2, T3 3);
arguments!(5: T0 0, T1 1, T2 2, T3 3, T4 4);
arguments!(6: T0 0, T1 1, T2 2, T3 3, T4 4, T5 5);
arguments!(7: T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6);
arguments!(8: T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7);
