//! An array of a file's type as an array of the declared type, where nothing is lost by it.

use arrow::array::cast::AsArray;
use arrow::array::types::TimestampMicrosecondType;
use arrow::array::{Array, ArrayRef, ListArray, MapArray, StructArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Fields, TimeUnit};
use pelton_core::types::{normalize, type_name};
use pelton_core::{Error, Result};
use std::sync::Arc;

/// `array` as `wanted`; structs by name, missing fields null. An error of kind `Data` if values could be lost.
pub(crate) fn adapt(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    let found = array.data_type();
    match (found, wanted) {
        _ if found == wanted => Ok(array.clone()),
        (DataType::Struct(_), DataType::Struct(fields)) => adapt_struct(array.as_struct(), fields),
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let values = adapt(list.values(), item.data_type())?;
            let nulls = list.nulls().cloned();
            Ok(Arc::new(ListArray::try_new(item.clone(), list.offsets().clone(), values, nulls)?))
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let map = array.as_map();
            let DataType::Struct(kv) = entries.data_type() else { return Err(other(found, wanted)) };
            let keys = adapt(map.keys(), kv[0].data_type())?;
            let values = adapt(map.values(), kv[1].data_type())?;
            let pairs = StructArray::try_new(kv.clone(), vec![keys, values], None)?;
            let nulls = map.nulls().cloned();
            Ok(Arc::new(MapArray::try_new(entries.clone(), map.offsets().clone(), pairs, nulls, *sorted)?))
        }
        // The old 96-bit timestamps are instants although their type does not say so.
        (DataType::Timestamp(TimeUnit::Nanosecond, None), DataType::Timestamp(_, Some(zone))) => {
            let micros = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            let instants = micros.as_primitive::<TimestampMicrosecondType>().clone();
            Ok(Arc::new(instants.with_timezone(zone.clone())))
        }
        _ if same(found, wanted) || widens(found, wanted) => Ok(cast(array, wanted)?),
        _ => Err(other(found, wanted)),
    }
}

fn adapt_struct(array: &StructArray, fields: &Fields) -> Result<ArrayRef> {
    if fields.is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(array.len(), array.nulls().cloned())));
    }
    let column = |field: &arrow::datatypes::FieldRef| {
        let place = array.fields().iter().position(|f| f.name().eq_ignore_ascii_case(field.name()));
        match place {
            None => Ok(new_null_array(field.data_type(), array.len())),
            Some(i) => adapt(array.column(i), field.data_type())
                .map_err(|e| e.context(format!("field '{}'", field.name()))),
        }
    };
    let columns = fields.iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, array.nulls().cloned())?))
}

/// The same Spark type in another Arrow form.
fn same(found: &DataType, wanted: &DataType) -> bool {
    let zone = match wanted {
        DataType::Timestamp(_, Some(zone)) => zone,
        _ => "UTC",
    };
    normalize(found, zone).as_ref() == Some(wanted)
}

/// What Spark's Parquet reader widens.
fn widens(found: &DataType, wanted: &DataType) -> bool {
    use DataType as T;
    match (found, wanted) {
        (T::Int8, T::Int16 | T::Int32 | T::Int64 | T::Float64) => true,
        (T::Int16, T::Int32 | T::Int64 | T::Float64) => true,
        (T::Int32, T::Int64 | T::Float64) => true,
        (T::UInt8 | T::UInt16 | T::UInt32, T::Int64) => true,
        (T::Float32, T::Float64) => true,
        (T::Date32, T::Timestamp(_, None)) => true,
        (T::Int32, T::Decimal128(p, s)) => i16::from(*p) - i16::from(*s) >= 10,
        (T::Int64, T::Decimal128(p, s)) => i16::from(*p) - i16::from(*s) >= 20,
        (T::Decimal128(p, s) | T::Decimal64(p, s) | T::Decimal32(p, s), T::Decimal128(wp, ws)) => {
            ws >= s && i16::from(*wp) - i16::from(*ws) >= i16::from(*p) - i16::from(*s)
        }
        _ => false,
    }
}

fn other(found: &DataType, wanted: &DataType) -> Error {
    Error::data(format!("the file has {}, the schema {}", type_name(found), type_name(wanted)))
        .hint("declare the column with the file's type and CAST it in a step")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringViewArray, TimestampNanosecondArray};
    use pelton_core::types::parse_type;

    fn adapted(array: impl Array + 'static, wanted: &str) -> Result<ArrayRef> {
        adapt(&(Arc::new(array) as ArrayRef), &parse_type(wanted, "UTC").unwrap())
    }

    #[test]
    fn widens_without_loss_and_refuses_the_rest() {
        let ints = || Int32Array::from(vec![Some(1), None]);
        assert_eq!(adapted(ints(), "long").unwrap().data_type(), &DataType::Int64);
        assert_eq!(adapted(ints(), "decimal(12,2)").unwrap().null_count(), 1);
        let error = adapted(ints(), "string").unwrap_err();
        assert_eq!(error.message(), "the file has int, the schema string");
        assert!(adapted(ints(), "short").is_err());
        assert!(adapted(StringViewArray::from(vec!["x"]), "string").is_ok());
        assert!(adapted(TimestampNanosecondArray::from(vec![1_000]), "timestamp").is_ok());
    }

    #[test]
    fn structs_go_by_name() {
        let found = StructArray::from(vec![(
            Arc::new(arrow::datatypes::Field::new("B", DataType::Int32, false)),
            Arc::new(Int32Array::from(vec![7])) as ArrayRef,
        )]);
        let adapted = adapted(found, "struct<a: string, b: long>").unwrap();
        assert_eq!(adapted.as_struct().column(0).null_count(), 1);
        assert_eq!(adapted.as_struct().column(1).data_type(), &DataType::Int64);
    }
}
