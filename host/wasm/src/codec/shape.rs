//! What schemas may look like at the sandbox's wall. Both encodings use it. It reads no bytes.

use crate::limits::Limits;
use arrow::datatypes::{DataType, FieldRef, Schema, TimeUnit};
use std::collections::HashSet;

/// Whether a type is one of `core::types`' table; else the part of it that is not.
pub(crate) fn check_type(data_type: &DataType) -> Result<(), DataType> {
    use DataType as T;
    match data_type {
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::Float32 | T::Float64 => Ok(()),
        T::Decimal128(..) | T::Utf8 | T::Binary | T::Date32 | T::Timestamp(TimeUnit::Microsecond, _) => {
            Ok(())
        }
        T::List(item) => check_type(item.data_type()),
        T::Struct(fields) => fields.iter().try_for_each(|field| check_type(field.data_type())),
        T::Map(entries, _) => match entries.data_type() {
            T::Struct(kv) if kv.len() == 2 => kv.iter().try_for_each(|field| check_type(field.data_type())),
            _ => Err(data_type.clone()),
        },
        other => Err(other.clone()),
    }
}

/// The first name that comes a second time.
pub(crate) fn twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// Names, number and depth of the columns that a guest declares.
pub(crate) fn check_schema(schema: &Schema, limits: &Limits) -> Result<(), String> {
    if schema.fields().is_empty() {
        return Err("its schema has no columns".into());
    }
    let mut left = limits.schema_columns;
    check_fields(schema.fields(), "", limits.schema_depth, &mut left)
}

fn check_fields(fields: &[FieldRef], within: &str, depth: usize, left: &mut usize) -> Result<(), String> {
    if depth == 0 {
        return Err("its schema is nested too deeply (limit schema_depth)".into());
    }
    if let Some(name) = twice(fields.iter().map(|f| f.name().as_str())) {
        return Err(format!("its schema has two columns named '{}'", shown(within, name)));
    }
    for field in fields {
        *left = left.checked_sub(1).ok_or("its schema has too many columns (limit schema_columns)")?;
        let name = shown(within, field.name());
        if field.name().is_empty() {
            return Err(format!("its schema has a column without a name{}", location(within)));
        }
        if field.name().len() > NAME_BYTES || field.name().contains(char::is_control) {
            return Err(format!("its schema has a column whose name is no name: '{name}'"));
        }
        match field.data_type() {
            DataType::List(inner) | DataType::Map(inner, _) => {
                check_fields(std::slice::from_ref(inner), &name, depth - 1, left)?;
            }
            DataType::Struct(inner) if inner.is_empty() => {
                return Err(format!("its column '{name}' is a struct without fields"));
            }
            DataType::Struct(inner) => check_fields(inner, &name, depth - 1, left)?,
            _ => {}
        }
    }
    Ok(())
}

/// The longest name of a column.
const NAME_BYTES: usize = 1 << 10;

fn shown(within: &str, name: &str) -> String {
    let name = crate::limits::clean_text(name, 80);
    if within.is_empty() { name } else { format!("{within}.{name}") }
}

fn location(within: &str) -> String {
    if within.is_empty() { String::new() } else { format!(" in '{within}'") }
}
