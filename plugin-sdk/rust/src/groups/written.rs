//! Changes of a variable: collected as typed columns while groups run, then written as messages.

use super::state::State;
use crate::ipc::Encoder;
use crate::output::Build;
use crate::types::Schema;

/// Sets, appends.
const PUT: u8 = 0;
/// Takes an entry of a map away.
const REMOVE: u8 = 1;
/// Takes all entries away.
const CLEAR: u8 = 2;

/// The changes of one variable in a call, as the host gets them.
#[derive(Default)]
pub struct Changes {
    pub(crate) groups: Vec<u32>,
    pub(crate) actions: Vec<u8>,
    pub(crate) put: Encoder,
    pub(crate) remove: Encoder,
    pub(crate) puts: usize,
    pub(crate) removes: usize,
}

/// What is done to which group, in order.
#[derive(Debug, Default)]
struct Steps {
    groups: Vec<u32>,
    actions: Vec<u8>,
}

impl Steps {
    #[inline]
    fn add(&mut self, group: u32, action: u8) {
        self.groups.push(group);
        self.actions.push(action);
    }
    fn clear(&mut self) {
        self.groups.clear();
        self.actions.clear();
    }
    fn write(&mut self, changes: &mut Changes) {
        // The vectors change places, so that neither is copied nor made anew.
        std::mem::swap(&mut self.groups, &mut changes.groups);
        std::mem::swap(&mut self.actions, &mut changes.actions);
    }
}

/// Changes of values and lists.
pub(crate) struct Written<T: State> {
    steps: Steps,
    values: T::Builder,
}

impl<T: State> Default for Written<T> {
    fn default() -> Self {
        Self { steps: Steps::default(), values: T::Builder::default() }
    }
}

impl<T: State> Written<T> {
    #[inline]
    pub(crate) fn put(&mut self, group: u32, value: T) {
        self.steps.add(group, PUT);
        value.append(&mut self.values);
    }
    pub(crate) fn clear(&mut self, group: u32) {
        self.steps.add(group, CLEAR);
    }
    pub(crate) fn forget(&mut self) {
        self.steps.clear();
        self.values.clear();
    }
    pub(crate) fn write(&mut self, entries: &Schema, changes: &mut Changes) {
        self.steps.write(changes);
        (changes.puts, changes.removes) = (self.values.len(), 0);
        if changes.puts > 0 {
            changes.put.begin(entries);
            T::write_columns(&self.values, &mut changes.put);
            changes.put.finish(changes.puts);
        }
    }
}

/// Changes of maps.
pub(crate) struct WrittenMap<K: State, V: State> {
    steps: Steps,
    keys: K::Builder,
    values: V::Builder,
    removed: K::Builder,
}

impl<K: State, V: State> Default for WrittenMap<K, V> {
    fn default() -> Self {
        Self {
            steps: Steps::default(),
            keys: K::Builder::default(),
            values: V::Builder::default(),
            removed: K::Builder::default(),
        }
    }
}

impl<K: State, V: State> WrittenMap<K, V> {
    pub(crate) fn put(&mut self, group: u32, key: K, value: V) {
        self.steps.add(group, PUT);
        key.append(&mut self.keys);
        value.append(&mut self.values);
    }
    pub(crate) fn remove(&mut self, group: u32, key: K) {
        self.steps.add(group, REMOVE);
        key.append(&mut self.removed);
    }
    pub(crate) fn clear(&mut self, group: u32) {
        self.steps.add(group, CLEAR);
    }
    pub(crate) fn forget(&mut self) {
        self.steps.clear();
        self.keys.clear();
        self.values.clear();
        self.removed.clear();
    }
    pub(crate) fn write(&mut self, entries: &Schema, changes: &mut Changes) {
        self.steps.write(changes);
        (changes.puts, changes.removes) = (self.values.len(), self.removed.len());
        if changes.puts > 0 {
            changes.put.begin(entries);
            K::write_columns(&self.keys, &mut changes.put);
            V::write_columns(&self.values, &mut changes.put);
            changes.put.finish(changes.puts);
        }
        if changes.removes > 0 {
            changes.remove.begin(&Schema::new(K::key_columns()));
            K::write_columns(&self.removed, &mut changes.remove);
            changes.remove.finish(changes.removes);
        }
    }
}
