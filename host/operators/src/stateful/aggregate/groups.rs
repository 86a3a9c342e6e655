//! The second half of a GROUP BY: partial states of one shard meet the stored ones.
//!
//! What was touched is written first; what is over, or the whole table, is then read in key order. So groups of one
//! micro-batch come out in the order of their keys, whatever the order of the rows.

use super::calls::{Calls, pick};
use super::keys::{Keys, time_bytes};
use super::partial::{Partial, binary};
use super::window::Windows;
use crate::stateful::ShardOutput;
use arrow::array::{ArrayRef, AsArray, BinaryArray};
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use pelton_core::{OutputMode, Result, StateOp, StateShard};
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
            let keys = self.keys.encode(&[], 1)?;
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
        // By pane, so that floats are added in the order of time.
        let mut in_order: Vec<u32> = (0..panes.len() as u32).collect();
        in_order.sort_unstable_by_key(|row| panes.keys.value(*row as usize));
        let (mut rows, mut starts) = (Vec::new(), Vec::new());
        for row in in_order {
            let pane = self.keys.start_of(panes.keys.value(row as usize))?;
            for start in windows.starts_of(pane) {
                if late_us.is_none_or(|late_us| windows.end_of(start) > late_us) {
                    rows.push(row);
                    starts.push(start);
                }
            }
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let keys = binary(rows.len(), |at, bytes| {
            self.keys.in_window(panes.keys.value(rows[at] as usize), &windows, starts[at], bytes);
        })?;
        Ok(vec![Partial { keys, states: pick(&panes.states, rows)? }])
    }

    /// One state a key, stored states first if they count; keys in the order of their first appearance.
    fn merged(&self, partials: Vec<Partial>, with_stored: bool) -> Result<Partial> {
        let mut values = new_group_values(
            Arc::new(Schema::new(vec![Field::new("key", DataType::Binary, false)])),
            &GroupOrdering::None,
        )
        .map_err(|e| evaluation_error(&e))?;
        let mut groups = Vec::with_capacity(partials.len());
        for partial in &partials {
            let mut of_rows = Vec::with_capacity(partial.len());
            let column: ArrayRef = Arc::new(partial.keys.clone());
            values.intern(&[column], &mut of_rows).map_err(|e| evaluation_error(&e))?;
            groups.push(of_rows);
        }
        let total = values.len();
        let keys = distinct_keys(values.as_mut())?;
        let mut accumulators = self.calls.accumulators()?;
        if with_stored && total > 0 {
            let asked: Vec<&[u8]> = (0..total).map(|key| keys.value(key)).collect();
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
        Ok(Partial { keys, states: accumulators.states()? })
    }

    fn write(&mut self, touched: &Partial) -> Result<()> {
        if touched.len() == 0 {
            return Ok(());
        }
        let values = self.calls.encode(&touched.states, touched.len())?;
        let put = |(key, value)| StateOp::Put(Bytes::copy_from_slice(touched.keys.value(key)), value);
        let changes: Vec<StateOp> = values.into_iter().enumerate().map(put).collect();
        self.output.updated += changes.len() as u64;
        self.state.apply(&self.table, changes)
    }

    fn give_touched(&mut self, touched: &Partial) -> Result<()> {
        let mut in_order: Vec<u32> = (0..touched.len() as u32).collect();
        in_order.sort_unstable_by_key(|row| touched.keys.value(*row as usize));
        for rows in in_order.chunks(ROWS_PER_BATCH_MAX) {
            let keys: Vec<&[u8]> = rows.iter().map(|row| touched.keys.value(*row as usize)).collect();
            self.give(&keys, &pick(&touched.states, rows.to_vec())?)?;
        }
        Ok(())
    }

    fn give(&mut self, keys: &[&[u8]], states: &[ArrayRef]) -> Result<()> {
        let results = self.calls.results(states, keys.len())?;
        self.output.rows.push(self.keys.result(keys, results)?);
        Ok(())
    }

    /// Removes what is over, and gives it if that is asked.
    fn expire(&mut self, give: bool) -> Result<()> {
        let Some(watermark_us) = self.watermark_us else { return Ok(()) };
        let end = time_bytes(Some(watermark_us.saturating_add(1)));
        self.scan(&end, |shard, entries| {
            if give {
                shard.give_entries(entries)?;
            }
            shard.output.removed += entries.len() as u64;
            let changes = entries.iter().map(|(key, _)| StateOp::Remove(key.clone())).collect();
            shard.state.apply(&shard.table, changes)
        })
    }

    fn give_all(&mut self) -> Result<()> {
        // No key is that long and that large.
        self.scan(&[0xff; 64], Self::give_entries)
    }

    fn give_entries(&mut self, entries: &[(Bytes, Bytes)]) -> Result<()> {
        let states = self.calls.decode(entries.iter().map(|(_, value)| value.as_ref()))?;
        let keys: Vec<&[u8]> = entries.iter().map(|(key, _)| key.as_ref()).collect();
        self.give(&keys, &states)
    }

    /// Calls `body` with the entries before `end`, some at a time, in key order.
    fn scan(
        &mut self,
        end: &[u8],
        mut body: impl FnMut(&mut Self, &[(Bytes, Bytes)]) -> Result<()>,
    ) -> Result<()> {
        let mut from: Vec<u8> = Vec::new();
        loop {
            let entries = self.state.scan(&self.table, from.as_slice()..end, ROWS_PER_BATCH_MAX)?;
            let Some((last, _)) = entries.last() else { return Ok(()) };
            from = [last.as_ref(), &[0]].concat();
            body(self, &entries)?;
            if entries.len() < ROWS_PER_BATCH_MAX {
                return Ok(());
            }
        }
    }
}

fn distinct_keys(values: &mut dyn GroupValues) -> Result<BinaryArray> {
    let columns = values.emit(EmitTo::All).map_err(|e| evaluation_error(&e))?;
    let keys = columns.first().and_then(|keys| keys.as_binary_opt::<i32>().cloned());
    keys.ok_or_else(|| pelton_core::Error::internal("keys that are not bytes"))
}
