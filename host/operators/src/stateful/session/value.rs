//! The sessions of a key as bytes: for each, in the order of time, its start and its end (microseconds, 8 bytes each,
//! little-endian), the length of its state (4 bytes, little-endian) and the state.

use pelton_core::{Error, Result};

/// A stored session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored<'a> {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) state: &'a [u8],
}

/// Adds a session.
pub(super) fn write(session: Stored<'_>, into: &mut Vec<u8>) -> Result<()> {
    let length = u32::try_from(session.state.len());
    let length = length.map_err(|_| Error::data("the state of a session exceeds 4 GiB"))?;
    into.extend(session.start.to_le_bytes());
    into.extend(session.end.to_le_bytes());
    into.extend(length.to_le_bytes());
    into.extend(session.state);
    Ok(())
}

/// The sessions.
pub(super) fn read(mut value: &[u8]) -> Result<Vec<Stored<'_>>> {
    let mut sessions = Vec::new();
    while !value.is_empty() {
        let session = read_one(&mut value);
        sessions.push(session.ok_or_else(|| Error::data("the stored sessions of a key are damaged"))?);
    }
    Ok(sessions)
}

fn read_one<'a>(value: &mut &'a [u8]) -> Option<Stored<'a>> {
    let (start, rest) = value.split_first_chunk::<8>()?;
    let (end, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (state, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *value = rest;
    Some(Stored { start: i64::from_le_bytes(*start), end: i64::from_le_bytes(*end), state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_come_back_and_cut_off_bytes_are_an_error() {
        let sessions = [
            Stored { start: i64::MIN, end: -1, state: &[] },
            Stored { start: 0, end: i64::MAX, state: &[1, 2, 3] },
        ];
        let mut bytes = Vec::new();
        sessions.iter().for_each(|session| write(*session, &mut bytes).expect("written"));
        assert_eq!(read(&bytes).expect("read"), sessions);
        for cut in (1..bytes.len()).filter(|cut| *cut != 20) {
            assert!(read(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
