//! The second half of a GROUP BY: partial states of one shard meet the stored ones.
//!
//! What was touched is written first; what is over, or the whole table, is then read in key order. So groups of one
//! micro-batch come out in the order of their keys, whatever the order of the rows.

use super::calls::{Calls, pick};
use super::keys::Keys;
use super::partial::{Partial, binary};
use super::window::Windows;
use crate::stateful::ShardOutput;
use crate::stateful::layout::{Arena, for_entries, sorted_order, through_time};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use pelton_core::{AFTER_ALL_KEYS, Error, OutputMode, Result, StateOp, StateShard};
use pelton_plan::{ROWS_PER_BATCH_MAX, evaluation_error};
use std::sync::Arc;

/// One shard at work.
pub(super) struct Shard<'a> {
    pub(super) keys: &'a Keys,
    pub(super) calls: &'a Calls,
    pub(super) mode: OutputMode,
    pub(super) table: String,
    /// It holds the one group of a query without keys, which is there even without rows.
    pub(super) holds_global_group: bool,
    /// Microseconds; none if nothing is ever late.
    pub(super) late_us: Option<i64>,
    /// Microseconds; none if nothing is ever over.
    pub(super) watermark_us: Option<i64>,
    /// Nothing comes after this micro-batch: groups without a time are over, too.
    pub(super) is_final: bool,
    pub(super) state: &'a mut dyn StateShard,
    pub(super) output: ShardOutput,
}

impl Shard<'_> {
    /// All of it. What goes on is in `output`.
    pub(super) fn run(&mut self, mut partials: Vec<Partial>) -> Result<()> {
        if let Some(windows) = self.keys.overlapping() {
            partials = self.spread(windows, partials)?;
        }
        if self.holds_global_group {
            let keys = self.keys.encode(&[])?;
            let states = Vec::new();
            partials.insert(0, Partial { keys: binary(1, |_, bytes| keys.write(0, bytes))?, states });
        }
        let touched = self.merged(partials, true)?;
        self.write(&touched)?;
        match self.mode {
            OutputMode::Update => {
                self.give_touched(&touched)?;
                self.expire(false)
            }
            OutputMode::Append => self.expire(true),
            OutputMode::Complete => self.give_all(),
        }
    }

    /// Groups by pane become groups by window; windows that are over by the watermark that judges lateness are left
    /// out.
    fn spread(&self, windows: Windows, partials: Vec<Partial>) -> Result<Vec<Partial>> {
        let panes = self.merged(partials, false)?;
        let late_us = self.late_us.filter(|_| self.keys.expiring_window());
        let (mut rows, mut starts) = (Vec::new(), Vec::new());
        // Keys begin with their pane, so floats are added in the order of time.
        for (row, key) in panes.keys.iter().enumerate() {
            for start in windows.starts_of(self.keys.pane_start(key)?) {
                if late_us.is_none_or(|late_us| windows.end_of(start) > late_us) {
                    rows.push(row as u32);
                    starts.push(start);
                }
            }
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let keys = binary(rows.len(), |at, bytes| {
            self.keys.in_window(&panes.keys[rows[at] as usize], &windows, starts[at], bytes);
        })?;
        Ok(vec![Partial { keys, states: pick(&panes.states, rows)? }])
    }

    /// One state a key, stored states first if they count; in the order of the keys.
    fn merged(&self, partials: Vec<Partial>, with_stored: bool) -> Result<Merged> {
        let (keys, groups) = common_keys(partials.iter().map(|partial| &partial.keys))?;
        let total = keys.len();
        let mut accumulators = self.calls.accumulators()?;
        if with_stored && total > 0 {
            let asked: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            let stored = self.state.get_many(&self.table, &asked)?;
            let found = stored.iter().enumerate().filter_map(|(key, value)| Some((key, value.as_ref()?)));
            let (of_found, found): (Vec<usize>, Vec<&Bytes>) = found.unzip();
            if !found.is_empty() {
                let states = self.calls.decode(found.iter().map(|value| value.as_ref()))?;
                accumulators.merge(&states, &of_found, total)?;
            }
        }
        for (partial, of_rows) in partials.iter().zip(&groups) {
            if !partial.states.is_empty() {
                accumulators.merge(&partial.states, of_rows, total)?;
            }
        }
        accumulators.cover(total)?;
        Ok(Merged { keys, states: accumulators.states()? })
    }

    fn write(&mut self, touched: &Merged) -> Result<()> {
        if touched.keys.is_empty() {
            return Ok(());
        }
        let values = self.calls.encode(&touched.states)?;
        let value = |row: usize| values.as_ref().map_or_else(Bytes::new, |values| values.shared(row));
        let puts = touched.keys.iter().enumerate().map(|(row, key)| StateOp::Put(key.clone(), value(row)));
        self.output.updated += touched.keys.len() as u64;
        self.state.apply(&self.table, puts.collect())
    }

    fn give_touched(&mut self, touched: &Merged) -> Result<()> {
        for (chunk, keys) in touched.keys.chunks(ROWS_PER_BATCH_MAX).enumerate() {
            let from = chunk * ROWS_PER_BATCH_MAX;
            let states: Vec<ArrayRef> =
                touched.states.iter().map(|states| states.slice(from, keys.len())).collect();
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            self.output.rows.push(given(self.keys, self.calls, &keys, &states)?);
        }
        Ok(())
    }

    /// Removes what is over, and gives it if that is asked.
    fn expire(&mut self, give: bool) -> Result<()> {
        let Some(watermark_us) = self.watermark_us else { return Ok(()) };
        let through = through_time(watermark_us);
        let end = if self.is_final { &AFTER_ALL_KEYS[..] } else { &through[..] };
        let (keys, calls, table, output) = (self.keys, self.calls, self.table.as_str(), &mut self.output);
        for_entries(self.state, table, &[], end, |state, entries| {
            if give {
                output.rows.push(given_entries(keys, calls, &entries)?);
            }
            output.removed += entries.len() as u64;
            state.apply(table, entries.into_iter().map(|(key, _)| StateOp::Remove(key)).collect())
        })
    }

    fn give_all(&mut self) -> Result<()> {
        let (keys, calls, output) = (self.keys, self.calls, &mut self.output);
        for_entries(self.state, &self.table, &[], &AFTER_ALL_KEYS, |_, entries| {
            output.rows.push(given_entries(keys, calls, &entries)?);
            Ok(())
        })
    }
}

fn given(keys: &Keys, calls: &Calls, of: &[&[u8]], states: &[ArrayRef]) -> Result<RecordBatch> {
    keys.result(of, calls.results(states, of.len())?)
}

/// The groups of entries as they would be given now.
pub(super) fn given_entries(keys: &Keys, calls: &Calls, entries: &[(Bytes, Bytes)]) -> Result<RecordBatch> {
    let states = calls.decode(entries.iter().map(|(_, value)| value.as_ref()))?;
    let of: Vec<&[u8]> = entries.iter().map(|(key, _)| key.as_ref()).collect();
    given(keys, calls, &of, &states)
}

/// Groups in the order of their keys.
struct Merged {
    keys: Vec<Bytes>,
    /// The columns of the states.
    states: Vec<ArrayRef>,
}

/// All keys of some columns in their order, each once, and for every column where its keys are among them.
pub(in crate::stateful) fn common_keys<'a>(
    columns: impl Iterator<Item = &'a BinaryArray>,
) -> Result<(Vec<Bytes>, Vec<Vec<usize>>)> {
    let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Binary, false)]));
    let values = new_group_values(schema, &GroupOrdering::None);
    let mut values = values.map_err(|e| evaluation_error(&e))?;
    let mut places = Vec::new();
    for column in columns {
        let mut place = Vec::with_capacity(column.len());
        let column: ArrayRef = Arc::new(column.clone());
        values.intern(&[column], &mut place).map_err(|e| evaluation_error(&e))?;
        places.push(place);
    }
    let distinct = values.emit(EmitTo::All).map_err(|e| evaluation_error(&e))?;
    let Some(distinct) = distinct.first().and_then(|keys| keys.as_binary_opt::<i32>()) else {
        return Err(Error::internal("keys that are not bytes"));
    };
    let mut keys = Arena::with_capacity(distinct.len(), 32);
    distinct.iter().for_each(|key| keys.push(&[key.unwrap_or_default()]));
    let keys = keys.finish();
    let order = sorted_order(&keys);
    let mut rank = vec![0; keys.len()];
    order.iter().enumerate().for_each(|(at, key)| rank[*key as usize] = at);
    places.iter_mut().flatten().for_each(|place| *place = rank[*place]);
    Ok((order.iter().map(|key| keys[*key as usize].clone()).collect(), places))
}
