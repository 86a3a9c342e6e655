//! Spark's time windows as functions: `window`, `session_window`, `window_time`.
//!
//! In a GROUP BY the planner takes `window` and `session_window` out of the expression and gives them to the
//! aggregation as what they are; elsewhere a window is a value: one struct a row, or several rows ([`WINDOWS`]) if
//! windows overlap.

use super::function::{Function, array, unchanged};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, StructArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Fields, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{Expr, ScalarFunctionArgs, ScalarUDF};
use pelton_core::Interval;
use std::sync::Arc;

/// `window(time, size[, slide[, start]])`: the window of a row, if windows do not overlap.
pub(crate) const WINDOW: &str = "window";
/// `session_window(time, gap)`: has a value only as a key of GROUP BY.
pub(crate) const SESSION_WINDOW: &str = "session_window";
/// `window_time(window)`: the last moment of a window, one microsecond before its end.
pub(crate) const WINDOW_TIME: &str = "window_time";
/// All windows of a row, as a list.
pub(crate) const WINDOWS: &str = "time_windows";
/// A duration's text or interval as microseconds; NULL if it is none.
pub(crate) const DURATION_MICROS: &str = "duration_micros";

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    vec![
        Function::new(WINDOW, zone, time_first, |f, _, constants| window_type(f, constants), window).udf(),
        Function::new(WINDOWS, zone, time_first, |f, _, constants| windows_type(f, constants), windows).udf(),
        Function::new(
            SESSION_WINDOW,
            zone,
            time_first,
            |f, _, _| Ok(struct_type(f)),
            |_, _| exec_err!("session_window() is a key of GROUP BY and nothing else"),
        )
        .udf(),
        Function::new(WINDOW_TIME, zone, unchanged, window_time_type, |_, args| window_time(args)).udf(),
        Function::new(
            DURATION_MICROS,
            zone,
            unchanged,
            |_, _, _| Ok(DataType::Int64),
            |_, args| duration_micros(args),
        )
        .udf(),
    ]
}

/// How many windows a row may be in.
const WINDOWS_MAX: i64 = 10_000;

/// A time window's length, step and offset, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowSpec {
    pub(crate) size_us: i64,
    pub(crate) slide_us: i64,
    pub(crate) start_us: i64,
}

impl WindowSpec {
    /// From the arguments of `window` behind the time.
    pub(crate) fn of(arguments: &[Expr]) -> Result<Self> {
        let constants = arguments.iter().map(|argument| match argument {
            Expr::Literal(value, _) => Some(value),
            Expr::Cast(cast) => match cast.expr.as_ref() {
                Expr::Literal(value, _) => Some(value),
                _ => None,
            },
            _ => None,
        });
        Self::read(&constants.collect::<Vec<_>>())
    }

    fn read(constants: &[Option<&ScalarValue>]) -> Result<Self> {
        let argument = |index: usize, what: &str| match constants.get(index) {
            None => Ok(None),
            Some(Some(value)) => micros(value, what).map(Some),
            Some(None) => plan_err!("the {what} of window() must be a constant such as '10 minutes'"),
        };
        let Some(size_us) = argument(0, "length")? else {
            return plan_err!("window() takes a time and a length, for example window(ts, '10 minutes')");
        };
        let slide_us = argument(1, "slide")?.unwrap_or(size_us);
        let start_us = argument(2, "start offset")?.unwrap_or(0);
        if size_us <= 0 || slide_us <= 0 {
            return plan_err!("the length and the slide of window() must be more than 0");
        }
        if slide_us > size_us {
            return plan_err!("the slide of window() must not be longer than the window");
        }
        if size_us / slide_us > WINDOWS_MAX {
            return plan_err!(
                "a row would be in {} windows; at most {WINDOWS_MAX} are possible",
                size_us / slide_us
            );
        }
        if start_us.abs() >= slide_us {
            return plan_err!("the start offset of window() must be shorter than the slide");
        }
        Ok(Self { size_us, slide_us, start_us })
    }

    /// The start of the last window that a moment is in.
    fn last_start(self, micros: i64) -> i64 {
        micros.saturating_sub(micros.saturating_sub(self.start_us).rem_euclid(self.slide_us))
    }
}

fn micros(value: &ScalarValue, what: &str) -> Result<i64> {
    let months = |text: &str| ["month", "year"].iter().any(|unit| text.to_lowercase().contains(unit));
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            if months(text) {
                return plan_err!(
                    "the {what} of window() must not have months or years, whose length varies: '{text}'"
                );
            }
            Interval::parse(text).map(Interval::as_micros).map_err(DataFusionError::Plan)
        }
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            Ok(days_micros(interval.days).saturating_add(interval.nanoseconds / 1000))
        }
        ScalarValue::IntervalMonthDayNano(Some(_)) => {
            plan_err!("the {what} of window() must not have months or years, whose length varies")
        }
        ScalarValue::Int64(Some(micros)) => Ok(*micros),
        ScalarValue::Int32(Some(micros)) => Ok(i64::from(*micros)),
        other => plan_err!("the {what} of window() must be a duration such as '10 minutes', not {other}"),
    }
}

fn days_micros(days: i32) -> i64 {
    i64::from(days).saturating_mul(86_400_000_000)
}

/// The time becomes a timestamp of the session; a window of an earlier aggregation stays.
fn time_first(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    let limit = if function.name == SESSION_WINDOW { 2..=2 } else { 2..=4 };
    function.arguments(types.len(), limit)?;
    let mut types = types.to_vec();
    match &types[0] {
        DataType::Struct(_) => {}
        DataType::Timestamp(..) | DataType::Date32 | DataType::Utf8 | DataType::Null => {
            types[0] = instant(function);
        }
        other => {
            let what = pelton_core::types::type_name(other);
            return plan_err!("{}() takes a timestamp, not {what}", function.name);
        }
    }
    Ok(types)
}

fn instant(function: &Function) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(function.time_zone.clone()))
}

fn window_fields(function: &Function) -> Fields {
    let time = instant(function);
    vec![Field::new("start", time.clone(), true), Field::new("end", time, true)].into()
}

fn struct_type(function: &Function) -> DataType {
    DataType::Struct(window_fields(function))
}

fn window_type(function: &Function, constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    WindowSpec::read(constants.get(1..).unwrap_or_default())?;
    Ok(struct_type(function))
}

fn windows_type(function: &Function, constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let item = Field::new_list_field(window_type(function, constants)?, true);
    Ok(DataType::List(Arc::new(item)))
}

fn window_time_type(
    function: &Function,
    fields: &[FieldRef],
    _: &[Option<&ScalarValue>],
) -> Result<DataType> {
    function.arguments(fields.len(), 1..=1)?;
    match fields[0].data_type() {
        DataType::Struct(parts) if parts.iter().any(|part| part.name() == "end") => Ok(instant(function)),
        other => {
            plan_err!("window_time() takes a window, not {}", pelton_core::types::type_name(other))
        }
    }
}

/// The moments of the first argument; of a window its last one.
fn moments(args: &ScalarFunctionArgs) -> Result<TimestampMicrosecondArray> {
    let values = array(args, 0)?;
    let times = match values.as_struct_opt() {
        Some(_) => last_moments(&values)?,
        None => values,
    };
    match times.as_primitive_opt::<TimestampMicrosecondType>() {
        Some(times) => Ok(times.clone()),
        None => exec_err!("a time is {} instead of a timestamp", times.data_type()),
    }
}

/// One microsecond before the end of each window.
fn last_moments(windows: &ArrayRef) -> Result<ArrayRef> {
    let Some(windows) = windows.as_struct_opt() else { return exec_err!("a window is not a struct") };
    let end = windows.column_by_name("end");
    let Some(end) = end.and_then(|end| end.as_primitive_opt::<TimestampMicrosecondType>()) else {
        return exec_err!("a window has no end");
    };
    let valid = NullBuffer::union(windows.nulls(), end.nulls());
    let last =
        TimestampMicrosecondArray::new(end.values().iter().map(|end| end.saturating_sub(1)).collect(), valid);
    Ok(Arc::new(last.with_data_type(end.data_type().clone())))
}

fn window_time(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    last_moments(&array(args, 0)?)
}

fn spec(args: &ScalarFunctionArgs) -> Result<WindowSpec> {
    let constants = args.args[1..].iter().map(|argument| match argument {
        datafusion::logical_expr::ColumnarValue::Scalar(value) => Some(value),
        datafusion::logical_expr::ColumnarValue::Array(_) => None,
    });
    WindowSpec::read(&constants.collect::<Vec<_>>())
}

fn window(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (spec, times) = (spec(args)?, moments(args)?);
    if spec.slide_us != spec.size_us {
        return exec_err!("overlapping windows are several for one row");
    }
    let starts = times.values().iter().map(|micros| spec.last_start(*micros)).collect::<Vec<_>>();
    let ends = starts.iter().map(|start| start.saturating_add(spec.size_us)).collect::<Vec<_>>();
    Ok(Arc::new(structs(function, starts, ends, times.nulls().cloned())?))
}

fn structs(
    function: &Function,
    starts: Vec<i64>,
    ends: Vec<i64>,
    nulls: Option<NullBuffer>,
) -> Result<StructArray> {
    let column = |values: Vec<i64>| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(values).with_data_type(instant(function)))
    };
    Ok(StructArray::try_new(window_fields(function), vec![column(starts), column(ends)], nulls)?)
}

fn windows(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (spec, times) = (spec(args)?, moments(args)?);
    let (mut starts, mut counts) = (Vec::new(), Vec::with_capacity(times.len()));
    for micros in &times {
        let before = starts.len();
        if let Some(micros) = micros {
            let mut start = spec.last_start(micros);
            while start.saturating_add(spec.size_us) > micros {
                starts.push(start);
                start = start.saturating_sub(spec.slide_us);
            }
        }
        counts.push(starts.len() - before);
    }
    let ends = starts.iter().map(|start| start.saturating_add(spec.size_us)).collect();
    let values = structs(function, starts, ends, None)?;
    let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(counts), Arc::new(values), None)?))
}

fn duration_micros(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = array(args, 0)?;
    if let Some(texts) = values.as_string_opt::<i32>() {
        let parsed = texts.iter().map(|text| match text.map(Interval::parse) {
            None => Ok(None),
            Some(Ok(interval)) => Ok(Some(interval.as_micros())),
            Some(Err(why)) => Err(DataFusionError::Execution(why)),
        });
        return Ok(Arc::new(parsed.collect::<Result<Int64Array>>()?));
    }
    if let Some(intervals) = values.as_primitive_opt::<IntervalMonthDayNanoType>() {
        let micros = intervals.iter().map(|interval| {
            interval.map(|i| {
                let months = days_micros(i.months).saturating_mul(31);
                months.saturating_add(days_micros(i.days)).saturating_add(i.nanoseconds / 1000)
            })
        });
        return Ok(Arc::new(micros.collect::<Int64Array>()));
    }
    match values.data_type() {
        DataType::Null => Ok(Arc::new(Int64Array::new_null(values.len()))),
        other => exec_err!("a gap must be a duration such as '10 minutes', not {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> String {
        let values: Vec<ScalarValue> = arguments.iter().map(|text| ScalarValue::from(*text)).collect();
        let values: Vec<Option<&ScalarValue>> = values.iter().map(Some).collect();
        match WindowSpec::read(&values) {
            Ok(spec) => format!("{} {} {}", spec.size_us / 1000, spec.slide_us / 1000, spec.start_us / 1000),
            Err(error) => error.strip_backtrace(),
        }
    }

    #[test]
    fn lengths_are_checked_as_spark_checks_them() {
        assert_eq!(read(&["10 minutes"]), "600000 600000 0");
        assert_eq!(read(&["10 minutes", "5 minutes", "-1 minute"]), "600000 300000 -60000");
        assert!(read(&["5 minutes", "10 minutes"]).contains("longer than the window"));
        assert!(read(&["10 minutes", "10 minutes", "10 minutes"]).contains("shorter than the slide"));
        assert!(read(&["1 month"]).contains("months"));
        assert!(read(&["0 seconds"]).contains("more than 0"));
    }

    #[test]
    fn windows_before_the_epoch_begin_where_they_should() {
        let spec = WindowSpec { size_us: 10, slide_us: 10, start_us: 0 };
        assert_eq!([spec.last_start(-1), spec.last_start(0), spec.last_start(9)], [-10, 0, 0]);
        let spec = WindowSpec { size_us: 10, slide_us: 10, start_us: -3 };
        assert_eq!([spec.last_start(-3), spec.last_start(-4), spec.last_start(6)], [-3, -13, -3]);
    }
}
