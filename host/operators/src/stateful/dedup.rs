//! Deduplication: the first row of each key goes on, in the order of the input.
//!
//! Spark's `dropDuplicates` and `dropDuplicatesWithinWatermark`. Driven by the dataflow; asks no clock: a key is
//! forgotten when the watermark says so.
//!
//! Tables (`[…]` are parts of the key; the value is empty if not said otherwise):
//! * a time among the keys: `keys` = `[time][key group][key]`, so that what is over stands together. Whether keys are
//!   forgotten by it or not: a watermark can be added to a query, or taken from it, without touching its state;
//! * otherwise never forgotten: `keys` = `[key group][key]`;
//! * within the watermark: `keys` = `[key group][key]` → expiry. A key of more than [`SHORT_KEY`] bytes has 7 bytes of
//!   its hash before it, so that the index `expiry` need not hold all of it: it names what the entry begins with.

use super::event_time::{EventTimes, is_time, micros, utc_field, utc_times, without_late_rows};
use super::keyed::{KeySet, Keys, gather};
use super::layout::{Arena, NO_TIME, entries_while, for_entries, prefix_end, sorted_order, through_time};
use super::time_index::TimeIndex;
use super::{NodeScope, Operator, Piece, Prepared, ShardOutput, Shown, packed, unpacked};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use bytes::Bytes;
use pelton_core::{AFTER_ALL_KEYS, Error, Result, SHARDS, StateOp, StateShard, shard_of};
use pelton_plan::stateful::{self as plan, DedupExpiry, EventTimeColumn, StatefulNode};
use pelton_state::{RowCodec, ordered_i64, split_ordered_i64};
use std::sync::Arc;

/// The longest key that is in the index as it is.
const SHORT_KEY: usize = 16;
/// The length of the beginning by which the index knows longer ones.
const NAMED_BY: usize = 8;
/// If more than one in so many entries may be over, all are looked at.
const SCAN_WORTH: u64 = 4;

/// See the module.
pub(crate) struct Dedup {
    keys: Vec<usize>,
    codec: RowCodec,
    event_time: Option<EventTimeColumn>,
    expiry: DedupExpiry,
    /// The key that stands in front of the others in the table: a time, by its column.
    time_key: Option<usize>,
    has_watermark: bool,
    schema: SchemaRef,
    keys_table: String,
    index: TimeIndex,
}

/// Rows that are not late, with their keys and the times by which these are forgotten.
struct Source {
    rows: RecordBatch,
    keys: Keys,
    times: Vec<i64>,
}

/// Rows of a source that concern one shard, ascending; no two of a part have the same key.
struct Chunk {
    source: Arc<Source>,
    rows: Vec<u32>,
}

impl Dedup {
    /// The operator of a node.
    pub(crate) fn new(spec: &plan::Dedup, node: &StatefulNode) -> Result<Self> {
        let input = node.inputs.first().ok_or_else(|| Error::internal("a dedup without an input"))?;
        let types: Vec<DataType> =
            spec.keys.iter().map(|column| input.field(*column).data_type().clone()).collect();
        if spec.event_time.is_none() && spec.expiry != DedupExpiry::Never {
            return Err(Error::internal("a dedup by an event time that is not there"));
        }
        let time_key = match (spec.expiry, spec.event_time) {
            (DedupExpiry::EventTime, Some(time)) => Some(time.column),
            (DedupExpiry::Never, _) => {
                spec.keys.iter().copied().find(|column| is_time(input.field(*column).data_type()))
            }
            _ => None,
        };
        Ok(Self {
            keys: spec.keys.clone(),
            codec: RowCodec::new(types).map_err(|e| e.context(format!("operator '{}'", node.name)))?,
            event_time: spec.event_time,
            expiry: spec.expiry,
            time_key,
            has_watermark: node.watermark_offset_ms.is_some(),
            schema: node.schema.clone(),
            keys_table: format!("{}/keys", node.name),
            index: TimeIndex::new(format!("{}/expiry", node.name)),
        })
    }

    fn source(&self, rows: RecordBatch) -> Result<Source> {
        let columns: Vec<ArrayRef> = self.keys.iter().map(|column| rows.column(*column).clone()).collect();
        let keys = Keys::encode(&self.codec, &columns)?;
        let times = match (self.expiry, self.event_time, self.time_key) {
            (DedupExpiry::Within { delay_ms }, Some(column), _) => {
                let times = EventTimes::of(rows.column(column.column))?;
                let expires = |row| times.get(row).unwrap_or(0).saturating_add(micros(delay_ms));
                (0..rows.num_rows()).map(expires).collect()
            }
            (_, _, Some(column)) => {
                let times = EventTimes::of(rows.column(column))?;
                (0..rows.num_rows()).map(|row| times.get(row).unwrap_or(NO_TIME)).collect()
            }
            _ => Vec::new(),
        };
        Ok(Source { rows, keys, times })
    }

    /// Lets go of the rows that are not kept, if these are most.
    fn compact(&self, source: &Arc<Source>, kept: Vec<u32>) -> Result<(Arc<Source>, Vec<u32>)> {
        if kept.len() * 2 > source.rows.num_rows() {
            return Ok((source.clone(), kept));
        }
        let count = kept.len() as u32;
        let rows = take_record_batch(&source.rows, &UInt32Array::from(kept))?;
        Ok((Arc::new(self.source(rows)?), (0..count).collect()))
    }

    /// The key in the table, in front of which stands the time among its parts.
    fn state_keys(&self, candidates: &[(&Source, usize)]) -> Vec<Bytes> {
        let longest = candidates.first().map_or(0, |(source, row)| source.keys.get(*row).len() + 12);
        let mut arena = Arena::with_capacity(candidates.len(), longest);
        for (source, row) in candidates {
            let (group, key) = ([source.keys.key_group(*row)], source.keys.get(*row));
            match (self.expiry, self.time_key) {
                (DedupExpiry::Within { .. }, _) if key.len() > SHORT_KEY => {
                    let hash = source.keys.hash(*row).to_be_bytes();
                    arena.push(&[&group, &hash[..NAMED_BY - 1], key]);
                }
                (DedupExpiry::Within { .. }, _) | (_, None) => arena.push(&[&group, key]),
                (_, Some(_)) => arena.push(&[&ordered_i64(source.times[*row]), &group, key]),
            }
        }
        arena.finish()
    }

    /// Where in an entry's key the encoded key begins.
    fn key_begins(&self, key: &[u8]) -> usize {
        match (self.expiry, self.time_key) {
            (DedupExpiry::Within { .. }, _) if key.len() > SHORT_KEY + 1 => NAMED_BY,
            (DedupExpiry::Within { .. }, _) | (_, None) => 1,
            (_, Some(_)) => 9,
        }
    }

    /// Remembers new keys, which are in order, except those that are forgotten with this very micro-batch.
    fn remember(
        &self,
        scope: &NodeScope<'_>,
        mut new: Vec<(Bytes, Option<i64>)>,
        state: &mut dyn StateShard,
    ) -> Result<u64> {
        let over = scope.watermark_ms.filter(|_| self.expiry != DedupExpiry::Never).map(micros);
        new.retain(|(_, time)| !matches!((time, over), (Some(time), Some(over)) if *time <= over));
        let updated = new.len() as u64;
        if let DedupExpiry::Within { .. } = self.expiry {
            let times = new.iter().map(|(key, time)| (time.unwrap_or(NO_TIME), in_index(key)));
            self.index.add(scope, state, times.collect())?;
            let mut values = Arena::with_capacity(new.len(), 8);
            new.iter().for_each(|(_, time)| values.push(&[&ordered_i64(time.unwrap_or(NO_TIME))]));
            let puts = new.into_iter().zip(values.finish()).map(|((key, _), time)| StateOp::Put(key, time));
            state.apply(&self.keys_table, puts.collect())?;
        } else {
            let puts = new.into_iter().map(|(key, _)| StateOp::Put(key, Bytes::new()));
            state.apply(&self.keys_table, puts.collect())?;
        }
        Ok(updated)
    }

    /// Forgets the keys that are over and says how many they were.
    fn forget(&self, scope: &NodeScope<'_>, state: &mut dyn StateShard) -> Result<u64> {
        let Some(watermark_ms) = scope.watermark_ms else {
            return Ok(0);
        };
        let before = state.len(&self.keys_table);
        let over = micros(watermark_ms);
        match self.expiry {
            DedupExpiry::Never => {}
            DedupExpiry::EventTime => {
                for_entries(state, &self.keys_table, &[], &through_time(over), |state, entries| {
                    let keys = entries.into_iter().map(|(key, _)| StateOp::Remove(key));
                    state.apply(&self.keys_table, keys.collect())
                })?;
            }
            DedupExpiry::Within { .. } => {
                let mut beginnings = Vec::new();
                self.index.expire(state, over, |_, some| {
                    beginnings.extend(some);
                    Ok(())
                })?;
                self.forget_beginnings(beginnings, through_time(over), state)?;
            }
        }
        Ok(before.saturating_sub(state.len(&self.keys_table)))
    }
}

impl Dedup {
    /// Forgets the keys that begin so, if their time is before the end. All others have a later one.
    fn forget_beginnings(
        &self,
        mut beginnings: Vec<Bytes>,
        end: [u8; 8],
        state: &mut dyn StateShard,
    ) -> Result<()> {
        if beginnings.is_empty() {
            return Ok(());
        }
        let forget = |state: &mut dyn StateShard, entries: Vec<(Bytes, Bytes)>| {
            let over = entries.into_iter().filter(|(_, time)| time[..] < end[..]);
            state.apply(&self.keys_table, over.map(|(key, _)| StateOp::Remove(key)).collect())
        };
        if beginnings.len() as u64 * SCAN_WORTH >= state.len(&self.keys_table) {
            return for_entries(state, &self.keys_table, &[], &AFTER_ALL_KEYS, forget);
        }
        beginnings.sort_unstable();
        beginnings.dedup();
        for beginning in beginnings {
            for_entries(state, &self.keys_table, &beginning, &prefix_end(&beginning), forget)?;
        }
        Ok(())
    }
}

/// How the index names an entry.
fn in_index(key: &[u8]) -> &[u8] {
    if key.len() > SHORT_KEY + 1 { &key[..NAMED_BY] } else { key }
}

impl Operator for Dedup {
    fn counted_tables(&self, _name: &str) -> Vec<String> {
        vec![self.keys_table.clone()]
    }

    fn prepare(&self, scope: &NodeScope<'_>, _port: usize, rows: &[RecordBatch]) -> Result<Prepared> {
        let mut prepared = Prepared::default();
        let mut sources = Vec::with_capacity(rows.len());
        for rows in rows {
            let rows = without_late_rows(scope, rows, self.event_time, &mut prepared)?;
            sources.push(Arc::new(self.source(rows)?));
        }
        let rows = sources.iter().map(|source| source.rows.num_rows()).sum();
        let mut seen = KeySet::with_capacity_and_hasher(rows, Default::default());
        let mut shards: Vec<Vec<Chunk>> = (0..SHARDS).map(|_| Vec::new()).collect();
        for source in &sources {
            let rows = (0..source.rows.num_rows() as u32)
                .filter(|row| seen.insert(source.keys.hashed(*row as usize)));
            let (source, rows) = self.compact(source, rows.collect())?;
            let mut split: [Vec<u32>; SHARDS] = Default::default();
            for row in rows {
                split[shard_of(source.keys.key_group(row as usize))].push(row);
            }
            for (shard, rows) in split.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                shards[shard].push(Chunk { source: source.clone(), rows });
            }
        }
        prepared.pieces = packed(shards);
        Ok(prepared)
    }

    fn run(
        &self,
        scope: &NodeScope<'_>,
        _shard: usize,
        mut pieces: Vec<Vec<Piece>>,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let parts = pieces.pop().unwrap_or_default();
        let are_several = parts.len() > 1;
        let mut chunks = Vec::new();
        unpacked::<Vec<Chunk>>(parts)?.into_iter().for_each(|part| chunks.extend(part));
        let mut seen = KeySet::default();
        let mut candidates: Vec<(&Source, usize)> = Vec::new();
        let mut at: Vec<(usize, usize)> = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            for row in chunk.rows.iter().map(|row| *row as usize) {
                if !are_several || seen.insert(chunk.source.keys.hashed(row)) {
                    candidates.push((&chunk.source, row));
                    at.push((index, row));
                }
            }
        }
        let keys = self.state_keys(&candidates);
        let order = sorted_order(&keys);
        let known = if state.len(&self.keys_table) == 0 {
            vec![None; keys.len()]
        } else {
            let keys: Vec<&[u8]> = order.iter().map(|at| keys[*at as usize].as_ref()).collect();
            state.get_many(&self.keys_table, &keys)?
        };
        let mut is_new = vec![false; keys.len()];
        let mut new = Vec::with_capacity(keys.len());
        for (candidate, _) in
            order.iter().map(|at| *at as usize).zip(known).filter(|(_, known)| known.is_none())
        {
            is_new[candidate] = true;
            let (source, row) = candidates[candidate];
            new.push((keys[candidate].clone(), source.times.get(row).copied()));
        }
        let mut passes = is_new.iter();
        at.retain(|_| passes.next() == Some(&true));
        let updated = self.remember(scope, new, state)?;
        let removed = self.forget(scope, state)?;
        let sources: Vec<_> = chunks.iter().map(|chunk| &chunk.source.rows).collect();
        Ok(ShardOutput {
            rows: gather(&self.schema, &sources, &at)?,
            updated,
            removed,
            ..ShardOutput::default()
        })
    }

    /// As in Spark, also where no key is ever forgotten.
    fn watches_watermark(&self) -> bool {
        self.has_watermark
    }

    fn state_form(&self) -> String {
        let time = self.time_key.and_then(|time| self.keys.iter().position(|key| *key == time));
        match (self.expiry, time) {
            (DedupExpiry::Within { .. }, _) => {
                "keys, long ones behind their hash, and when they expire".to_owned()
            }
            (_, Some(time)) => format!("keys by time, which is key {}", time + 1),
            _ => "keys".to_owned(),
        }
    }

    fn waits_for(&self) -> String {
        match self.expiry {
            DedupExpiry::Never => "nothing; no key is ever forgotten".to_owned(),
            DedupExpiry::EventTime => {
                "the watermark to pass the event time of a key, to forget it".to_owned()
            }
            DedupExpiry::Within { delay_ms } => {
                format!("the watermark to pass the first row of a key by {delay_ms} ms, to forget it")
            }
        }
    }

    /// A key, and when it is forgotten if its entry says so.
    fn show(&self, _name: &str, state: &mut dyn StateShard, each: &mut Shown<'_>) -> Result<()> {
        let within = matches!(self.expiry, DedupExpiry::Within { .. });
        entries_while(state, &self.keys_table, |_, entries| {
            let keys = entries.iter().map(|(key, _)| key.get(self.key_begins(key)..).unwrap_or_default());
            let mut columns = self.codec.decode(keys)?;
            let mut fields: Vec<FieldRef> =
                self.keys.iter().map(|key| self.schema.fields()[*key].clone()).collect();
            if within {
                let times = entries.iter().map(|(_, time)| Ok(split_ordered_i64(time)?.0));
                columns.push(Arc::new(utc_times(times.collect::<Result<_>>()?)));
                fields.push(Arc::new(utc_field("expires")));
            }
            let options = RecordBatchOptions::new().with_row_count(Some(entries.len()));
            each("", RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
        })
    }
}
