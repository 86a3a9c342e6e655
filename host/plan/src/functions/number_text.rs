//! What casts to string become where Arrow prints otherwise than Spark: floating-point numbers, and nested values.
//! `sql::casts` puts these in the place of the casts.

use super::function::{Function, array, unchanged};
use super::json_text::enclosed;
use super::times::instant_text;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::Result;
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use pelton_core::number::{push_decimal_plain, push_f32, push_f64};
use std::sync::Arc;

/// What `CAST(x AS string)` of a floating-point number becomes.
pub(crate) const FLOAT_TEXT: &str = "float_text";
/// What `CAST(x AS string)` of an array, a map or a struct becomes.
pub(crate) const NESTED_TEXT: &str = "nested_text";

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let text = |name| {
        Function::new(
            name,
            zone,
            |f, types| f.arguments(types.len(), 1..=1).and_then(|()| unchanged(f, types)),
            |_, _, _| Ok(DataType::Utf8),
            texts,
        )
        .udf()
    };
    vec![text(FLOAT_TEXT), text(NESTED_TEXT)]
}

fn texts(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let one = |row: usize| -> Result<Option<String>> {
        if values.is_null(row) {
            return Ok(None);
        }
        let mut out = Vec::new();
        write(function, &mut out, &values, row)?;
        Ok(Some(String::from_utf8_lossy(&out).into_owned()))
    };
    Ok(Arc::new((0..values.len()).map(one).collect::<Result<StringArray>>()?))
}

/// `1.0E-7`; `[1, null]`; `{a -> 1}`; `{5, x}`: as Spark's cast to string.
fn write(function: &Function, out: &mut Vec<u8>, values: &ArrayRef, row: usize) -> Result<()> {
    if values.is_null(row) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match values.data_type() {
        DataType::Float64 => push_f64(out, values.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => push_f32(out, values.as_primitive::<Float32Type>().value(row)),
        DataType::Decimal128(_, scale) => {
            push_decimal_plain(out, values.as_primitive::<Decimal128Type>().value(row), *scale)
        }
        DataType::List(_) => {
            let items = values.as_list::<i32>().value(row);
            enclosed(out, b"[]", ", ", 0..items.len(), |out, at| write(function, out, &items, at))?;
        }
        DataType::Struct(_) => {
            let columns = values.as_struct().columns();
            enclosed(out, b"{}", ", ", columns.iter(), |out, column| write(function, out, column, row))?;
        }
        DataType::Map(..) => {
            let entries = values.as_map().value(row);
            enclosed(out, b"{}", ", ", 0..entries.len(), |out, at| {
                write(function, out, entries.column(0), at)?;
                out.extend_from_slice(b" -> ");
                write(function, out, entries.column(1), at)
            })?;
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            let micros = values.as_primitive::<TimestampMicrosecondType>().value(row);
            out.extend_from_slice(instant_text(function, micros)?.as_bytes());
        }
        DataType::Binary => out.extend_from_slice(values.as_binary::<i32>().value(row)),
        _ => out.extend_from_slice(array_value_to_string(values, row)?.as_bytes()),
    }
    Ok(())
}
