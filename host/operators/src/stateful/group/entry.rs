//! What is kept under one key: a value, and the time at which something happens to it.
//!
//! A group's value with its timeout, an entry of a variable with its expiry, the timers of a key with the first one's
//! time. The bytes: `[flags]`, the time and where a [`super::index::LazyIndex`] has the key (8 bytes each, if they are
//! there; the latter only if it is another time), then the value.

use crate::stateful::layout::Arena;
use bytes::Bytes;
use pelton_core::{Error, Result};

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

/// The error for bytes that no operator wrote.
pub(super) fn damaged(table: &str) -> Error {
    Error::data(format!("the state table '{table}' is damaged: an entry is cut off"))
        .hint("restore the checkpoint from a copy, or start with a new one")
}

#[cfg(test)]
mod tests {
    use super::*;

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
