//! What a variable is to the runtime, and what a processor keeps for a group: values and lists. Spark's `ValueState` and
//! `ListState`.

use super::state::{Entries, State, plan};
use super::written::{Changes, Written};
use super::{Reason, Timeout, VariableKind};
use crate::array::Array;
use crate::context::Clock;
use crate::error::Error;
use crate::input::Plan;
use crate::ipc::Encoder;
use crate::output::Output;
use crate::time::TimeMode;
use crate::types::{Field, Schema};
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

/// A part of the state of each group: [`ValueState`], [`ListState`], [`MapState`](super::map_state::MapState) or
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
