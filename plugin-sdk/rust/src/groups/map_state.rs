//! What a processor keeps for a group by key. Spark's `MapState`.

use super::state::{Entries, State, plan, some_columns};
use super::variables::{Declared, Moment, Variable, migrate_values};
use super::written::{Changes, WrittenMap};
use super::{Timeout, VariableKind};
use crate::array::Array;
use crate::error::Error;
use crate::input::Plan;
use crate::ipc::Encoder;
use crate::output::Output;
use crate::types::{Field, Schema};
use std::collections::BTreeMap;
use std::ops::Range;

/// Values of a group by key. Spark's `MapState`. Entries are stored one by one: changing one does not touch the
/// others.
pub struct MapState<K: State + Ord, V: State> {
    entries: BTreeMap<K, Entry<V>>,
    cleared: bool,
    written: WrittenMap<K, V>,
}

/// `None` if it was removed.
struct Entry<V> {
    value: Option<V>,
    changed: bool,
}

impl<K: State + Ord, V: State> Default for MapState<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), cleared: false, written: WrittenMap::default() }
    }
}

impl<K: State + Ord, V: State> MapState<K, V> {
    /// The value of a key, if it was loaded or set.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)?.value.as_ref()
    }
    /// Whether [`get`](Self::get) gives a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }
    /// The entries that were loaded or set, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|(key, entry)| Some((key, entry.value.as_ref()?)))
    }
    /// The keys of [`iter`](Self::iter).
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }
    /// The values of [`iter`](Self::iter).
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
    /// How many entries [`iter`](Self::iter) gives.
    pub fn len(&self) -> usize {
        self.iter().count()
    }
    /// Whether [`iter`](Self::iter) gives none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
    /// Sets the value of a key; its time to live begins anew.
    pub fn update(&mut self, key: K, value: V) {
        self.entries.insert(key, Entry { value: Some(value), changed: true });
    }
    /// Takes the entry of a key away, whether it was loaded or not.
    pub fn remove(&mut self, key: K) {
        self.entries.insert(key, Entry { value: None, changed: true });
    }
    /// Takes all entries away, those that were not loaded too.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.cleared = true;
    }
}

/// Reads keys and values.
pub struct MapEntries<'a, K: State, V: State> {
    keys: Entries<'a, K>,
    values: Entries<'a, V>,
}

impl<K: State + Ord, V: State> Variable for MapState<K, V> {
    type Reader<'a> = MapEntries<'a, K, V>;

    fn declared() -> Declared {
        Declared { kind: VariableKind::Map, key: K::key_columns(), value: V::columns(), version: V::VERSION }
    }
    fn plans(entries: &Schema) -> Result<Vec<Plan>, Error> {
        let (key, value) = entries.fields.split_at(K::key_columns().len().min(entries.fields.len()));
        let part = |fields: &[Field]| Schema::new(fields.to_vec());
        Ok(vec![plan::<K>(&part(key))?, plan::<V>(&part(value))?])
    }
    fn reader<'a>(plans: &[Plan], entries: &Array<'a>) -> Result<MapEntries<'a, K, V>, Error> {
        let (keys, all) = (K::key_columns().len(), entries.columns().len());
        Ok(MapEntries {
            keys: Entries::new(&plans[0], &some_columns(entries, 0..keys))?,
            values: Entries::new(&plans[1], &some_columns(entries, keys..all))?,
        })
    }
    fn begin(
        &mut self,
        reader: &MapEntries<'_, K, V>,
        entries: Range<usize>,
        _: &Moment,
    ) -> Result<(), Error> {
        self.entries.clear();
        self.cleared = false;
        for entry in entries {
            let value = Some(reader.values.read(entry)?);
            self.entries.insert(reader.keys.read(entry)?, Entry { value, changed: false });
        }
        Ok(())
    }
    fn end(&mut self, group: u32, _: &mut Vec<Timeout>) {
        if self.cleared {
            self.written.clear(group);
        }
        for (key, entry) in std::mem::take(&mut self.entries) {
            match entry.value {
                Some(value) if entry.changed => self.written.put(group, key, value),
                None if entry.changed && !self.cleared => self.written.remove(group, key),
                _ => {}
            }
        }
    }
    fn forget(&mut self) {
        self.written.forget();
    }
    fn write(&mut self, entries: &Schema, changes: &mut Changes) {
        self.written.write(entries, changes);
    }
    fn migrate(from: u32, old: &Schema, entries: &Array<'_>, to: &mut Encoder) -> Result<(), Error> {
        let (count, all) = (K::key_columns().len(), entries.columns().len());
        let (keys, values) = old.fields.split_at(count.min(old.fields.len()));
        let part = |fields: &[Field]| Schema::new(fields.to_vec());
        let reader = Entries::<K>::new(&plan::<K>(&part(keys))?, &some_columns(entries, 0..count))?;
        let mut builder = <K as Output>::Builder::default();
        for row in 0..entries.len() {
            reader.read(row)?.append(&mut builder);
        }
        K::write_columns(&builder, to);
        migrate_values::<V>(from, &part(values), &some_columns(entries, count..all), to)
    }
}
