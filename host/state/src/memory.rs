//! State in memory, with the meaning of commit and rollback that every store has.
//!
//! A change is applied at once and what it replaced is remembered until the commit, so a rollback costs what
//! changed and a commit almost nothing. Called by the engine's operators through the port.

use bytes::Bytes;
use pelton_core::{BatchId, Error, Result, StateOp, StateStore};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

type Table = BTreeMap<Bytes, Bytes>;

/// A [`StateStore`] over ordered maps.
#[derive(Debug, Default)]
pub struct MemoryStateStore {
    tables: BTreeMap<String, Table>,
    /// What the changes since the last commit replaced, oldest first.
    undo: Vec<(String, Bytes, Option<Bytes>)>,
    committed: Option<BatchId>,
}

impl MemoryStateStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The last micro-batch whose changes count.
    pub fn committed(&self) -> Option<BatchId> {
        self.committed
    }

    fn set(&mut self, table: &str, key: Bytes, value: Option<Bytes>) -> Option<Bytes> {
        if !self.tables.contains_key(table) {
            self.tables.insert(table.to_owned(), Table::new());
        }
        let entries = self.tables.get_mut(table)?;
        match value {
            Some(value) => entries.insert(key, value),
            None => entries.remove(&key),
        }
    }
}

impl StateStore for MemoryStateStore {
    fn get_many(&self, table: &str, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let table = self.tables.get(table);
        Ok(keys.iter().map(|key| table.and_then(|entries| entries.get(*key).cloned())).collect())
    }

    fn apply(&mut self, table: &str, changes: Vec<StateOp>) -> Result<()> {
        for change in changes {
            let (key, value) = match change {
                StateOp::Put(key, value) => (key, Some(value)),
                StateOp::Remove(key) => (key, None),
            };
            let before = self.set(table, key.clone(), value);
            self.undo.push((table.to_owned(), key, before));
        }
        Ok(())
    }

    fn scan(&self, table: &str, keys: Range<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        if keys.start >= keys.end {
            return Ok(Vec::new());
        }
        let range = (Bound::Included(keys.start), Bound::Excluded(keys.end));
        let found = self.tables.get(table).into_iter().flat_map(|entries| entries.range::<[u8], _>(range));
        Ok(found.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn len(&self, table: &str) -> Result<u64> {
        Ok(self.tables.get(table).map_or(0, |entries| entries.len() as u64))
    }

    fn commit(&mut self, batch_id: BatchId) -> Result<()> {
        if self.committed.is_some_and(|last| last >= batch_id) {
            return Err(Error::internal(format!("the state of micro-batch {batch_id} is committed already")));
        }
        self.undo.clear();
        self.committed = Some(batch_id);
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        while let Some((table, key, before)) = self.undo.pop() {
            self.set(&table, key, before);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(n: u8) -> Bytes {
        Bytes::copy_from_slice(&[n])
    }

    #[derive(Debug, Clone)]
    enum Act {
        Apply(bool, Vec<(u8, Option<u8>)>),
        Commit,
        Rollback,
    }

    fn act() -> impl Strategy<Value = Act> {
        let change = (0..8_u8, proptest::option::of(any::<u8>()));
        prop_oneof![
            4 => (any::<bool>(), proptest::collection::vec(change, 0..6)).prop_map(|(t, c)| Act::Apply(t, c)),
            1 => Just(Act::Commit),
            1 => Just(Act::Rollback),
        ]
    }

    proptest! {
        /// Against the plainest model there is: a copy of everything at each commit.
        #[test]
        fn behaves_like_a_map_that_is_copied_at_each_commit(script in proptest::collection::vec(act(), 0..30)) {
            let mut store = MemoryStateStore::new();
            let mut now: BTreeMap<(bool, u8), u8> = BTreeMap::new();
            let mut committed = now.clone();
            let mut batch = BatchId::FIRST;
            for act in script {
                match act {
                    Act::Apply(table, changes) => {
                        let ops = changes.iter().map(|(k, v)| match v {
                            Some(v) => StateOp::Put(key(*k), key(*v)),
                            None => StateOp::Remove(key(*k)),
                        });
                        store.apply(&table.to_string(), ops.collect()).unwrap();
                        for (k, v) in changes {
                            match v {
                                Some(v) => now.insert((table, k), v),
                                None => now.remove(&(table, k)),
                            };
                        }
                    }
                    Act::Commit => {
                        store.commit(batch).unwrap();
                        batch = batch.next();
                        committed = now.clone();
                    }
                    Act::Rollback => {
                        store.rollback().unwrap();
                        now = committed.clone();
                    }
                }
                for table in [false, true] {
                    let expected: Vec<_> =
                        now.iter().filter(|e| e.0.0 == table).map(|e| (key(e.0.1), key(*e.1))).collect();
                    let name = table.to_string();
                    prop_assert_eq!(store.len(&name).unwrap(), expected.len() as u64);
                    prop_assert_eq!(store.scan(&name, &[][..]..&[255][..], 100).unwrap(), expected);
                }
            }
        }
    }

    #[test]
    fn reads_many_in_the_order_asked_and_scans_a_range() {
        let mut store = MemoryStateStore::new();
        let put = |n| StateOp::Put(key(n), key(n + 100));
        store.apply("t", vec![put(3), put(1), put(2)]).unwrap();
        let got = store.get_many("t", &[&[2], &[9], &[1]]).unwrap();
        assert_eq!(got, [Some(key(102)), None, Some(key(101))]);
        assert_eq!(store.scan("t", &[1][..]..&[3][..], 9).unwrap(), [(key(1), key(101)), (key(2), key(102))]);
        assert_eq!(store.scan("t", &[1][..]..&[3][..], 1).unwrap().len(), 1);
        assert!(store.scan("t", &[3][..]..&[1][..], 9).unwrap().is_empty());
        assert!(store.is_empty("other").unwrap());
    }

    #[test]
    fn a_micro_batch_is_committed_once() {
        let mut store = MemoryStateStore::new();
        store.commit(BatchId(4)).unwrap();
        assert!(store.commit(BatchId(4)).is_err());
        assert_eq!(store.committed(), Some(BatchId(4)));
    }
}
