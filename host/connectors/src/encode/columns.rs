//! Arrow arrays opened up for writing row by row: the type of every column is looked at once a batch.

use super::datetime::ZoneClock;
use super::json::push_string;
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, RecordBatch, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType,
};
use pelton_core::types::type_name;
use pelton_core::{Error, Result};

/// A column of a batch, or a field of a nested one.
pub(crate) struct Column<'a> {
    /// The name as it stands in JSON before every value but the first: `,"name":`.
    pub(crate) key: Vec<u8>,
    nulls: Option<&'a NullBuffer>,
    pub(crate) values: Values<'a>,
}

/// The values of a column, one variant a type of `pelton_core::types`.
pub(crate) enum Values<'a> {
    Boolean(&'a BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    /// Unscaled values and their scale.
    Decimal(&'a [i128], i8),
    Utf8(&'a StringArray),
    Binary(&'a BinaryArray),
    Date(&'a [i32]),
    /// Microseconds; without a clock for timestamps without time zone.
    Timestamp(&'a [i64], Option<ZoneClock>),
    List(&'a [i32], Box<Column<'a>>),
    Map {
        offsets: &'a [i32],
        keys: Box<Column<'a>>,
        values: Box<Column<'a>>,
    },
    Struct(Vec<Column<'a>>),
}

impl<'a> Column<'a> {
    /// All columns of a batch.
    pub(crate) fn of(batch: &'a RecordBatch) -> Result<Vec<Self>> {
        let fields = batch.schema_ref().fields().iter();
        fields.zip(batch.columns()).map(|(field, array)| Self::new(field, array)).collect()
    }

    fn new(field: &'a Field, array: &'a ArrayRef) -> Result<Self> {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let mut key = vec![b','];
        push_string(&mut key, field.name().as_bytes());
        key.push(b':');
        Ok(Self { key, nulls, values: Values::new(field, array)? })
    }

    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }
}

impl<'a> Values<'a> {
    fn new(field: &'a Field, array: &'a ArrayRef) -> Result<Self> {
        let values = match array.data_type() {
            DataType::Boolean => array.as_boolean_opt().map(Self::Boolean),
            DataType::Int8 => array.as_primitive_opt::<Int8Type>().map(|a| Self::Int8(a.values())),
            DataType::Int16 => array.as_primitive_opt::<Int16Type>().map(|a| Self::Int16(a.values())),
            DataType::Int32 => array.as_primitive_opt::<Int32Type>().map(|a| Self::Int32(a.values())),
            DataType::Int64 => array.as_primitive_opt::<Int64Type>().map(|a| Self::Int64(a.values())),
            DataType::Float32 => array.as_primitive_opt::<Float32Type>().map(|a| Self::Float32(a.values())),
            DataType::Float64 => array.as_primitive_opt::<Float64Type>().map(|a| Self::Float64(a.values())),
            DataType::Decimal128(_, scale) => {
                array.as_primitive_opt::<Decimal128Type>().map(|a| Self::Decimal(a.values(), *scale))
            }
            DataType::Utf8 => array.as_string_opt().map(Self::Utf8),
            DataType::Binary => array.as_binary_opt().map(Self::Binary),
            DataType::Date32 => array.as_primitive_opt::<Date32Type>().map(|a| Self::Date(a.values())),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let clock = zone.as_deref().map(ZoneClock::new).transpose()?;
                array
                    .as_primitive_opt::<TimestampMicrosecondType>()
                    .map(|a| Self::Timestamp(a.values(), clock))
            }
            DataType::List(_) | DataType::Map(..) | DataType::Struct(_) => return Self::nested(array),
            _ => None,
        };
        values.ok_or_else(|| cannot_write(field.name(), array.data_type()))
    }

    fn nested(array: &'a ArrayRef) -> Result<Self> {
        match array.data_type() {
            DataType::List(item) => {
                let list = array.as_list::<i32>();
                Ok(Self::List(list.value_offsets(), Box::new(Column::new(item, list.values())?)))
            }
            DataType::Map(entries, _) => {
                let map = array.as_map();
                let DataType::Struct(fields) = entries.data_type() else {
                    return Err(cannot_write(entries.name(), array.data_type()));
                };
                let keys = Box::new(Column::new(&fields[0], map.keys())?);
                let values = Box::new(Column::new(&fields[1], map.values())?);
                Ok(Self::Map { offsets: map.value_offsets(), keys, values })
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                Ok(Self::Struct(columns.map(|(f, a)| Column::new(f, a)).collect::<Result<_>>()?))
            }
            other => Err(cannot_write("", other)),
        }
    }
}

/// Where the items of a list or map lie.
pub(crate) fn range(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    offsets[row] as usize..offsets[row + 1] as usize
}

/// Plans cast to the types of the table; a column that is none is the planner's mistake.
fn cannot_write(name: &str, data_type: &DataType) -> Error {
    Error::internal(format!("column '{name}' of type {} reached an encoder", type_name(data_type)))
}
