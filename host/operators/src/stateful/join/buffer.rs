//! The rows of one side of a join that wait for rows of the other.
//!
//! Tables (`[…]` are parts of the key; `seq` is `[micro-batch: 8 bytes][row: 4 bytes]`, so that rows of a key stand in
//! the order in which they came):
//! * joined by the time itself: `<side>` = `[time][key group][key][seq]`: what is over stands together;
//! * otherwise: `<side>` = `[key group][key][seq]`, and if a range bounds the time, the index `<side>_time` of these.
//!
//! No encoded key begins with another one, so the rows of a key are what begins with it.
//!
//! The value of a row is a byte that says whether it ever matched, then the row. The byte is kept for every kind of
//! join, so that an inner join can become an outer one.

use super::side::Source;
use crate::stateful::NodeScope;
use crate::stateful::event_time::micros;
use crate::stateful::layout::{
    Arena, NO_TIME, entries_while, for_entries, prefix_end, sorted_order, sorted_puts, sorted_removals,
    through_time,
};
use crate::stateful::time_index::TimeIndex;
use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use pelton_core::{AFTER_ALL_KEYS, Error, KEY_GROUPS, Result, StateOp, StateShard};
use pelton_plan::stateful::JoinExpiry;
use pelton_state::{EncodedRows, RowCodec, ordered_i64};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// The buffer of a side.
pub(super) struct Buffer {
    table: String,
    index: TimeIndex,
    expiry: JoinExpiry,
    codec: RowCodec,
    schema: SchemaRef,
}

/// Buffered rows.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) keys: Vec<Bytes>,
    values: Vec<Bytes>,
}

/// A row to be buffered.
pub(super) struct NewRow<'a> {
    pub(super) source: &'a Source,
    pub(super) row: usize,
    /// Counts the rows of the micro-batch in this shard.
    pub(super) number: u32,
    pub(super) has_matched: bool,
}

impl Buffer {
    pub(super) fn new(node: &str, side: &str, expiry: JoinExpiry, schema: &SchemaRef) -> Result<Self> {
        let types = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        Ok(Self {
            table: format!("{node}/{side}"),
            index: TimeIndex::new(format!("{node}/{side}_time")),
            expiry,
            codec: RowCodec::new(types)?,
            schema: schema.clone(),
        })
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    pub(super) fn expiry(&self) -> JoinExpiry {
        self.expiry
    }

    /// Rows as they are buffered.
    pub(super) fn encode(&self, rows: &RecordBatch) -> Result<EncodedRows> {
        self.codec.encode(rows.columns())
    }

    /// The time, in microseconds, at or before which a row is over.
    pub(super) fn over(&self, scope: &NodeScope<'_>) -> Option<i64> {
        match self.expiry {
            JoinExpiry::Never => None,
            JoinExpiry::Key(_) => scope.watermark_ms.map(micros),
            JoinExpiry::Value { offset_ms, .. } => {
                scope.watermark_ms.map(|watermark| micros(watermark.saturating_add(offset_ms)))
            }
        }
    }

    /// Where the rows of a key stand. `time` counts if rows are joined by it.
    fn place(&self, source: &Source, row: usize, time: Option<&i64>, out: &mut Vec<u8>) {
        out.clear();
        if let JoinExpiry::Key(_) = self.expiry {
            out.extend_from_slice(&ordered_i64(time.copied().unwrap_or(NO_TIME)));
        }
        out.push(source.keys.key_group(row));
        out.extend_from_slice(source.keys.get(row));
    }

    /// Finds the buffered rows with the keys of some rows of the other side, in the order in which they came, and
    /// which of the found ones belong to each of the rows.
    pub(super) fn find(
        &self,
        state: &mut dyn StateShard,
        rows: &[(&Source, usize)],
    ) -> Result<(Stored, Vec<Range<u32>>)> {
        let mut stored = Stored::default();
        let mut ranges = vec![0..0; rows.len()];
        if state.len(&self.table) == 0 {
            return Ok((stored, ranges));
        }
        let (mut places, mut place) = (Arena::with_capacity(rows.len(), 32), Vec::with_capacity(64));
        for (source, row) in rows {
            self.place(source, *row, source.times_of_other.get(*row), &mut place);
            places.push(&[&place]);
        }
        let places = places.finish();
        let (mut time, mut has_rows) = ([0; 8], true);
        for at in sorted_order(&places).into_iter().map(|at| at as usize) {
            if let (JoinExpiry::Key(_), Some(next)) = (self.expiry, places[at].first_chunk::<8>())
                && *next != time
            {
                // Of a time that is new there is nothing, so its keys need not be looked up. Key groups are below 128.
                let end = [&next[..], &[KEY_GROUPS]].concat();
                (time, has_rows) = (*next, !state.scan(&self.table, &next[..]..&end, 1)?.is_empty());
            }
            if !has_rows {
                continue;
            }
            let start = stored.len() as u32;
            for_entries(state, &self.table, &places[at], &prefix_end(&places[at]), |_, entries| {
                for (key, value) in entries {
                    stored.keys.push(key);
                    stored.values.push(value);
                }
                Ok(())
            })?;
            ranges[at] = start..stored.len() as u32;
        }
        Ok((stored, ranges))
    }

    /// Buffers rows.
    pub(super) fn add(
        &self,
        scope: &NodeScope<'_>,
        state: &mut dyn StateShard,
        rows: &[NewRow<'_>],
    ) -> Result<()> {
        let batch = scope.batch.batch_id.0.to_be_bytes();
        let Some(first) = rows.first() else { return Ok(()) };
        let key_bytes = first.source.keys.get(first.row).len() + 8 + 1 + 12;
        let mut keys = Arena::with_capacity(rows.len(), key_bytes + 2);
        let mut values = Arena::with_capacity(rows.len(), first.source.values.get(first.row).len() + 4);
        let mut place = Vec::with_capacity(64);
        for new in rows {
            let (source, row) = (new.source, new.row);
            let time = source.times.get(row);
            let number = new.number.to_be_bytes();
            self.place(source, row, time, &mut place);
            keys.push(&[&place, &batch, &number]);
            values.push(&[&[u8::from(new.has_matched)], source.values.get(row)]);
        }
        let keys = keys.finish();
        if let JoinExpiry::Value { .. } = self.expiry {
            let times = rows.iter().map(|new| new.source.times.get(new.row).copied().unwrap_or(NO_TIME));
            let times = times.zip(keys.iter().map(Bytes::as_ref)).filter(|(time, _)| *time != NO_TIME);
            self.index.add(scope, state, times.collect())?;
        }
        state.apply(&self.table, sorted_puts(keys, &values.finish()))
    }

    /// Notes that buffered rows have matched.
    pub(super) fn mark(&self, state: &mut dyn StateShard, stored: &Stored, rows: &[usize]) -> Result<()> {
        let (mut keys, mut values) = (Vec::new(), Arena::default());
        for row in rows {
            keys.push(stored.keys[*row].clone());
            values.push(&[&[1], stored.row(*row)]);
        }
        let puts = keys.into_iter().zip(values.finish());
        match rows.is_empty() {
            true => Ok(()),
            false => state.apply(&self.table, puts.map(|(key, value)| StateOp::Put(key, value)).collect()),
        }
    }

    /// Forgets buffered rows and says how many they are. The index need not know.
    pub(super) fn remove(&self, state: &mut dyn StateShard, stored: &Stored, rows: &[usize]) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        let keys = rows.iter().map(|row| StateOp::Remove(stored.keys[*row].clone()));
        state.apply(&self.table, keys.collect())?;
        Ok(rows.len() as u64)
    }

    /// Forgets the rows that are over. `unmatched` gets those that never matched, if they are asked for.
    pub(super) fn expire(
        &self,
        scope: &NodeScope<'_>,
        state: &mut dyn StateShard,
        wants_unmatched: bool,
        mut unmatched: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<u64> {
        let over = self.over(scope);
        if over.is_none() && !scope.batch.is_final() {
            return Ok(0);
        }
        let before = state.len(&self.table);
        let mut give = |values: Vec<Bytes>| {
            let never = values.iter().filter(|value| value.first() == Some(&0));
            let never: Vec<&[u8]> = never.filter_map(|value| value.get(1..)).collect();
            if never.is_empty() { Ok(()) } else { unmatched(self.decode(never)?) }
        };
        let through = over.map(through_time);
        let front = match (scope.batch.is_final(), self.expiry, &through) {
            // Nothing comes any more: rows without a time are over, too.
            (true, ..) => Some(&AFTER_ALL_KEYS[..]),
            (false, JoinExpiry::Key(_), Some(through)) => Some(&through[..]),
            _ => None,
        };
        if let Some(end) = front {
            for_entries(state, &self.table, &[], end, |state, entries| {
                let (keys, values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
                state.apply(&self.table, keys.into_iter().map(StateOp::Remove).collect())?;
                if wants_unmatched { give(values) } else { Ok(()) }
            })?;
        } else if let Some(over) = over {
            self.index.expire(state, over, |state, keys| {
                if wants_unmatched {
                    let keys: Vec<&[u8]> = keys.iter().map(Bytes::as_ref).collect();
                    give(state.get_many(&self.table, &keys)?.into_iter().flatten().collect())?;
                }
                state.apply(&self.table, sorted_removals(&keys))
            })?;
        }
        Ok(before.saturating_sub(state.len(&self.table)))
    }

    /// Rows as they were when they came.
    pub(super) fn decode<'a>(&self, rows: impl IntoIterator<Item = &'a [u8]>) -> Result<RecordBatch> {
        let rows: Vec<&[u8]> = rows.into_iter().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let columns = self.codec.decode(rows).map_err(|e| e.context(self.at()))?;
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    /// The buffered rows as they were when they came.
    pub(super) fn decode_stored(&self, stored: &Stored) -> Result<RecordBatch> {
        if stored.values.iter().any(|value| value.is_empty()) {
            return Err(self.damaged());
        }
        self.decode((0..stored.len()).map(|row| stored.row(row)))
    }

    /// All rows with whether they have matched.
    pub(super) fn show(
        &self,
        state: &mut dyn StateShard,
        each: &mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        entries_while(state, &self.table, |_, entries| {
            let (keys, values) = entries.into_iter().unzip();
            let stored = Stored { keys, values };
            let rows = self.decode_stored(&stored)?;
            let matched: BooleanArray = (0..stored.len()).map(|row| Some(stored.has_matched(row))).collect();
            let mut fields = rows.schema().fields().to_vec();
            fields.push(Arc::new(Field::new("matched", DataType::Boolean, false)));
            let mut columns = rows.columns().to_vec();
            columns.push(Arc::new(matched));
            each(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
        })
    }

    fn at(&self) -> String {
        format!("the state table '{}'", self.table)
    }

    fn damaged(&self) -> Error {
        Error::data(format!("{} is damaged: a row has no bytes", self.at()))
            .hint("restore the checkpoint from a copy, or start with a new one")
    }
}

impl Stored {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
    /// Whether a row ever matched.
    pub(super) fn has_matched(&self, row: usize) -> bool {
        self.values[row].first() != Some(&0)
    }
    fn row(&self, row: usize) -> &[u8] {
        self.values[row].get(1..).unwrap_or_default()
    }
}
