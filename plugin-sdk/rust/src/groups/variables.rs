//! What a processor keeps for a group: values, lists and maps. Spark's `ValueState`, `ListState` and `MapState`.

use super::state::{Entries, State, plan, some_columns};
use super::written::{Changes, Written, WrittenMap};
use super::{Reason, Timeout, VariableKind};
use crate::array::{Array, Offsets};
use crate::context::Clock;
use crate::error::Error;
use crate::input::Plan;
use crate::ipc::Encoder;
use crate::output::Output;
use crate::time::TimeMode;
use crate::types::{Field, Schema};
use std::collections::BTreeMap;
use std::ops::Range;

/// A variable's part of the signature that follows from its type.
pub struct Declared {
    pub(crate) kind: VariableKind,
    pub(crate) key: Vec<Field>,
    pub(crate) value: Vec<Field>,
    pub(crate) version: u32,
}

/// Where the call of a group stands.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub(crate) reason: Reason,
    pub(crate) time_mode: TimeMode,
    pub(crate) clock: Clock,
}

impl Default for Moment {
    fn default() -> Self {
        Self { reason: Reason::Data, time_mode: TimeMode::None, clock: Clock::default() }
    }
}

/// A part of the state of each group: [`ValueState`], [`ListState`], [`MapState`] or
/// [`GroupState`](super::group_state::GroupState). One object serves all groups, one after the other.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no variable of a group's state",
    label = "expected `&mut` one of GroupState, ValueState, ListState, MapState"
)]
pub trait Variable: Default + 'static {
    /// Reads the entries of a call.
    type Reader<'a>;
    /// What the type says of it.
    fn declared() -> Declared;
    /// Matches key and value with the stored fields.
    ///
    /// # Errors
    /// If they are others.
    fn plans(entries: &Schema) -> Result<Vec<Plan>, Error>;
    /// A reader for the entries of a call.
    ///
    /// # Errors
    /// If they are not what was agreed.
    fn reader<'a>(plans: &[Plan], entries: &Array<'a>) -> Result<Self::Reader<'a>, Error>;
    /// Takes on a group.
    ///
    /// # Errors
    /// If an entry cannot be read.
    fn begin(
        &mut self,
        reader: &Self::Reader<'_>,
        entries: Range<usize>,
        moment: &Moment,
    ) -> Result<(), Error>;
    /// Notes what was changed of the group.
    fn end(&mut self, group: u32, timeouts: &mut Vec<Timeout>);
    /// Forgets changes that were not written.
    fn forget(&mut self);
    /// Writes the changes of all groups.
    fn write(&mut self, entries: &Schema, changes: &mut Changes);
    /// Rewrites entries of an older version.
    ///
    /// # Errors
    /// If there is no way from it.
    fn migrate(from: u32, old: &Schema, entries: &Array<'_>, to: &mut Encoder) -> Result<(), Error>;
}

/// Rewrites entries without a key.
pub(crate) fn migrate_values<T: State>(
    from: u32,
    old: &Schema,
    entries: &Array<'_>,
    to: &mut Encoder,
) -> Result<(), Error> {
    let values = T::migrated(from, old, entries)?;
    let mut builder = <T as Output>::Builder::default();
    values.into_iter().for_each(|value| value.append(&mut builder));
    T::write_columns(&builder, to);
    Ok(())
}

/// Nothing or one value for a group. Spark's `ValueState`.
pub struct ValueState<T: State> {
    value: Option<T>,
    stored: bool,
    changed: bool,
    written: Written<T>,
}

impl<T: State> Default for ValueState<T> {
    fn default() -> Self {
        Self { value: None, stored: false, changed: false, written: Written::default() }
    }
}

impl<T: State> ValueState<T> {
    /// Whether there is a value.
    #[inline]
    pub fn exists(&self) -> bool {
        self.value.is_some()
    }
    /// The value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }
    /// Sets the value; its time to live begins anew.
    #[inline]
    pub fn update(&mut self, value: T) {
        (self.value, self.changed) = (Some(value), true);
    }
    /// Takes the value away.
    #[inline]
    pub fn clear(&mut self) {
        (self.value, self.changed) = (None, true);
    }
}

impl<T: State> Variable for ValueState<T> {
    type Reader<'a> = Entries<'a, T>;

    fn declared() -> Declared {
        Declared { kind: VariableKind::Value, key: Vec::new(), value: T::columns(), version: T::VERSION }
    }
    fn plans(entries: &Schema) -> Result<Vec<Plan>, Error> {
        Ok(vec![plan::<T>(entries)?])
    }
    fn reader<'a>(plans: &[Plan], entries: &Array<'a>) -> Result<Entries<'a, T>, Error> {
        Entries::new(&plans[0], entries)
    }
    #[inline]
    fn begin(&mut self, reader: &Entries<'_, T>, entries: Range<usize>, _: &Moment) -> Result<(), Error> {
        self.value = if entries.is_empty() { None } else { Some(reader.read(entries.start)?) };
        (self.stored, self.changed) = (self.value.is_some(), false);
        Ok(())
    }
    #[inline]
    fn end(&mut self, group: u32, _: &mut Vec<Timeout>) {
        match self.value.take() {
            Some(value) if self.changed => self.written.put(group, value),
            None if self.changed && self.stored => self.written.clear(group),
            _ => {}
        }
    }
    fn forget(&mut self) {
        self.written.forget();
    }
    fn write(&mut self, entries: &Schema, changes: &mut Changes) {
        self.written.write(entries, changes);
    }
    fn migrate(from: u32, old: &Schema, entries: &Array<'_>, to: &mut Encoder) -> Result<(), Error> {
        migrate_values::<T>(from, old, entries, to)
    }
}

/// Values of a group in the order in which they were appended. Spark's `ListState`. Entries are stored one by one:
/// appending does not touch those that are there.
pub struct ListState<T: State> {
    loaded: Vec<T>,
    appended: Vec<T>,
    cleared: bool,
    written: Written<T>,
}

impl<T: State> Default for ListState<T> {
    fn default() -> Self {
        Self { loaded: Vec::new(), appended: Vec::new(), cleared: false, written: Written::default() }
    }
}

impl<T: State> ListState<T> {
    /// The entries that were loaded, and then those that this call appended.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.loaded.iter().chain(&self.appended)
    }
    /// How many entries [`iter`](Self::iter) gives.
    pub fn len(&self) -> usize {
        self.loaded.len() + self.appended.len()
    }
    /// Whether [`iter`](Self::iter) gives none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends an entry.
    pub fn append(&mut self, value: T) {
        self.appended.push(value);
    }
    /// Takes all entries away, those that were not loaded too.
    pub fn clear(&mut self) {
        self.loaded.clear();
        self.appended.clear();
        self.cleared = true;
    }
    /// Puts these entries in place of all.
    pub fn put(&mut self, values: impl IntoIterator<Item = T>) {
        self.clear();
        self.extend(values);
    }
}

impl<T: State> Extend<T> for ListState<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        self.appended.extend(values);
    }
}

impl<T: State> Variable for ListState<T> {
    type Reader<'a> = Entries<'a, T>;

    fn declared() -> Declared {
        Declared { kind: VariableKind::List, key: Vec::new(), value: T::columns(), version: T::VERSION }
    }
    fn plans(entries: &Schema) -> Result<Vec<Plan>, Error> {
        Ok(vec![plan::<T>(entries)?])
    }
    fn reader<'a>(plans: &[Plan], entries: &Array<'a>) -> Result<Entries<'a, T>, Error> {
        Entries::new(&plans[0], entries)
    }
    fn begin(&mut self, reader: &Entries<'_, T>, entries: Range<usize>, _: &Moment) -> Result<(), Error> {
        self.loaded.clear();
        self.appended.clear();
        self.cleared = false;
        for entry in entries {
            self.loaded.push(reader.read(entry)?);
        }
        Ok(())
    }
    fn end(&mut self, group: u32, _: &mut Vec<Timeout>) {
        if self.cleared {
            self.written.clear(group);
        }
        self.appended.drain(..).for_each(|value| self.written.put(group, value));
    }
    fn forget(&mut self) {
        self.written.forget();
    }
    fn write(&mut self, entries: &Schema, changes: &mut Changes) {
        self.written.write(entries, changes);
    }
    fn migrate(from: u32, old: &Schema, entries: &Array<'_>, to: &mut Encoder) -> Result<(), Error> {
        migrate_values::<T>(from, old, entries, to)
    }
}

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

/// The variables of a function: a tuple of them.
pub trait Variables: Default + 'static {
    /// Reads the entries of a call.
    type Readers<'a>;
    /// What their types say of them, in order.
    fn declared() -> Vec<Declared>;
    /// Matches each with its stored fields.
    ///
    /// # Errors
    /// As [`Variable::plans`].
    fn plans(entries: &[Schema]) -> Result<Vec<Vec<Plan>>, Error>;
    /// Readers for a call.
    ///
    /// # Errors
    /// As [`Variable::reader`].
    fn readers<'a>(
        plans: &[Vec<Plan>],
        state: &[(Array<'a>, Offsets<'a>)],
    ) -> Result<Self::Readers<'a>, Error>;
    /// Takes on a group.
    ///
    /// # Errors
    /// As [`Variable::begin`].
    fn begin(
        &mut self,
        readers: &Self::Readers<'_>,
        state: &[(Array<'_>, Offsets<'_>)],
        group: usize,
        moment: &Moment,
    ) -> Result<(), Error>;
    /// Notes what was changed of the group.
    fn end(&mut self, group: u32, timeouts: &mut Vec<Timeout>);
    /// Forgets changes that were not written.
    fn forget(&mut self);
    /// Writes the changes of all groups.
    fn write(&mut self, entries: &[Schema], changes: &mut [Changes]);
    /// Rewrites entries of one of them.
    ///
    /// # Errors
    /// As [`Variable::migrate`].
    fn migrate(
        variable: usize,
        from: u32,
        old: &Schema,
        entries: &Array<'_>,
        to: &mut Encoder,
    ) -> Result<(), Error>;
}

macro_rules! variables {
    ($($name:ident $index:tt),*) => {
        #[allow(unused_variables, reason = "a function may have no variables")]
        impl<$($name: Variable),*> Variables for ($($name,)*) {
            type Readers<'a> = ($($name::Reader<'a>,)*);

            fn declared() -> Vec<Declared> {
                vec![$($name::declared()),*]
            }
            fn plans(entries: &[Schema]) -> Result<Vec<Vec<Plan>>, Error> {
                Ok(vec![$($name::plans(&entries[$index])?),*])
            }
            fn readers<'a>(
                plans: &[Vec<Plan>],
                state: &[(Array<'a>, Offsets<'a>)],
            ) -> Result<Self::Readers<'a>, Error> {
                Ok(($($name::reader(&plans[$index], &state[$index].0)?,)*))
            }
            #[inline]
            fn begin(
                &mut self,
                readers: &Self::Readers<'_>,
                state: &[(Array<'_>, Offsets<'_>)],
                group: usize,
                moment: &Moment,
            ) -> Result<(), Error> {
                $(self.$index.begin(&readers.$index, state[$index].1.range(group), moment)?;)*
                Ok(())
            }
            #[inline]
            fn end(&mut self, group: u32, timeouts: &mut Vec<Timeout>) {
                $(self.$index.end(group, timeouts);)*
            }
            fn forget(&mut self) {
                $(self.$index.forget();)*
            }
            fn write(&mut self, entries: &[Schema], changes: &mut [Changes]) {
                $(self.$index.write(&entries[$index], &mut changes[$index]);)*
            }
            fn migrate(
                variable: usize,
                from: u32,
                old: &Schema,
                entries: &Array<'_>,
                to: &mut Encoder,
            ) -> Result<(), Error> {
                match variable {
                    $($index => $name::migrate(from, old, entries, to),)*
                    _ => Err(Error::Failed("there is no such variable".to_owned())),
                }
            }
        }
    };
}

variables!();
variables!(V0 0);
variables!(V0 0, V1 1);
variables!(V0 0, V1 1, V2 2);
variables!(V0 0, V1 1, V2 2, V3 3);
variables!(V0 0, V1 1, V2 2, V3 3, V4 4);
variables!(V0 0, V1 1, V2 2, V3 3, V4 4, V5 5);
variables!(V0 0, V1 1, V2 2, V3 3, V4 4, V5 5, V6 6);
variables!(V0 0, V1 1, V2 2, V3 3, V4 4, V5 5, V6 6, V7 7);
