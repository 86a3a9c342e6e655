//! A table's part in a shard. Called by the shards and by what reads and writes the checkpoint.

use super::Copies;
use crate::blob::{Blob, Owned};
use crate::changes::{Changes, Undo};
use crate::entries::{Entries, KEY_BYTES_MAX, Place, Set, flags};
use crate::spill::{Stored, Writer};
use bytes::Bytes;
use pelton_core::{Error, Result, StateOp};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

/// No value may have more bytes.
const VALUE_BYTES_MAX: usize = 1 << 30;
/// So many bytes of what was found on disk are remembered.
const LOOKS_BYTES_MAX: usize = 1 << 20;
/// What a key that was looked for takes beside its own bytes and its value's.
const LOOK_BYTES: usize = 128;

/// What was found on disk.
#[derive(Debug, Default)]
struct Looks {
    found: HashMap<Box<[u8]>, Option<Bytes>>,
    bytes: usize,
}

/// See above.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Entries,
    /// What the changes since the last commit replaced, oldest first.
    undo: Vec<Undo>,
    /// Of all keys and values, in memory or not.
    bytes: u64,
    /// Entries, in memory or not.
    len: u64,
    /// What is on disk, if anything ever was.
    stored: Option<Stored>,
    /// What was found on disk since the last change: a key that is read is often written next, and is in memory then.
    looks: Mutex<Looks>,
}

impl Table {
    /// Of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of memory that it takes.
    pub(crate) fn memory(&self) -> u64 {
        self.entries.memory() as u64
    }

    /// How many changes there were since the last commit.
    pub(crate) fn touched(&self) -> usize {
        self.undo.len()
    }

    /// What changed since the last commit.
    pub(crate) fn changes(&self) -> Result<Changes<'_>> {
        Changes::find(&self.entries, self.stored.as_ref(), &self.undo)
    }

    /// The changes stand. Gives what they replaced, for whoever has time to drop it.
    pub(crate) fn keep(&mut self) -> Vec<Undo> {
        self.forget_looks();
        std::mem::take(&mut self.undo)
    }

    /// The changes never were.
    pub(crate) fn rollback(&mut self) {
        self.forget_looks();
        for (key, before) in std::mem::take(&mut self.undo).into_iter().rev() {
            // What was on disk and was touched is in memory ever since.
            self.set(&key, before.as_ref().map(Blob::as_slice), None);
        }
    }

    /// The values of many keys, in the order asked.
    pub(crate) fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let mut place = Place::default();
        let found: Vec<_> = keys.iter().map(|key| self.entries.get_near(&mut place, key)).collect();
        let mut values = Copies::default();
        found.iter().flatten().filter_map(|entry| entry.live()).for_each(|value| values.add(value));
        let mut values = values.finish();
        let in_memory =
            found.iter().map(|entry| entry.and_then(|entry| entry.live()).and_then(|_| values.next()));
        let mut all: Vec<_> = in_memory.collect();
        if self.stored.is_some() {
            let missing = keys.iter().zip(&found).filter(|(_, entry)| entry.is_none()).map(|(key, _)| *key);
            self.look(missing.collect())?;
            let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            for ((value, entry), key) in all.iter_mut().zip(&found).zip(keys) {
                if entry.is_none() {
                    *value = looks.found.get(*key).cloned().flatten();
                }
            }
        }
        Ok(all)
    }

    /// Applies changes, in order.
    pub(crate) fn apply(&mut self, changes: Vec<StateOp>) -> Result<()> {
        if self.stored.is_some() {
            let keys = changes.iter().map(|(StateOp::Put(key, _) | StateOp::Remove(key))| &key[..]);
            self.look(keys.filter(|key| self.entries.get(key).is_none()).collect())?;
        }
        let looks = std::mem::take(self.looks.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.undo.reserve(changes.len());
        for change in changes {
            let (key, value) = match change {
                StateOp::Put(key, value) => (key, Some(value)),
                StateOp::Remove(key) => (key, None),
            };
            check_size(&key, value.as_deref().unwrap_or_default())?;
            let stored = match looks.found.is_empty() {
                true => None,
                false => looks.found.get(&key[..]).and_then(Option::as_deref),
            };
            let before = self.set(&key, value.as_deref(), stored);
            self.undo.push((key, before));
        }
        Ok(())
    }

    /// Sets and removes entries for good, without a look at the disk: if something is there, they must be counted again
    /// when all is loaded.
    pub(crate) fn load(&mut self, ops: &[(&[u8], Option<&[u8]>)]) {
        let perhaps_stored = self.stored.is_some().then_some(&[][..]);
        for (key, value) in ops {
            self.set(key, *value, perhaps_stored);
        }
    }

    /// Counts the entries, if [`Table::load`] could not.
    pub(crate) fn count(&mut self) -> Result<()> {
        if self.stored.is_some() {
            let (mut len, mut bytes) = (0, 0);
            self.walk(Bound::Unbounded, None, |key, value| {
                len += 1;
                bytes += (key.len() + value.len()) as u64;
                true
            })?;
            (self.len, self.bytes) = (len, bytes);
        }
        Ok(())
    }

    /// Removes the entries of a range of keys for good. The end is excluded; an empty one is the end of the table.
    pub(crate) fn clear(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut keys: Vec<Owned> = Vec::new();
        self.walk(Bound::Included(from), (!to.is_empty()).then_some(to), |key, _| {
            keys.push(key.into());
            true
        })?;
        let ops: Vec<_> = keys.iter().map(|key| (key.as_slice(), None)).collect();
        self.load(&ops);
        Ok(())
    }

    /// Shows the entries from a key on up to another, in order, until `each` has seen enough.
    pub(crate) fn walk(
        &self,
        from: Bound<&[u8]>,
        to: Option<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let in_range = |key: &[u8]| to.is_none_or(|to| key < to);
        let mut in_memory = self.entries.from(from).take_while(|entry| in_range(entry.key)).peekable();
        let mut on_disk = self.stored.as_ref().map(|stored| stored.iter(from, to)).transpose()?;
        loop {
            let stored = on_disk.as_ref().and_then(|iter| iter.item());
            let hidden = match (in_memory.peek(), stored) {
                (None, None) => return Ok(()),
                (Some(entry), Some((key, _))) if entry.key > key => None,
                (None, _) => None,
                (Some(entry), Some((key, _))) => Some(entry.key == key),
                (Some(_), None) => Some(false),
            };
            let go_on = match hidden {
                None => stored.is_none_or(|(key, value)| each(key, value)),
                Some(_) => match in_memory.next() {
                    Some(entry) => entry.live().is_none_or(|value| each(entry.key, value)),
                    None => true,
                },
            };
            if !go_on {
                return Ok(());
            }
            if let (None | Some(true), Some(iter)) = (hidden, &mut on_disk) {
                iter.next()?;
            }
        }
    }

    /// Writes what differs from what is on disk.
    pub(super) fn write(&self, number: u32, writer: &mut Writer<'_>) -> Result<()> {
        for entry in self.entries.from(Bound::Unbounded).filter(|entry| entry.flags & flags::DIRTY != 0) {
            writer.set(number, entry.key, entry.live())?;
        }
        Ok(())
    }

    /// All that is in memory is on disk now: keeps those that were asked for again.
    pub(super) fn written(&mut self, stored: Stored) {
        self.stored = Some(stored);
        self.forget_looks();
        let entries = std::mem::take(&mut self.entries);
        for entry in entries.from(Bound::Unbounded).filter(|entry| entry.flags & flags::HOT != 0) {
            if let Some(value) = entry.live() {
                self.entries.set(entry.key, |_| Set::Put(value, flags::STORED));
            }
        }
    }

    /// Finds out what is on disk under keys that are not in memory.
    fn look(&self, mut keys: Vec<&[u8]>) -> Result<()> {
        let Some(stored) = &self.stored else { return Ok(()) };
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.bytes > LOOKS_BYTES_MAX {
            *looks = Looks::default();
        }
        keys.retain(|key| !looks.found.contains_key(*key));
        keys.sort_unstable();
        keys.dedup();
        let values = stored.get_many(&keys)?;
        let value_bytes: usize = values.iter().flatten().map(Bytes::len).sum();
        looks.bytes += value_bytes + keys.iter().map(|key| key.len() + LOOK_BYTES).sum::<usize>();
        looks.found.extend(keys.into_iter().map(Box::from).zip(values));
        Ok(())
    }

    fn forget_looks(&mut self) {
        *self.looks.get_mut().unwrap_or_else(PoisonError::into_inner) = Looks::default();
    }

    /// Sets or removes an entry; gives what was there. `stored`: what is on disk, if it is not in memory.
    fn set(&mut self, key: &[u8], value: Option<&[u8]>, stored: Option<&[u8]>) -> Option<Owned> {
        let mut before = None;
        self.entries.set(key, |entry| {
            before = entry.map_or(stored, |entry| entry.live()).map(Owned::from);
            let known = match (entry, stored) {
                (Some(entry), _) => entry.flags & flags::STORED | flags::HOT,
                (None, Some(_)) => flags::STORED,
                (None, None) => 0,
            };
            match value {
                Some(value) => Set::Put(value, known | flags::DIRTY),
                None if known & flags::STORED == 0 => Set::Remove,
                None => Set::Put(&[], flags::STORED | flags::DIRTY | flags::REMOVED),
            }
        });
        let size = |value: &[u8]| (key.len() + value.len()) as u64;
        self.len = (self.len + u64::from(value.is_some())).saturating_sub(u64::from(before.is_some()));
        self.bytes += value.map_or(0, size);
        self.bytes = self.bytes.saturating_sub(before.as_ref().map_or(0, |before| size(before.as_slice())));
        before
    }
}

/// Refuses what blocks of entries cannot hold.
fn check_size(key: &[u8], value: &[u8]) -> Result<()> {
    let (key, value) = (key.len(), value.len());
    if key > KEY_BYTES_MAX || value > VALUE_BYTES_MAX {
        return Err(Error::data(format!(
            "an entry of state has a key of {key} bytes and a value of {value}"
        ))
        .hint("a key may have 256 MiB and a value 1 GiB: keep less under one key"));
    }
    Ok(())
}
