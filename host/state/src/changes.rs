//! What changed in a table since the last commit, in the form in which it is stored. Called by the tables; changes
//! nothing.
//!
//! Removed keys are given as ranges in which every key changed: all that was removed from the front of a table is one
//! range, also if others were set among it. Whoever applies the changes clears the ranges, then sets the entries.

use crate::blob::{Blob, Owned};
use bytes::Bytes;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Bound;

/// How many entries are passed one by one before a key is searched from the top.
const STEPS_MAX: usize = 12;

/// A table's part in a shard. The lifetime is that of keys that are looked for.
pub(crate) type Entries<'a> = BTreeMap<Blob<'a>, Owned>;

/// What a change replaced.
pub(crate) type Undo = (Bytes, Option<Owned>);

/// The changes of a table since the last commit. A key that has again the value that it had does not count.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    /// Ranges of keys, both ends included, ascending: nothing is left of what was in them but what is set.
    pub(crate) cleared: Vec<(&'a [u8], &'a [u8])>,
    /// The entries that were added or have another value, ascending.
    pub(crate) set: Vec<(&'a [u8], &'a [u8])>,
    /// Whether the last range may be extended: since it began there was no entry that did not change.
    is_open: bool,
}

impl<'a> Changes<'a> {
    /// `undo`: what the changes replaced, oldest first.
    pub(crate) fn find(entries: &'a Entries<'a>, undo: &'a [Undo]) -> Self {
        let mut changes = Self::default();
        let touched = touched(undo);
        let Some((first, _)) = touched.first() else { return changes };
        let mut cursor = Cursor::at(entries, first);
        for (key, before) in touched {
            let (now, passed) = cursor.go_to(key);
            changes.is_open &= !passed;
            match (before.as_ref().map(Blob::as_slice), now) {
                (Some(_), None) => changes.clear(key),
                (before, Some(now)) if before != Some(now) => changes.set.push((key, now)),
                (_, Some(_)) => changes.is_open = false,
                (None, None) => {}
            }
        }
        changes
    }

    /// Keys and values as they are, for what a change costs.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |(left, right): &(&[u8], &[u8])| (left.len() + right.len()) as u64;
        self.cleared.iter().chain(&self.set).map(bytes).sum()
    }

    fn clear(&mut self, key: &'a [u8]) {
        match self.cleared.last_mut() {
            Some((_, last)) if self.is_open => *last = key,
            _ => self.cleared.push((key, key)),
        }
        self.is_open = true;
    }
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

/// A way through a table from key to key.
struct Cursor<'a> {
    entries: &'a Entries<'a>,
    next: Peekable<btree_map::Range<'a, Blob<'a>, Owned>>,
}

impl<'a> Cursor<'a> {
    fn at(entries: &'a Entries<'a>, key: &'a [u8]) -> Self {
        Self { entries, next: from(entries, key).peekable() }
    }

    /// The value of a key, which is greater than the last one, and whether there were entries between the two.
    fn go_to(&mut self, key: &'a [u8]) -> (Option<&'a [u8]>, bool) {
        let wanted = Blob::borrowed(key);
        let mut passed = 0;
        while self.next.next_if(|(key, _)| **key < wanted).is_some() {
            passed += 1;
            if passed == STEPS_MAX {
                self.next = from(self.entries, key).peekable();
            }
        }
        let found = self.next.next_if(|(key, _)| **key == wanted);
        (found.map(|(_, value)| value.as_slice()), passed > 0)
    }
}

fn from<'a>(entries: &'a Entries<'a>, key: &'a [u8]) -> btree_map::Range<'a, Blob<'a>, Owned> {
    entries.range((Bound::Included(Blob::borrowed(key)), Bound::Unbounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(keys: &[u8]) -> Entries<'static> {
        keys.iter().map(|key| (Blob::from(&[*key][..]), Blob::from(&[*key][..]))).collect()
    }

    /// From what there was and what there is, with every key of `touched` touched.
    fn found(before: &[u8], now: &[u8], touched: &[u8]) -> (Vec<(u8, u8)>, Vec<u8>) {
        let (before, now) = (entries(before), entries(now));
        let undo = touched
            .iter()
            .map(|key| (Bytes::copy_from_slice(&[*key]), before.get(&Blob::borrowed(&[*key])).cloned()));
        let undo: Vec<Undo> = undo.collect();
        let changes = Changes::find(&now, &undo);
        let cleared = changes.cleared.iter().map(|(from, to)| (from[0], to[0]));
        (cleared.collect(), changes.set.iter().map(|(key, _)| key[0]).collect())
    }

    #[test]
    fn what_is_removed_is_one_range_up_to_an_entry_that_stays() {
        assert_eq!(
            found(&[1, 3, 5, 8, 9], &[2, 4, 8], &[9, 5, 4, 3, 2, 1]),
            (vec![(1, 5), (9, 9)], vec![2, 4])
        );
        // Touched, but as it was.
        assert_eq!(found(&[1, 3, 5], &[3], &[5, 3, 1]), (vec![(1, 1), (5, 5)], vec![]));
        // Behind many that stay.
        let many: Vec<u8> = (1..100).collect();
        assert_eq!(found(&many, &many[1..98], &[99, 1]), (vec![(1, 1), (99, 99)], vec![]));
        assert_eq!(found(&[], &[], &[1]), (vec![], vec![]));
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
        let changes = Changes::find(&now, &undo);
        assert_eq!((changes.cleared, changes.set), (vec![], vec![(&[2][..], &[2][..])]));
    }
}
