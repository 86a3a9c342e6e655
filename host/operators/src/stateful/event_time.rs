//! Event times of rows, and the rows that come too late.
//!
//! Used by the operators that judge rows by an event-time column; knows neither keys nor state.

use super::late::{LateRow, letters};
use super::layout::NO_TIME;
use super::{NodeScope, Prepared};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, TimestampMicrosecondArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit, TimestampMicrosecondType};
use pelton_core::{Error, Result};
use pelton_plan::stateful::EventTimeColumn;

/// The event times of some rows, in microseconds.
pub(crate) struct EventTimes {
    micros: ScalarBuffer<i64>,
    nulls: Option<NullBuffer>,
}

impl EventTimes {
    /// Of a timestamp column, or of a window column: there the end counts.
    pub(crate) fn of(column: &ArrayRef) -> Result<Self> {
        match column.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                let times = column.as_primitive::<TimestampMicrosecondType>();
                Ok(Self { micros: times.values().clone(), nulls: times.nulls().cloned() })
            }
            DataType::Struct(_) => {
                let window = column.as_struct();
                let Some(end) = window.column_by_name("end") else {
                    return Err(Error::internal("an event time that is a struct without an end"));
                };
                let end = Self::of(end)?;
                let nulls = NullBuffer::union(window.nulls(), end.nulls.as_ref());
                Ok(Self { micros: end.micros, nulls })
            }
            other => Err(Error::internal(format!("an event time of type {other}"))),
        }
    }

    /// A row's event time.
    pub(crate) fn get(&self, row: usize) -> Option<i64> {
        match &self.nulls {
            Some(nulls) if nulls.is_null(row) => None,
            _ => Some(self.micros[row]),
        }
    }
}

/// Times in microseconds as a column for a person.
pub(crate) fn utc_times(micros: Vec<i64>) -> TimestampMicrosecondArray {
    let times = micros.into_iter().map(|time| (time != NO_TIME).then_some(time));
    TimestampMicrosecondArray::from_iter(times).with_timezone("UTC")
}

/// The field of [`utc_times`].
pub(crate) fn utc_field(name: &str) -> Field {
    Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true)
}

/// Whether a column can carry an event time: a timestamp, or a window.
pub(crate) fn is_time(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(..) => true,
        DataType::Struct(parts) => {
            let is = |at: usize, name: &str| {
                parts.get(at).is_some_and(|part: &FieldRef| {
                    part.name() == name && matches!(part.data_type(), DataType::Timestamp(..))
                })
            };
            parts.len() == 2 && is(0, "start") && is(1, "end")
        }
        _ => false,
    }
}

/// A watermark as microseconds. What is `<=` it is late or over, as in Spark.
pub(crate) fn micros(watermark_ms: i64) -> i64 {
    watermark_ms.saturating_mul(1000)
}

/// Takes the rows out whose `time <= late watermark` and counts them; a row without a time is never late.
pub(crate) fn without_late_rows(
    scope: &NodeScope<'_>,
    rows: &RecordBatch,
    column: Option<EventTimeColumn>,
    prepared: &mut Prepared,
) -> Result<RecordBatch> {
    let (Some(column), Some(late_ms)) = (column, scope.late_ms) else {
        return Ok(rows.clone());
    };
    let times = EventTimes::of(rows.column(column.column))?;
    let limit = micros(late_ms);
    let is_late = |row: usize| times.get(row).is_some_and(|time| time <= limit);
    let late: Vec<LateRow> = (0..rows.num_rows())
        .filter(|row| is_late(*row))
        .map(|row| LateRow { row, late_by_ms: late_ms - times.micros[row].div_euclid(1000) })
        .collect();
    if late.is_empty() {
        return Ok(rows.clone());
    }
    prepared.late_rows += late.len() as u64;
    if scope.keep_late_rows {
        prepared.dead_letters.extend(letters(scope.name, rows, &late)?);
    }
    let kept: BooleanArray = (0..rows.num_rows()).map(|row| Some(!is_late(row))).collect();
    Ok(filter_record_batch(rows, &kept)?)
}
