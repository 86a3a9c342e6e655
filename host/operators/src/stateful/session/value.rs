//! A session as an entry of the state: the key is the key of its rows and its start, the value its end and its state.
//! Times are microseconds; the start is written so that it sorts, the end little-endian.

use crate::stateful::layout::Arena;
use bytes::Bytes;
use pelton_core::{Error, Result};
use pelton_state::split_ordered_i64;

/// A stored session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored<'a> {
    /// `[key group][keys]`
    pub(super) key: &'a [u8],
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) state: &'a [u8],
}

/// Adds the value of a session.
pub(super) fn write(end: i64, state: &[u8], into: &mut Arena) {
    into.push(&[&end.to_le_bytes(), state]);
}

/// The session of an entry.
pub(super) fn read((name, value): &(Bytes, Bytes)) -> Result<Stored<'_>> {
    let session = name.split_last_chunk::<8>().zip(value.split_first_chunk::<8>());
    let Some(((key, start), (end, state))) = session else {
        return Err(Error::data("a stored session is damaged: it is cut off")
            .hint("restore the checkpoint from a copy, or start with a new one"));
    };
    let (start, _) = split_ordered_i64(start)?;
    Ok(Stored { key, start, end: i64::from_le_bytes(*end), state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_state::ordered_i64;

    #[test]
    fn sessions_come_back_and_cut_off_bytes_are_an_error() {
        for (key, start, end, state) in [(&b"k"[..], i64::MIN, -1, &b""[..]), (b"", 0, i64::MAX, b"state")] {
            let mut value = Arena::default();
            write(end, state, &mut value);
            let name = Bytes::from([key, &ordered_i64(start)].concat());
            let value = value.finish().remove(0);
            let entry = (name.clone(), value.clone());
            assert_eq!(read(&entry).expect("read"), Stored { key, start, end, state });
            assert!(read(&(name.slice(..7), value.clone())).is_err());
            assert!(read(&(name, value.slice(..7))).is_err());
        }
    }
}
