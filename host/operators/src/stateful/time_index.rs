//! Which keys of a table are over by when, for tables that are not laid out by time.
//!
//! Used by deduplication within the watermark and by joins with a time range. An entry of the index names up to
//! [`KEYS`] keys that were added together, in the order of their times, so that the index costs little beside the rows
//! themselves: its key is `[first time][micro-batch: 8 bytes][number: 4 bytes]`, its value a row of
//! `[time][length of the key: 4 bytes][key]`. What is over is taken off the front of an entry. A key that is not in the
//! table any more does no harm.

use super::NodeScope;
use super::layout::{for_entries, through_time};
use bytes::Bytes;
use pelton_core::{Error, Result, StateOp, StateShard};
use pelton_plan::ROWS_PER_BATCH_MAX;
use pelton_state::ordered_i64;

/// The most keys of an entry. More would make it cost more to take some off.
const KEYS: usize = 32;

/// What stands before the bytes of a key.
const ITEM_HEAD: usize = 12;

/// See the module.
pub(crate) struct TimeIndex {
    table: String,
}

impl TimeIndex {
    /// The index in a table.
    pub(crate) fn new(table: String) -> Self {
        Self { table }
    }

    /// Adds keys with their times. Called once at most in a micro-batch.
    pub(crate) fn add(
        &self,
        scope: &NodeScope<'_>,
        state: &mut dyn StateShard,
        mut keys: Vec<(i64, &[u8])>,
    ) -> Result<()> {
        keys.sort_unstable();
        let batch = scope.batch.batch_id.0.to_be_bytes();
        let entry = |(number, keys): (usize, &[(i64, &[u8])])| {
            let mut value = Vec::with_capacity(keys.iter().map(|(_, key)| ITEM_HEAD + key.len()).sum());
            for (time, key) in keys {
                value.extend_from_slice(&ordered_i64(*time));
                value.extend_from_slice(&(key.len() as u32).to_be_bytes());
                value.extend_from_slice(key);
            }
            let first = ordered_i64(keys.first().map_or(0, |(time, _)| *time));
            let key = [&first[..], &batch, &(number as u32).to_be_bytes()].concat();
            StateOp::Put(key.into(), value.into())
        };
        let entries: Vec<StateOp> = keys.chunks(KEYS).enumerate().map(entry).collect();
        if entries.is_empty() { Ok(()) } else { state.apply(&self.table, entries) }
    }

    /// Takes the keys whose time is `<= over` out of the index and gives them to `body`, some at a time.
    pub(crate) fn expire(
        &self,
        state: &mut dyn StateShard,
        over: i64,
        mut body: impl FnMut(&mut dyn StateShard, Vec<Bytes>) -> Result<()>,
    ) -> Result<()> {
        let end = through_time(over);
        for_entries(state, &self.table, &[], &end, |state, entries| {
            let (mut keys, mut changes) = (Vec::new(), Vec::new());
            for (entry, mut left) in entries {
                while left.get(..8).is_some_and(|time| time < &end[..]) {
                    let (key, rest) = self.first(&left)?;
                    keys.push(key);
                    left = rest;
                }
                if let (Some(time), Some(suffix)) = (left.get(..8), entry.get(8..)) {
                    changes.push(StateOp::Put([time, suffix].concat().into(), left));
                }
                changes.push(StateOp::Remove(entry));
            }
            state.apply(&self.table, changes)?;
            while !keys.is_empty() {
                let later = keys.split_off(keys.len().min(ROWS_PER_BATCH_MAX));
                body(state, std::mem::replace(&mut keys, later))?;
            }
            Ok(())
        })
    }

    /// The first key of an entry's value, and what comes after.
    fn first(&self, value: &Bytes) -> Result<(Bytes, Bytes)> {
        let length = value.get(8..ITEM_HEAD).and_then(|length| length.try_into().ok());
        let end = length.and_then(|length| ITEM_HEAD.checked_add(u32::from_be_bytes(length) as usize));
        match end.filter(|end| *end <= value.len()) {
            Some(end) => Ok((value.slice(ITEM_HEAD..end), value.slice(end..))),
            None => {
                Err(Error::data(format!("the state table '{}' is damaged: an entry is cut off", self.table))
                    .hint("restore the checkpoint from a copy, or start with a new one"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::{BatchId, BatchInfo, QueryId, StateStore};
    use pelton_state::MemoryStateStore;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn with_scope<T>(batch: usize, body: impl FnOnce(&NodeScope<'_>) -> T) -> T {
        let batch = Arc::new(BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(batch as u64),
            time_ms: 0,
            watermark_ms: None,
            late_watermark_ms: None,
        });
        body(&NodeScope {
            batch: &batch,
            name: "n",
            late_ms: None,
            watermark_ms: None,
            keep_late_rows: false,
        })
    }

    proptest! {
        /// Every key comes out once, with the first limit that is not before its time.
        #[test]
        fn keys_come_out_when_they_are_over(
            batches in proptest::collection::vec((proptest::collection::vec(-20i64..60, 0..120), 0i64..12), 1..8)
        ) {
            let index = TimeIndex::new("t".into());
            let mut store = MemoryStateStore::new();
            let mut shards = store.shards();
            let state = &mut *shards[0];
            let (mut waiting, mut over, mut number) = (Vec::new(), -10, 0u32);
            for (batch, (times, moved)) in batches.iter().enumerate() {
                let keys: Vec<(i64, Vec<u8>)> = times.iter().map(|time| {
                    number += 1;
                    (*time, number.to_le_bytes().to_vec())
                }).collect();
                let named = keys.iter().map(|(time, key)| (*time, &key[..])).collect();
                with_scope(batch, |scope| index.add(scope, state, named)).expect("adds");
                waiting.extend(keys);
                over += moved;
                let mut given = Vec::new();
                index.expire(state, over, |_, keys| {
                    given.extend(keys.iter().map(|key| key.to_vec()));
                    Ok(())
                }).expect("expires");
                given.sort_unstable();
                let (gone, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(time, _)| *time <= over);
                let mut gone: Vec<Vec<u8>> = gone.into_iter().map(|(_, key)| key).collect();
                gone.sort_unstable();
                prop_assert_eq!(given, gone);
                waiting = left;
            }
            let (mut last, all) = (0, waiting.len());
            index.expire(state, i64::MAX - 1, |_, keys| { last += keys.len(); Ok(()) }).expect("expires");
            prop_assert_eq!((last, state.len("t")), (all, 0));
        }
    }

    #[test]
    fn a_cut_off_entry_is_an_error() {
        let mut store = MemoryStateStore::new();
        let mut shards = store.shards();
        let (key, value) = (ordered_i64(1).to_vec(), [&ordered_i64(1)[..], &[0, 0, 0, 9, 1]].concat());
        shards[0].apply("t", vec![StateOp::Put(key.into(), value.into())]).expect("applies");
        let error =
            TimeIndex::new("t".into()).expire(&mut *shards[0], 5, |_, _| Ok(())).expect_err("damaged");
        assert_eq!(error.kind(), pelton_core::ErrorKind::Data);
    }
}
