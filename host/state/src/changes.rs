//! What changed in a table since the last commit, in the form in which it is stored. Called by the tables; changes
//! nothing.
//!
//! Removed keys are given as ranges in which every key changed: all that was removed from the front of a table is one
//! range, also if others were set among it. The ends of a range are as short as the entries beside it, which did not
//! change, allow. Of a table that is partly on disk, a range begins and ends at keys that were removed, and is only as
//! long as nothing on disk lies between them. Whoever applies the changes clears the ranges, then sets the entries.

use crate::blob::{Blob, Owned, common_prefix};
use crate::entries::{Entries, Entry, Iter};
use crate::spill::Stored;
use bytes::Bytes;
use pelton_core::Result;
use std::borrow::Cow;
use std::iter::Peekable;
use std::ops::Bound;

/// How many entries are passed one by one before a key is searched from the top.
const STEPS_MAX: usize = 4;

/// The ends of a range of keys.
pub(crate) type Cleared<'a> = (&'a [u8], Cow<'a, [u8]>);

/// What a change replaced.
pub(crate) type Undo = (Bytes, Option<Owned>);

/// The changes of a table since the last commit. A key that has again the value that it had does not count.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    /// Ranges of keys, ascending: nothing is left of what was in them but what is set. The end is excluded; an empty
    /// one is the end of the table.
    pub(crate) cleared: Vec<Cleared<'a>>,
    /// The entries that were added or have another value, ascending.
    pub(crate) set: Vec<(&'a [u8], &'a [u8])>,
    /// The last key that was removed, if nothing behind it is known that did not change: its range has no end yet.
    open: Option<&'a [u8]>,
}

impl<'a> Changes<'a> {
    /// `undo`: what the changes replaced, oldest first. `stored`: what of the table is on disk.
    pub(crate) fn find(entries: &'a Entries, stored: Option<&Stored>, undo: &'a [Undo]) -> Result<Self> {
        let mut changes = Self::default();
        let touched = touched(undo);
        let Some((first, _)) = touched.first() else { return Ok(changes) };
        let mut cursor = Cursor::at(entries, first);
        for (key, before) in touched {
            let (now, between) = cursor.go_to(key);
            if let Some(entry) = between {
                changes.end_before(entry, stored);
            }
            match (before.as_ref().map(Blob::as_slice), now) {
                (Some(_), None) => match stored {
                    Some(stored) => changes.clear_on_disk(key, entries, stored)?,
                    None => changes.clear(key, || cursor.before(key)),
                },
                (before, Some(now)) if before != Some(now) => changes.set.push((key, now)),
                (_, Some(_)) => changes.end_before(key, stored),
                (None, None) => {}
            }
        }
        match (stored, cursor.next.peek()) {
            (None, None) => {}
            (_, next) => changes.end_before(next.map_or(&[], |(key, _)| key), stored),
        }
        Ok(changes)
    }

    /// Keys and values as they are, for what a change costs.
    pub(crate) fn bytes(&self) -> u64 {
        let cleared = self.cleared.iter().map(|(from, to)| from.len() + to.len());
        cleared.chain(self.set.iter().map(|(key, value)| key.len() + value.len())).sum::<usize>() as u64
    }

    fn clear(&mut self, key: &'a [u8], before: impl FnOnce() -> Option<&'a [u8]>) {
        if self.open.replace(key).is_none() {
            self.cleared.push((between(before(), key), Cow::Borrowed(&[])));
        }
    }

    /// As [`Changes::clear`], where the neighbours of a key may be on disk.
    fn clear_on_disk(&mut self, key: &'a [u8], entries: &Entries, stored: &Stored) -> Result<()> {
        if let Some(removed) = self.open {
            let mut between = stored.iter(Bound::Excluded(removed), Some(key))?;
            while let Some((found, _)) = between.item() {
                // What is in memory, too, was either changed or removed: see `find`.
                if entries.get(found).is_none() {
                    self.end_before(key, Some(stored));
                    break;
                }
                between.next()?;
            }
        }
        if self.open.replace(key).is_none() {
            self.cleared.push((key, Cow::Borrowed(&[])));
        }
        Ok(())
    }

    /// An entry did not change.
    fn end_before(&mut self, entry: &'a [u8], stored: Option<&Stored>) {
        if let (Some(removed), Some((_, end))) = (self.open.take(), self.cleared.last_mut()) {
            *end = match stored {
                None => Cow::Borrowed(between(Some(removed), entry)),
                Some(_) => Cow::Owned([removed, &[0]].concat()),
            };
        }
    }
}

/// The shortest beginning of a key that is greater than a lesser key; none: than the empty one, or that itself.
fn between<'a>(lesser: Option<&[u8]>, key: &'a [u8]) -> &'a [u8] {
    let length = lesser.map_or(0, |lesser| common_prefix(lesser, key) + 1);
    &key[..length.min(key.len())]
}

/// The keys that were touched, ascending, each once with what it had before.
fn touched(undo: &[Undo]) -> Vec<(&[u8], &Option<Owned>)> {
    let mut touched: Vec<(Blob<'_>, &Undo)> =
        undo.iter().map(|undo| (Blob::borrowed(&undo.0), undo)).collect();
    // Stable: the first of a key is the oldest. Operators work in the order of keys, so this is merging.
    touched.sort_by(|(left, _), (right, _)| left.cmp(right));
    touched.dedup_by(|(later, _), (earlier, _)| later == earlier);
    touched.into_iter().map(|(_, (key, before))| (&key[..], before)).collect()
}

/// A way through the entries in memory from key to key.
struct Cursor<'a> {
    entries: &'a Entries,
    next: Peekable<Live<'a>>,
}

/// Entries that are not marked as removed.
struct Live<'a>(Iter<'a>);

impl<'a> Iterator for Live<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find_map(live)
    }
}

fn live(entry: Entry<'_>) -> Option<(&[u8], &[u8])> {
    entry.live().map(|value| (entry.key, value))
}

impl<'a> Cursor<'a> {
    fn at(entries: &'a Entries, key: &[u8]) -> Self {
        Self { entries, next: from(entries, key) }
    }

    /// The value of a key, which is greater than the last one, and the first entry between the two.
    fn go_to(&mut self, wanted: &[u8]) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let mut between = None;
        let mut passed = 0;
        while let Some((entry, _)) = self.next.next_if(|(key, _)| *key < wanted) {
            between = between.or(Some(entry));
            passed += 1;
            if passed == STEPS_MAX {
                self.next = from(self.entries, wanted);
            }
        }
        let found = self.next.next_if(|(key, _)| *key == wanted);
        (found.map(|(_, value)| value), between)
    }

    /// The entry before a key, whether it changed or not.
    fn before(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.entries.before(key).find_map(live).map(|(key, _)| key)
    }
}

fn from<'a>(entries: &'a Entries, key: &[u8]) -> Peekable<Live<'a>> {
    Live(entries.from(Bound::Included(key))).peekable()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::Set;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn set(entries: &mut Entries, key: &[u8], value: Option<&[u8]>) -> Option<Owned> {
        let mut before = None;
        entries.set(key, |entry| {
            before = entry.map(|entry| Blob::from(entry.value));
            value.map_or(Set::Remove, |value| Set::Put(value, 0))
        });
        before
    }

    fn entries(keys: &[u8]) -> Entries {
        let mut entries = Entries::default();
        keys.iter().for_each(|key| drop(set(&mut entries, &[*key], Some(&[*key]))));
        entries
    }

    type Ranges = Vec<(Vec<u8>, Vec<u8>)>;

    /// From what there was and what there is, with every key of `touched` touched.
    fn found(before: &[u8], now: &[u8], touched: &[u8]) -> (Ranges, Vec<u8>) {
        let (before, now) = (entries(before), entries(now));
        let undo = touched
            .iter()
            .map(|key| (Bytes::copy_from_slice(&[*key]), before.get(&[*key]).map(|e| Blob::from(e.value))));
        let undo: Vec<Undo> = undo.collect();
        let changes = Changes::find(&now, None, &undo).unwrap();
        let cleared = changes.cleared.iter().map(|(from, to)| (from.to_vec(), to.to_vec()));
        (cleared.collect(), changes.set.iter().map(|(key, _)| key[0]).collect())
    }

    #[test]
    fn what_is_removed_is_one_range_up_to_an_entry_that_stays() {
        let range = |from: &[u8], to: &[u8]| (from.to_vec(), to.to_vec());
        assert_eq!(
            found(&[1, 3, 5, 8, 9], &[2, 4, 8], &[9, 5, 4, 3, 2, 1]),
            (vec![range(&[], &[8]), range(&[9], &[])], vec![2, 4])
        );
        // Touched, but as it was.
        assert_eq!(found(&[1, 3, 5], &[3], &[5, 3, 1]), (vec![range(&[], &[3]), range(&[5], &[])], vec![]));
        // Behind many that stay.
        let many: Vec<u8> = (1..100).collect();
        assert_eq!(found(&many, &many[1..98], &[99, 1]), (vec![range(&[], &[2]), range(&[99], &[])], vec![]));
        assert_eq!(found(&[], &[], &[1]), (vec![], vec![]));
    }

    #[test]
    fn the_ends_of_ranges_are_as_short_as_can_be() {
        assert_eq!(between(None, b"abc"), b"");
        assert_eq!(between(Some(b""), b"abc"), b"a");
        assert_eq!(between(Some(b"abb"), b"abcde"), b"abc");
        assert_eq!(between(Some(b"ab"), b"abcde"), b"abc");
        assert_eq!(between(Some(b"ab"), b"ab\0"), b"ab\0");
    }

    proptest! {
        /// Clearing and setting makes of what there was what there is.
        #[test]
        fn changes_lead_from_what_there_was_to_what_there_is(
            before in keys(0..40), changes in prop::collection::vec((key(), prop::option::of(0_u8..3)), 0..60),
        ) {
            let mut now = Entries::default();
            before.iter().for_each(|key| drop(set(&mut now, key, Some(&[0]))));
            let was: BTreeMap<Vec<u8>, Vec<u8>> = before.into_iter().map(|key| (key, vec![0])).collect();
            let mut undo: Vec<Undo> = Vec::new();
            for (key, value) in changes {
                let before = set(&mut now, &key, value.map(|value| vec![value]).as_deref());
                undo.push((key.into(), before));
            }
            let changes = Changes::find(&now, None, &undo).unwrap();
            prop_assert!(changes.cleared.is_sorted() && changes.set.is_sorted());
            let mut then = was;
            for (from, to) in changes.cleared {
                then.retain(|key, _| &key[..] < from || (!to.is_empty() && key[..] >= to[..]));
            }
            for (key, value) in changes.set {
                prop_assert!(then.insert(key.into(), value.into()).is_none_or(|before| before != value));
            }
            let now = now.from(Bound::Unbounded).map(|e| (e.key.to_vec(), e.value.to_vec()));
            prop_assert!(now.eq(then));
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0_u8..3, 0..5)
    }

    fn keys(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(key(), count)
    }

    #[test]
    fn the_first_change_of_a_key_says_what_there_was() {
        let now = entries(&[1, 2]);
        let key = |key: u8| Bytes::copy_from_slice(&[key]);
        let undo = [
            (key(2), None),
            (key(1), Some(Blob::from(&[1][..]))),
            (key(1), None),
            (key(2), Some(Blob::from(&[9][..]))),
        ];
        let changes = Changes::find(&now, None, &undo).unwrap();
        assert_eq!((changes.cleared, changes.set), (vec![], vec![(&[2][..], &[2][..])]));
    }
}
