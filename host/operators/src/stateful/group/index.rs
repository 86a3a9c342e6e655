//! Which keys have something due by when, with one entry a key at most.
//!
//! Used for timeouts, timers and times to live. The table is `[time][key]` → nothing. It is *lazy*: an entry may stand
//! at an earlier time than that of its key, for what was due and has been put off since. The key's own entry in its
//! table remembers where the index has it, so putting something off writes nothing here: when the earlier time comes,
//! the entry moves. So a key that is renewed with every row costs one change of its own entry, and none of the index.

use crate::stateful::layout::{Arena, sorted_order, sorted_removals, through_time};
use bytes::Bytes;
use pelton_core::{AFTER_ALL_KEYS, Result, StateOp, StateShard};
use pelton_state::{ordered_i64, split_ordered_i64};

/// How many entries are looked at in one go.
const DUE_ENTRIES: usize = 8192;

/// See the module.
pub(super) struct LazyIndex {
    table: String,
}

/// Changes of an index.
#[derive(Default)]
pub(super) struct IndexChanges {
    put: Arena,
    removed: Arena,
}

impl IndexChanges {
    /// A key is due at `due` (`None`: never) and is in the index at `indexed`. Gives where the index has it from now
    /// on. A key that is not due any more stays where it is: its own entry says so, unless `forget`.
    pub(super) fn set(
        &mut self,
        key: &Bytes,
        indexed: Option<i64>,
        due: Option<i64>,
        forget: bool,
    ) -> Option<i64> {
        match (indexed, due) {
            (Some(indexed), Some(due)) if indexed <= due => return Some(indexed),
            (Some(indexed), None) if !forget => return Some(indexed),
            (Some(indexed), _) => self.remove(indexed, key),
            (None, _) => {}
        }
        if let Some(due) = due {
            self.put.push(&[&ordered_i64(due), key]);
        }
        due
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, indexed: i64, key: &[u8]) {
        self.removed.push(&[&ordered_i64(indexed), key]);
    }
}

impl LazyIndex {
    pub(super) fn new(table: String) -> Self {
        Self { table }
    }

    pub(super) fn apply(&self, changes: IndexChanges, state: &mut dyn StateShard) -> Result<()> {
        let mut ops = sorted_removals(&changes.removed.finish());
        let put = changes.put.finish();
        let sorted = sorted_order(&put).into_iter().map(|at| put[at as usize].clone());
        ops.extend(sorted.map(|key| StateOp::Put(key, Bytes::new())));
        if ops.is_empty() { Ok(()) } else { state.apply(&self.table, ops) }
    }

    /// The keys whose entries stand at a time `<= time`, some at a time: `from` is where to go on, empty at first. Nothing
    /// is left when none is given. The caller moves or removes each of the entries.
    pub(super) fn due(
        &self,
        state: &dyn StateShard,
        from: &mut Vec<u8>,
        time: i64,
    ) -> Result<Vec<(i64, Bytes)>> {
        if state.len(&self.table) == 0 {
            return Ok(Vec::new());
        }
        let entries = state.scan(&self.table, &from[..]..&through_time(time)[..], DUE_ENTRIES)?;
        if let Some((last, _)) = entries.last() {
            from.clear();
            from.extend_from_slice(last);
            from.push(0);
        }
        let due = entries.into_iter().map(|(entry, _)| {
            let (time, key) = split_ordered_i64(&entry)?;
            Ok((time, entry.slice_ref(key)))
        });
        due.collect()
    }

    /// The first time at which something may be due.
    pub(super) fn first(&self, state: &dyn StateShard) -> Result<Option<i64>> {
        let first = state.scan(&self.table, &[][..]..&AFTER_ALL_KEYS[..], 1)?;
        first.first().map(|(entry, _)| split_ordered_i64(entry).map(|(time, _)| time)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::StateStore;
    use pelton_state::MemoryStateStore;

    #[test]
    fn putting_off_writes_nothing_and_moves_when_its_first_time_comes() {
        let index = LazyIndex::new("t".into());
        let mut store = MemoryStateStore::new();
        let mut shards = store.shards();
        let state = &mut *shards[0];
        let key = Bytes::from_static(b"k");
        let mut changes = IndexChanges::default();
        let indexed = changes.set(&key, None, Some(10), false);
        assert_eq!(indexed, Some(10));
        assert_eq!(changes.set(&key, indexed, Some(30), false), Some(10));
        index.apply(changes, state).expect("applies");
        assert_eq!((state.len("t"), index.first(state).expect("reads")), (1, Some(10)));
        let mut changes = IndexChanges::default();
        assert_eq!(changes.set(&key, Some(10), Some(5), false), Some(5));
        index.apply(changes, state).expect("applies");
        assert_eq!((state.len("t"), index.first(state).expect("reads")), (1, Some(5)));
        assert_eq!(index.due(state, &mut Vec::new(), 4).expect("reads"), []);
        let mut from = Vec::new();
        assert_eq!(index.due(state, &mut from, 5).expect("reads"), [(5, key.clone())]);
        assert_eq!(index.due(state, &mut from, 5).expect("reads"), []);
        let mut changes = IndexChanges::default();
        assert_eq!(changes.set(&key, Some(5), None, false), Some(5));
        assert_eq!(changes.set(&key, Some(5), None, true), None);
        index.apply(changes, state).expect("applies");
        assert_eq!(state.len("t"), 0);
    }
}
