//! `make_timestamp`, a timestamp from its parts; `typeof`, the name of a type.

use super::function::{Function, array, at, failed, text};
use super::timestamp::in_zone;
use chrono::{NaiveDate, TimeDelta};
use chrono_tz::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Fields, Int32Type, TimeUnit};
use datafusion::common::Result;
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use pelton_core::types::type_name;
use std::sync::Arc;

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    vec![
        Function::new("make_timestamp", zone, parts, |f, _, _| Ok(instant(f)), make_timestamp)
            .also(&["make_timestamp_ltz"])
            .udf(),
        Function::new("typeof", zone, anything, |_, _, _| Ok(DataType::Utf8), |_, args| type_of(args)).udf(),
    ]
}

fn instant(function: &Function) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(function.time_zone.clone()))
}

/// Year, month, day, hour and minute; seconds with six places behind the point; perhaps a zone.
fn parts(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 6..=7)?;
    let mut parts = vec![DataType::Int32; 5];
    parts.extend([DataType::Decimal128(16, 6), DataType::Utf8]);
    parts.truncate(types.len());
    Ok(parts)
}

fn make_timestamp(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let wholes = (0..5).map(|index| Ok(array(args, index)?.as_primitive::<Int32Type>().clone()));
    let wholes = wholes.collect::<Result<Vec<Int32Array>>>()?;
    let seconds = array(args, 5)?.as_primitive::<Decimal128Type>().clone();
    let zones = if args.args.len() > 6 { Some(text(args, 6)?) } else { None };
    let session: Tz = function.time_zone.parse().unwrap_or(Tz::UTC);
    let one = |row: usize| -> Result<Option<i64>> {
        if wholes.iter().any(|part| part.is_null(row)) || seconds.is_null(row) {
            return Ok(None);
        }
        let zone = match &zones {
            None => session,
            Some(zones) => match at(zones, row) {
                None => return Ok(None),
                Some(zone) => match zone.parse() {
                    Ok(zone) => zone,
                    Err(_) => return failed(format!("make_timestamp(): '{zone}' is no time zone")),
                },
            },
        };
        let parts: Vec<i32> = wholes.iter().map(|part| part.value(row)).collect();
        match micros(&parts, seconds.value(row), zone) {
            Some(micros) => Ok(Some(micros)),
            None => {
                let shown: Vec<String> = parts.iter().map(ToString::to_string).collect();
                let second = seconds.value_as_string(row);
                failed(format!("make_timestamp({}, {second}) is no time", shown.join(", ")))
            }
        }
    };
    let times = (0..args.number_rows).map(one).collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(Arc::new(times.with_timezone(function.time_zone.clone())))
}

/// `second` is in microseconds. As in Spark, 60 seconds without a fraction are the next minute.
fn micros(parts: &[i32], second: i128, zone: Tz) -> Option<i64> {
    let [year, month, day, hour, minute] = *parts else { return None };
    let part = |part: i32| u32::try_from(part).ok();
    let date = NaiveDate::from_ymd_opt(year, part(month)?, part(day)?)?;
    let second = i64::try_from(second).ok().filter(|second| (0..=60_000_000).contains(second))?;
    let time = date.and_hms_opt(part(hour)?, part(minute)?, 0)?;
    let local = time.checked_add_signed(TimeDelta::microseconds(second))?;
    in_zone(local, zone).map(|at| at.timestamp_micros())
}

fn anything(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    Ok(types.to_vec())
}

fn type_of(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let name = args.arg_fields.first().map(|field| catalog_name(field.data_type())).unwrap_or_default();
    Ok(Arc::new(StringArray::from(vec![name; args.number_rows])))
}

/// Spark's catalog string of a type: what `typeof` says.
fn catalog_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "void".into(),
        DataType::Int8 => "tinyint".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int64 => "bigint".into(),
        DataType::List(item) => format!("array<{}>", catalog_name(item.data_type())),
        DataType::Struct(fields) => format!("struct<{}>", catalog_names(fields)),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                format!("map<{},{}>", catalog_name(pair[0].data_type()), catalog_name(pair[1].data_type()))
            }
            other => type_name(other),
        },
        other => type_name(other),
    }
}

fn catalog_names(fields: &Fields) -> String {
    let fields = fields.iter().map(|field| format!("{}:{}", field.name(), catalog_name(field.data_type())));
    fields.collect::<Vec<_>>().join(",")
}
