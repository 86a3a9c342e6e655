//! What changed in a table since the last commit, in the form in which it is stored. Called by the tables; changes
//! nothing.
//!
//! Removed keys are given as ranges in which every key changed: all that was removed from the front of a table is one
//! range, also if others were set among it. The ends of a range are as short as the entries beside it, which did not
//! change, allow. Whoever applies the changes clears the ranges, then sets the entries.

use crate::blob::{Blob, Owned, common_prefix};
use bytes::Bytes;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Bound;

/// How many entries are passed one by one before a key is searched from the top.
const STEPS_MAX: usize = 4;

/// A table's part in a shard. The lifetime is that of keys that are looked for.
pub(crate) type Entries<'a> = BTreeMap<Blob<'a>, Owned>;

/// What a change replaced.
pub(crate) type Undo = (Bytes, Option<Owned>);

/// The changes of a table since the last commit. A key that has again the value that it had does not count.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    /// Ranges of keys, ascending: nothing is left of what was in them but what is set. The end is excluded; an empty
    /// one is the end of the table.
    pub(crate) cleared: Vec<(&'a [u8], &'a [u8])>,
    /// The entries that were added or have another value, ascending.
    pub(crate) set: Vec<(&'a [u8], &'a [u8])>,
    /// The last key that was removed, if nothing behind it is known that did not change: its range has no end yet.
    open: Option<&'a [u8]>,
}

impl<'a> Changes<'a> {
    /// `undo`: what the changes replaced, oldest first.
    pub(crate) fn find(entries: &'a Entries<'a>, undo: &'a [Undo]) -> Self {
        let mut changes = Self::default();
        let touched = touched(undo);
        let Some((first, _)) = touched.first() else { return changes };
        let mut cursor = Cursor::at(entries, first);
        for (key, before) in touched {
            let (now, between) = cursor.go_to(key);
            if let Some(entry) = between {
                changes.end_before(entry);
            }
            match (before.as_ref().map(Blob::as_slice), now) {
                (Some(_), None) => changes.clear(key, || cursor.before(key)),
                (before, Some(now)) if before != Some(now) => changes.set.push((key, now)),
                (_, Some(_)) => changes.end_before(key),
                (None, None) => {}
            }
        }
        if let Some((next, _)) = cursor.next.peek() {
            changes.end_before(next.as_slice());
        }
        changes
    }

    /// Keys and values as they are, for what a change costs.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |(left, right): &(&[u8], &[u8])| (left.len() + right.len()) as u64;
        self.cleared.iter().chain(&self.set).map(bytes).sum()
    }

    fn clear(&mut self, key: &'a [u8], before: impl FnOnce() -> Option<&'a [u8]>) {
        if self.open.replace(key).is_none() {
            self.cleared.push((between(before(), key), &[]));
        }
    }

    /// An entry did not change.
    fn end_before(&mut self, entry: &'a [u8]) {
        if let (Some(removed), Some((_, end))) = (self.open.take(), self.cleared.last_mut()) {
            *end = between(Some(removed), entry);
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

/// A way through a table from key to key.
struct Cursor<'a> {
    entries: &'a Entries<'a>,
    next: Peekable<btree_map::Range<'a, Blob<'a>, Owned>>,
}

impl<'a> Cursor<'a> {
    fn at(entries: &'a Entries<'a>, key: &'a [u8]) -> Self {
        Self { entries, next: from(entries, key).peekable() }
    }

    /// The value of a key, which is greater than the last one, and the first entry between the two.
    fn go_to(&mut self, key: &'a [u8]) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let wanted = Blob::borrowed(key);
        let mut between = None;
        let mut passed = 0;
        while let Some((entry, _)) = self.next.next_if(|(key, _)| **key < wanted) {
            between = between.or(Some(entry.as_slice()));
            passed += 1;
            if passed == STEPS_MAX {
                self.next = from(self.entries, key).peekable();
            }
        }
        let found = self.next.next_if(|(key, _)| **key == wanted);
        (found.map(|(_, value)| value.as_slice()), between)
    }

    /// The entry before a key, whether it changed or not.
    fn before(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let before = self.entries.range((Bound::Unbounded, Bound::Excluded(Blob::borrowed(key)))).next_back();
        before.map(|(key, _)| key.as_slice())
    }
}

fn from<'a>(entries: &'a Entries<'a>, key: &'a [u8]) -> btree_map::Range<'a, Blob<'a>, Owned> {
    entries.range((Bound::Included(Blob::borrowed(key)), Bound::Unbounded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(keys: &[u8]) -> Entries<'static> {
        keys.iter().map(|key| (Blob::from(&[*key][..]), Blob::from(&[*key][..]))).collect()
    }

    type Ranges = Vec<(Vec<u8>, Vec<u8>)>;

    /// From what there was and what there is, with every key of `touched` touched.
    fn found(before: &[u8], now: &[u8], touched: &[u8]) -> (Ranges, Vec<u8>) {
        let (before, now) = (entries(before), entries(now));
        let undo = touched
            .iter()
            .map(|key| (Bytes::copy_from_slice(&[*key]), before.get(&Blob::borrowed(&[*key])).cloned()));
        let undo: Vec<Undo> = undo.collect();
        let changes = Changes::find(&now, &undo);
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
            let mut now: Entries<'static> = before.iter().map(|key| (Blob::from(&key[..]), Blob::from(&[0][..]))).collect();
            let was = now.clone();
            let mut undo: Vec<Undo> = Vec::new();
            for (key, value) in changes {
                let before = match value {
                    Some(value) => now.insert(Blob::from(&key[..]), Blob::from(&[value][..])),
                    None => now.remove(&Blob::from(&key[..])),
                };
                undo.push((key.into(), before));
            }
            let changes = Changes::find(&now, &undo);
            prop_assert!(changes.cleared.is_sorted() && changes.set.is_sorted());
            let mut then = was;
            for (from, to) in changes.cleared {
                then.retain(|key, _| key.as_slice() < from || (!to.is_empty() && key.as_slice() >= to));
            }
            for (key, value) in changes.set {
                prop_assert!(then.insert(key.into(), value.into()).is_none_or(|before| before.as_slice() != value));
            }
            prop_assert!(then == now);
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
        let changes = Changes::find(&now, &undo);
        assert_eq!((changes.cleared, changes.set), (vec![], vec![(&[2][..], &[2][..])]));
    }
}
