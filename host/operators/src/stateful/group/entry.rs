//! What is kept under one key: a value, and the time at which something happens to it.
//!
//! A group's value with its timeout, an entry of a variable with its expiry, the timers of a key with the first one's
//! time. The bytes: `[flags]`, the time and where a [`super::index::LazyIndex`] has the key (8 bytes each, if they are
//! there; the latter only if it is another time), then the value.

use crate::stateful::layout::Arena;
use bytes::Bytes;
use pelton_core::{Error, Result, StateShard};

/// As many are looked up in one go while it is not known how large they are.
const KEYS_AT_ONCE: usize = 128;

const HAS_VALUE: u8 = 1;
const HAS_TIME: u8 = 2;
/// The index has the key at another time.
const IS_ELSEWHERE: u8 = 4;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Entry {
    /// It is in its table.
    pub(super) is_stored: bool,
    /// When something happens.
    pub(super) time: Option<i64>,
    /// Where the index has it.
    pub(super) indexed: Option<i64>,
    pub(super) value: Option<Bytes>,
}

impl Entry {
    /// Reads what is stored in a table; nothing stored is an empty entry.
    pub(super) fn read(stored: Option<&Bytes>, table: &str) -> Result<Self> {
        let Some(stored) = stored else { return Ok(Self::default()) };
        let flags = *stored.first().ok_or_else(|| damaged(table))?;
        let mut at = 1;
        let mut time = || {
            let bytes = stored.get(at..).and_then(|rest| rest.first_chunk::<8>());
            at += 8;
            bytes.map(|bytes| i64::from_be_bytes(*bytes)).ok_or_else(|| damaged(table))
        };
        let own = if flags & HAS_TIME != 0 { Some(time()?) } else { None };
        let indexed = if flags & IS_ELSEWHERE != 0 { Some(time()?) } else { own };
        let value = (flags & HAS_VALUE != 0).then(|| stored.slice(at..));
        Ok(Self { is_stored: true, time: own, indexed, value })
    }

    /// Adds its bytes.
    pub(super) fn write(&self, arena: &mut Arena) {
        let elsewhere = self.indexed.filter(|_| self.indexed != self.time);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.value.is_some(), HAS_VALUE)
            | flag(self.time.is_some(), HAS_TIME)
            | flag(elsewhere.is_some(), IS_ELSEWHERE);
        let (time, other) = (self.time.unwrap_or_default(), elsewhere.unwrap_or_default());
        let (time, other) = (time.to_be_bytes(), other.to_be_bytes());
        let time = if self.time.is_some() { &time[..] } else { &[] };
        let other = if elsewhere.is_some() { &other[..] } else { &[] };
        arena.push(&[&[flags], time, other, self.value.as_deref().unwrap_or_default()]);
    }
}

/// What is stored under keys, up to the one with which keys and values come to more than so many bytes: of the first
/// at least. So no call reads more than it will use, however large what is stored.
pub(super) fn read_within(
    state: &dyn StateShard,
    table: &str,
    keys: &[Bytes],
    bytes_max: usize,
) -> Result<Vec<Entry>> {
    if state.len(table) == 0 {
        return Ok(vec![Entry::default(); keys.len()]);
    }
    let (mut entries, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for keys in keys.chunks(KEYS_AT_ONCE) {
        let asked: Vec<&[u8]> = keys.iter().map(|key| key.as_ref()).collect();
        for (key, found) in keys.iter().zip(state.get_many(table, &asked)?) {
            bytes += key.len() + found.as_ref().map_or(0, Bytes::len);
            entries.push(Entry::read(found.as_ref(), table)?);
            if bytes > bytes_max {
                return Ok(entries);
            }
        }
    }
    Ok(entries)
}

/// The error for bytes that no operator wrote.
pub(super) fn damaged(table: &str) -> Error {
    Error::data(format!("the state table '{table}' is damaged: an entry is cut off"))
        .hint("restore the checkpoint from a copy, or start with a new one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::{StateOp, StateStore};
    use pelton_state::MemoryStateStore;

    #[test]
    fn reading_stops_where_it_is_enough_and_gives_something_always() {
        let mut store = MemoryStateStore::new();
        let mut shards = store.shards();
        let keys: Vec<Bytes> = (0..1000u32).map(|n| Bytes::copy_from_slice(&n.to_be_bytes())).collect();
        let value = Bytes::from([&[HAS_VALUE][..], &[7; 995]].concat());
        let put = keys.iter().step_by(2).map(|key| StateOp::Put(key.clone(), value.clone()));
        shards[0].apply("t", put.collect()).expect("applies");
        let read = |bytes_max| read_within(&*shards[0], "t", &keys, bytes_max).expect("reads").len();
        // A thousand bytes each, and four for the key of one that is not there.
        assert_eq!([read(0), read(999), read(1000), read(300_000)], [1, 1, 2, 597]);
        assert_eq!(read(usize::MAX), 1000);
        let empty = read_within(&*shards[1], "t", &keys, 0).expect("reads");
        assert!(empty.len() == 1000 && empty.iter().all(|entry| !entry.is_stored));
    }

    #[test]
    fn entries_come_back() {
        let (some, none) = (Some(Bytes::from_static(b"v")), None);
        for (time, indexed, value) in [
            (None, None, some.clone()),
            (Some(-5), Some(-5), none.clone()),
            (Some(7), Some(3), some),
            (None, Some(3), none),
        ] {
            let mut arena = Arena::default();
            Entry { is_stored: false, time, indexed, value: value.clone() }.write(&mut arena);
            let bytes = arena.finish().remove(0);
            let read = Entry::read(Some(&bytes), "t").expect("reads");
            assert_eq!((read.time, read.indexed, read.value), (time, indexed, value));
            assert!(read.is_stored);
        }
        assert!(Entry::read(Some(&Bytes::from_static(&[2, 1])), "t").is_err());
    }
}
