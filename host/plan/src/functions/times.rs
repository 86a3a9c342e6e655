//! Timestamps and dates from and to text and numbers, with Spark's patterns.

use super::clock::days;
use super::function::{Function, Remembered, array, at, failed, text};
use super::pattern::Pattern;
use super::timestamp;
use chrono::{DateTime, Timelike};
use chrono_tz::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, Int64Array, StringBuilder,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use std::sync::Arc;

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let from_text = |name, strict: bool| {
        let invoke = if strict { to_timestamp_or_fail } else { to_timestamp_or_null };
        Function::new(name, zone, time_and_pattern, |f, _, _| Ok(instant(f)), invoke)
    };
    let seconds = |f: &Function, types: &[DataType]| {
        f.arguments(types.len(), 0..=2)?;
        if types.is_empty() { Ok(Vec::new()) } else { time_and_pattern(f, types) }
    };
    vec![
        from_text("to_timestamp", true).also(&["to_timestamp_ltz"]).udf(),
        from_text("try_to_timestamp", false).udf(),
        Function::new("to_date", zone, time_and_pattern, |_, _, _| Ok(DataType::Date32), to_date)
            .also(&["date"])
            .udf(),
        Function::new("date_format", zone, printing, |_, _, _| Ok(DataType::Utf8), date_format).udf(),
        Function::new("from_unixtime", zone, unix_printing, |_, _, _| Ok(DataType::Utf8), date_format).udf(),
        Function::new("unix_timestamp", zone, seconds, |_, _, _| Ok(DataType::Int64), unix_timestamp)
            .also(&["to_unix_timestamp"])
            .per_batch()
            .udf(),
        counted("timestamp_seconds", zone, 1_000_000),
        counted("timestamp_millis", zone, 1_000),
        counted("timestamp_micros", zone, 1),
        unix("unix_seconds", zone, 1_000_000),
        unix("unix_millis", zone, 1_000),
        unix("unix_micros", zone, 1),
        Function::new(TIMESTAMP_TEXT, zone, one_instant, |_, _, _| Ok(DataType::Utf8), timestamp_text).udf(),
        Function::new(
            FRACTIONAL_SECONDS,
            zone,
            one_instant,
            |_, _, _| Ok(DataType::Float64),
            |_, args| fractional_seconds(args),
        )
        .udf(),
        Function::new(
            SECOND_OF_MINUTE,
            zone,
            one_instant,
            |_, _, _| Ok(DataType::Decimal128(8, 6)),
            second_of_minute,
        )
        .udf(),
    ]
}

/// What `CAST(ts AS string)` becomes.
pub(crate) const TIMESTAMP_TEXT: &str = "timestamp_text";
/// What `CAST(ts AS double)` becomes.
pub(crate) const FRACTIONAL_SECONDS: &str = "timestamp_fractional_seconds";
/// What `extract(SECOND FROM ts)` becomes.
pub(crate) const SECOND_OF_MINUTE: &str = "timestamp_second_of_minute";

fn one_instant(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=1)?;
    Ok(vec![instant(function)])
}

/// One instant in the same form.
pub(super) fn instant_text(function: &Function, micros: i64) -> Result<String> {
    let by = pattern("yyyy-MM-dd HH:mm:ss.SSSSSS")?;
    let mut shown = String::new();
    if let Some(moment) = local(micros, zone(function)) {
        by.print(&moment, &mut shown);
    }
    Ok(shown.trim_end_matches('0').trim_end_matches('.').to_owned())
}

/// `2026-01-02 03:04:05.5`: on the clocks of the session's zone, zeros at the end of the fraction left out.
fn timestamp_text(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (times, zone) = (moments(function, args, |_| Ok(None))?, zone(function));
    let by = pattern("yyyy-MM-dd HH:mm:ss.SSSSSS")?;
    let (mut out, mut shown) = (StringBuilder::with_capacity(times.len(), times.len() * 20), String::new());
    for micros in &times {
        match micros.and_then(|micros| local(micros, zone)) {
            Some(moment) => {
                shown.clear();
                by.print(&moment, &mut shown);
                out.append_value(shown.trim_end_matches('0').trim_end_matches('.'));
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn fractional_seconds(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let Some(times) = values.as_primitive_opt::<TimestampMicrosecondType>() else {
        return exec_err!("expected a timestamp, not {}", values.data_type());
    };
    let seconds = times.iter().map(|t| t.map(|t| t as f64 / 1e6));
    Ok(Arc::new(seconds.collect::<datafusion::arrow::array::Float64Array>()))
}

/// With its fraction, as `decimal(8,6)`.
fn second_of_minute(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (times, zone) = (moments(function, args, |_| Ok(None))?, zone(function));
    let second = |micros: i64| {
        let at = local(micros, zone)?;
        Some(i128::from(at.second()) * 1_000_000 + i128::from(at.timestamp_subsec_micros()))
    };
    let seconds = times.iter().map(|micros| micros.and_then(second));
    Ok(Arc::new(seconds.collect::<Decimal128Array>().with_precision_and_scale(8, 6)?))
}

fn instant(function: &Function) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(function.time_zone.clone()))
}

fn zone(function: &Function) -> Tz {
    function.time_zone.parse().unwrap_or(Tz::UTC)
}

/// Text stays text, a time becomes a timestamp of the session's zone; then a pattern.
fn time_and_pattern(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=2)?;
    let first = match &types[0] {
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => instant(function),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => DataType::Utf8,
        other => {
            let found = pelton_core::types::type_name(other);
            return failed(format!("{}() takes text or a time, not {found}", function.name));
        }
    };
    Ok([first, DataType::Utf8].into_iter().take(types.len()).collect())
}

fn printing(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 2..=2)?;
    time_and_pattern(function, types)
}

fn unix_printing(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 1..=2)?;
    Ok([DataType::Int64, DataType::Utf8].into_iter().take(types.len()).collect())
}

fn pattern(text: &str) -> Result<Pattern> {
    Pattern::read(text).map_err(DataFusionError::Execution)
}

/// Moments, in microseconds, of a text or time argument. `on_bad` decides about text that is no timestamp.
fn moments(
    function: &Function,
    args: &ScalarFunctionArgs,
    on_bad: impl Fn(&str) -> Result<Option<i64>>,
) -> Result<TimestampMicrosecondArray> {
    let values = array(args, 0)?;
    if let Some(times) = values.as_primitive_opt::<TimestampMicrosecondType>() {
        return Ok(times.clone());
    }
    let texts = text(args, 0)?;
    let patterns = if args.args.len() > 1 { Some(text(args, 1)?) } else { None };
    let (zone, mut known) = (zone(function), Remembered::new());
    let mut read = |row: usize| -> Result<Option<i64>> {
        let Some(value) = at(&texts, row) else { return Ok(None) };
        let parsed = match &patterns {
            None => timestamp::parse(value, zone),
            Some(patterns) => match at(patterns, row) {
                None => return Ok(None),
                Some(by) => {
                    known.get(by, pattern)?.parse(value, zone).map(|moment| moment.timestamp_micros())
                }
            },
        };
        parsed.map_or_else(|| on_bad(value), |micros| Ok(Some(micros)))
    };
    (0..texts.len()).map(&mut read).collect()
}

fn not_a_time(name: &str) -> impl Fn(&str) -> Result<Option<i64>> + '_ {
    move |value| {
        failed(format!("{name}(): '{value}' is not a timestamp; use try_to_timestamp() to get NULL instead"))
    }
}

fn to_timestamp_or_fail(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let times = moments(function, args, not_a_time(function.name))?;
    Ok(Arc::new(times.with_timezone(function.time_zone.clone())))
}

fn to_timestamp_or_null(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let times = moments(function, args, |_| Ok(None))?;
    Ok(Arc::new(times.with_timezone(function.time_zone.clone())))
}

/// The day on the clocks of the session's zone.
fn to_date(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    if args.args.len() == 1 && values.as_string_opt::<i32>().is_some() {
        let texts = text(args, 0)?;
        let read = |row| match at(&texts, row) {
            None => Ok(None),
            Some(value) => match timestamp::parse_date(value) {
                Some(date) => Ok(Some(days(date))),
                None => failed(format!(
                    "to_date(): '{value}' is not a date; use try_cast(… AS DATE) to get NULL instead"
                )),
            },
        };
        return Ok(Arc::new((0..texts.len()).map(read).collect::<Result<Date32Array>>()?));
    }
    let (times, zone) = (moments(function, args, not_a_time("to_date"))?, zone(function));
    let day = |micros| local(micros, zone).map(|at| days(at.date_naive()));
    let dates: Date32Array = times.iter().map(|micros| micros.and_then(day)).collect();
    Ok(Arc::new(dates))
}

fn local(micros: i64, zone: Tz) -> Option<DateTime<Tz>> {
    DateTime::from_timestamp_micros(micros).map(|at| at.with_timezone(&zone))
}

/// Also `from_unixtime`, whose argument is in seconds and whose pattern may be missing.
fn date_format(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let times: TimestampMicrosecondArray = match values.as_primitive_opt::<Int64Type>() {
        Some(seconds) => seconds.iter().map(|s| s.and_then(|s| s.checked_mul(1_000_000))).collect(),
        None => moments(function, args_without_pattern(args)?.as_ref(), not_a_time("date_format"))?,
    };
    let patterns = if args.args.len() > 1 { Some(text(args, 1)?) } else { None };
    let (zone, mut known) = (zone(function), Remembered::new());
    let (mut out, mut shown) = (StringBuilder::with_capacity(times.len(), times.len() * 20), String::new());
    for row in 0..times.len() {
        let by = match &patterns {
            Some(patterns) => at(patterns, row),
            None => Some("yyyy-MM-dd HH:mm:ss"),
        };
        let moment = if times.is_valid(row) { local(times.value(row), zone) } else { None };
        match (moment, by) {
            (Some(moment), Some(by)) => {
                shown.clear();
                known.get(by, pattern)?.print(&moment, &mut shown);
                out.append_value(&shown);
            }
            _ => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// The pattern of `date_format` prints; its text argument is cast as Spark casts.
fn args_without_pattern(args: &ScalarFunctionArgs) -> Result<Box<ScalarFunctionArgs>> {
    let mut first = args.clone();
    first.args.truncate(1);
    Ok(Box::new(first))
}

fn unix_timestamp(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    if args.args.is_empty() {
        let now = super::clock::now_ms("unix_timestamp()")?.div_euclid(1000);
        return Ok(Arc::new(Int64Array::from(vec![now; args.number_rows])));
    }
    let is_text = array(args, 0)?.as_string_opt::<i32>().is_some();
    let times = match is_text && args.args.len() == 1 {
        true => {
            let texts = text(args, 0)?;
            let (zone, by) = (zone(function), pattern("yyyy-MM-dd HH:mm:ss")?);
            let read = |row| match at(&texts, row) {
                None => Ok(None),
                Some(value) => match by.parse(value, zone) {
                    Some(moment) => Ok(Some(moment.timestamp_micros())),
                    None => not_a_time("unix_timestamp")(value),
                },
            };
            (0..texts.len()).map(read).collect::<Result<TimestampMicrosecondArray>>()?
        }
        false => moments(function, args, not_a_time("unix_timestamp"))?,
    };
    // Towards zero, unlike unix_seconds().
    let seconds: Int64Array = times.iter().map(|t| t.map(|t| t / 1_000_000)).collect();
    Ok(Arc::new(seconds))
}

/// A timestamp from a count since the epoch; seconds may have a fraction.
fn counted(name: &'static str, time_zone: &Arc<str>, micros: i64) -> Arc<ScalarUDF> {
    let coerce = |f: &Function, types: &[DataType]| {
        f.arguments(types.len(), 1..=1)?;
        let fraction = types[0].is_floating() || matches!(types[0], DataType::Decimal128(..));
        Ok(vec![if fraction && f.name == "timestamp_seconds" { DataType::Float64 } else { DataType::Int64 }])
    };
    let invoke: super::function::Invoke = match micros {
        1_000_000 => |f, args| from_count(f, args, 1_000_000),
        1_000 => |f, args| from_count(f, args, 1_000),
        _ => |f, args| from_count(f, args, 1),
    };
    Function::new(name, time_zone, coerce, |f, _, _| Ok(instant(f)), invoke).udf()
}

fn from_count(function: &Function, args: &ScalarFunctionArgs, micros: i64) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let whole = |count: i64| match count.checked_mul(micros) {
        Some(micros) => Ok(micros),
        None => exec_err!("{}({count}) is out of range", function.name),
    };
    let times: TimestampMicrosecondArray = match values.as_primitive_opt::<Float64Type>() {
        Some(seconds) => seconds.iter().map(|s| s.map(|s| (s * micros as f64) as i64)).collect(),
        None => {
            let counts = values.as_primitive::<Int64Type>();
            counts.iter().map(|count| count.map(whole).transpose()).collect::<Result<_>>()?
        }
    };
    Ok(Arc::new(times.with_timezone(function.time_zone.clone())))
}

/// A count since the epoch from a timestamp.
fn unix(name: &'static str, time_zone: &Arc<str>, micros: i64) -> Arc<ScalarUDF> {
    let coerce = |f: &Function, types: &[DataType]| {
        f.arguments(types.len(), 1..=1)?;
        Ok(vec![instant(f)])
    };
    let invoke: super::function::Invoke = match micros {
        1_000_000 => |_, args| to_count(args, 1_000_000),
        1_000 => |_, args| to_count(args, 1_000),
        _ => |_, args| to_count(args, 1),
    };
    Function::new(name, time_zone, coerce, |_, _, _| Ok(DataType::Int64), invoke).udf()
}

fn to_count(args: &ScalarFunctionArgs, micros: i64) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    let Some(times) = values.as_primitive_opt::<TimestampMicrosecondType>() else {
        return exec_err!("expected a timestamp, not {}", values.data_type());
    };
    let counts: Int64Array = times.iter().map(|t| t.map(|t| t.div_euclid(micros))).collect();
    Ok(Arc::new(counts))
}
