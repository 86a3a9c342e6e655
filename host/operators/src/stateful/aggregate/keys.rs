//! The keys of a GROUP BY: from rows, as bytes of the state, and back as columns of the result.
//!
//! | bytes | what | when |
//! |---|---|---|
//! | 8 | the time at which the group is over: microseconds, ordered like their bytes; NULL is the last | a key is a time |
//! | 1 | the key group of the keys that follow | |
//! | | the keys but the window | |
//! | 2 to 9 | the size of the window, see [`super::size`] | the time is the end of a window |
//! | 8 | the start of the window, ordered like its bytes | there is a window and another key is the time |
//!
//! So groups that are over stand at the beginning of a table. A time is first whether it expires or not: a watermark
//! can be added to a query, or taken from it, without touching its state.

use super::calls::evaluate;
use super::size::{size_bytes, size_length, size_of_window};
use super::window::Windows;
use crate::stateful::NodeScope;
use crate::stateful::event_time::is_time;
use crate::stateful::late::{LateRow, letters};
use crate::stateful::layout::NO_TIME;
use crate::watermark::{floor_ms, micros};
use arrow::array::{
    Array, ArrayRef, BooleanArray, Int64Array, PrimitiveArray, RecordBatch, RecordBatchOptions,
};
use arrow::array::{StructArray, TimestampMicrosecondArray};
use arrow::compute::{cast, filter, filter_record_batch, min};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use datafusion::physical_expr::PhysicalExpr;
use pelton_core::{DeadLetter, Error, Result};
use pelton_plan::evaluation_error;
use pelton_plan::stateful::{Aggregate, EventTimeKey, GroupKey, TimeWindow};
use pelton_state::{EncodedRows, RowCodec, ordered_i64};
use std::sync::Arc;

type Times = PrimitiveArray<TimestampMicrosecondType>;

/// The keys, bound to the input and to the result.
pub(super) struct Keys {
    /// All but the window.
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    types: Vec<DataType>,
    codec: Option<RowCodec>,
    /// What the result's first columns are.
    columns: Vec<KeyColumn>,
    window: Option<(Arc<dyn PhysicalExpr>, Windows)>,
    time: Option<Time>,
    expires: bool,
    /// The size of the windows as a key has it.
    size: Vec<u8>,
    schema: SchemaRef,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyColumn {
    Expr(usize),
    Window,
}

/// Which key says when a group is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Time {
    Window,
    Expr(usize),
}

/// The rows of a batch that belong to a group, and what they are grouped by.
pub(super) struct Keyed {
    pub(super) rows: RecordBatch,
    /// The pane if there is a window, then the other keys.
    pub(super) columns: Vec<ArrayRef>,
    pub(super) late_rows: u64,
    pub(super) dead_letters: Vec<DeadLetter>,
}

impl Keys {
    pub(super) fn new(aggregate: &Aggregate, input: &SchemaRef, schema: &SchemaRef) -> Result<Self> {
        let mut exprs = Vec::new();
        let mut columns = Vec::new();
        for key in &aggregate.keys {
            columns.push(match key {
                GroupKey::Expr(expr) => {
                    exprs.push(expr.clone());
                    KeyColumn::Expr(exprs.len() - 1)
                }
                GroupKey::Window => KeyColumn::Window,
            });
        }
        let types = exprs.iter().map(|expr| expr.data_type(input)).collect::<Result<Vec<_>, _>>();
        let types = types.map_err(|e| evaluation_error(&e))?;
        let window = match &aggregate.window {
            Some(TimeWindow::Sliding { time, size_us, slide_us, start_us }) => {
                Some((time.clone(), Windows::new(*size_us, *slide_us, *start_us)))
            }
            Some(TimeWindow::Session { .. }) | None => None,
        };
        if window.is_some() != columns.contains(&KeyColumn::Window) {
            return Err(Error::internal("a time window that is not a key, or a key without its window"));
        }
        let time = match aggregate.event_time {
            Some(EventTimeKey::Window) => Some(Time::Window),
            Some(EventTimeKey::Key(key)) => match columns.get(key) {
                Some(KeyColumn::Expr(expr)) => Some(Time::Expr(*expr)),
                _ => return Err(Error::internal("an event time that is no key")),
            },
            None if window.is_some() => Some(Time::Window),
            None => types.iter().position(is_time).map(Time::Expr),
        };
        let codec = (!types.is_empty()).then(|| RowCodec::new(types.clone())).transpose()?;
        let expires = aggregate.event_time.is_some();
        let size = window.as_ref().map_or_else(Vec::new, |(_, windows)| size_bytes(windows.size()));
        Ok(Self { exprs, types, codec, columns, window, time, expires, size, schema: schema.clone() })
    }

    /// Whether there is no key: all rows are one group.
    pub(super) fn is_global(&self) -> bool {
        self.columns.is_empty()
    }

    /// Whether an event time says when a group is over.
    pub(super) fn expires(&self) -> bool {
        self.expires
    }

    /// The windows, if rows are combined by pane and not by window.
    pub(super) fn overlapping(&self) -> Option<Windows> {
        self.window.as_ref().map(|(_, windows)| *windows).filter(|windows| !windows.is_tumbling())
    }

    /// How the keys are laid out, for a description of the state.
    pub(super) fn form(&self) -> String {
        match self.time {
            Some(Time::Window) => "groups by the end of their window".to_owned(),
            Some(Time::Expr(key)) => format!("groups by time, which is key {}", self.position_of(key) + 1),
            None => "groups".to_owned(),
        }
    }

    /// Where a key stands in the result.
    fn position_of(&self, key: usize) -> usize {
        self.columns.iter().position(|column| *column == KeyColumn::Expr(key)).unwrap_or(key)
    }

    /// What the watermark passes when a group is over, for a person.
    pub(super) fn expiry_text(&self) -> String {
        match self.time {
            Some(Time::Window) => "the end of a window".to_owned(),
            _ => "the event time among the keys".to_owned(),
        }
    }

    /// Fields of [`Keyed::columns`].
    pub(super) fn grouping_schema(&self) -> SchemaRef {
        let pane = self.window.iter().map(|_| DataType::Int64);
        let types = pane.chain(self.types.iter().cloned()).enumerate();
        Arc::new(Schema::new(types.map(|(at, t)| Field::new(at.to_string(), t, true)).collect::<Vec<_>>()))
    }

    /// Finds what rows are grouped by and leaves out the late ones (late by `late_us`) and those without a window.
    pub(super) fn of(
        &self,
        scope: &NodeScope<'_>,
        rows: &RecordBatch,
        late_us: Option<i64>,
    ) -> Result<Keyed> {
        let mut keyed =
            Keyed { rows: rows.clone(), columns: Vec::new(), late_rows: 0, dead_letters: Vec::new() };
        if let (Some(Time::Expr(key)), Some(late_us)) = (self.time, late_us.filter(|_| self.expires)) {
            let times = micros(&self.evaluated(&self.exprs[key], &keyed.rows)?)?;
            let before = late_us.saturating_add(1);
            self.sieve(
                scope,
                &mut keyed,
                &times,
                Sieve { lost_before: before, late_before: before, keep_null: true },
            )?;
        }
        if let Some((expr, windows)) = &self.window {
            let times = micros(&self.evaluated(expr, &keyed.rows)?)?;
            let lateness = late_us.filter(|_| self.time == Some(Time::Window)).map(|us| windows.lateness(us));
            let (lost_before, late_before) =
                lateness.map_or((i64::MIN, i64::MIN), |late| (late.lost_before, late.late_before));
            let times =
                self.sieve(scope, &mut keyed, &times, Sieve { lost_before, late_before, keep_null: false })?;
            keyed.columns.push(Arc::new(panes(&times, windows)));
        }
        keyed.columns.extend(evaluate(&self.exprs, &keyed.rows).map_err(|e| evaluation_error(&e))?);
        Ok(keyed)
    }

    fn evaluated(&self, expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef> {
        let value = expr.evaluate(rows).and_then(|value| value.into_array(rows.num_rows()));
        value.map_err(|e| evaluation_error(&e))
    }

    /// Leaves out rows by their times and gives the times of those that stay.
    fn sieve(&self, scope: &NodeScope<'_>, keyed: &mut Keyed, times: &Times, sieve: Sieve) -> Result<Times> {
        let all_in_time = min(times).is_none_or(|first| first >= sieve.late_before);
        if all_in_time && (sieve.keep_null || times.null_count() == 0) {
            return Ok(times.clone());
        }
        let stays = |time: Option<i64>| time.map_or(sieve.keep_null, |time| time >= sieve.lost_before);
        let stay: BooleanArray = times.iter().map(|time| Some(stays(time))).collect();
        let late = times.iter().enumerate().filter_map(|(row, time)| Some((row, time?)));
        let late = late.filter(|(_, time)| *time < sieve.late_before);
        if scope.keep_late_rows {
            let watermark_ms = scope.late_ms.unwrap_or_default();
            let late_row =
                |(row, time)| LateRow { row, late_by_ms: watermark_ms.saturating_sub(floor_ms(time)) };
            let late: Vec<LateRow> = late.map(late_row).collect();
            keyed.late_rows += late.len() as u64;
            keyed.dead_letters.extend(letters(scope.name, &keyed.rows, &late)?);
        } else {
            keyed.late_rows += late.count() as u64;
        }
        keyed.rows = filter_record_batch(&keyed.rows, &stay)?;
        let times = filter(times, &stay)?;
        micros(&times)
    }

    /// The bytes of keys that [`Keyed::columns`] hold.
    pub(super) fn encode(&self, columns: &[ArrayRef]) -> Result<EncodedKeys<'_>> {
        let (starts, keys) = match self.window {
            Some(_) => (Some(micros_of_pane(&columns[0])?), &columns[1..]),
            None => (None, columns),
        };
        let times = match self.time {
            Some(Time::Window) => None,
            Some(Time::Expr(key)) => Some(micros(&keys[key])?),
            None => None,
        };
        let encoded = self.codec.as_ref().map(|codec| codec.encode_keys(keys)).transpose()?;
        Ok(EncodedKeys { keys: self, starts, times, encoded })
    }

    /// The key of a pane in the window that starts then. Only if windows overlap.
    pub(super) fn in_window(&self, pane: &[u8], windows: &Windows, start: i64, into: &mut Vec<u8>) {
        if self.time == Some(Time::Window) {
            into.extend(ordered_i64(windows.end_of(start)));
            into.extend_from_slice(pane.get(8..).unwrap_or_default());
            into.extend_from_slice(&self.size);
        } else {
            into.extend_from_slice(&pane[..pane.len().saturating_sub(8)]);
            into.extend(ordered_i64(start));
        }
    }

    /// The start of a pane. Only if windows overlap.
    pub(super) fn pane_start(&self, pane: &[u8]) -> Result<i64> {
        match self.time {
            Some(Time::Window) => time_at(pane, 0),
            _ => time_at(pane, pane.len().saturating_sub(8)),
        }
    }

    /// The end of a key's window, if windows expire.
    pub(super) fn expiring_window(&self) -> bool {
        self.expires && self.time == Some(Time::Window)
    }

    /// Rows of the result: the keys as columns, then `results`.
    pub(super) fn result(&self, keys: &[&[u8]], results: Vec<ArrayRef>) -> Result<RecordBatch> {
        let head = usize::from(self.time.is_some()) * 8 + 1;
        let tail = |key: &[u8]| match (&self.window, self.time) {
            (None, _) => 0,
            (Some(_), Some(Time::Window)) => size_length(key),
            (Some(_), _) => 8,
        };
        let row = |key: &&[u8]| Some(head..key.len().checked_sub(tail(key))?);
        let bytes: Option<Vec<&[u8]>> = keys.iter().map(|key| key.get(row(key)?)).collect();
        let bytes = bytes.ok_or_else(cut_off)?;
        let exprs = match &self.codec {
            Some(codec) => codec.decode(bytes)?,
            None => Vec::new(),
        };
        let column = |(column, field): (&KeyColumn, &FieldRef)| match column {
            KeyColumn::Expr(at) => Ok(exprs[*at].clone()),
            KeyColumn::Window => self.window_column(keys, field),
        };
        let fields = self.schema.fields();
        let mut columns = self.columns.iter().zip(fields).map(column).collect::<Result<Vec<_>>>()?;
        columns.extend(results);
        shaped(&self.schema, columns, keys.len())
    }

    fn window_column(&self, keys: &[&[u8]], field: &FieldRef) -> Result<ArrayRef> {
        let Some((_, windows)) = &self.window else { return Err(Error::internal("no window")) };
        let (mut starts, mut ends) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for key in keys {
            if self.time == Some(Time::Window) {
                let end = time_at(key, 0)?;
                starts.push(end.saturating_sub(size_of_window(key)?));
                ends.push(end);
            } else {
                let start = time_at(key, key.len().saturating_sub(8))?;
                starts.push(start);
                ends.push(windows.end_of(start));
            }
        }
        window_array(field, starts, ends)
    }
}

/// Which rows stay.
struct Sieve {
    lost_before: i64,
    late_before: i64,
    keep_null: bool,
}

/// Keys on their way to bytes.
pub(super) struct EncodedKeys<'a> {
    keys: &'a Keys,
    /// The starts of windows or panes.
    starts: Option<Int64Array>,
    times: Option<Times>,
    encoded: Option<EncodedRows>,
}

impl EncodedKeys<'_> {
    pub(super) fn key_group(&self, row: usize) -> u8 {
        self.encoded.as_ref().map_or(0, |keys| keys.key_group(row))
    }

    /// The key of a row; of a pane if windows overlap.
    pub(super) fn write(&self, row: usize, into: &mut Vec<u8>) {
        let window = self.keys.window.as_ref().map(|(_, windows)| windows);
        let window = window.zip(self.starts.as_ref().map(|starts| starts.value(row)));
        let by_window = window.filter(|_| self.keys.time == Some(Time::Window));
        if let Some((windows, start)) = by_window {
            into.extend(ordered_i64(if windows.is_tumbling() { windows.end_of(start) } else { start }));
        } else if let Some(times) = &self.times {
            into.extend(ordered_i64(if times.is_valid(row) { times.value(row) } else { NO_TIME }));
        }
        into.push(self.key_group(row));
        if let Some(keys) = &self.encoded {
            into.extend_from_slice(keys.get(row));
        }
        match (by_window, window) {
            (Some((windows, _)), _) if windows.is_tumbling() => into.extend_from_slice(&self.keys.size),
            (None, Some((_, start))) => into.extend(ordered_i64(start)),
            _ => {}
        }
    }
}

pub(super) fn cut_off() -> Error {
    Error::data("a key of the state is damaged, or of a query with other keys")
}

/// A time in the bytes of a key.
pub(in crate::stateful) fn time_at(key: &[u8], at: usize) -> Result<i64> {
    let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    let bytes = bytes.ok_or_else(cut_off)?;
    Ok((u64::from_be_bytes(bytes) ^ (1 << 63)) as i64)
}

/// Windows as the column `struct<start, end>` that a field promises.
pub(in crate::stateful) fn window_array(
    field: &FieldRef,
    starts: Vec<i64>,
    ends: Vec<i64>,
) -> Result<ArrayRef> {
    let DataType::Struct(parts) = field.data_type() else {
        return Err(Error::internal(format!("a window of type {}", field.data_type())));
    };
    let column = |(part, times): (&FieldRef, Vec<i64>)| -> Result<ArrayRef> {
        let times = TimestampMicrosecondArray::from(times);
        match part.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                Ok(Arc::new(times.with_timezone_opt(zone.clone())))
            }
            other => Err(Error::internal(format!("a window from a {other}"))),
        }
    };
    let columns = parts.iter().zip([starts, ends]).map(column).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new(parts.clone(), columns, None)?))
}

/// Columns as rows of exactly this schema.
pub(in crate::stateful) fn shaped(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let column = |(column, field): (ArrayRef, &FieldRef)| match column.data_type() == field.data_type() {
        true => Ok(column),
        false => cast(&column, field.data_type()),
    };
    let columns = columns.into_iter().zip(schema.fields()).map(column).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// The panes of times, none of which is NULL. Times come mostly in order: the last pane is tried first.
fn panes(times: &Times, windows: &Windows) -> Int64Array {
    let mut pane = i64::MAX;
    let mut pane_of = |time: i64| {
        if time < pane || time.wrapping_sub(pane) >= windows.pane_length() {
            pane = windows.pane_of(time);
        }
        pane
    };
    times.values().iter().map(|time| pane_of(*time)).collect::<Vec<_>>().into()
}

fn micros_of_pane(column: &ArrayRef) -> Result<Int64Array> {
    let column = column.as_any().downcast_ref::<Int64Array>();
    column.cloned().ok_or_else(|| Error::internal("panes that are not numbers"))
}
