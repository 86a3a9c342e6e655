//! The step that takes note of event times. Spark's `EventTimeWatermarkExec`.
//!
//! Lanes run it; what it finds moves the query's watermark after the micro-batch. It changes no row.

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch, StructArray};
use arrow::compute::{cast, max};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampMicrosecondType};
use pelton_core::{Error, Result};
use pelton_plan::stateful::WatermarkStep;

/// Microseconds in a millisecond.
pub(crate) const US_PER_MS: i64 = 1000;

/// Takes note of the latest event time of rows.
pub(crate) struct EventTimes {
    watermark: usize,
    column: usize,
}

impl EventTimes {
    /// Finds the column in the rows by its name.
    pub(crate) fn new(step: &WatermarkStep, input: &SchemaRef) -> Result<Self> {
        let column = input.index_of(&step.column).map_err(|_| {
            Error::internal(format!("the event-time column '{}' is not in the input", step.column))
        })?;
        Ok(Self { watermark: step.index, column })
    }

    /// Raises the watermark's latest event time, in milliseconds: the floor of the microseconds. NULL is no time.
    pub(crate) fn note(&self, rows: &RecordBatch, event_times: &mut [Option<i64>]) -> Result<()> {
        let latest = max(&micros(rows.column(self.column))?).map(floor_ms);
        if let Some(seen) = event_times.get_mut(self.watermark) {
            *seen = (*seen).max(latest);
        }
        Ok(())
    }
}

/// Milliseconds of microseconds, downwards also before 1970.
pub(crate) fn floor_ms(micros: i64) -> i64 {
    micros.div_euclid(US_PER_MS)
}

/// A timestamp column in microseconds; of a window struct its end.
pub(crate) fn micros(column: &ArrayRef) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
    match column.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(column.as_primitive().clone()),
        DataType::Timestamp(..) => {
            let column = cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            Ok(column.as_primitive().clone())
        }
        DataType::Struct(_) => window_end(column.as_struct()),
        other => Err(Error::internal(format!("an event time of type {other}"))),
    }
}

/// The end of windows; NULL where the window is.
fn window_end(windows: &StructArray) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
    let Some(end) =
        windows.column_by_name("end").filter(|end| matches!(end.data_type(), DataType::Timestamp(..)))
    else {
        return Err(Error::internal("an event time that is neither a timestamp nor a window"));
    };
    let end = micros(end)?;
    let nulls = arrow::buffer::NullBuffer::union(end.nulls(), windows.nulls());
    Ok(PrimitiveArray::new(end.values().clone(), nulls))
}
