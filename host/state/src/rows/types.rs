//! Which types can be stored, and when two types are stored alike. Called by the codec; looks at no data.

use arrow::datatypes::DataType;
use pelton_core::{Error, Result};

/// Refuses a type that rows of state cannot have.
pub(super) fn storable(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) => storable(field.data_type()),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| storable(field.data_type())),
        DataType::Map(entries, _) => storable(entries.data_type()),
        DataType::Null | DataType::Boolean => Ok(()),
        other if is_bytes(other) || fixed_width(other).is_some() => Ok(()),
        other => Err(Error::invalid(format!("values of type {other} cannot be kept in state"))
            .hint("cast the column to a plain type first")),
    }
}

/// Whether values are strings or binary of any length.
pub(super) fn is_bytes(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(data_type, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

/// The bytes of a value, if every value has as many.
pub(super) fn fixed_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        other => other.primitive_width(),
    }
}

/// Whether two types are the same but for the names and the nullability of what is inside.
pub(super) fn alike(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::List(left), DataType::List(right))
        | (DataType::LargeList(left), DataType::LargeList(right))
        | (DataType::Map(left, _), DataType::Map(right, _)) => alike(left.data_type(), right.data_type()),
        (DataType::Struct(left), DataType::Struct(right)) => {
            let same = |(left, right): (&_, &_)| alike_fields(left, right);
            left.len() == right.len() && left.iter().zip(right).all(same)
        }
        _ => left == right,
    }
}

fn alike_fields(left: &arrow::datatypes::FieldRef, right: &arrow::datatypes::FieldRef) -> bool {
    alike(left.data_type(), right.data_type())
}
