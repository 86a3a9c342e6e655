//! The size of a window at the end of a key, in few bytes: milliseconds or, if they do not do, microseconds,
//! little-endian without the zeros at its end; then a byte that has the number of bytes, plus 16 for milliseconds.
//!
//! So windows of another size, from before a query was changed, have other keys. Used by the keys of a GROUP BY.

use super::keys::cut_off;
use crate::watermark::US_PER_MS;
use pelton_core::Result;

/// In the last byte of a size: it is in milliseconds.
const MILLISECONDS: u8 = 0x10;

/// The size of a window as bytes.
pub(super) fn size_bytes(size_us: i64) -> Vec<u8> {
    let (size, unit) = match size_us % US_PER_MS {
        0 => (size_us / US_PER_MS, MILLISECONDS),
        _ => (size_us, 0),
    };
    let mut bytes = size.to_le_bytes().to_vec();
    while bytes.len() > 1 && bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.push(bytes.len() as u8 | unit);
    bytes
}

/// How many bytes the size at the end of a key takes.
pub(super) fn size_length(key: &[u8]) -> usize {
    key.last().map_or(usize::MAX, |last| usize::from(last & !MILLISECONDS) + 1)
}

/// The size at the end of a key, in microseconds.
pub(super) fn size_of_window(key: &[u8]) -> Result<i64> {
    let length = size_length(key);
    let bytes = key.len().checked_sub(length).and_then(|from| key.get(from..));
    let Some([size @ .., last]) = bytes.filter(|_| (2..=9).contains(&length)) else { return Err(cut_off()) };
    let mut all = [0; 8];
    all[..size.len()].copy_from_slice(size);
    let unit = if last & MILLISECONDS == 0 { 1 } else { US_PER_MS };
    Ok(i64::from_le_bytes(all).saturating_mul(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_back_from_the_end_of_a_key() {
        for size in [1, 999, 1000, 10_000_000, 86_400_000_000, 86_400_000_001, i64::MAX] {
            let key = [&[7, 7][..], &size_bytes(size)].concat();
            assert_eq!(size_of_window(&key).expect("a size"), size);
            assert_eq!(size_length(&key), key.len() - 2);
        }
        assert_eq!(size_bytes(10_000_000), [0x10, 0x27, 0x12]);
        for damaged in [&[][..], &[0], &[0x10], &[1, 2], &[0x19; 12]] {
            assert!(size_of_window(damaged).is_err());
        }
    }
}
